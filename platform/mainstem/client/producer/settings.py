"""The producer's settings: Kafka's names, our defaults, and why one is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self, cast

from mainstem.client.connection_security import (
    SECURITY_KEYS,
    ConnectionSettings,
    connection_settings,
)
from mainstem.client.producer.queue import QueuePolicy
from mainstem.client.settings import check_client_id, parse_servers, read_settings
from mainstem.config import ConfigKey, ConfigValue, Faults, keys_by_name, nearest_name
from mainstem.errors import ConfigError
from mainstem.limits import (
    IN_FLIGHT_BATCHES_MAX,
    MIB,
    REQUEST_RECORDS_MAX,
    TRANSACTIONAL_ID_BYTES_MAX,
)
from mainstem.protocol.v1 import log_pb2

#: Places a record: `partitioner(key, partition_count) -> partition`, called inside `produce()`.
Partitioner = Callable[[bytes | None, int], int]

_IN_FLIGHT: Final = "max.in.flight.requests.per.connection"
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


def _ms(name: str, default: int, doc: str, minimum: int = 0) -> ConfigKey:
    return ConfigKey(name, "int", default, doc, unit="ms", minimum=minimum, maximum=_INT_MAX)


#: Every setting of `Producer` and `AsyncProducer`, by name.
PRODUCER_KEYS: Final[dict[str, ConfigKey]] = keys_by_name(
    (
        ConfigKey(
            "bootstrap.servers",
            "str",
            "",
            "Gateways to ask first, host:port, with commas between. One that answers is enough. "
            "There is no default. Kafka: bootstrap.servers.",
        ),
        ConfigKey(
            "acks",
            "enum",
            "all",
            "When a record counts as delivered: 0, when the gateway has read it (no offset is "
            "reported); 1, when it is in the write-ahead log of the gateway that leads the topic "
            "and survives a restart of that machine; all or -1, when it is a durable commit of the "
            "Delta table. Less than all turns enable.idempotence off. Kafka: acks.",
            choices=("0", "1", "all", "-1"),
        ),
        _ms(
            "linger.ms",
            5,
            "How long a record may wait for others before it is sent, when a request may be sent. "
            "Ignored once batch.size is reached, and by flush() and close(). Kafka: linger.ms.",
        ),
        _ms(
            "sticky.partitioning.linger.ms",
            100,
            "How long the partition stays the same for records without a key, if fewer than "
            "batch.size bytes go to it: a table commit has a data file for each partition that it "
            "adds to, and few large ones are better. 0: another one with every batch. librdkafka's "
            "default is 10 ms. Kafka: sticky.partitioning.linger.ms.",
        ),
        ConfigKey(
            "batch.size",
            "int",
            MIB,
            "Bytes of records of one topic that are sent without waiting for linger.ms. Kafka "
            "counts per partition and defaults to 16384; here one request is columnar and carries "
            "all partitions of a topic, so the bytes count per topic. Kafka: batch.size.",
            unit="bytes",
            minimum=1,
            maximum=_INT_MAX,
        ),
        ConfigKey(
            "buffer.memory",
            "int",
            64 * MIB,
            "Bytes of records that wait or are not yet acknowledged, with 16 bytes for each, and "
            "those whose delivery report nobody has polled. When it is full, produce() waits for "
            "max.block.ms. Kafka defaults to 32 MiB; an answer here takes a table commit (100 ms), "
            "so more is under way. Kafka: buffer.memory.",
            unit="bytes",
            minimum=1,
            maximum=_LONG_MAX,
        ),
        _ms(
            "max.block.ms",
            60_000,
            "How long produce() waits for metadata of a new topic or for room in buffer.memory. "
            "Kafka: max.block.ms.",
        ),
        _ms(
            "delivery.timeout.ms",
            120_000,
            "From produce() to the failure of a record that nobody acknowledged, all retries "
            "included. At least linger.ms + request.timeout.ms. Kafka: delivery.timeout.ms.",
            minimum=1,
        ),
        _ms(
            "request.timeout.ms",
            30_000,
            "A request without an answer for so long makes the connection count as broken: it is "
            "opened again, and what was not answered is sent again. Kafka: request.timeout.ms.",
            minimum=1,
        ),
        ConfigKey(
            "retries",
            "int",
            _INT_MAX,
            "How often a request is sent again after a retriable error or a broken connection. "
            "delivery.timeout.ms ends it in any case; prefer that. 0 turns enable.idempotence off. "
            "Kafka: retries.",
            minimum=0,
            maximum=_INT_MAX,
        ),
        _ms(
            "retry.backoff.ms",
            100,
            "The wait before the first retry; it doubles, with 20 % of chance, up to "
            "retry.backoff.max.ms. A longer wait that the gateway asks for wins. "
            "Kafka: retry.backoff.ms.",
        ),
        _ms(
            "retry.backoff.max.ms",
            1_000,
            "The longest wait before a retry. Less than retry.backoff.ms: the wait is always this. "
            "Kafka: retry.backoff.max.ms.",
        ),
        ConfigKey(
            "max.in.flight.requests.per.connection",
            "int",
            5,
            "Requests of one topic without an answer, at most 5 with enable.idempotence. "
            "Order is kept with any number: after a refusal the gateway holds back what follows. "
            "While all are under way, the topic's next request grows up to max.request.size; small "
            "ones are spread over the time that an answer takes, so that they last until the next "
            "commit. "
            "Kafka: max.in.flight.requests.per.connection, where it counts all topics of a "
            "connection. Here each topic has commits of its own, which a gateway spreads over time "
            "(its commit.rate): topics do not wait for each other's.",
            unit="requests",
            minimum=1,
            maximum=1_000,
        ),
        ConfigKey(
            "compression.type",
            "enum",
            "none",
            "How a request is compressed on its way; how the table is compressed is the topic's "
            "compression.type. lz4 and zstd compress Arrow buffers, gzip the gRPC message. "
            "Kafka: compression.type.",
            choices=("none", "lz4", "zstd", "gzip"),
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
            "max.request.size",
            "int",
            8 * MIB,
            "Bytes of records in one request, and so of the largest record. Kafka defaults to "
            "1 MiB; a request here carries all partitions of a topic, and the gateway still "
            "limits a record with message.max.bytes. Kafka: max.request.size.",
            unit="bytes",
            minimum=1,
            maximum=1024 * MIB,
        ),
        ConfigKey(
            "partitioner",
            "str",
            "default",
            "Where a record without an explicit partition goes. default (also murmur2_random): "
            "murmur2 of the key, as Kafka's Java client; without a key one partition until "
            "batch.size or sticky.partitioning.linger.ms is reached, then another. round_robin: "
            "one after the other, whatever the key. Or a function (key: bytes | None, "
            "partition_count: int) -> int. "
            "Kafka: partitioner, partitioner.class.",
        ),
        _ms(
            "metadata.max.age.ms",
            300_000,
            "How old the knowledge of partitions and leaders may grow; added partitions are used "
            "after that. Kafka: metadata.max.age.ms.",
            minimum=1,
        ),
        ConfigKey(
            "enable.idempotence",
            "bool",
            True,
            "Each record is stored once, and in order, however often its request has to be sent: "
            "records carry a producer id and a sequence, by which the gateway knows a request that "
            "comes again. Needs acks=all, retries of at least 1 and at most 5 for "
            "max.in.flight.requests.per.connection; it is off when acks or retries say otherwise "
            "and it was not set. Kafka: enable.idempotence.",
        ),
        ConfigKey(
            "transactional.id",
            "str",
            "",
            "A name for the producer over its restarts, 1 to 249 bytes: records are produced in "
            "transactions, and a new producer with the same name fences the one before and aborts "
            "its open transaction. Needs enable.idempotence. Kafka: transactional.id.",
        ),
        _ms(
            "transaction.timeout.ms",
            60_000,
            "How long a transaction may be open, from its first record on, before the coordinator "
            "aborts it. With transactional.id, delivery.timeout.ms is at most this unless it is "
            "set. The gateway limits it (transaction.max.timeout.ms). "
            "Kafka: transaction.timeout.ms.",
            minimum=1,
        ),
    )
)

_PARTITIONERS: Final = {
    "default": "default",
    "murmur2_random": "default",
    "round_robin": "round_robin",
}

_ACKS: Final = {
    "0": log_pb2.ACKS_NONE,
    "1": log_pb2.ACKS_LEADER,
    "all": log_pb2.ACKS_ALL,
    "-1": log_pb2.ACKS_ALL,
}


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings of one producer, checked. Times are in milliseconds, sizes in bytes.

    Attributes:
        idempotent: enable.idempotence, unless acks or retries turned it off.
        transactional_id: Empty: no transactions.
    """

    bootstrap_servers: tuple[str, ...]
    acks: log_pb2.Acks
    linger_ms: int
    sticky_linger_ms: int
    batch_size: int
    buffer_memory: int
    max_block_ms: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    max_in_flight: int
    compression_type: str
    client_id: str
    max_request_size: int
    partitioner: str | Partitioner
    metadata_max_age_ms: int
    idempotent: bool
    transactional_id: str
    transaction_timeout_ms: int
    connection: ConnectionSettings

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> Self:
        """Reads settings by their Kafka names; `PRODUCER_KEYS` lists them.

        Raises:
            ConfigError: One is unknown (with the nearest name), unsupported (with the reason), out
                of range, or contradicts another.
        """
        reading = read_settings("producer", PRODUCER_KEYS, config, functions=("partitioner",))
        values, faults = reading.values, reading.faults
        servers: tuple[str, ...] = ()
        with faults.about("bootstrap.servers"):
            servers = parse_servers(str(values["bootstrap.servers"]))
        partitioner: str | Partitioner = "default"
        with faults.about("partitioner"):
            partitioner = _partitioner(reading.functions.get("partitioner", values["partitioner"]))
        idempotent = False
        with faults.about("acks", "retries", _IN_FLIGHT, "enable.idempotence"):
            asked = bool("enable.idempotence" in reading.named or values["transactional.id"])
            idempotent = _idempotent(values, asked=asked)
        batch_size = int(values["batch.size"])
        if "batch.size" not in reading.named:
            batch_size = min(batch_size, int(values["max.request.size"]))
        delivery_ms, linger_ms = int(values["delivery.timeout.ms"]), int(values["linger.ms"])
        transaction_ms = int(values["transaction.timeout.ms"])
        if values["transactional.id"] and "delivery.timeout.ms" not in reading.named:
            delivery_ms = max(min(delivery_ms, transaction_ms), linger_ms + 1)
        request_ms = int(values["request.timeout.ms"])
        if "request.timeout.ms" not in reading.named:
            request_ms = max(1, min(request_ms, delivery_ms - linger_ms))
        settings = cls(
            bootstrap_servers=servers,
            acks=_ACKS[str(values["acks"])],
            linger_ms=linger_ms,
            sticky_linger_ms=int(values["sticky.partitioning.linger.ms"]),
            batch_size=batch_size,
            buffer_memory=int(values["buffer.memory"]),
            max_block_ms=int(values["max.block.ms"]),
            delivery_timeout_ms=delivery_ms,
            request_timeout_ms=request_ms,
            retries=int(values["retries"]),
            retry_backoff_ms=int(values["retry.backoff.ms"]),
            retry_backoff_max_ms=int(values["retry.backoff.max.ms"]),
            max_in_flight=int(values[_IN_FLIGHT]),
            compression_type=str(values["compression.type"]),
            client_id=str(values["client.id"]),
            max_request_size=int(values["max.request.size"]),
            partitioner=partitioner,
            metadata_max_age_ms=int(values["metadata.max.age.ms"]),
            idempotent=idempotent,
            transactional_id=str(values["transactional.id"]),
            transaction_timeout_ms=transaction_ms,
            connection=connection_settings(values, faults, reading.functions),
        )
        settings._check(faults)
        faults.tell()
        return settings

    def queue_policy(self) -> QueuePolicy:
        """What the queue of each topic follows."""
        return QueuePolicy(
            linger_s=self.linger_ms / 1000,
            batch_bytes=self.batch_size,
            request_bytes_max=self.max_request_size,
            request_records_max=REQUEST_RECORDS_MAX,
            retries=self.retries,
            backoff_s=self.retry_backoff_ms / 1000,
            backoff_max_s=self.retry_backoff_max_ms / 1000,
            delivery_timeout_ms=self.delivery_timeout_ms,
        )

    def _check(self, faults: Faults) -> None:
        least = self.linger_ms + self.request_timeout_ms
        with faults.about("delivery.timeout.ms", "linger.ms", "request.timeout.ms"):
            if self.delivery_timeout_ms < least:
                raise ConfigError(
                    f"delivery.timeout.ms is {self.delivery_timeout_ms} ms; it must be at least "
                    "linger.ms + request.timeout.ms "
                    f"({self.linger_ms} + {self.request_timeout_ms} ms)",
                    value=self.delivery_timeout_ms,
                )
        with faults.about("batch.size", "max.request.size"):
            if self.batch_size > self.max_request_size:
                raise ConfigError(
                    f"batch.size is {self.batch_size} bytes; it must be at most max.request.size "
                    f"({self.max_request_size} bytes)",
                    value=self.batch_size,
                )
        with faults.about("client.id"):
            check_client_id(self.client_id)
        with faults.about("transactional.id", "enable.idempotence"):
            self._check_transactional()

    def _check_transactional(self) -> None:
        size_bytes = len(self.transactional_id.encode("utf-8", "surrogatepass"))
        if size_bytes > TRANSACTIONAL_ID_BYTES_MAX:
            raise ConfigError(
                f"transactional.id has {size_bytes} bytes; it may have at most "
                f"{TRANSACTIONAL_ID_BYTES_MAX}",
                name="transactional.id",
            )
        if size_bytes and not self.idempotent:
            raise ConfigError(
                "transactional.id is set and enable.idempotence is false: transactions need it; "
                "set it to true, or leave transactional.id out",
                name="enable.idempotence",
            )


