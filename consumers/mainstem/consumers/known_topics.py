"""The topics that a coordinator knows, and which of them a subscription means. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.consumers.assignors import TopicInfo
from mainstem.consumers.group import Member

#: Members with patterns whose topics are remembered. With more they are found again.
_DECIDED_MAX: Final = 1_000


class KnownTopics:
    """Topics by name.

    Attributes:
        infos: What `update` has said.
    """

    def __init__(self) -> None:
        self.infos: dict[str, TopicInfo] = {}
        self._matches: dict[str, frozenset[str]] = {}
        #: By pattern, and by who decides what may be read of that.
        self._decided: dict[tuple[str, Callable[[str], bool]], frozenset[str]] = {}

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
            self._decided.clear()
        return different

    def wanted_by(self, member: Member) -> frozenset[str]:
        """The names that the member's subscription means, existing or not."""
        if not member.topic_pattern:
            return member.topics
        return member.topics | self._readable(member.topic_pattern, member.may_read)

    def missing(self, names: Iterable[str], count_max: int) -> tuple[str, ...]:
        """Those that are not known, `count_max` of them at most."""
        return tuple(islice((name for name in names if name not in self.infos), count_max))

    def _readable(self, pattern: str, may_read: Callable[[str], bool] | None) -> frozenset[str]:
        if may_read is None:
            return self._matching(pattern)
        found = self._decided.get((pattern, may_read))
        if found is None:
            if len(self._decided) >= _DECIDED_MAX:
                self._decided.clear()
            found = frozenset(name for name in self._matching(pattern) if may_read(name))
            self._decided[pattern, may_read] = found
        return found

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
