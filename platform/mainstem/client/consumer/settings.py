"""The consumer's settings: Kafka's names, our defaults, and why one is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from mainstem.client.backoff import backoff_s
from mainstem.client.callbacks import check_plain
from mainstem.client.connection_security import (
    SECURITY_KEYS,
    ConnectionSettings,
    connection_settings,
)
from mainstem.client.settings import (
    check_client_id,
    parse_servers,
    read_settings,
    say,
)
from mainstem.config import ConfigKey, Faults, keys_by_name
from mainstem.errors import ConfigError, MainstemError
from mainstem.limits import MIB, SESSION_TIMEOUT_MS_MAX
from mainstem.records import parse_duration_ms

_INT_MAX: Final = 2**31 - 1


def _ms(name: str, default: int, doc: str, minimum: int = 0, maximum: int = _INT_MAX) -> ConfigKey:
    return ConfigKey(name, "int", default, doc, unit="ms", minimum=minimum, maximum=maximum)


def _bytes(name: str, default: int, doc: str, maximum: int = _INT_MAX) -> ConfigKey:
    return ConfigKey(name, "int", default, doc, unit="bytes", minimum=1, maximum=maximum)


#: Every setting of `Consumer` and `AsyncConsumer`, by name.
CONSUMER_KEYS: Final[dict[str, ConfigKey]] = keys_by_name(
    (
        ConfigKey(
            "bootstrap.servers",
            "str",
            "",
            "Gateways to ask first, host:port, with commas between. One that answers is enough. "
            "There is no default. Kafka: bootstrap.servers.",
        ),
        ConfigKey(
            "group.id",
            "str",
            "",
            "The group whose members share the partitions and whose offsets are committed. "
            "subscribe(), commit() and committed() need it. Kafka: group.id.",
        ),
        ConfigKey(
            "group.instance.id",
            "str",
            "",
            "A name that this member keeps over restarts: its partitions wait for it until its "
            "session ends. A second process with the same name is refused. "
            "Kafka: group.instance.id.",
        ),
        ConfigKey(
            "client.id",
            "str",
            "",
            "A name for the gateway's log, sent as gRPC user agent; printable ASCII. "
            "Kafka: client.id.",
        ),
        *SECURITY_KEYS,
        ConfigKey(
            "client.rack",
            "str",
            "",
            "Where this consumer runs. It reads each topic from a gateway whose gateway.rack is "
            "the same, if there is one, else from the topic's leader. Empty: always from the "
            "leader, as with fetch.visibility=durable, since what is not in the table yet only the "
            "leader has. Kafka: client.rack (KIP-392).",
        ),
        _ms(
            "follower.max.lag.ms",
            10_000,
            "With client.rack: a gateway that does not lead a topic, and has not looked at its "
            "table for longer than this, is left for the topic's leader; so is one that fails or "
            "does not answer. It is tried again after 5 seconds, and later each time, up to 5 "
            "minutes. Usual are 100 ms and what the store takes to answer, more where a gateway "
            "follows thousands of topics. Kafka has no such setting.",
            minimum=1,
        ),
        ConfigKey(
            "auto.offset.reset",
            "str",
            "latest",
            "Where to read a partition without a committed offset, or whose offset is not in the "
            "log any more: earliest; latest; by_duration:P1DT2H, so long before now; none or "
            "error: an OffsetOutOfRangeError. Kafka: auto.offset.reset.",
        ),
        ConfigKey(
            "enable.auto.commit",
            "bool",
            True,
            "Commit what was handed out before the latest poll, every auto.commit.interval.ms, "
            "when partitions are revoked, and in close(). Without group.id it does nothing. "
            "Kafka: enable.auto.commit.",
        ),
        _ms(
            "auto.commit.interval.ms",
            5_000,
            "Between two automatic commits. They are made inside poll(). "
            "Kafka: auto.commit.interval.ms.",
            minimum=1,
        ),
        ConfigKey(
            "enable.auto.offset.store",
            "bool",
            True,
            "A record that was handed out counts as done at the next poll. False: only what "
            "store_offsets() was given is committed. librdkafka: enable.auto.offset.store.",
        ),
        _ms(
            "session.timeout.ms",
            45_000,
            "A member that the coordinator has not heard of for so long is out of the group. "
            "Kafka: session.timeout.ms.",
            minimum=1,
            maximum=SESSION_TIMEOUT_MS_MAX,
        ),
        _ms(
            "heartbeat.interval.ms",
            3_000,
            "The longest time between two heartbeats; the coordinator may ask for more. At most a "
            "third of session.timeout.ms, by which it is lowered if it was not set. "
            "Kafka: heartbeat.interval.ms.",
            minimum=1,
        ),
        ConfigKey(
            "max.poll.records",
            "int",
            10_000,
            "The most records for each poll_batch() or getmany() that does not say itself. Kafka "
            "defaults to 500. Kafka: max.poll.records.",
            unit="records",
            minimum=1,
            maximum=_INT_MAX,
        ),
        _ms(
            "max.poll.interval.ms",
            300_000,
            "A member that does not poll for so long leaves the group, and joins again at its next "
            "poll. It is also how long it may take to give up partitions. More than a day is taken "
            "as a day. Kafka: max.poll.interval.ms.",
            minimum=1,
            maximum=SESSION_TIMEOUT_MS_MAX,
        ),
        ConfigKey(
            "isolation.level",
            "enum",
            "read_uncommitted",
            "Records of a transaction come into the log when it is committed, and a fetch never "
            "gives what is not durable: both mean the same. Kafka: isolation.level.",
            choices=("read_uncommitted", "read_committed"),
        ),
        ConfigKey(
            "fetch.visibility",
            "enum",
            "committed",
            "How far it reads: committed, to the high watermark, what is in the table; durable, to "
            "the durable mark, also what is in the leader's write-ahead log (acks=1, or all of a "
            "topic with wal.records=all), milliseconds after it was sent. That will be in the "
            "table at the same offset; SQL and other consumers see it a commit interval later. "
            "Kafka has no such setting.",
            choices=("committed", "durable"),
        ),
        ConfigKey(
            "partition.assignment.strategy",
            "enum",
            "uniform",
            "How the coordinator gives partitions to members: uniform (balanced, sticky) or range. "
            "Also taken: cooperative-sticky, sticky and roundrobin, which are uniform here. "
            "Kafka: partition.assignment.strategy, group.remote.assignor.",
            choices=("uniform", "range", "cooperative-sticky", "sticky", "roundrobin"),
        ),
        _bytes(
            "fetch.min.bytes",
            1,
            "A fetch waits for so many bytes, at most fetch.max.wait.ms. Kafka: fetch.min.bytes.",
        ),
        _bytes(
            "fetch.max.bytes",
            16 * MIB,
            "Bytes of records in one answer. A larger first record comes alone. Kafka defaults to "
            "50 MiB. Kafka: fetch.max.bytes.",
            maximum=48 * MIB,
        ),
        _ms(
            "fetch.max.wait.ms",
            500,
            "How long a fetch waits for fetch.min.bytes. Kafka: fetch.max.wait.ms.",
        ),
        _bytes(
            "max.partition.fetch.bytes",
            4 * MIB,
            "Bytes of records of one partition in one answer, as they are and not as they are "
            "compressed, which Kafka counts: it defaults to 1 MiB. Kafka: "
            "max.partition.fetch.bytes.",
        ),
        ConfigKey(
            "queued.max.messages.kbytes",
            "int",
            64 * 1024,
            "Kibibytes that are fetched ahead of the application, of all partitions together. "
            "librdkafka: queued.max.messages.kbytes.",
            unit="KiB",
            minimum=1,
            maximum=2_097_151,
        ),
        _ms(
            "request.timeout.ms",
            30_000,
            "How long one request may stay without an answer, beside the wait that it asked for. "
            "Kafka: request.timeout.ms.",
            minimum=1,
        ),
        _ms(
            "default.api.timeout.ms",
            60_000,
            "How long commit(), committed(), position() and the like try when they are not given a "
            "timeout. Kafka: default.api.timeout.ms.",
            minimum=1,
        ),
        _ms(
            "retry.backoff.ms",
            100,
            "The wait after a request that failed; it doubles while it fails, with 20 % of chance, "
            "up to retry.backoff.max.ms. A longer wait that the gateway asks for wins. "
            "Kafka: retry.backoff.ms.",
            minimum=1,
        ),
        _ms(
            "retry.backoff.max.ms",
            1_000,
            "The longest wait before a retry. Less than retry.backoff.ms: the wait is always this. "
            "Kafka: retry.backoff.max.ms.",
            minimum=1,
        ),
        _ms(
            "metadata.max.age.ms",
            300_000,
            "How old the knowledge of leaders may grow. Kafka: metadata.max.age.ms.",
            minimum=1,
        ),
        _ms(
            "topic.metadata.propagation.max.ms",
            30_000,
            "How long a topic that was there may be gone before poll() raises UnknownTopicError: "
            "if it is created again within that time, auto.offset.reset says where it is read. A "
            "topic that never was there is told at once. "
            "librdkafka: topic.metadata.propagation.max.ms.",
        ),
    )
)

ResetKind = Literal["earliest", "latest", "none", "by_duration"]

#: Called as `on_commit(error, offsets)` in poll() or close() after an asynchronous or automatic
#: commit.
OnCommit = Callable[[Any, list[Any]], object]


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The settings of one consumer, checked. Times are in milliseconds, sizes in bytes.

    Attributes:
        reset, reset_duration_ms: auto.offset.reset; the duration counts with by_duration only.
        read_rack: client.rack, unless it reads what only leaders have: then empty.
        durable: fetch.visibility=durable.
        buffer_bytes: queued.max.messages.kbytes.
        topic_gone_max_ms: topic.metadata.propagation.max.ms.
    """

    bootstrap_servers: tuple[str, ...]
    group_id: str
    group_instance_id: str
    client_id: str
    client_rack: str
    read_rack: str
    follower_lag_ms_max: int
    reset: ResetKind
    reset_duration_ms: int
    auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_store: bool
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_records: int
    max_poll_interval_ms: int
    assignor: str
    durable: bool
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    buffer_bytes: int
    request_timeout_ms: int
    api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    topic_gone_max_ms: int
    on_commit: OnCommit | None
    connection: ConnectionSettings

    def backoff_s(
        self, failures: int, error: MainstemError | None = None, jitter: float | None = None
    ) -> float:
        """Seconds to wait after a request has failed.

        Args:
            failures: How often it had failed before, in a row.
            error: May say for how long; then up to 40 % more, so that not all come back at once.
            jitter: As of `backoff_s`.
        """
        wait_s = backoff_s(
            self.retry_backoff_ms / 1000, self.retry_backoff_max_ms / 1000, failures, jitter
        )
        asked_s = 0.0 if error is None else error.retry_delay_ms / 1000
        if asked_s > wait_s:
            wait_s = backoff_s(asked_s, asked_s, 0, jitter) + 0.2 * asked_s
        return wait_s

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> Self:
        """Reads settings by their Kafka names; `CONSUMER_KEYS` lists them.

        Raises:
            ConfigError: One is unknown (with the nearest name), unsupported (with the reason), out
                of range, or contradicts another.
        """
        reading = read_settings("consumer", CONSUMER_KEYS, config, functions=("on_commit",))
        values, faults = reading.values, reading.faults
        on_commit: Any = reading.functions.get("on_commit")
        if on_commit is not None:
            check_plain(on_commit, "on_commit", "AsyncConsumer")
        servers: tuple[str, ...] = ()
        with faults.about("bootstrap.servers"):
            servers = parse_servers(str(values["bootstrap.servers"]))
        reset: ResetKind = "latest"
        duration_ms = 0
        with faults.about("auto.offset.reset"):
            reset, duration_ms = _reset(str(values["auto.offset.reset"]))
        session_ms = int(values["session.timeout.ms"])
        heartbeat_ms = _heartbeat_ms(
            int(values["heartbeat.interval.ms"]),
            session_ms,
            faults,
            given="heartbeat.interval.ms" in reading.named,
        )
        strategy = str(values["partition.assignment.strategy"])
        client_id = str(values["client.id"])
        with faults.about("client.id"):
            check_client_id(client_id)
        with faults.about("group.instance.id", "group.id"):
            if values["group.instance.id"] and not values["group.id"]:
                raise ConfigError("group.instance.id is set without group.id; set both")
        connection = connection_settings(values, faults, reading.functions)
        faults.tell()
        durable = values["fetch.visibility"] == "durable"
        return cls(
            bootstrap_servers=servers,
            group_id=str(values["group.id"]),
            group_instance_id=str(values["group.instance.id"]),
            client_id=client_id,
            client_rack=str(values["client.rack"]),
            read_rack="" if durable else str(values["client.rack"]),
            follower_lag_ms_max=int(values["follower.max.lag.ms"]),
            reset=reset,
            reset_duration_ms=duration_ms,
            auto_commit=bool(values["enable.auto.commit"]) and bool(values["group.id"]),
            auto_commit_interval_ms=int(values["auto.commit.interval.ms"]),
            auto_offset_store=bool(values["enable.auto.offset.store"]),
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=heartbeat_ms,
            max_poll_records=int(values["max.poll.records"]),
            max_poll_interval_ms=int(values["max.poll.interval.ms"]),
            assignor="range" if strategy == "range" else "uniform",
            durable=durable,
            fetch_min_bytes=int(values["fetch.min.bytes"]),
            fetch_max_bytes=int(values["fetch.max.bytes"]),
            fetch_max_wait_ms=int(values["fetch.max.wait.ms"]),
            max_partition_fetch_bytes=int(values["max.partition.fetch.bytes"]),
            buffer_bytes=int(values["queued.max.messages.kbytes"]) * 1024,
            request_timeout_ms=int(values["request.timeout.ms"]),
            api_timeout_ms=int(values["default.api.timeout.ms"]),
            retry_backoff_ms=int(values["retry.backoff.ms"]),
            retry_backoff_max_ms=int(values["retry.backoff.max.ms"]),
            metadata_max_age_ms=int(values["metadata.max.age.ms"]),
            topic_gone_max_ms=int(values["topic.metadata.propagation.max.ms"]),
            on_commit=on_commit,
            connection=connection,
        )