def _idempotent(values: Mapping[str, ConfigValue], *, asked: bool) -> bool:
    """Whether the producer is idempotent, by Kafka's rules.

    Args:
        asked: The user set enable.idempotence; else settings that rule it out turn it off.
    """
    if not values["enable.idempotence"]:
        return False
    acks, retries = values["acks"], values["retries"]
    needing = "transactional.id" if values["transactional.id"] else "enable.idempotence"
    for name, value, need, fits in (
        ("acks", acks, "all", _ACKS[str(acks)] == log_pb2.ACKS_ALL),
        ("retries", retries, "at least 1", int(retries) > 0),
    ):
        if fits:
            continue
        if not asked:
            return False
        raise ConfigError(
            f"{name} is {value}; with {needing} it must be {need}: change it, or "
            f"{_without(needing)}",
            name=name,
            value=value,
        )
    name = _IN_FLIGHT
    if int(values[name]) > IN_FLIGHT_BATCHES_MAX:
        raise ConfigError(
            f"{name} is {values[name]}; with {needing} it must be at most {IN_FLIGHT_BATCHES_MAX}, "
            "as many as the gateway remembers of each producer: change it, or "
            f"{_without(needing)}",
            name=name,
            value=values[name],
        )
    return True


def _without(name: str) -> str:
    return (
        "leave transactional.id out"
        if name == "transactional.id"
        else "set enable.idempotence to false"
    )


def _partitioner(value: object) -> str | Partitioner:
    if callable(value):
        return cast(Partitioner, value)
    name = str(value).strip()
    if name in _PARTITIONERS:
        return _PARTITIONERS[name]
    known = ", ".join(_PARTITIONERS)
    close = nearest_name(name, _PARTITIONERS)
    hint = f"; did you mean {close}?" if close else ""
    raise ConfigError(
        f"partitioner is {name!r}; it must be one of {known}, or a function{hint}",
        name="partitioner",
        value=name,
    )
