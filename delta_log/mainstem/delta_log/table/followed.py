"""A table that is open and followed: its store, and the newest state that is known of it.

The one way to keep a table up to date, for the gateway's topics and its readers, for row tables,
jobs and the Spark source. What a commit by somebody else means is decided where it is for those who
commit: in `commit_loop`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table.blocking_driver import run_blocking
from mainstem.delta_log.table.commit_loop import BESIDE_LEADER, catch_up_loop
from mainstem.delta_log.table.committer import Committer
from mainstem.delta_log.table.state import TableState


@dataclass(slots=True)
class OpenTopic:
    """A topic that exists: where its files are, and the table's state.

    Attributes:
        state: As of the last `refresh`, or of the last commit that was made through this.
    """

    topic: str
    store: ObjectStore
    state: TableState
    _committer: Committer | None = field(default=None, repr=False, compare=False)

    def refresh(self) -> TableState:
        """Takes what others have committed; returns the newest state. Blocks.

        Returns:
            `state`, which is the same object as before unless log clean-up had overtaken it.

        Raises:
            UnknownTopicError: The topic was deleted, or created again under its name. Open it
                again by its name.
            LogDamagedError: A commit file or checkpoint is torn or lost.
            StoreUnavailableError: The store failed; `state` is that of a version as before.
        """
        loop = catch_up_loop(self.state, topic=self.topic, policy=BESIDE_LEADER)
        if self._committer is None:
            self._committer = Committer(self.store)
        self.state = run_blocking(loop, self.store, self.topic, committer=self._committer)
        return self.state
