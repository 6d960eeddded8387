"""A stream's progress as the committed offsets of a consumer group, so that its lag is seen where
that of any group is. The checkpoint stays what a restart goes by.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Final

from mainstem.client import AdminClient
from mainstem.client import TopicPartition as GroupPartition
from mainstem.client.backoff import backoff_s
from mainstem.errors import (
    ConfigError,
    GroupNotEmptyError,
    InvalidConfigError,
    MainstemError,
    UnknownGroupError,
)
from pyspark_mainstem._offsets import Offsets
from pyspark_mainstem._options import GROUP_ID, PREFIX

log = logging.getLogger(__name__)

#: A gateway that does not answer for so long is taken for one that is not there. Nothing but the
#: thread waits for it.
_CALL_TIMEOUT_S: Final = 10.0

#: Between attempts while commits fail.
_RETRY_FIRST_S: Final = 0.5
_RETRY_LONGEST_S: Final = 30.0

#: How long a query that ends waits for its last commit, and then for the thread.
_CLOSE_S: Final = 5.0


class GroupProgress:
    """Commits in a thread of its own, the newest offsets only: no batch waits for it, and none
    fails. What could not be committed is warned about, and tried again, with newer offsets where
    there are some.

    Args:
        connection: Settings of how the gateways are reached.

    Raises:
        InvalidConfigError: They are malformed.
    """

    def __init__(self, connection: Mapping[str, str], group_id: str) -> None:
        try:
            self._admin = AdminClient(connection)
        except ConfigError as error:
            name = f"{PREFIX}{error.facts['name']}"
            raise InvalidConfigError(f"{name}: {error.message}", name=name) from error
        self._group_id = group_id
        self._changed = threading.Condition()
        self._reached: Offsets = {}
        #: Of `_reached`: as far as the thread has tried, and as far as the gateway has taken it.
        self._tried: Offsets = {}
        self._committed: Offsets = {}
        self._retry_at: float | None = None
        self._failures = 0
        self._closing = False
        self._warned = ""
        self._thread = threading.Thread(target=self._run, name="mainstem-progress", daemon=True)

    def start(self) -> None:
        """Looks whether the group can be used, and starts to commit. Blocks for a call.

        Raises:
            GroupNotEmptyError: It has members, whose commits and ours would overwrite each other.
            MainstemError: The gateway refuses the group. One that cannot be reached is only warned
                about.
        """
        found = self._admin.describe_consumer_groups([self._group_id], _CALL_TIMEOUT_S)
        group = found[self._group_id]
        if isinstance(group, MainstemError):
            if group.retriable:
                self._warn(group.message)
            elif not isinstance(group, UnknownGroupError):
                raise group
        elif group.members:
            raise GroupNotEmptyError(
                f"{GROUP_ID} is {self._group_id!r}, a group with {len(group.members)} members (of "
                f"clients {', '.join(sorted({one.client_id or '?' for one in group.members}))}), "
                "which commit offsets of their own: stop them, or give the stream a group of its "
                "own",
                group=self._group_id,
                member_count=len(group.members),
            )
        self._thread.start()

    def reached(self, offsets: Offsets) -> None:
        """All before these offsets is done with. Returns at once."""
        with self._changed:
            self._reached = dict(offsets)
            self._changed.notify_all()

    def settle(self, timeout_s: float) -> None:
        """Waits until what was reached has been tried once, or for `timeout_s`; not while commits
        fail."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._tried == self._reached or self._retry_at is not None, timeout_s
            )

    def close(self) -> None:
        """Tries to commit what has not been, for some seconds, and ends the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)
        self._admin.close()
        if self._thread.is_alive():  # its call has ended now
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._wait()
                reached, last = self._reached, self._closing
                new = {
                    where: offset
                    for where, offset in reached.items()
                    if self._committed.get(where) != offset
                }
            done = self._commit(new) if new else True
            with self._changed:
                if done:
                    self._committed, self._failures, self._retry_at = reached, 0, None
                else:
                    wait_s = backoff_s(_RETRY_FIRST_S, _RETRY_LONGEST_S, self._failures)
                    self._failures, self._retry_at = self._failures + 1, time.monotonic() + wait_s
                self._tried = reached
                self._changed.notify_all()
                if last:
                    return

    def _wait(self) -> None:
        """Until there is something to try, or the end."""
        while not self._closing:
            if self._retry_at is not None:
                left_s = self._retry_at - time.monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(left_s)
            elif self._tried != self._reached:
                return
            else:
                self._changed.wait()

    def _commit(self, offsets: Offsets) -> bool:
        """Whether it is worth no second attempt with the same offsets."""
        wanted = [
            GroupPartition(topic, partition, offset)
            for (topic, partition), offset in sorted(offsets.items())
        ]
        try:
            answers = self._admin.alter_consumer_group_offsets(
                self._group_id, wanted, _CALL_TIMEOUT_S
            )
        except MainstemError as error:
            self._warn(error.message)
            return False
        refused = sorted({error.message for error in answers.values() if error is not None})
        if refused:
            self._warn("; ".join(refused[:3]))
        elif self._warned:
            self._warned = ""
            log.warning("progress is committed to the group %r again", self._group_id)
        return True

    def _warn(self, why: str) -> None:
        if why != self._warned:
            self._warned = why
            log.warning(
                "the stream goes on, but its progress is not committed to the group %r for now: %s",
                self._group_id,
                why,
            )
