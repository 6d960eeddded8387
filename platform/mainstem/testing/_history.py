"""What producers were told and consumers saw, as operations; and the files that keep them.

An operation covers a run of records: those of one producer, one topic and one partition, with
numbers that follow each other. A producer numbers its records from 0 in each partition. Processes
write their operations as JSON lines, one file each. Times are monotonic: of one machine.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: ok: acknowledged; fail: refused, so certainly not in the log; unknown: nobody was told.
SendOutcome = Literal["ok", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Send:
    """A producer sent records `number` to `number + count - 1` to a partition.

    A process that may be killed writes a Send with `unknown` before it sends, and one with the
    outcome afterwards: of several about one record the strongest counts.

    Attributes:
        offset: As answered for the first record; -1: not told.
        acks: "0", "1" or "all". With "0" an ok promises nothing.
        idempotent: Its records are in the log at most once.
    """

    producer: str
    topic: str
    partition: int
    number: int
    count: int
    outcome: SendOutcome
    offset: int = -1
    acks: str = "all"
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """What a reader saw at consecutive offsets: one producer's records of consecutive numbers."""

    offset: int
    producer: str
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Read:
    """What one poll of a consumer gave it of a partition; or, as `whole`, all that a table has.

    Attributes:
        sought: The consumer had chosen a new position before this poll.
        whole: The content of the log at the end, when nothing was under way any more.
        group: That the consumer is a member of; empty: none.
    """

    consumer: str
    topic: str
    partition: int
    runs: tuple[Run, ...]
    sought: bool = False
    whole: bool = False
    group: str = ""


@dataclass(frozen=True, slots=True)
class Ownership:
    """A partition came to a member of a group, or went; among the member's polls, in their order.

    Attributes:
        change: assigned; revoked: it was asked to give it up; lost: others may have it already.
        at_ms: When the member was told.
    """

    consumer: str
    group: str
    topic: str
    partition: int
    change: Literal["assigned", "revoked", "lost"]
    at_ms: int


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """An offset commit that was acknowledged; or what somebody was told who asked for the offset.

    Attributes:
        offset: The next one to read.
        began_ms, ended_ms: When it was asked for, and when the answer was there.
    """

    consumer: str
    group: str
    topic: str
    partition: int
    offset: int
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """A row of the table of committed offsets; among the others, in the table's order."""

    group: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Output:
    """All that an exactly-once group has stored of a partition, in the order of storing."""

    group: str
    topic: str
    partition: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """The records at these offsets may have gone by a policy of the topic: nobody has to see them.

    Work it out from what was sent and the topic's settings, not from what is left: a job that
    removes too much would be excused.

    Attributes:
        end_offset: Exclusive.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int


Operation = Send | Read | Ownership | OffsetCommit | OffsetRow | Output | Removed

_NAMES: Final[dict[type[Operation], str]] = {
    Send: "send",
    Read: "read",
    Ownership: "ownership",
    OffsetCommit: "offset commit",
    OffsetRow: "offset row",
    Output: "output",
    Removed: "removed",
}
_CLASSES: Final = {name: kind for kind, name in _NAMES.items()}


def runs_of(offsets: npt.ArrayLike, producers: pa.Array, numbers: npt.ArrayLike) -> tuple[Run, ...]:
    """Records as runs, in the order in which they are given.

    Args:
        producers: Their names, as binary or string.
    """
    at, number = np.asarray(offsets, dtype=np.int64), np.asarray(numbers, dtype=np.int64)
    if not at.size:
        return ()
    names = producers.cast(pa.string()).dictionary_encode()
    owners = np.asarray(names.indices)
    breaks = (np.diff(owners) != 0) | (np.diff(number) != 1) | (np.diff(at) != 1)
    starts = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(at)]
    return tuple(
        Run(int(at[first]), names.dictionary[int(owners[first])].as_py(), int(number[first]), size)
        for first, size in ((first, end - first) for first, end in pairwise(starts))
    )


class HistoryWriter:
    """Writes operations to a file, each one whole before the call returns. Thread-safe."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file: IO[str] = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._lock = threading.Lock()

    def write(self, operation: Operation) -> None:
        """Appends one operation."""
        line = json.dumps(to_json(operation), separators=(",", ":"))
        with self._lock:
            self._file.write(line + "\n")

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_history(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Operation]:
    """The operations of several files. A last line without an end, of a killed process, is skipped.

    Raises:
        ValueError: Another line is no operation; the message names file and line.
    """
    for path in paths:
        for number, line in enumerate(Path(path).read_bytes().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                continue
            try:
                yield from_json(json.loads(line))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise ValueError(f"{path}, line {number} is no operation: {error!r}") from error


def to_json(operation: Operation) -> dict[str, Any]:
    """An operation as one JSON object."""
    return {"op": _NAMES[type(operation)], **asdict(operation)}


def from_json(body: Mapping[str, Any]) -> Operation:
    """The inverse of `to_json`."""
    fields = dict(body)
    kind = _CLASSES[fields.pop("op")]
    if "runs" in fields:
        fields["runs"] = tuple(Run(**run) for run in fields["runs"])
    return kind(**fields)