def _heartbeat_ms(wanted_ms: int, session_ms: int, faults: Faults, *, given: bool) -> int:
    """heartbeat.interval.ms, lowered to a third of session.timeout.ms."""
    with faults.about("heartbeat.interval.ms", "session.timeout.ms"):
        if given and wanted_ms >= session_ms:
            raise ConfigError(
                f"heartbeat.interval.ms is {wanted_ms} ms; it must be less than "
                f"session.timeout.ms ({session_ms} ms), and at most a third of it is used",
                value=wanted_ms,
            )
    found_ms = max(1, min(wanted_ms, session_ms // 3))
    if given and found_ms != wanted_ms:
        say(
            logging.WARNING,
            f"heartbeat.interval.ms={wanted_ms} is taken as {found_ms} ms here, a third of "
            "session.timeout.ms",
        )
    return found_ms


def _reset(text: str) -> tuple[ResetKind, int]:
    """auto.offset.reset and its duration; librdkafka's names count too."""
    word = text.lower()
    if word in ("earliest", "smallest", "beginning"):
        return "earliest", 0
    if word in ("latest", "largest", "end"):
        return "latest", 0
    if word in ("none", "error"):
        return "none", 0
    kind, _, duration = text.partition(":")
    if kind == "by_duration":
        try:
            return "by_duration", parse_duration_ms(duration)
        except ValueError:
            pass
    raise ConfigError(
        f"auto.offset.reset is {text!r}; it must be earliest, latest, none, error, or "
        "by_duration: and an ISO 8601 duration, for example by_duration:P1DT12H",
        name="auto.offset.reset",
        value=text,
    )
