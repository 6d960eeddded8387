"""Rows of the audit that wait to be written: bounded, the same refusals counted as one. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final

from mainstem.ingest_gateway.audit.row import AuditKind, AuditRow

#: Refusals that are the same, so long after the first, are one row.
SAME_S: Final = 1.0

#: Different refusals of one principal at one address in that time that get a row each. Who asks for
#: a thousand names that they may not see must not fill the table.
DIFFERENT_MAX: Final = 50

_OTHERS: Final = f"others, after {DIFFERENT_MAX} different ones in a second"


class _Waiting:
    __slots__ = ("began_at", "count", "row")

    def __init__(self, row: AuditRow, began_at: float) -> None:
        self.row = row
        self.count = row.count
        self.began_at = began_at


class AuditQueue:
    """Rows from `add` to `written`.

    Args:
        rows_max: That wait or are being written. What comes when there are so many is left out, and
            counted.
        now_ms: The time of day.
        elapsed_s: A clock that only goes forward.
    """

    def __init__(
        self, rows_max: int, now_ms: Callable[[], int], elapsed_s: Callable[[], float]
    ) -> None:
        self._rows_max = rows_max
        self._now_ms = now_ms
        self._elapsed_s = elapsed_s
        self._waiting: list[_Waiting] = []
        self._same: dict[Hashable, _Waiting] = {}
        self._different: Counter[tuple[str, str]] = Counter()
        self._different_since = elapsed_s()
        self._taken_count = 0
        self._left_out = 0

    def __len__(self) -> int:
        """Rows that wait or are being written."""
        return len(self._waiting) + self._taken_count

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not len(self) and not self._left_out

    def add(self, row: AuditRow) -> bool:
        """Has the row wait; False: it is left out."""
        if len(self) >= self._rows_max:
            self._left_out += row.count
            return False
        self._waiting.append(_Waiting(row.bounded(), self._elapsed_s()))
        return True

    def add_same(self, row: AuditRow) -> bool:
        """The same for what may come as a flood: refusals, and sign-ins that fail. One that is as
        an earlier one of the last second is counted there."""
        now_s = self._elapsed_s()
        if now_s - self._different_since >= SAME_S:
            self._different_since = now_s
            self._different.clear()
        row = row.bounded()
        key: Hashable = _key(row)
        if not self._counted(key, row.count, now_s):
            who = (row.principal if row.kind is AuditKind.REFUSAL else "", row.host)
            self._different[who] += 1
            if self._different[who] > DIFFERENT_MAX:
                row = _others(row)
                key = _key(row)
                if self._counted(key, row.count, now_s):
                    return True
            if not self.add(row):
                return False
            self._same[key] = self._waiting[-1]
        return True

    def take(self, rows_max: int) -> list[AuditRow]:
        """The next rows to write, the oldest first; until `written` they count as waiting. With
        them one that tells how many were left out."""
        assert not self._taken_count, "written() was not called"
        taken, self._waiting = self._waiting[:rows_max], self._waiting[rows_max:]
        self._same.clear()
        rows = [replace(one.row, count=one.count) for one in taken]
        self._taken_count = len(rows)
        if self._left_out:
            rows.append(
                AuditRow(AuditKind.LEFT_OUT, self._now_ms(), count=self._left_out, allowed=False)
            )
            self._left_out = 0
        return rows

    def written(self) -> None:
        """What was taken is in the table."""
        self._taken_count = 0

    def _counted(self, key: Hashable, count: int, now_s: float) -> bool:
        same = self._same.get(key)
        if same is None or now_s - same.began_at >= SAME_S:
            return False
        same.count += count
        return True


def _key(row: AuditRow) -> Hashable:
    return (
        row.kind,
        row.principal,
        row.host,
        row.call,
        row.operation,
        row.resource_type,
        row.resources,
        row.error,
    )


def _others(row: AuditRow) -> AuditRow:
    is_refusal = row.kind is AuditKind.REFUSAL
    return replace(
        row,
        principal=row.principal if is_refusal else "",
        client_id="",
        call="",
        operation="",
        resource_type="",
        resources=(),
        resource_count=0,
        error="",
        summary=_OTHERS,
    )
