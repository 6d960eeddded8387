"""The options of the source: names, reading, and what goes together. Pure.

Names, meanings and defaults are those of Spark's Kafka source, so that a query moves by changing
its format.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self

from mainstem.client.connection_security import SECURITY_KEYS
from mainstem.config import STORE_KEYS, StoreSettings, nearest_name
from mainstem.errors import InvalidConfigError
from pyspark_mainstem._offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    TopicPartition,
    parse_assign_json,
    parse_offsets_json,
)

log = logging.getLogger(__name__)

WAREHOUSE: Final = "mainstem.warehouse"
BOOTSTRAP_SERVERS: Final = "mainstem.bootstrap.servers"
GROUP_ID: Final = "mainstem.group.id"

#: Before the client's name of a setting, as Kafka's source has `kafka.`.
PREFIX: Final = "mainstem."
_CONNECTION: Final = (BOOTSTRAP_SERVERS, *(PREFIX + key.name for key in SECURITY_KEYS))
CONSISTENT: Final = "mainstem.consistent"
SELECTIONS: Final = ("subscribe", "subscribePattern", "assign")
_ENDINGS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_PER_TRIGGER: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

OPTIONS: Final = (
    WAREHOUSE,
    *_CONNECTION,
    GROUP_ID,
    CONSISTENT,
    *STORE_KEYS,
    *SELECTIONS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    *_ENDINGS,
    *_PER_TRIGGER,
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
)

#: Kafka's columns, in its order.
COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)

_NO_CONSUMER = "the source reads the topics' tables itself, without a consumer group or a consumer"
_NO_FETCH = (
    "offsets come from the topics' tables, not from brokers; nothing is fetched that could time out"
)
_UNSUPPORTED: Final = {
    "groupidprefix": _NO_CONSUMER,
    "kafkaconsumer.polltimeoutms": _NO_CONSUMER,
    "fetchoffset.numretries": _NO_FETCH,
    "fetchoffset.retryintervalms": _NO_FETCH,
    "path": f"name the warehouse in the option {WAREHOUSE}, and call load() without a path",
}

#: Kafka's default of `maxTriggerDelay`.
_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000

_UNITS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}

PositionKind = Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]


@dataclass(frozen=True, slots=True)
class Position:
    """Where to start or end: `earliest`, `latest`, at given offsets, or at one or several
    timestamps (ms).
    """

    kind: PositionKind
    option: str
    offsets: Offsets = field(default_factory=dict)
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options as read; `for_batch` and `for_stream` check and complete them for one of the two
    uses.

    Attributes:
        store: How the warehouse is reached where it is in an object storage service.
        connection: How gateways are reached, by the client's names; only for a group. May be empty.
        group_id: Where a stream commits its progress; empty: nowhere.
        consistent: A batch has every transaction in all of its topics, or in none.
        topics: Of `subscribe`; empty with another selection.
        pattern: Of `subscribePattern`: a regular expression that must match a whole name.
        assigned: Of `assign`.
        columns_named: By `columns` or `includeHeaders`; otherwise a schema may name them.
        latest_without_match: A timestamp after the last record means the end; otherwise an error.
    """

    warehouse: str
    store: StoreSettings
    connection: Mapping[str, str] = field(repr=False)
    group_id: str
    consistent: bool
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[TopicPartition, ...]
    starting: Position | None
    ending: Position | None
    latest_without_match: bool
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_ms_max: int
    partition_count_min: int | None
    records_per_partition_max: int | None
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    columns_named: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Reads the options, whose names Spark may have put into lower case.

        Raises:
            InvalidConfigError: One is unknown, of no use here, malformed, missing, or in conflict
                with another.
        """
        given = _canonical(options)
        warehouse = given.get(WAREHOUSE, "")
        if not warehouse.strip():
            raise _invalid(WAREHOUSE, f"the option {WAREHOUSE} is missing: where the topics are")
        topics, pattern, assigned = _selection(given)
        per_trigger_min = _count(given, "minOffsetsPerTrigger")
        per_trigger_max = _count(given, "maxOffsetsPerTrigger")
        if per_trigger_min and per_trigger_max and per_trigger_min > per_trigger_max:
            raise _invalid(
                "minOffsetsPerTrigger",
                f"minOffsetsPerTrigger is {per_trigger_min}, more than maxOffsetsPerTrigger, which "
                f"is {per_trigger_max}",
            )
        return cls(
            warehouse=warehouse,
            store=StoreSettings.parse(given),
            connection={
                name.removeprefix(PREFIX): given[name].strip()
                for name in _CONNECTION
                if name in given
            },
            group_id=_group_id(given),
            consistent=_flag(given, CONSISTENT, default=False),
            topics=topics,
            pattern=pattern,
            assigned=assigned,
            starting=_position(given, "starting"),
            ending=_position(given, "ending"),
            latest_without_match=_word(
                given, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
            )
            == "latest",
            offsets_per_trigger_max=per_trigger_max,
            offsets_per_trigger_min=per_trigger_min,
            trigger_delay_ms_max=_duration_ms(given, "maxTriggerDelay", _TRIGGER_DELAY_MS),
            partition_count_min=_count(given, "minPartitions"),
            records_per_partition_max=_count(given, "maxRecordsPerPartition"),
            fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
            columns=_columns(given),
            columns_named="columns" in given or _flag(given, "includeHeaders", default=False),
        )

    def with_columns(self, columns: tuple[str, ...]) -> Self:
        """With the columns of a schema.

        Raises:
            InvalidConfigError: The options name other ones.
        """
        if self.columns_named and set(columns) != set(self.columns):
            raise _invalid(
                "columns",
                f"the schema has the columns {', '.join(columns)}, and the options say "
                f"{', '.join(self.columns)}: leave one of them out",
            )
        return replace(self, columns=columns)

    def for_batch(self) -> Self:
        """For `spark.read`: from the earliest offset to the latest, unless told otherwise.

        Raises:
            InvalidConfigError: It would start at the latest offset, or end at the earliest.
        """
        starting = self.starting or Position("earliest", "startingOffsets")
        ending = self.ending or Position("latest", "endingOffsets")
        for position, wrong, word in ((starting, LATEST, "latest"), (ending, EARLIEST, "earliest")):
            which = [str(where) for where, offset in position.offsets.items() if offset == wrong]
            if position.kind == word or (position.kind == "offsets" and which):
                where = f" (for {', '.join(which)})" if which else ""
                raise _invalid(
                    position.option, f"{position.option} cannot be {word} in a batch query{where}"
                )
        if self.group_id:
            raise _invalid(GROUP_ID, f"{GROUP_ID} is for streams: a batch query has no progress")
        if self.offsets_per_trigger_max or self.offsets_per_trigger_min:
            log.warning(
                "maxOffsetsPerTrigger and minOffsetsPerTrigger have no effect in a batch query"
            )
        return replace(self, starting=starting, ending=ending)

    def for_stream(self) -> Self:
        """For `spark.readStream`: a new query starts at the latest offset, unless told otherwise.

        Raises:
            InvalidConfigError: An end is given, or a consistent look is asked for.
        """
        if self.ending is not None:
            raise _invalid(
                self.ending.option,
                f"{self.ending.option} is for batch queries: a stream has no end",
            )
        if self.consistent:
            raise _invalid(
                CONSISTENT,
                f"{CONSISTENT} is for batch queries: a stream reads topic by topic, as they grow",
            )
        return replace(self, starting=self.starting or Position("latest", "startingOffsets"))


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their proper names."""
    names = {name.lower(): name for name in OPTIONS}
    found: dict[str, str] = {}
    for given, value in options.items():
        low = given.lower()
        if low in names:
            found[names[low]] = value
        elif low == "kafka.group.id":
            raise _invalid(
                given,
                f"{given} is not supported: {_NO_CONSUMER}. {GROUP_ID} names a group to which a "
                "stream commits its progress, so that its lag is seen",
            )
        elif low.startswith("kafka."):
            raise _invalid(
                given,
                f"{given} is not supported: {_NO_CONSUMER}; name the warehouse in the option "
                f"{WAREHOUSE}",
            )
        elif low in _UNSUPPORTED:
            raise _invalid(given, f"{given} is not supported: {_UNSUPPORTED[low]}")
        else:
            close = nearest_name(low, names)
            hint = f"; did you mean {names[close]}?" if close else ""
            raise _invalid(given, f"the source has no option {given!r}{hint}")
    return found


