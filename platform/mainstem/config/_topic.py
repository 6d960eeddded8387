"""The settings of a topic. They are stored as properties of its Delta table, under `mainstem.`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from mainstem.config._faults import Faults
from mainstem.config._intervals import INTERVAL_PATTERN, interval_ms
from mainstem.config._keys import (
    ConfigKey,
    ConfigValue,
    format_value,
    keys_by_name,
    parse_value,
    unknown_setting,
)
from mainstem.errors import InvalidConfigError
from mainstem.limits import COMMIT_BYTES_MAX, KIB, MIB

PROPERTY_PREFIX: Final = "mainstem."
_DELTA: Final = "delta."
_LONG_MAX: Final = 2**63 - 1

_LOG_RETENTION: Final = "delta.logRetentionDuration"
_TOMBSTONE_RETENTION: Final = "delta.deletedFileRetentionDuration"
_VACUUM_MIN_AGE: Final = "vacuum.min.age.ms"

TOPIC_KEYS: Final[dict[str, ConfigKey]] = keys_by_name(
    (
        ConfigKey(
            "cleanup.policy",
            "list",
            "delete",
            "What happens to old records: delete removes those past retention.ms and "
            "retention.bytes, compact removes those with a newer record of the same key and takes "
            "no record without a key. Kafka: cleanup.policy.",
            choices=("delete", "compact"),
        ),
        ConfigKey(
            "commit.bytes",
            "int",
            16 * MIB,
            "A table commit starts as soon as this many bytes of records wait, "
            "before commit.interval.ms has passed.",
            unit="bytes",
            minimum=1,
            maximum=COMMIT_BYTES_MAX,
        ),
        ConfigKey(
            "commit.interval.ms",
            "int",
            100,
            "Under load, the time from the start of one table commit to the start of the next. "
            "0: as fast as the store takes them. A topic that was idle commits at once.",
            unit="ms",
            minimum=0,
            maximum=60_000,
        ),
        ConfigKey(
            "compaction.min.age.ms",
            "int",
            60_000,
            "Compaction leaves data files alone that are younger, so that readers of the log's end "
            "find what they are about to read. Until then the gateway may roll them up, see "
            "rollup.files.",
            unit="ms",
            minimum=0,
            maximum=_LONG_MAX,
        ),
        ConfigKey(
            "compaction.target.bytes",
            "int",
            128 * MIB,
            "How large the data files are that compaction makes of small ones. "
            "Files of half of it or more are left alone.",
            unit="bytes",
            minimum=64 * KIB,
            maximum=4096 * MIB,
        ),
        ConfigKey(
            "compression.type",
            "enum",
            "zstd",
            "How keys, values and headers are compressed in data files (zstd at level 1). Each of "
            "the three is not, where a commit adds less than 4 KiB of it to a partition. Kafka: "
            "compression.type.",
            choices=("zstd", "lz4", "snappy", "gzip", "none"),
        ),
        ConfigKey(
            "delete.retention.ms",
            "int",
            86_400_000,
            "With cleanup.policy=compact, how long a record without a value (a tombstone) can be "
            "read, from the first keyed compaction that saw it. Kafka: delete.retention.ms.",
            unit="ms",
            minimum=0,
            maximum=_LONG_MAX,
        ),
        ConfigKey(
            _TOMBSTONE_RETENTION,
            "str",
            "interval 2 hours",
            "How long checkpoints remember that a data file was removed. "
            "Longer than vacuum.min.age.ms, by as much as vacuum may be late: "
            "what is forgotten is left to vacuum-orphans. "
            "A property of Delta's, so it has Delta's form.",
            pattern=INTERVAL_PATTERN,
        ),
        ConfigKey(
            _LOG_RETENTION,
            "str",
            "interval 1 hours",
            "How long commit files that a checkpoint has made superfluous are kept, "
            "for readers that are behind and for time travel. "
            "A property of Delta's, so it has Delta's form.",
            pattern=INTERVAL_PATTERN,
        ),
        ConfigKey(
            "max.compaction.lag.ms",
            "int",
            _LONG_MAX,
            "With cleanup.policy=compact, a partition with a record that is older than this and "
            "not compacted yet is compacted whatever min.cleanable.dirty.ratio says. "
            "Kafka: max.compaction.lag.ms.",
            unit="ms",
            minimum=1,
            maximum=_LONG_MAX,
        ),
        ConfigKey(
            "max.message.bytes",
            "int",
            MIB,
            "The largest record: key, value and headers together. "
            "Cannot exceed the gateway's message.max.bytes. Kafka: max.message.bytes.",
            unit="bytes",
            minimum=1,
            maximum=COMMIT_BYTES_MAX,
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            "int",
            3_600_000,
            "A record whose timestamp is further in the future is refused, "
            "which catches microseconds and nanoseconds. Kafka: message.timestamp.after.max.ms.",
            unit="ms",
            minimum=0,
            maximum=_LONG_MAX,
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            "int",
            _LONG_MAX,
            "A record whose timestamp is further in the past is refused; "
            "50 years or less catches seconds. Kafka: message.timestamp.before.max.ms.",
            unit="ms",
            minimum=0,
            maximum=_LONG_MAX,
        ),
        ConfigKey(
            "message.timestamp.type",
            "enum",
            "CreateTime",
            "CreateTime keeps the producer's timestamp, LogAppendTime sets the gateway's. "
            "Kafka: message.timestamp.type.",
            choices=("CreateTime", "LogAppendTime"),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            "float",
            0.5,
            "With cleanup.policy=compact, a partition is compacted when more than this part of its "
            "bytes was not compacted yet. Kafka: min.cleanable.dirty.ratio.",
            minimum=0,
            maximum=1,
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            "int",
            0,
            "With cleanup.policy=compact, records younger than this stay, by their timestamps. "
            "Kafka: min.compaction.lag.ms.",
            unit="ms",
            minimum=0,
            maximum=_LONG_MAX,
        ),
        ConfigKey(
            "retention.ms",
            "int",
            604_800_000,
            "How long records are kept; -1 for ever. The job retention removes whole data files "
            "from the front of a partition when their newest record is older than this. "
            "Kafka: retention.ms.",
            unit="ms",
            minimum=-1,
            maximum=_LONG_MAX,
        ),
        ConfigKey(
            "retention.bytes",
            "int",
            -1,
            "How many bytes of a partition are kept, as they are stored; -1 all. The job retention "
            "removes data files from the front while so much is left. Kafka: retention.bytes.",
            unit="bytes",
            minimum=-1,
            maximum=_LONG_MAX,
        ),
        ConfigKey(
            "rollup.files",
            "int",
            32,
            "So many small files of a partition, written one after the other, are made one by the "
            "gateway that wrote them, while it still has them in memory; of those that come of it "
            "as many once more. Fewer where half of compaction.min.age.ms has passed meanwhile. "
            "0 or 1: none.",
            unit="files",
            minimum=0,
            maximum=1_000,
        ),
        ConfigKey(
            "rollup.max.bytes",
            "int",
            128 * KIB,
            "Files that are larger are not rolled up.",
            unit="bytes",
            minimum=0,
            maximum=16 * MIB,
        ),
        ConfigKey(
            _VACUUM_MIN_AGE,
            "int",
            3_600_000,
            "How long a data file is kept after it was removed from the table, for readers that "
            "are behind and for time travel. Less than delta.deletedFileRetentionDuration.",
            unit="ms",
            minimum=0,
            maximum=_LONG_MAX,
        ),
        ConfigKey(
            "wal.records",
            "enum",
            "leader",
            "Which batches go into the write-ahead log at once: leader, those with acks=1, and all "
            "that wait in front of them; all, every batch, so that consumers with "
            "fetch.visibility=durable see it before its table commit. Each batch is then written "
            "twice.",
            choices=("leader", "all"),
        ),
    )
)

_PER_SEGMENT = (
    "a topic has no segments; commit.interval.ms and commit.bytes decide what a data file holds"
)
_PER_REPLICA = "the store replicates, not the gateways; acks=all is durable in the store"
TOPIC_KEYS_UNSUPPORTED: Final[dict[str, str]] = {
    "segment.bytes": _PER_SEGMENT,
    "segment.ms": _PER_SEGMENT,
    "segment.index.bytes": _PER_SEGMENT,
    "segment.jitter.ms": _PER_SEGMENT,
    "index.interval.bytes": _PER_SEGMENT,
    "flush.messages": "every acks=all answer is flushed",
    "flush.ms": "every acks=all answer is flushed",
    "min.insync.replicas": _PER_REPLICA,
    "replication.factor": _PER_REPLICA,
    "unclean.leader.election.enable": _PER_REPLICA,
    "message.format.version": "the format is the Delta table's",
    "preallocate": "data files are written once, whole",
}


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of one topic: what was set, and typed access to what is in force."""

    overrides: Mapping[str, ConfigValue]

    @classmethod
    def parse(cls, settings: Mapping[str, object]) -> Self:
        """Reads settings by their Kafka names.

        Raises:
            InvalidConfigError: Some are unknown, unsupported (with the reason) or out of range, or
                contradict each other. Each that is wrong by itself is named.
        """
        parsed = cls(_parsed(settings))
        parsed._check_lags()
        parsed._check_vacuum()
        return parsed

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Reads the table's properties; those that are no topic setting are left alone."""
        found = {
            name: properties[property_name]
            for name, key in TOPIC_KEYS.items()
            if (property_name := _property_name(name)) in properties
            and properties[property_name] != _implied_property(key)
        }
        return cls.parse(found)

    def to_properties(self) -> dict[str, str]:
        """The table properties that say the same. Delta's own are there even if nobody set them."""
        properties = {}
        for name, key in sorted(TOPIC_KEYS.items()):
            value = self.overrides.get(name, _implied_property(key))
            if value is not None:
                properties[_property_name(name)] = format_value(value)
        return properties

    def altered(self, set_to: Mapping[str, object], reset: Iterable[str]) -> Self:
        """The settings after setting some and putting others back to their default.

        Raises:
            InvalidConfigError: As `parse`; also for a name in both.
        """
        changed = dict(self.overrides)
        reset = list(reset)
        for name in set_to:
            if name in reset:
                raise InvalidConfigError(f"{name} is to be set and reset at once", name=name)
        for name in reset:
            changed.pop(_topic_key(name).name, None)
        changed.update(_parsed(set_to))
        return type(self).parse(changed)

    def get(self, name: str) -> ConfigValue:
        """The value in force, by Kafka's name."""
        return self.overrides.get(name, TOPIC_KEYS[name].default)

    @property
    def compacts(self) -> bool:
        """Whether `cleanup.policy` has compact: only the last record of each key is kept."""
        return "compact" in self._cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether `cleanup.policy` has delete: old records go."""
        return "delete" in self._cleanup_policy

    @property
    def _cleanup_policy(self) -> list[str]:
        return str(self.get("cleanup.policy")).split(",")

    @property
    def delete_retention_ms(self) -> int:
        return int(self.get("delete.retention.ms"))

    @property
    def min_compaction_lag_ms(self) -> int:
        return int(self.get("min.compaction.lag.ms"))

    @property
    def max_compaction_lag_ms(self) -> int:
        return int(self.get("max.compaction.lag.ms"))

    @property
    def min_cleanable_dirty_ratio(self) -> float:
        return float(self.get("min.cleanable.dirty.ratio"))

    def _check_lags(self) -> None:
        least, most = self.min_compaction_lag_ms, self.max_compaction_lag_ms
        if least > most:
            raise InvalidConfigError(
                f"min.compaction.lag.ms is {least} ms, more than max.compaction.lag.ms, "
                f"which is {most} ms",
                name="min.compaction.lag.ms",
                value=least,
            )

    def _check_vacuum(self) -> None:
        kept = str(self.get(_TOMBSTONE_RETENTION))
        if self.vacuum_min_age_ms >= interval_ms(kept):
            raise InvalidConfigError(
                f"{_VACUUM_MIN_AGE} is {self.vacuum_min_age_ms} ms, and {_TOMBSTONE_RETENTION} is "
                f"{kept!r}: removals would be forgotten before their files may be deleted; make "
                "the second longer",
                name=_VACUUM_MIN_AGE,
                value=self.vacuum_min_age_ms,
            )

    @property
    def vacuum_min_age_ms(self) -> int:
        return int(self.get(_VACUUM_MIN_AGE))

    @property
    def log_retention_ms(self) -> int:
        """How long commit files are kept that a checkpoint has made superfluous."""
        return interval_ms(str(self.get(_LOG_RETENTION)))

    @property
    def retention_ms(self) -> int:
        """-1: for ever."""
        return int(self.get("retention.ms"))

    @property
    def retention_bytes(self) -> int:
        """-1: all."""
        return int(self.get("retention.bytes"))

    @property
    def commit_interval_ms(self) -> int:
        return int(self.get("commit.interval.ms"))

    @property
    def commit_bytes(self) -> int:
        return int(self.get("commit.bytes"))

    @property
    def compaction_min_age_ms(self) -> int:
        return int(self.get("compaction.min.age.ms"))

    @property
    def compression_type(self) -> str:
        return str(self.get("compression.type"))

    @property
    def max_message_bytes(self) -> int:
        return int(self.get("max.message.bytes"))

    @property
    def message_timestamp_after_max_ms(self) -> int:
        return int(self.get("message.timestamp.after.max.ms"))

    @property
    def message_timestamp_before_max_ms(self) -> int:
        return int(self.get("message.timestamp.before.max.ms"))

    @property
    def log_append_time(self) -> bool:
        return self.get("message.timestamp.type") == "LogAppendTime"

    @property
    def wal_records_all(self) -> bool:
        """Whether every batch goes into the write-ahead log at once, whatever its acks."""
        return self.get("wal.records") == "all"

    @property
    def rollup_files(self) -> int:
        return int(self.get("rollup.files"))

    @property
    def rollup_max_bytes(self) -> int:
        return int(self.get("rollup.max.bytes"))


def _parsed(settings: Mapping[str, object]) -> dict[str, ConfigValue]:
    """Raises InvalidConfigError, of all that are wrong."""
    found, faults = {}, Faults()
    for name, value in settings.items():
        with faults.about(name):
            found[name] = parse_value(_topic_key(name), value)
    faults.tell()
    return found


def _property_name(name: str) -> str:
    return name if name.startswith(_DELTA) else PROPERTY_PREFIX + name


def _implied_property(key: ConfigKey) -> ConfigValue | None:
    """What a table says of a setting that nobody set: of Delta's own our default, else nothing."""
    return key.default if key.name.startswith(_DELTA) else None


def _topic_key(name: str) -> ConfigKey:
    key = TOPIC_KEYS.get(name)
    if key is None:
        raise unknown_setting(name, TOPIC_KEYS, TOPIC_KEYS_UNSUPPORTED)
    return key
