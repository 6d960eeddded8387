"""Who owns which partition of a group, and since when all is shared out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

Partition = tuple[str, int]

#: Of partitions divided by members. A range assignor gives some members a few more than others.
_FAIR: Final = 0.9


class Ownership:
    """What the members of a group say.

    Args:
        partitions: All that the group shall own.
        members: How many members share them, numbered from 0.

    Attributes:
        complete_since_s: Since when every partition has exactly one owner, every member has its
            share, and nothing changed; by the clock of who tells. None: it is not so.
    """

    def __init__(self, partitions: Iterable[Partition], members: int) -> None:
        self._partitions: Final = frozenset(partitions)
        self._owned: dict[int, frozenset[Partition]] = {n: frozenset() for n in range(members)}
        self._changed_at_s = float("-inf")
        self.complete_since_s: float | None = None

    @property
    def counts(self) -> list[int]:
        """Of partitions, by member."""
        return [len(owned) for owned in self._owned.values()]

    def tell(self, member: int, owned: Collection[Partition], at_s: float) -> None:
        """What a member owns from now on; what one says that is lost does not count."""
        if member in self._owned:
            self._owned[member] = frozenset(owned)
            self._note(at_s)

    def lose(self, member: int, at_s: float) -> None:
        """A member is gone: nobody owns what it had."""
        del self._owned[member]
        self._note(at_s)

    def is_stable(self, now_s: float, hold_s: float) -> bool:
        """Whether it has been complete and unchanged for so long."""
        return self.complete_since_s is not None and now_s >= self.complete_since_s + hold_s

    def _note(self, at_s: float) -> None:
        # Members' lines come through pipes of their own, so an earlier one may come later.
        self._changed_at_s = max(self._changed_at_s, at_s)
        total = len(self._partitions)
        complete = (
            sum(self.counts) == total
            and frozenset().union(*self._owned.values()) == self._partitions
            and min(self.counts) >= _FAIR * total / len(self._owned)
        )
        self.complete_since_s = self._changed_at_s if complete else None
