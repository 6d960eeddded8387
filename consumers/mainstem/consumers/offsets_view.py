"""The durable rows of `system/consumer_offsets`, by group. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mainstem.consumers.offset_rows import GroupRow, OffsetKey, Place, Row, StoredOffset


class OffsetsView:
    """What groups have committed."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[OffsetKey, StoredOffset]] = {}
        self._groups: dict[str, GroupRow] = {}

    @property
    def groups(self) -> set[str]:
        """Every group with an offset or a row of its own."""
        return {*self._groups, *self._offsets}

    def group(self, name: str) -> GroupRow | None:
        """The group's own row."""
        return self._groups.get(name)

    def offsets(self, group: str) -> Mapping[OffsetKey, StoredOffset]:
        """The offsets of a group. The caller does not change them."""
        return self._offsets.get(group, {})

    def apply(self, row: Row) -> None:
        """See `View` of the tables of latest rows."""
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

    def row(self, place: Place) -> Row:
        """The row that is there."""
        group, key = place
        return Row(group, key, self._groups[group] if key is None else self._offsets[group][key])
