"""The settings of a gateway: defaults, then `gateway.toml`, then the environment, then flags."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from mainstem.config._environment import settings_in_environment
from mainstem.config._faults import Faults
from mainstem.config._keys import (
    ConfigKey,
    ConfigValue,
    keys_by_name,
    parse_value,
    unknown_setting,
)
from mainstem.config._security import SECURITY_KEYS
from mainstem.config._store import STORE_KEYS, StoreSettings
from mainstem.config._toml import read_toml
from mainstem.errors import InvalidConfigError
from mainstem.limits import (
    CHECKPOINT_INTERVAL_COMMITS,
    KIB,
    MIB,
    PRODUCER_EXPIRATION_MS_MAX,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
)

GATEWAY_KEYS: Final[dict[str, ConfigKey]] = keys_by_name(
    (
        ConfigKey(
            "warehouse",
            "str",
            "warehouse",
            "Where the tables are: a directory, made if it is not there. A local path, taken "
            "literally, or a file: URI. Or s3://bucket/prefix, gs://bucket/prefix or "
            "az://container/prefix, with a gateway.id.",
        ),
        *STORE_KEYS.values(),
        ConfigKey(
            "listeners",
            "str",
            "127.0.0.1:9490",
            "host:port to listen on; port 0 takes a free one. Encrypted where "
            "ssl.certificate.location is set. Without sasl.enabled.mechanisms, ssl.client.auth and "
            "authorizer whoever may connect may do everything: stay on loopback or a network that "
            "you trust. Kafka: listeners.",
        ),
        ConfigKey(
            "ssl.certificate.location",
            "str",
            "",
            "PEM file of the gateway's certificate, then those between it and its authority. It "
            "has the host of advertised.listeners. With it all connections are encrypted, also of "
            "metrics.listeners and between gateways, which all need one. Read again when it "
            "changes. Empty: nothing is encrypted.",
        ),
        ConfigKey(
            "ssl.key.location",
            "str",
            "",
            "PEM file of the certificate's key, not encrypted, and readable by the gateway alone.",
        ),
        ConfigKey(
            "ssl.ca.location",
            "str",
            "",
            "PEM file of the authorities that certificates of clients and of other gateways are "
            "from. Empty: for gateways, those that the operating system trusts.",
        ),
        ConfigKey(
            "ssl.client.auth",
            "enum",
            "none",
            "required: a client that has no certificate from ssl.ca.location cannot connect. "
            "metrics.listeners asks for none. Kafka: ssl.client.auth.",
            choices=("none", "required"),
        ),
        ConfigKey(
            "ssl.enabled.protocols",
            "list",
            "TLSv1.2,TLSv1.3",
            "Versions of TLS that are spoken; TLSv1.3 leaves the older one out, also towards other "
            "gateways. It takes `mainstem gateway run`: gRPC has to know before Python imports it. "
            "Kafka: ssl.enabled.protocols.",
            choices=("TLSv1.2", "TLSv1.3"),
        ),
        *SECURITY_KEYS.values(),
        ConfigKey(
            "advertised.listeners",
            "str",
            "",
            "host:port that clients and other gateways are told to connect to; empty: the one "
            "listened on, with the machine's name in place of 0.0.0.0, [::] and *. Every client "
            "must reach it, also one that has found another gateway by bootstrap.servers. "
            "Kafka: advertised.listeners.",
        ),
        ConfigKey(
            "metrics.listeners",
            "str",
            "",
            "host:port of the HTTP endpoint: /metrics, /healthz, /readyz, and / for people; empty: "
            "none.",
        ),
        ConfigKey(
            "gateway.id",
            "str",
            "",
            "Name of this gateway: of its write-ahead log, in logs and descriptions. "
            "Two that run have different ones. Empty: the first of gateway-0, gateway-1, ... "
            "whose write-ahead log is free. In an object storage service nobody can tell which is: "
            "there it has to be set, and stays the same over restarts.",
        ),
        ConfigKey(
            "gateway.rack",
            "str",
            "",
            "Where this gateway is: an availability zone, a rack, a site. A consumer with the same "
            "client.rack reads from it what another gateway leads. Kafka: broker.rack.",
        ),
        ConfigKey(
            "gateway.heartbeat.interval.ms",
            "int",
            2_000,
            "How often the gateway renews its object in system/gateways, by which others know that "
            "it is there. In an object storage service at least 1000, as listings count seconds.",
            unit="ms",
            minimum=50,
            maximum=60_000,
        ),
        ConfigKey(
            "gateway.session.timeout.ms",
            "int",
            6_000,
            "A gateway whose object was not renewed for this long is gone: its topics are led by "
            "the next gateway that is asked for them. At least twice the heartbeat interval.",
            unit="ms",
            minimum=100,
            maximum=600_000,
        ),
        ConfigKey(
            "placement.enabled",
            "bool",
            True,
            "Topics, and the coordination of groups, go to the gateway that they belong to, by "
            "rendezvous hashing over those that are there. Off: the first that is asked for a "
            "topic leads it, and keeps it until it drains.",
        ),
        ConfigKey(
            "placement.delay.ms",
            "int",
            30_000,
            "Topics move when for this long no gateway has come or gone: one that restarts gets "
            "back what it had, and nothing moves twice.",
            unit="ms",
            minimum=0,
            maximum=86_400_000,
        ),
        ConfigKey(
            "placement.moves.max",
            "int",
            5,
            "Topics that the gateway hands over in one heartbeat interval, to balance the load. "
            "One that drains hands over all at once.",
            minimum=1,
            maximum=10_000,
        ),
        ConfigKey(
            "wal.directory",
            "str",
            "",
            "Where write-ahead logs are, one directory for each gateway.id; on a disk that "
            "survives a restart of the machine. Empty: `wal` in the warehouse, where other "
            "gateways find what acks=1 promised.",
        ),
        ConfigKey(
            "wal.interval.ms",
            "int",
            0,
            "The write-ahead log is written to once in this time at most, with all that came "
            "meanwhile, unless that is 8 MiB: acks=1 is answered so much later, and in an object "
            "storage service so many puts are paid for. Unless it is set, 200 where the log is "
            "in one.",
            unit="ms",
            minimum=0,
            maximum=10_000,
        ),
        ConfigKey(
            "durability",
            "enum",
            "fsync",
            "What acks=1 waits for: fsync, the disk has it; os, the operating system has it, which "
            "survives the end of the process and not the loss of power.",
            choices=("fsync", "os"),
        ),
        ConfigKey(
            "producer.id.expiration.ms",
            "int",
            PRODUCER_EXPIRATION_MS_MAX,
            "An idempotent producer that sent nothing for this long is forgotten; it goes on with "
            "a new id. Longer than every producer's delivery.timeout.ms, or a batch whose answer "
            "was lost may be stored twice. Kafka: producer.id.expiration.ms.",
            unit="ms",
            minimum=1_000,
            maximum=PRODUCER_EXPIRATION_MS_MAX,
        ),
        ConfigKey(
            "producer.state.max.bytes",
            "int",
            64 * MIB,
            "Memory for what idempotent producers have sent last, in all topics together: about "
            "250 bytes for each partition that a producer has sent to. When it is full, the one "
            "that was silent for longest is forgotten; it goes on with a new id. Enough for all "
            "that send within one delivery.timeout.ms, or a batch whose answer was lost may be "
            "stored twice.",
            unit="bytes",
            minimum=64 * KIB,
        ),
        ConfigKey(
            "group.consumer.session.timeout.ms",
            "int",
            45_000,
            "A member of a group that was silent for this long is evicted, unless it asked for "
            "another time. Kafka: group.consumer.session.timeout.ms.",
            unit="ms",
            minimum=SESSION_TIMEOUT_MS_MIN,
            maximum=SESSION_TIMEOUT_MS_MAX,
        ),
        ConfigKey(
            "group.consumer.heartbeat.interval.ms",
            "int",
            5_000,
            "The longest time between two heartbeats that a member is told. While there are few "
            "members, or partitions move, it is told less. "
            "Kafka: group.consumer.heartbeat.interval.ms.",
            unit="ms",
            minimum=10,
            maximum=60_000,
        ),
        ConfigKey(
            "group.consumer.max.size",
            "int",
            1_000,
            "Members of one consumer group. Kafka: group.consumer.max.size.",
            minimum=1,
            maximum=10_000,
        ),
        ConfigKey(
            "group.max.count",
            "int",
            10_000,
            "Consumer groups that have members or committed offsets. One that has neither makes "
            "room for another.",
            minimum=1,
            maximum=100_000,
        ),
        ConfigKey(
            "group.metadata.refresh.interval.ms",
            "int",
            1_000,
            "How often the topics of groups are looked at: new partitions, topics that match a "
            "pattern, topics that were deleted or created again. Each time 100 of them are looked "
            "up in the store, in turn.",
            unit="ms",
            minimum=10,
            maximum=3_600_000,
        ),
        ConfigKey(
            "offsets.retention.minutes",
            "int",
            10_080,
            "A group's offsets are forgotten this long after it became empty, or after the commit "
            "if that was later. A group with members keeps all. Kafka: offsets.retention.minutes.",
            unit="minutes",
            minimum=1,
        ),
        ConfigKey(
            "offsets.retention.check.interval.ms",
            "int",
            600_000,
            "How often offsets are looked at whose time is over, or whose topic is gone. "
            "Kafka: offsets.retention.check.interval.ms.",
            unit="ms",
            minimum=10,
        ),
        ConfigKey(
            "offset.metadata.max.bytes",
            "int",
            4_096,
            "The text that may go with a committed offset. Kafka: offset.metadata.max.bytes.",
            unit="bytes",
            minimum=0,
            maximum=64 * KIB,
        ),
        ConfigKey(
            "transaction.max.timeout.ms",
            "int",
            900_000,
            "The longest transaction.timeout.ms that a producer may ask for: a transaction that is "
            "open for longer is aborted. Kafka: transaction.max.timeout.ms.",
            unit="ms",
            minimum=1,
            maximum=86_400_000,
        ),
        ConfigKey(
            "transaction.memory.bytes",
            "int",
            64 * MIB,
            "Memory for the records of open transactions, all together. What is more, and what one "
            "has beyond 8 MiB, waits in the warehouse, below system/transactions/_staged.",
            unit="bytes",
            minimum=MIB,
            maximum=65_536 * MIB,
        ),
        ConfigKey(
            "transactional.id.expiration.ms",
            "int",
            604_800_000,
            "For how long a transactional id is remembered after its last transaction. Kafka: "
            "transactional.id.expiration.ms.",
            unit="ms",
            minimum=86_400_000,
            maximum=31_536_000_000,
        ),
        ConfigKey(
            "transactional.id.max.count",
            "int",
            100_000,
            "Transactional ids that are remembered in the warehouse; beyond that no new one is "
            "taken.",
            minimum=1,
            maximum=10_000_000,
        ),
        ConfigKey(
            "auto.create.topics.enable",
            "bool",
            False,
            "A topic that is produced to and does not exist is created with num.partitions. A "
            "consumer never creates one. "
            "Kafka: auto.create.topics.enable (there the default is true).",
        ),
        ConfigKey(
            "num.partitions",
            "int",
            1,
            "Partitions of a topic that is created without a number. Kafka: num.partitions.",
            minimum=1,
            maximum=10_000,
        ),
        ConfigKey(
            "message.max.bytes",
            "int",
            MIB,
            "The largest record of any topic: key, value and headers together. "
            "Kafka: message.max.bytes.",
            unit="bytes",
            minimum=1,
            maximum=64 * MIB,
        ),
        ConfigKey(
            "socket.request.max.bytes",
            "int",
            16 * MIB,
            "The largest produce request, before and after transport compression. "
            "Kafka: socket.request.max.bytes.",
            unit="bytes",
            minimum=1024,
            maximum=512 * MIB,
        ),
        ConfigKey(
            "topic.queue.bytes",
            "int",
            64 * MIB,
            "Bytes of accepted records that may wait or be in commit in one topic; above that, "
            "batches are refused with BACK_PRESSURE.",
            unit="bytes",
            minimum=1,
        ),
        ConfigKey(
            "queued.max.bytes",
            "int",
            256 * MIB,
            "The same over all topics of the gateway. Kafka: queued.max.request.bytes.",
            unit="bytes",
            minimum=1,
        ),
        ConfigKey(
            "max.connections",
            "int",
            10_000,
            "Connections of clients at a time; more are closed as soon as they come. "
            "Kafka: max.connections.",
            minimum=1,
        ),
        ConfigKey(
            "connection.max.calls",
            "int",
            2_000,
            "Calls that one connection may have under way; a client's gRPC holds more back until "
            "one of them ends.",
            minimum=1,
        ),
        ConfigKey(
            "max.calls",
            "int",
            20_000,
            "Calls of all connections that may be under way, fetches that wait and open streams "
            "included; more are refused with BACK_PRESSURE.",
            minimum=1,
        ),
        ConfigKey(
            "request.queue.bytes",
            "int",
            256 * MIB,
            "Bytes of the requests of all calls that are under way, those of ProduceStream apart; "
            "above that, calls are refused with BACK_PRESSURE.",
            unit="bytes",
            minimum=1,
        ),
        ConfigKey(
            "stream.max.requests",
            "int",
            10_000,
            "Requests of one ProduceStream call that may be unanswered; more are not read then.",
            minimum=1,
        ),
        ConfigKey(
            "fetch.max.bytes",
            "int",
            55 * MIB,
            "Bytes of records in one answer to a fetch, whatever was asked for; a larger record "
            "comes alone. Kafka: fetch.max.bytes.",
            unit="bytes",
            minimum=1024,
            maximum=256 * MIB,
        ),
        ConfigKey(
            "fetch.cache.bytes",
            "int",
            64 * MIB,
            "Memory for the newest committed records of all topics together, from which readers "
            "at the end of the log are served; 0: everything is read from the data files.",
            unit="bytes",
            minimum=0,
        ),
        ConfigKey(
            "fetch.cache.directory",
            "str",
            "",
            "Where the warehouse is in an object storage service: a directory on a local disk for "
            "parts of data files that were read, so that they are not read from the service again. "
            "Each gateway has its own, which outlives it. It has records as they are: protect it "
            "as the warehouse. Whatever is wrong with it costs the cache only. Empty: none.",
        ),
        ConfigKey(
            "fetch.cache.disk.bytes",
            "int",
            10 * 1024 * MIB,
            "What fetch.cache.directory may hold; what was not used for longest goes.",
            unit="bytes",
            minimum=16 * MIB,
        ),
        ConfigKey(
            "fetch.queue.bytes",
            "int",
            256 * MIB,
            "Bytes of answers to fetches that may wait for slow readers; above that, fetches are "
            "refused with BACK_PRESSURE.",
            unit="bytes",
            minimum=1,
        ),
        ConfigKey(
            "fetch.max.requests",
            "int",
            10_000,
            "Fetches that may be unanswered at a time, waiting for records or for a thread; more "
            "are refused with BACK_PRESSURE.",
            minimum=1,
        ),
        ConfigKey(
            "fetch.connection.max.requests",
            "int",
            1_000,
            "The same of one connection. Below connection.max.calls, so that fetches that wait "
            "leave room for other calls.",
            minimum=1,
        ),
        ConfigKey(
            "fetch.threads",
            "int",
            4,
            "Threads that read data files and write answers to fetches. Unless it is set, 32 where "
            "the warehouse is in an object storage service.",
            minimum=1,
            maximum=64,
        ),
        ConfigKey(
            "rollup.memory.bytes",
            "int",
            64 * MIB,
            "Memory for the newest small data files of all topics together, until enough of a "
            "partition are there to be made one, see the topic's rollup.files; above that the "
            "oldest stay as they are. 0: none is rolled up.",
            unit="bytes",
            minimum=0,
        ),
        ConfigKey(
            "append.threads",
            "int",
            16,
            "Threads that encode data files and write to the store, for all topics together; one "
            "topic uses five at most, and a call that takes longer than a second does not count: "
            "others go on when the store holds it up. Unless it is set, 256 where the warehouse is "
            "in an object storage service.",
            minimum=2,
            maximum=256,
        ),
        ConfigKey(
            "commit.rate",
            "int",
            400,
            "Small table commits a second, of all topics together; while more are wanted, topics "
            "commit less often, each as often as the others, and acks=all is answered later. A "
            "commit of 256 KiB or more does not wait, and a topic waits for no longer than 25 "
            "times its commit.interval.ms. 0: no limit.",
            unit="commits/s",
            minimum=0,
            maximum=1_000_000,
        ),
        ConfigKey(
            "commit.concurrency",
            "int",
            4,
            "Table commits under way at a time before others wait as commit.rate has it: a busy "
            "disk or processor has fewer and larger commits. One that takes longer than a second "
            "does not count. Unless it is set, 256 where the warehouse is in an object storage "
            "service.",
            minimum=1,
            maximum=10_000,
        ),
        ConfigKey(
            "commit.interval.max.ms",
            "int",
            2_500,
            "The longest that commit.rate and commit.concurrency make a topic's commit wait; then "
            "it goes nevertheless.",
            unit="ms",
            minimum=0,
            maximum=60_000,
        ),
        ConfigKey(
            "commit.unawaited.rate",
            "int",
            0,
            "Small table commits a second, of all topics together, of records whose senders have "
            "their answers already (acks=1, from the write-ahead log). While more are wanted, "
            "these are in the table, for SQL and for consumers that read to the high watermark, "
            "later; acks=all does not wait for them. 0: they are like other commits. Unless it is "
            "set, 15 where the warehouse is in an object storage service, which has a price for "
            "each.",
            unit="commits/s",
            minimum=0,
            maximum=1_000_000,
        ),
        ConfigKey(
            "commit.unawaited.interval.max.ms",
            "int",
            120_000,
            "The longest that commit.unawaited.rate makes a topic's commit wait, and no longer "
            "than 1,200 times its commit.interval.ms; then it goes nevertheless. None waits where "
            "more than half of queued.max.bytes is in use.",
            unit="ms",
            minimum=0,
            maximum=600_000,
        ),
        ConfigKey(
            "checkpoint.interval.commits",
            "int",
            CHECKPOINT_INTERVAL_COMMITS,
            "Table commits of a topic between two checkpoints.",
            minimum=1,
        ),
        ConfigKey(
            "drain.timeout.ms",
            "int",
            25_000,
            "On SIGTERM, how long accepted batches may take to be committed and answered. Less than"
            " what kills the process afterwards waits: Kubernetes does after 30 s.",
            unit="ms",
            minimum=0,
        ),
        ConfigKey(
            "log.level",
            "enum",
            "info",
            "The least serious log line that is written.",
            choices=("debug", "info", "warning", "error"),
        ),
        ConfigKey(
            "log.format",
            "enum",
            "console",
            "console for people, json for machines; on stderr.",
            choices=("console", "json"),
        ),
    )
)

_NOT_OURS: Final[dict[str, str]] = {
    "log.dirs": "the log is the Delta tables in `warehouse`",
    "log.dir": "the log is the Delta tables in `warehouse`",
    "broker.id": "name a gateway with gateway.id",
    "node.id": "name a gateway with gateway.id",
    "zookeeper.connect": "there is no ZooKeeper; the Delta log is the consensus",
    "process.roles": "there are no controllers; the Delta log is the consensus",
    "default.replication.factor": "the store replicates, not the gateways",
    "min.insync.replicas": "the store replicates, not the gateways",
    "log.retention.ms": "set retention.ms for each topic",
    "log.retention.hours": "set retention.ms for each topic",
    "num.io.threads": "use append.threads",
    "shutdown.grace.ms": "use drain.timeout.ms",
    "num.network.threads": "the network runs on one event loop",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value in force and where it came from: default, the file, a variable's name, or flag."""

    value: ConfigValue = field(repr=False)
    origin: str


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The settings of one gateway, by name.

    Attributes:
        settings: All of them.
        warnings: A sentence for each thing in the environment that looks like a setting and is not.
    """

    settings: Mapping[str, Setting]
    warnings: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        return str(self.settings[name].value)

    def number(self, name: str) -> int:
        value = self.settings[name].value
        assert isinstance(value, int), name
        return value

    def flag(self, name: str) -> bool:
        return self.settings[name].value is True

    def with_defaults(self, values: Mapping[str, ConfigValue]) -> GatewayConfig:
        """The same with other values for settings that nobody has set."""
        other = {
            name: Setting(value, "default where the store is far away")
            for name, value in values.items()
            if self.settings[name].origin == "default"
        }
        return replace(self, settings={**self.settings, **other})

    def store_settings(self) -> StoreSettings:
        """How the service is reached that has the warehouse, where it is in one."""
        return StoreSettings.parse({name: self.settings[name].value for name in STORE_KEYS})


def load_gateway_config(
    file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> GatewayConfig:
    """Reads the settings; each source overrides the ones before it.

    Args:
        file: A TOML file. `message.max.bytes = 1048576` may be written just so. None: no file.
        environment: `MAINSTEM_MESSAGE_MAX_BYTES=1048576`. None: the process's. A variable that is
            no setting is left out and told of in the result's `warnings`: other programs, and
            Kubernetes, choose names there that begin as ours do.
        flags: By dotted name.

    Raises:
        InvalidConfigError: Settings are unknown or out of range, or the file cannot be read; the
            message names each with its source.
    """
    settings = {name: Setting(key.default, "default") for name, key in GATEWAY_KEYS.items()}
    found, warnings = settings_in_environment(
        os.environ if environment is None else environment, GATEWAY_KEYS, _NOT_OURS
    )
    faults = Faults()
    for origin, name, value in (
        *_from_file(file),
        *found,
        *(("flag", name, value) for name, value in (flags or {}).items()),
    ):
        key = GATEWAY_KEYS.get(name)
        try:
            if key is None:
                raise unknown_setting(name, GATEWAY_KEYS, _NOT_OURS)
            settings[name] = Setting(parse_value(key, value), origin)
        except InvalidConfigError as error:
            faults.add(InvalidConfigError(f"{origin}: {error.message}"), name)
    faults.tell()
    config = GatewayConfig(settings, warnings)
    interval, session = "gateway.heartbeat.interval.ms", "gateway.session.timeout.ms"
    if config.number(session) < 2 * config.number(interval):
        raise InvalidConfigError(
            f"{session} is {config.number(session)} ms; it must be at least twice {interval}, "
            f"which is {config.number(interval)} ms",
            name=session,
        )
    config.store_settings()
    return config


def _from_file(file: str | os.PathLike[str] | None) -> Iterator[tuple[str, str, object]]:
    if file is None:
        return
    path = Path(file)
    _, parsed = read_toml(path, "the configuration", "is")
    for name, value in _flatten("", parsed):
        yield str(path), name, value


def _flatten(prefix: str, table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield prefix + name, value
