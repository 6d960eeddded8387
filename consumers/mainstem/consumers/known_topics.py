"""The topics that a coordinator knows, and which of them a subscription means. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.consumers.assignors import TopicInfo
from mainstem.consumers.group import Member


class KnownTopics:
    """Topics by name.

    Attributes:
        infos: What `update` has said.
    """

    def __init__(self) -> None:
        self.infos: dict[str, TopicInfo] = {}
        self._matches: dict[str, frozenset[str]] = {}

    def update(self, changes: Mapping[str, TopicInfo | None]) -> set[str]:
        """Takes what is known now; None: there is no such topic. Returns the names that changed."""
        different = {name for name, info in changes.items() if self.infos.get(name) != info}
        for name in different:
            info = changes[name]
            if info is None:
                self.infos.pop(name, None)
            else:
                self.infos[name] = info
        if different:
            self._matches.clear()
        return different

    def wanted_by(self, member: Member) -> frozenset[str]:
        """The names that the member's subscription means, existing or not."""
        if not member.topic_pattern:
            return member.topics
        matching = self._matching(member.topic_pattern)
        may_read = member.may_read
        if may_read is not None:
            matching = frozenset(name for name in matching if may_read(name))
        return member.topics | matching

    def missing(self, names: Iterable[str], count_max: int) -> tuple[str, ...]:
        """Those that are not known, `count_max` of them at most."""
        return tuple(islice((name for name in names if name not in self.infos), count_max))

    def _matching(self, pattern: str) -> frozenset[str]:
        found = self._matches.get(pattern)
        if found is None:
            names = list(self.infos)
            # RE2: its time is linear, whatever pattern a client sends.
            hits = pc.match_substring_regex(pa.array(names, pa.string()), pattern=pattern)
            found = frozenset(
                name for name, hit in zip(names, hits.to_pylist(), strict=True) if hit
            )
            self._matches[pattern] = found
        return found
