"""What a backup says of itself: `manifest.json`, from which a topic can be made again. Pure, but
for `read_manifest`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from mainstem.delta_log.format import DataFile, Register, registers
from mainstem.delta_log.store import NotFound, ObjectStore
from mainstem.delta_log.table import FORMAT, TableState
from mainstem.errors import InvalidRequestError, LogDamagedError, UnsupportedTableError

#: The manifest's name in the directory of a backup.
MANIFEST: Final = "manifest.json"

#: The edition of the manifest that this version writes, and the newest that it reads.
BACKUP_VERSION: Final = 1

_CHECKSUM: Final = "checksum"
_PATH: Final = re.compile(r"partition=(\d+)/[0-9A-Za-z._-]+\.parquet")


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One data file of a backup.

    Attributes:
        path: Below the backup's directory.
        base_offset, last_offset: Both inclusive.
        record_count: Less than the span of offsets only after keyed compaction.
        timestamp_ms_min, timestamp_ms_max: Since 1970, both inclusive.
        tail_crc32c: See `DataFile`.
        sha256: Of the whole file, in hexadecimal.
    """

    path: str
    base_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    timestamp_ms_min: int
    timestamp_ms_max: int
    modified_ms: int
    tail_crc32c: int | None
    sha256: str

    @classmethod
    def of(cls, file: DataFile, sha256: str) -> BackupFile:
        """An active file of the table, and its checksum."""
        return cls(
            file.path,
            file.base_offset,
            file.last_offset,
            file.record_count,
            file.size_bytes,
            file.timestamp_ms_min,
            file.timestamp_ms_max,
            file.modified_ms,
            file.tail_crc32c,
            sha256,
        )

    def data_file(self, partition: int, path: str | None = None) -> DataFile:
        """The `add` action for its content, which is at `path`; None: where the backup has it."""
        return DataFile(
            path or self.path,
            partition,
            self.base_offset,
            self.last_offset,
            self.record_count,
            self.size_bytes,
            self.timestamp_ms_min,
            self.timestamp_ms_max,
            self.modified_ms,
            tail_crc32c=self.tail_crc32c,
        )


