"""Has the targets of groups computed: at once, or elsewhere where it would take long. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from mainstem.consumers.assignors import Partition
from mainstem.consumers.group import Group, Retargeting
from mainstem.consumers.known_topics import KnownTopics

#: A target of so many partitions, those that members have and those that they want, is computed in
#: one step: in less than 20 ms.
COMPUTED_AT_ONCE_MAX: Final = 5_000

Target = dict[str, dict[Partition, int]]
Compute = Callable[[Callable[[], Target | None], Callable[[Target | None], None]], None]


def compute_at_once(
    work: Callable[[], Target | None], done: Callable[[Target | None], None]
) -> None:
    """For a caller whose steps may take long."""
    done(work())


class Targets:
    """Of all groups of a coordinator, on whose thread it is.

    Args:
        topics: What the coordinator knows of topics.
        compute: Does work that takes long in any thread, and hands the result to `done` on the
            coordinator's; anything may have happened in between. Until then no member of the group
            is settled, and what they have stays as it is.
        rebalanced: Called with a group that has got another target.
    """

    def __init__(
        self,
        topics: KnownTopics,
        compute: Compute,
        rebalanced: Callable[[Group], None] = lambda _: None,
    ) -> None:
        self._topics = topics
        self._compute = compute
        self._rebalanced = rebalanced
        #: By topic, existing or not, the groups that want it.
        self._wanting: dict[str, dict[str, None]] = {}

    def wanting(self, topics: Iterable[str]) -> dict[str, None]:
        """The groups whose members want one of the topics, by name."""
        return {group: None for topic in topics for group in self._wanting.get(topic, ())}

    def renew(self, group: Group) -> None:
        """Has a new target computed: the group, or what is known of its topics, has changed."""
        before = group.wanted
        work = group.retarget(self._topics.infos)
        self._note_wanted(group, before)
        if work is None:
            return
        if work.size <= COMPUTED_AT_ONCE_MAX:
            self._take(group, work, work.target())
        elif not group.targeting:  # else it is found out when that one is done
            group.begin_target(work)
            self._compute(work.target, partial(self._computed, group, work))

    def _note_wanted(self, group: Group, before: frozenset[str]) -> None:
        for topic in before - group.wanted:
            groups = self._wanting[topic]
            del groups[group.name]
            if not groups:
                del self._wanting[topic]
        for topic in group.wanted - before:
            self._wanting.setdefault(topic, {})[group.name] = None

    def _computed(self, group: Group, work: Retargeting, target: Target | None) -> None:
        if not self._take(group, work, target):
            self.renew(group)

    def _take(self, group: Group, work: Retargeting, target: Target | None) -> bool:
        count = group.rebalance_count
        taken = group.take_target(work, target)
        if group.rebalance_count != count:
            self._rebalanced(group)
        return taken