def _group_id(given: Mapping[str, str]) -> str:
    if GROUP_ID not in given:
        return ""
    group_id = given[GROUP_ID].strip()
    if not group_id:
        raise _invalid(GROUP_ID, f"{GROUP_ID} is empty: name a group, or leave the option out")
    if not given.get(BOOTSTRAP_SERVERS, "").strip():
        raise _invalid(
            BOOTSTRAP_SERVERS,
            f"{GROUP_ID} is set without {BOOTSTRAP_SERVERS}: a gateway commits the offsets; give "
            "its address, for example 127.0.0.1:9490",
        )
    return group_id


def _selection(
    given: Mapping[str, str],
) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    chosen = [name for name in SELECTIONS if name in given]
    names = ", ".join(SELECTIONS)
    if not chosen:
        raise _invalid("subscribe", f"one of the following options must be specified: {names}")
    if len(chosen) > 1:
        raise _invalid(
            chosen[0],
            f"only one of the following options can be specified: {names}; given: "
            f"{', '.join(chosen)}",
        )
    text = given[chosen[0]].strip()
    if chosen[0] == "assign":
        return (), None, tuple(parse_assign_json(text))
    if not text.strip(", "):
        raise _invalid(chosen[0], f"{chosen[0]} is {given[chosen[0]]!r}: it names no topic")
    if chosen[0] == "subscribe":
        topics = {topic.strip() for topic in text.split(",") if topic.strip()}
        return tuple(sorted(topics)), None, ()
    try:
        re.compile(text)
    except re.error as error:
        raise _invalid(
            "subscribePattern",
            f"subscribePattern is {text!r}, which is not a regular expression: {error}",
        ) from error
    return (), text, ()


