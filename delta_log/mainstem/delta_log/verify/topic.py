"""Proves that a topic's table is what the log promises: reads all of it, changes nothing.

Reads one data file at a time. What is kept beside the table's state is a line for each listed file
and the last sequence of each producer of one partition.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mainstem.delta_log.files import check_data_file, read_data_file
from mainstem.delta_log.format import (
    DataFile,
    LogFiles,
    checkpoint_path,
    parquet_file,
    registers,
)
from mainstem.delta_log.store import NotFound, ObjectStore, StoreFolder
from mainstem.delta_log.table import TableState, load_table
from mainstem.delta_log.topics import OFFSETS_TABLE, SYSTEM, TOPICS
from mainstem.delta_log.upkeep import damaged_checkpoints, pointer_fault
from mainstem.delta_log.verify.commits import CommitWalk
from mainstem.delta_log.verify.sequences import SequenceCheck
from mainstem.errors import (
    LogDamagedError,
    MainstemError,
    StoreUnavailableError,
    UnknownTopicError,
    UnsupportedTableError,
)
from mainstem.records import check_topic_name

#: Every check, in the order in which they are reported.
CHECKS: Final = ("log", "files", "offsets", "registers", "statistics", "sequences", "commits")

#: Those of a table of rows that replace each other, where no offset has to stay.
ROW_CHECKS: Final = ("log", "files", "statistics")

#: Findings of one check that are kept with their text; all are counted.
FINDINGS_MAX: Final = 20

_EVERYWHERE: Final = (-(2**62), 2**62)

_KEEP = "stop writing to the topic, keep the table as it is, and report it"
_RESTORE = "restore the file from a copy of the store"

_MEND = "run `mainstem job run log-cleanup -T <topic>`, which writes it again from the commit files"

#: What to do, by the code of a finding.
ADVICE: Final = {
    "LOG_DAMAGED": _RESTORE,
    "UNSUPPORTED_TABLE": (
        "use the version of mainstem that wrote the table, or move another writer's out of `topics`"
    ),
    "FILE_MISSING": _RESTORE,
    "FILE_SIZE": _RESTORE,
    "FILE_DAMAGED": _RESTORE,
    "FILES_OVERLAP": _KEEP,
    "OFFSET_GAP": _KEEP,
    "OFFSET_ORDER": _KEEP,
    "REGISTER_WRONG": _KEEP,
    "STATISTICS_WRONG": "readers may skip the file's records: " + _KEEP,
    "SEQUENCE_DUPLICATE": "records are in the log twice: " + _KEEP,
    "SEQUENCE_GAP": "records of the producer are missing: " + _KEEP,
    "COMMIT_WRONG": _KEEP,
    "CHECKPOINT_DAMAGED": _MEND,
    "POINTER_WRONG": _MEND,
    "CHECKPOINT_WRONG": "delete the checkpoint and `_last_checkpoint`; the commit files have all",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as promised: a stable code, and what is wrong where."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.message}; {ADVICE[self.code]}"


@dataclass(slots=True)
class CheckResult:
    """What one check saw.

    Attributes:
        checked_count: Of files, records, registers or commits: what the check looks at.
        finding_count: May be more than `findings` has.
    """

    check: str
    checked_count: int = 0
    finding_count: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, code: str, message: str) -> None:
        """Notes a finding."""
        assert code in ADVICE
        self.finding_count += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(code, message))


@dataclass(frozen=True, slots=True)
class TopicReport:
    """A topic's checks, as of one version of its table.

    Attributes:
        results: One for each of `CHECKS`; only the first where the log cannot be read at all.
        notes: What is no fault and worth knowing.
    """

    topic: str
    table_version: int
    file_count: int
    record_count: int
    results: tuple[CheckResult, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not any(result.finding_count for result in self.results)

    @property
    def findings(self) -> list[Finding]:
        """Those that were kept, of all checks."""
        return [finding for result in self.results for finding in result.findings]


def verify_topic(store: ObjectStore, topic: str) -> TopicReport:
    """Reads the whole table at the root of `store` and judges it. Blocks.

    Safe while a gateway writes: it looks at the version that was newest when it began.

    Raises:
        UnknownTopicError: There is no table, or it is being deleted.
        StoreUnavailableError: The store failed; nothing can be said.
    """
    log = CheckResult("log", checked_count=1)
    try:
        state = load_table(store)
    except LogDamagedError as error:
        log.add(
            "UNSUPPORTED_TABLE" if isinstance(error, UnsupportedTableError) else "LOG_DAMAGED",
            error.message,
        )
        return TopicReport(topic, -1, 0, 0, (log,), ())
    if state.deleted:
        raise UnknownTopicError(f"topic {topic!r} was deleted", topic=topic)
    return _Verification(store, topic, state, log).run()


def verify_named(warehouse: ObjectStore, topic: str) -> TopicReport:
    """`verify_topic` for a topic of a warehouse, by name.

    Raises:
        InvalidTopicError, UnknownTopicError, StoreUnavailableError: Nothing can be said.
    """
    check_topic_name(topic)
    return verify_topic(StoreFolder(warehouse, f"{TOPICS}/{topic}"), topic)


def verify_system_table(warehouse: ObjectStore, name: str) -> TopicReport:
    """`verify_topic` for a table of the platform's own, below `system/`.

    The table of committed offsets is a log as a topic's is. The others are rows that replace each
    other, of which `ROW_CHECKS` are made.

    Raises:
        InvalidTopicError, UnknownTopicError, StoreUnavailableError: Nothing can be said.
    """
    check_topic_name(name)
    table = f"{SYSTEM}/{name}"
    report = verify_topic(StoreFolder(warehouse, table), table)
    if name == OFFSETS_TABLE:
        return report
    return replace(report, results=tuple(one for one in report.results if one.check in ROW_CHECKS))


class _Verification:
    def __init__(self, store: ObjectStore, topic: str, state: TableState, log: CheckResult) -> None:
        self._store = store
        self._topic = topic
        self._state = state
        self._newest: TableState | None = None
        self._results = {check: CheckResult(check) for check in CHECKS} | {"log": log}
        self._notes: list[str] = []
        self._listings: dict[str, dict[str, int]] = {}
        self._record_count = 0
        self._unchecked_count = 0
        self._walk = CommitWalk(store, state, self._results["commits"], self._results["statistics"])

    def run(self) -> TopicReport:
        self._walk.run()
        self._check_checkpoints()
        partitions = {file.partition for file in self._state}
        for partition in sorted(partitions | set(range(self._state.partition_count))):
            _Partition(self, partition).check()
        self._check_global_registers()
        self._note_orphans()
        if self._unchecked_count:
            self._notes.append(
                f"{self._unchecked_count} files were written before files had checksums: a changed "
                "byte in them may not be found. Compaction writes them again"
            )
        return TopicReport(
            self._topic,
            self._state.version,
            self._state.file_count,
            self._record_count,
            tuple(self._results[check] for check in CHECKS),
            tuple(self._notes),
        )

    def result(self, check: str) -> CheckResult:
        return self._results[check]

    @property
    def store(self) -> ObjectStore:
        return self._store

    @property
    def state(self) -> TableState:
        return self._state

    @property
    def walk(self) -> CommitWalk:
        return self._walk

    def read_records(self, count: int) -> None:
        self._record_count += count

    def check_present(self, file: DataFile) -> bool:
        """Whether the file is there, or is in the table no more; notes a finding if not."""
        files = self._results["files"]
        files.checked_count += 1
        directory, name = posixpath.split(file.path)
        size = self._listing(directory).get(name)
        if size is None:
            # While files come and go, a listing can lack one that was there all the time.
            try:
                with self._store.open(file.path) as opened:
                    size = opened.size()
            except NotFound:
                if self.still_active(file):
                    files.add(
                        "FILE_MISSING",
                        f"{file.path} with offsets {file.base_offset} to {file.last_offset} "
                        f"of partition {file.partition} is not there",
                    )
                return False
        if size != file.size_bytes:
            files.add("FILE_SIZE", f"{file.path} has {size} bytes; the log says {file.size_bytes}")
            return False
        self._unchecked_count += file.tail_crc32c is None
        return True

    def still_active(self, file: DataFile) -> bool:
        """Whether the newest version has the file: maintenance may have removed it meanwhile."""
        if self._newest is None or self._newest.is_active(file.path):
            self._newest = load_table(self._store)
        return self._newest.is_active(file.path)

    def _listing(self, directory: str) -> dict[str, int]:
        found = self._listings.get(directory)
        if found is None:
            listed = self._store.list_files(directory)
            found = self._listings[directory] = {info.name: info.size_bytes for info in listed}
        return found

    def _check_checkpoints(self) -> None:
        """Those that readers begin with can be read, and their statistics have no nulls.

        The walk looks at the statistics in the commit files.
        """
        log = self._results["log"]
        try:
            for _, error in damaged_checkpoints(self._store, LogFiles.of(self._store)):
                log.add("CHECKPOINT_DAMAGED", error.message)
        except StoreUnavailableError as error:
            log.add("CHECKPOINT_DAMAGED", error.message)
        fault = pointer_fault(self._store)
        if fault is not None:
            log.add("POINTER_WRONG", fault)
        used = self._state.checkpoint_version
        if used >= 0:
            # Where log clean-up has come in between, another checkpoint says the same.
            with contextlib.suppress(NotFound, MainstemError, pa.ArrowException, OSError):
                for path, stats in _checkpoint_stats(self._store, used):
                    if self._state.is_active(path):
                        self._walk.check_null_count(path, stats)

    def _check_global_registers(self) -> None:
        result = self._results["registers"]
        for register in self._state.registers.values():
            result.checked_count += 1
            if register.value < 0:
                result.add("REGISTER_WRONG", f"the register {register.name} is {register.value}")

    def _note_orphans(self) -> None:
        count = size_bytes = 0
        for directory in self._store.list_directories(""):
            if directory.startswith("_"):
                continue  # the log, and what is no data of the table
            for name, size in self._listing(directory).items():
                if not self._state.is_active(f"{directory}/{name}"):
                    count += 1
                    size_bytes += size
        if count:
            self._notes.append(
                f"{count} files with {size_bytes} bytes are not in the table: being written, "
                "left by a process that was killed, or removed and not yet vacuumed"
            )


class _Partition:
    """Reads one partition, file by file, in the order of offsets."""

    def __init__(self, verification: _Verification, partition: int) -> None:
        self._all = verification
        self._state = verification.state
        self._partition = partition
        #: Keyed compaction may have taken records before it, and nobody else any.
        self._cleaned = self._state.cleaned_offset(partition)
        self._sequences = SequenceCheck(
            self._state,
            partition,
            verification.walk,
            verification.result("sequences"),
            verification.result("registers"),
        )

    def check(self) -> None:
        state, partition, cleaned = self._state, self._partition, self._cleaned
        offsets = self._all.result("offsets")
        start, end = state.log_start_offset(partition), state.log_end_offset(partition)
        files = state.files(partition).sorted()
        where = f"partition {partition}"
        if files and partition >= state.partition_count:
            self._all.result("files").add(
                "COMMIT_WRONG",
                f"{files[0].path} is of {where}; the topic has {state.partition_count}",
            )
        expected: int | None = None
        for file in files:
            if expected is not None and file.base_offset < expected:
                offsets.add(
                    "FILES_OVERLAP",
                    f"{file.path} begins at offset {file.base_offset} of {where}, "
                    f"and another file has offsets up to {expected - 1}",
                )
            elif expected is not None and file.base_offset > max(expected, cleaned):
                offsets.add(
                    "OFFSET_GAP",
                    f"offsets {max(expected, cleaned)} to {file.base_offset - 1} of {where} are in "
                    "no file",
                )
            if self._all.check_present(file):
                self._check_file(file)
            expected = max(expected or 0, file.last_offset + 1)
        result = self._all.result("registers")
        held_start = files[0].base_offset if files else end
        if expected is not None and expected != end and not expected < end <= cleaned:
            result.add(
                "REGISTER_WRONG",
                f"{registers.leo(partition)} is {end}; the files of {where} end at {expected}",
            )
        if not held_start <= max(start, cleaned) or start > end:
            result.add(
                "REGISTER_WRONG",
                f"{registers.lso(partition)} is {start}; "
                f"the files of {where} have offsets {held_start} to {end}",
            )
        elif files and files[0].last_offset < start:
            result.add(
                "REGISTER_WRONG",
                f"{registers.lso(partition)} is {start}; {files[0].path} of {where}, with offsets "
                f"up to {files[0].last_offset}, lies before it and is still in the table",
            )
        if cleaned > end:
            result.add(
                "REGISTER_WRONG",
                f"{registers.cleaned(partition)} is {cleaned}; {where} ends at {end}",
            )
        self._sequences.check_registers()

    def _check_file(self, file: DataFile) -> None:
        first, last, count = 2**63 - 1, -1, 0
        earliest, latest = 2**63 - 1, -(2**63)
        expected = file.base_offset
        try:
            check_data_file(self._all.store, file)
            for batch in read_data_file(self._all.store, file, *_EVERYWHERE):
                offsets = np.asarray(batch.column("offset").to_numpy())
                self._check_order(file, offsets, expected)
                expected = int(offsets[-1]) + 1
                count += len(offsets)
                first, last = min(first, int(offsets.min())), max(last, int(offsets.max()))
                times = batch.column("timestamp")
                if times.null_count:
                    self._all.result("statistics").add(
                        "STATISTICS_WRONG",
                        f"{file.path} has {times.null_count} records without timestamp",
                    )
                    continue
                micros = np.asarray(times.view(pa.int64()))
                earliest = min(earliest, int(micros.min()))
                latest = max(latest, int(micros.max()))
                self._sequences.take(file, offsets, batch)
        except (LogDamagedError, StoreUnavailableError, KeyError) as error:
            what = error.message if isinstance(error, MainstemError) else f"no column {error}"
            if self._all.still_active(file):
                self._all.result("files").add("FILE_DAMAGED", f"{file.path}: {what}")
            return
        self._all.read_records(count)
        self._all.result("offsets").checked_count += count
        self._check_statistics(
            file,
            {
                "numRecords": (file.record_count, count),
                "minValues.offset": (file.base_offset, first),
                "maxValues.offset": (file.last_offset, last),
                "minValues.timestamp": (file.timestamp_ms_min * 1000, earliest),
                "maxValues.timestamp": (file.timestamp_ms_max * 1000, latest),
            },
        )

    def _check_order(self, file: DataFile, offsets: npt.NDArray[np.int64], expected: int) -> None:
        steps = np.diff(offsets, prepend=expected - 1)
        wrong = np.flatnonzero((steps < 1) | ((steps > 1) & (offsets > self._cleaned)))
        if not wrong.size:
            return
        row = int(wrong[0])
        before = int(offsets[row]) - int(steps[row])
        code = "OFFSET_ORDER" if steps[row] < 1 else "OFFSET_GAP"
        self._all.result("offsets").add(
            code,
            f"in {file.path} offset {int(offsets[row])} of partition {self._partition} "
            f"follows {before}",
        )

    def _check_statistics(self, file: DataFile, values: dict[str, tuple[int, int]]) -> None:
        result = self._all.result("statistics")
        result.checked_count += 1
        for name, (said, found) in values.items():
            if said != found:
                result.add(
                    "STATISTICS_WRONG",
                    f"the log says {name} {said} of {file.path}; the file has {found}",
                )


def _checkpoint_stats(store: ObjectStore, version: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, statistics) of the files that a checkpoint names."""
    with (
        store.open(checkpoint_path(version)) as source,
        parquet_file(source) as parquet,
    ):
        for batch in parquet.iter_batches(columns=["add.path", "add.stats"]):
            for row in batch.column("add").to_pylist():
                if row and row.get("path") is not None:
                    yield unquote(row["path"]), json.loads(row["stats"])
