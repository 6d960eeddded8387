"""The rows of `system/consumer_offsets` that count: the latest one of each key. Pure.

A row that was accepted supersedes those before it at once: what is to be rewritten goes by that.
What readers see changes when the row is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from mainstem.consumers.offset_rows import GroupRow, OffsetKey, Row, StoredOffset

#: A group, and one of its offsets or None for its own row.
Place = tuple[str, OffsetKey | None]


class Placed(NamedTuple):
    """A row with the offset that it has in the log."""

    log_offset: int
    row: Row


class LiveRows:
    """The latest row of each key, by the offset at which the log has it."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[OffsetKey, StoredOffset]] = {}
        self._groups: dict[str, GroupRow] = {}
        #: Where the latest accepted row of each key is, durable or not, in the order of the log.
        self._newest: dict[Place, int] = {}
        #: Rows before this offset of the log show.
        self._shown_end = 0

    @classmethod
    def of(cls, newest_first: Iterable[Placed], end_offset: int) -> Self:
        """What a log has that ends at `end_offset`: the live row of each key, the last one of the
        log first."""
        live = cls()
        for log_offset, row in newest_first:
            live._newest[row.group, row.key] = log_offset
            live._apply(row)
        live._newest = dict(reversed(live._newest.items()))
        live._shown_end = end_offset
        return live

    def __len__(self) -> int:
        """Keys with a row, durable or not."""
        return len(self._newest)

    @property
    def groups(self) -> set[str]:
        """Every group with an offset or a row of its own."""
        return {*self._groups, *self._offsets}

    @property
    def shown_end(self) -> int:
        """The offset of the log up to which rows are durable and show."""
        return self._shown_end

    def group(self, name: str) -> GroupRow | None:
        return self._groups.get(name)

    def offsets(self, group: str) -> Mapping[OffsetKey, StoredOffset]:
        """The durable offsets of a group. The caller does not change them."""
        return self._offsets.get(group, {})

    def accept(self, rows: Iterable[Row], base_offset: int) -> None:
        """Notes rows that follow each other in the log from `base_offset` on: the newest ones."""
        newest = self._newest
        for log_offset, row in enumerate(rows, start=base_offset):
            place = row.group, row.key
            newest.pop(place, None)  # to the end: the order is that of the log
            if row.value is not None:
                newest[place] = log_offset

    def show(self, rows: Iterable[Row], end_offset: int) -> None:
        """Notes that rows which were accepted are durable, and all others before `end_offset`."""
        for row in rows:
            self._apply(row)
        self._shown_end = max(self._shown_end, end_offset)

    def oldest(self, end_offset: int, count_max: int) -> list[Placed]:
        """The live rows that are the first in the log, before `end_offset`, which show already."""
        assert end_offset <= self._shown_end
        found: list[Placed] = []
        for (group, key), log_offset in self._newest.items():
            if log_offset >= end_offset or len(found) == count_max:
                break
            value = self._groups[group] if key is None else self._offsets[group][key]
            found.append(Placed(log_offset, Row(group, key, value)))
        return found

    def first_offset(self, end_offset: int) -> int:
        """Where the first live row is in the log; at most `end_offset`."""
        return min(next(iter(self._newest.values()), end_offset), end_offset)

    def is_newest(self, placed: Placed) -> bool:
        """Whether nothing was accepted that supersedes the row."""
        return self._newest.get((placed.row.group, placed.row.key)) == placed.log_offset

    def _apply(self, row: Row) -> None:
        if row.key is None:
            if isinstance(row.value, GroupRow):
                self._groups[row.group] = row.value
            else:
                self._groups.pop(row.group, None)
        elif isinstance(row.value, StoredOffset):
            self._offsets.setdefault(row.group, {})[row.key] = row.value
        elif row.group in self._offsets:
            self._offsets[row.group].pop(row.key, None)
            if not self._offsets[row.group]:
                del self._offsets[row.group]