def _position(given: Mapping[str, str], side: Literal["starting", "ending"]) -> Position | None:
    """Kafka's order: one timestamp goes before those by partition, and they before offsets."""
    option = f"{side}Timestamp"
    if option in given:
        return Position("timestamp", option, timestamp_ms=_integer(given, option, minimum=0))
    option = f"{side}OffsetsByTimestamp"
    if option in given:
        return Position("timestamps", option, parse_offsets_json(option, given[option], lowest=0))
    option = f"{side}Offsets"
    if option not in given:
        return None
    text = given[option].strip()
    match text.lower():
        case "earliest":
            return Position("earliest", option)
        case "latest":
            return Position("latest", option)
    return Position("offsets", option, parse_offsets_json(option, text))


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    with_headers = _flag(given, "includeHeaders", default=False)
    if "columns" not in given:
        return COLUMNS if with_headers else COLUMNS[:-1]
    names = {name.lower(): name for name in COLUMNS}
    wanted: dict[str, None] = {}
    for part in filter(None, (part.strip() for part in given["columns"].split(","))):
        name = names.get(part.lower())
        if name is None:
            raise _invalid(
                "columns", f"columns names {part!r}; the columns are {', '.join(COLUMNS)}"
            )
        wanted[name] = None
    if not wanted:
        raise _invalid("columns", f"columns is empty; the columns are {', '.join(COLUMNS)}")
    if "includeHeaders" in given and with_headers != ("headers" in wanted):
        raise _invalid(
            "columns",
            f"columns is {given['columns']!r} and includeHeaders is {given['includeHeaders']}: "
            "they contradict; "
            "leave includeHeaders out",
        )
    return tuple(wanted)


def _integer(given: Mapping[str, str], option: str, *, minimum: int) -> int:
    try:
        number = int(given[option].strip())
    except ValueError:
        number = minimum - 1
    if number < minimum:
        raise _invalid(
            option,
            f"{option} is {given[option]!r}; it must be a whole number of at least {minimum}",
        )
    return number


def _count(given: Mapping[str, str], option: str) -> int | None:
    return _integer(given, option, minimum=1) if option in given else None


def _flag(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    return _word(given, option, ("true", "false"), str(default).lower()) == "true"


def _word(given: Mapping[str, str], option: str, words: tuple[str, ...], default: str) -> str:
    word = given.get(option, default).strip().lower()
    if word not in words:
        raise _invalid(option, f"{option} is {given[option]!r}; it must be {' or '.join(words)}")
    return word


def _duration_ms(given: Mapping[str, str], option: str, default_ms: int) -> int:
    if option not in given:
        return default_ms
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", given[option].strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise _invalid(
            option,
            f"{option} is {given[option]!r}; it must be a time like 500ms, 30s, 15m or 1h (no "
            "unit: ms)",
        )
    return int(match[1]) * _UNITS_MS[match[2]]


def _invalid(option: str, message: str) -> InvalidConfigError:
    return InvalidConfigError(message, name=option)
