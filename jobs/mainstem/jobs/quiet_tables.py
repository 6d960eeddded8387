"""Tables in which a job has found nothing to do: until when, and at which version, no look is
needed. Pure.

A pass of a job over a thousand topics of which ten have changed opens ten. For that, a process that
runs a job again and again keeps a small note of each table that was as the job wants it. The note
is about the job's own plan, which is a pure function of the table and the time: with the table as
it was, and no time reached at which something comes due, it would be the same plan again.

A note counts only
- while the table is at the version that it is about: the caller looks, see `VersionMark`,
- from the time it was made at, so that a clock that was set back counts for nothing,
- until something comes due by time alone,
- for `NOTE_MS_MAX`. Damage on the disk comes without a commit: a table is opened and looked at once
  in that time, whatever its note says.

What could not be looked at, or had something to do, has no note.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from mainstem.delta_log.store import time_elapsed_ms
from mainstem.delta_log.table import VersionMark

#: The longest that a table is passed over, by a clock that nobody sets.
NOTE_MS_MAX: Final = 86_400_000

#: Notes that are kept, of half a kilobyte each. Tables beyond are looked at in each pass; to put
#: out others for them would leave no note in place until the next pass.
NOTES_MAX: Final = 50_000


@dataclass(frozen=True, slots=True)
class _Note:
    """What was found at one look.

    Attributes:
        made_ms, due_ms: By the wall clock, as the job's plans.
        elapsed_ms: By the clock that nobody sets.
    """

    mark: VersionMark
    made_ms: int
    due_ms: int
    elapsed_ms: int


class QuietTables:
    """The notes of one job, with the same options each time. One pass at a time.

    Args:
        notes_max: How many are kept.
        elapsed_ms: A clock that nobody sets and that goes on while the machine is suspended.
    """

    def __init__(
        self, notes_max: int = NOTES_MAX, elapsed_ms: Callable[[], int] = time_elapsed_ms
    ) -> None:
        self._notes_max = notes_max
        self._elapsed_ms = elapsed_ms
        self._notes: dict[str, _Note] = {}

    def __len__(self) -> int:
        return len(self._notes)

    def mark(self, table: str, now_ms: int) -> VersionMark | None:
        """What the table is to be compared with: if that is still the newest, there is nothing to
        do. None: it has to be looked at whatever its version is.

        Args:
            now_ms: The wall clock, by which the job would plan.
        """
        note = self._notes.get(table)
        if note is None or not note.made_ms <= now_ms < note.due_ms:
            return None
        if self._elapsed_ms() - note.elapsed_ms >= NOTE_MS_MAX:
            return None
        return note.mark

    def looked(self, table: str, mark: VersionMark | None, now_ms: int, due_ms: int) -> None:
        """The table was opened, and there was nothing to do.

        Args:
            mark: Of the version that was looked at, taken before anything else was read.
            now_ms: The wall clock that the job planned by.
            due_ms: The first time at which there may be something to do without another commit.
        """
        self.forget(table)
        if mark is not None and now_ms < due_ms and len(self._notes) < self._notes_max:
            self._notes[table] = _Note(mark, now_ms, due_ms, self._elapsed_ms())

    def forget(self, table: str) -> None:
        """There is something to do, or the table could not be looked at."""
        self._notes.pop(table, None)

    def keep_only(self, tables: Collection[str]) -> None:
        """Drops the notes of tables that are not in the pass: they were deleted."""
        for table in self._notes.keys() - set(tables):
            del self._notes[table]
