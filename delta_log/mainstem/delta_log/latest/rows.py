"""The rows of a table that count: the latest one of each key. Pure.

A row that was accepted supersedes those before it at once: what is to be rewritten goes by that.
What readers see changes when the row is durable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar


class LatestRow(Protocol):
    """A row of such a table, as its users know it."""

    @property
    def place(self) -> Any:
        """Says which key it is: hashable, the same for all rows of a key and for no other's."""
        ...

    @property
    def takes_away(self) -> bool:
        """Whether it takes its key away: then it has no value."""
        ...

    def encode(self) -> tuple[bytes, bytes | None]:
        """Key and value as the table has them. A key's bytes are always the same."""
        ...


Row = TypeVar("Row", bound=LatestRow)


class View(Protocol[Row]):
    """The durable rows, in the form in which the table's readers ask for them."""

    def apply(self, row: Row) -> None:
        """Puts a row in the place of the one before it, or takes that away."""
        ...

    def row(self, place: Any) -> Row:
        """The row that was applied last in a place; it is one that did not take it away."""
        ...


class RowsByPlace(Generic[Row]):
    """The plain view.

    Attributes:
        rows: The durable row of each place. The caller does not change them.
    """

    def __init__(self) -> None:
        self.rows: dict[Any, Row] = {}

    def apply(self, row: Row) -> None:
        """See `View`."""
        if row.takes_away:
            self.rows.pop(row.place, None)
        else:
            self.rows[row.place] = row

    def row(self, place: Any) -> Row:
        """See `View`."""
        return self.rows[place]


class Placed(NamedTuple, Generic[Row]):
    """A row with the offset that it has in the log."""

    log_offset: int
    row: Row


class LatestRows(Generic[Row]):
    """The latest row of each key, by the offset at which the log has it.

    Args:
        view: Gets each row when it is durable. Empty.
    """

    def __init__(self, view: View[Row]) -> None:
        self._view = view
        #: Where the latest accepted row of each key is, durable or not, in the order of the log.
        self._newest: dict[Any, int] = {}
        #: Rows before this offset of the log show.
        self._shown_end = 0

    @classmethod
    def of(cls, view: View[Row], newest_first: Iterable[Placed[Row]], end_offset: int) -> Self:
        """What a log has that ends at `end_offset`: the live row of each key, the last one of the
        log first."""
        latest = cls(view)
        for log_offset, row in newest_first:
            latest._newest[row.place] = log_offset
            view.apply(row)
        latest._newest = dict(reversed(latest._newest.items()))
        latest._shown_end = end_offset
        return latest

    def __len__(self) -> int:
        """Keys with a row, durable or not."""
        return len(self._newest)

    @property
    def shown_end(self) -> int:
        """The offset of the log up to which rows are durable and show."""
        return self._shown_end

    def accept(self, rows: Iterable[Row], base_offset: int) -> None:
        """Notes rows that follow each other in the log from `base_offset` on: the newest ones."""
        newest = self._newest
        for log_offset, row in enumerate(rows, start=base_offset):
            place = row.place
            newest.pop(place, None)  # to the end: the order is that of the log
            if not row.takes_away:
                newest[place] = log_offset

    def show(self, rows: Iterable[Row], end_offset: int) -> None:
        """Notes that rows which were accepted are durable, and all others before `end_offset`."""
        for row in rows:
            self._view.apply(row)
        self._shown_end = max(self._shown_end, end_offset)

    def oldest(self, end_offset: int, count_max: int) -> list[Placed[Row]]:
        """The live rows that are the first in the log, before `end_offset`, which show already."""
        assert end_offset <= self._shown_end
        found: list[Placed[Row]] = []
        for place, log_offset in self._newest.items():
            if log_offset >= end_offset or len(found) == count_max:
                break
            found.append(Placed(log_offset, self._view.row(place)))
        return found

    def first_offset(self, end_offset: int) -> int:
        """Where the first live row is in the log; at most `end_offset`."""
        return min(next(iter(self._newest.values()), end_offset), end_offset)

    def is_newest(self, placed: Placed[Row]) -> bool:
        """Whether nothing was accepted that supersedes the row."""
        return self._newest.get(placed.row.place) == placed.log_offset