@dataclass(frozen=True, slots=True)
class PartitionCopy:
    """One partition of a backup.

    Attributes:
        log_start_offset: The first offset that can be read. Its file may have records before it.
        log_end_offset: The next offset, exclusive.
        cleaned_offset: Only before it may offsets be missing, which keyed compaction has removed.
        tombstones: The registers of tombstones that wait to go, by name.
        files: By offset.
    """

    log_start_offset: int
    log_end_offset: int
    cleaned_offset: int
    tombstones: Mapping[str, int]
    files: tuple[BackupFile, ...]

    @property
    def record_count(self) -> int:
        """Of all its files."""
        return sum(file.record_count for file in self.files)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A backup of one version of a topic's table.

    Attributes:
        topic_id: Of the table that was copied; a restored topic gets another.
        taken_ms: When the backup began, since 1970.
        table_version: Of which it is a copy.
        table_format: Which edition of the table's format the files follow.
        config: The topic's settings that somebody made, by Kafka's names.
        partitions: In the order of their numbers.
    """

    topic: str
    topic_id: str
    taken_ms: int
    table_version: int
    table_format: int
    config: Mapping[str, str]
    partitions: tuple[PartitionCopy, ...]

    def files(self) -> Iterator[tuple[int, BackupFile]]:
        """Every file, with its partition."""
        for number, partition in enumerate(self.partitions):
            for file in partition.files:
                yield number, file

    @property
    def file_count(self) -> int:
        return sum(len(one.files) for one in self.partitions)

    @property
    def record_count(self) -> int:
        return sum(one.record_count for one in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(file.size_bytes for _, file in self.files())

    def registers(self) -> list[Register]:
        """What makes the offsets of a new table those of the backup."""
        found = []
        for number, one in enumerate(self.partitions):
            values = {
                registers.leo(number): one.log_end_offset,
                registers.lso(number): one.log_start_offset,
                registers.cleaned(number): one.cleaned_offset,
                registers.restored(number): one.log_end_offset,
                **one.tombstones,
            }
            found += [Register(name, value) for name, value in values.items() if value]
        return found

    def encoded(self) -> bytes:
        """As `manifest.json` has it."""
        body = {"backup_version": BACKUP_VERSION, **asdict(self)}
        body["partitions"] = [
            {"partition": number, "record_count": one.record_count, **asdict(one)}
            for number, one in enumerate(self.partitions)
        ]
        return json.dumps(body | {_CHECKSUM: _checksum(body)}, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, name: str) -> Manifest:
        """Reads what `encoded` wrote.

        Args:
            name: Of the file, for messages.

        Raises:
            UnsupportedTableError: A newer version of mainstem wrote it.
            LogDamagedError: It is torn or changed, or says what cannot be.
        """
        try:
            body = json.loads(data)
            version, checksum = body["backup_version"], body.pop(_CHECKSUM)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise _damaged(name, "it is torn or not a manifest") from None
        if not isinstance(version, int) or version > BACKUP_VERSION:
            raise UnsupportedTableError(
                f"the backup's manifest {name} has version {version}; this version of mainstem "
                f"reads {BACKUP_VERSION} and older: restore it with a newer one"
            )
        if checksum != _checksum(body):
            raise _damaged(name, "its checksum does not match, so it was changed")
        try:
            found = cls(
                body["topic"],
                body["topic_id"],
                body["taken_ms"],
                body["table_version"],
                body["table_format"],
                body["config"],
                tuple(map(_partition, body["partitions"])),
            )
            _check(found)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _damaged(name, str(error)) from error
        if found.table_format > FORMAT:
            raise UnsupportedTableError(
                f"the backup {name} is of a table of format {found.table_format}; this version of "
                f"mainstem knows {FORMAT}: restore it with a newer one"
            )
        return found


def read_manifest(source: ObjectStore) -> Manifest:
    """The manifest of the backup at the root of `source`.

    Raises:
        InvalidRequestError: There is none: it is no backup, or one that did not finish.
        UnsupportedTableError, LogDamagedError: As `Manifest.decode`.
        StoreUnavailableError: It cannot be read.
    """
    try:
        data = source.read(MANIFEST)
    except NotFound:
        raise InvalidRequestError(
            f"{source.uri} has no {MANIFEST}: it is not a backup, or its `topic backup` did not "
            "finish. Run that again"
        ) from None
    return Manifest.decode(data, f"{source.uri}/{MANIFEST}")


def tombstone_registers(state: TableState, partition: int) -> dict[str, int]:
    """Those of a partition that are in use."""
    prefix = f"{registers.TOMBSTONES}{partition}/"
    return {
        name: register.value
        for name, register in state.registers.items()
        if name.startswith(prefix) and register.value
    }


def _partition(body: Mapping[str, Any]) -> PartitionCopy:
    return PartitionCopy(
        body["log_start_offset"],
        body["log_end_offset"],
        body["cleaned_offset"],
        body["tombstones"],
        tuple(BackupFile(**file) for file in body["files"]),
    )


def _check(manifest: Manifest) -> None:
    """Raises ValueError for what no backup can say, whoever wrote it."""
    for number, one in enumerate(manifest.partitions):
        end = 0
        for file in one.files:
            path = _PATH.fullmatch(file.path)
            if path is None or int(path[1]) != number:
                raise ValueError(f"{file.path!r} is not a data file of partition {number}")
            if not end <= file.base_offset <= file.last_offset < one.log_end_offset:
                raise ValueError(f"the offsets of {file.path} do not fit those beside it")
            end = file.last_offset + 1
        prefix = f"{registers.TOMBSTONES}{number}/"
        if not all(name.startswith(prefix) for name in one.tombstones):
            raise ValueError(f"the registers of partition {number} are not of tombstones")
        if not 0 <= one.log_start_offset <= one.log_end_offset:
            raise ValueError(f"the offsets of partition {number} are not a range")


def _checksum(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _damaged(name: str, why: str) -> LogDamagedError:
    return LogDamagedError(f"the backup's manifest {name} cannot be used: {why}", file=name)
