"""The options of the sink: names, reading, and what goes together. Pure.

Names and meanings are those of Spark's Kafka sink. Settings of the producer have `mainstem.` in
front, where Kafka's have `kafka.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from mainstem.client.producer.settings import PRODUCER_KEYS, ProducerSettings
from mainstem.config import nearest_name
from mainstem.errors import ConfigError, InvalidConfigError
from pyspark_mainstem._options import BOOTSTRAP_SERVERS, PREFIX, WAREHOUSE

TOPIC: Final = "topic"
TXN_APP_ID: Final = "txnAppId"
TXN_VERSION: Final = "txnVersion"
COMMIT_TIMEOUT: Final = "mainstem.commit.timeout.ms"


#: What the sink sets itself: it could not keep its promise otherwise.
_OWN: Final = (
    "acks",
    "enable.idempotence",
    "max.in.flight.requests.per.connection",
    "retries",
    "transactional.id",
)

#: Options of the sink, beside those of the producer.
SINK_OPTIONS: Final = (TOPIC, TXN_APP_ID, TXN_VERSION, COMMIT_TIMEOUT)

_PRODUCER_OPTIONS: Final = tuple(f"{PREFIX}{name}" for name in PRODUCER_KEYS if name not in _OWN)

#: Spark's own, which it hands to the sink as well.
_SPARKS: Final = frozenset({"checkpointlocation", "queryname"})

#: How long a task may take from its first record on. Kafka's `transaction.timeout.ms` is a minute,
#: but here a task computes between its records.
_TASK_TIMEOUT_MS: Final = 15 * 60 * 1000

#: The coordinator keeps nothing for longer.
_COMMIT_TIMEOUT_MS_MAX: Final = 24 * 3600 * 1000

_VERSION_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options as read.

    Attributes:
        topic: Where every row goes; empty: the column `topic` says it.
        producer: Settings of each task's producer, by name, without `transactional.id`.
        delivery_timeout_ms: How long the driver tries to commit, too.
        commit_timeout_ms: How long what a task has written waits for the driver's commit.
        app_id, version: A batch with the same ones is written once; `app_id` is empty where none is
            given.
    """

    topic: str
    producer: Mapping[str, str] = field(repr=False)
    delivery_timeout_ms: int
    commit_timeout_ms: int
    app_id: str
    version: int

    @classmethod
    def parse(cls, options: Mapping[str, str], *, stream: bool) -> Self:
        """Reads the options, whose names Spark may have put into lower case.

        Raises:
            InvalidConfigError: One is unknown, of no use here, malformed, missing, or in conflict
                with another.
        """
        given = _canonical(options)
        producer = {
            name.removeprefix(PREFIX): value
            for name, value in given.items()
            if name in _PRODUCER_OPTIONS
        }
        producer.setdefault("transaction.timeout.ms", str(_TASK_TIMEOUT_MS))
        settings = _checked(producer)
        app_id, version = _once(given, stream=stream)
        return cls(
            topic=_named(given, TOPIC),
            producer=producer,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            commit_timeout_ms=_number(
                given, COMMIT_TIMEOUT, _COMMIT_TIMEOUT_MS_MAX, 1, _COMMIT_TIMEOUT_MS_MAX
            ),
            app_id=app_id,
            version=version,
        )


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their proper names, without Spark's own."""
    names = {name.lower(): name for name in (*SINK_OPTIONS, *_PRODUCER_OPTIONS)}
    found: dict[str, str] = {}
    for given, value in options.items():
        low = given.lower()
        if low in names:
            found[names[low]] = value
        elif low in _SPARKS:
            continue
        elif low.startswith("kafka."):
            raise _invalid(
                given,
                f"{given} is not supported: settings of the producer begin with {PREFIX}, as "
                f"{BOOTSTRAP_SERVERS}",
            )
        elif low.removeprefix(PREFIX) in _OWN:
            raise _invalid(
                given, f"{given} cannot be set: every task writes in a transaction of its own"
            )
        elif low == WAREHOUSE:
            raise _invalid(
                given,
                f"{given} is an option of the source; the sink sends to gateways: name them in "
                f"{BOOTSTRAP_SERVERS}",
            )
        elif low == "path":
            raise _invalid(
                given, f"name the topic in the option {TOPIC}, and call start() or save() without"
            )
        else:
            close = nearest_name(low, names)
            hint = f"; did you mean {names[close]}?" if close else ""
            raise _invalid(given, f"the sink has no option {given!r}{hint}")
    return found


def _checked(producer: Mapping[str, str]) -> ProducerSettings:
    if not producer.get("bootstrap.servers", "").strip():
        raise _invalid(
            BOOTSTRAP_SERVERS,
            f"the option {BOOTSTRAP_SERVERS} is missing: the gateways that take the records, for "
            "example 127.0.0.1:9490",
        )
    try:
        return ProducerSettings.parse({**producer, "transactional.id": "checked"})
    except ConfigError as error:
        name = str(error.facts.get("name", ""))
        raise _invalid(f"{PREFIX}{name}", f"{PREFIX}{error.message}") from error


def _once(given: Mapping[str, str], *, stream: bool) -> tuple[str, int]:
    for name, other in ((TXN_APP_ID, TXN_VERSION), (TXN_VERSION, TXN_APP_ID)):
        if name not in given:
            continue
        if stream:
            raise _invalid(name, f"{name} is for batch queries: a stream has its own id and epochs")
        if other not in given:
            raise _invalid(other, f"{name} is set without {other}; set both")
    app_id = _named(given, TXN_APP_ID)
    if len(app_id.encode()) > _APP_ID_BYTES_MAX:
        raise _invalid(
            TXN_APP_ID,
            f"{TXN_APP_ID} has {len(app_id.encode())} bytes; it may have {_APP_ID_BYTES_MAX}",
        )
    return app_id, _number(given, TXN_VERSION, 0, 0, _VERSION_MAX)


#: With what the sink puts in front it is a transactional id, which has 249 bytes at most.
_APP_ID_BYTES_MAX: Final = 200


def _named(given: Mapping[str, str], option: str) -> str:
    if option not in given:
        return ""
    name = given[option].strip()
    if not name:
        raise _invalid(option, f"{option} is empty: give a name, or leave the option out")
    return name


def _number(given: Mapping[str, str], option: str, default: int, minimum: int, maximum: int) -> int:
    if option not in given:
        return default
    try:
        number = int(given[option].strip())
    except ValueError:
        number = minimum - 1
    if not minimum <= number <= maximum:
        raise _invalid(
            option,
            f"{option} is {given[option]!r}; it must be a whole number from {minimum} to {maximum}",
        )
    return number


def _invalid(option: str, message: str) -> InvalidConfigError:
    return InvalidConfigError(message, name=option)
