"""One leader among many processes: the one that owns the only partition of a topic."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from mainstem.client.consumer.consumer import Consumer
from mainstem.client.positions import TopicPartition
from mainstem.errors import ConfigError

_POLL_S = 0.2


class LeaderElection:
    """Takes part in the election of one leader, in a thread of its own.

    All candidates subscribe to the same topic with one partition as members of one group: the
    coordinator gives the partition to exactly one of them, and to another when that one closes, or
    when it was not heard of for `session.timeout.ms`. Nothing is read.

    A leader that was cut off learns it late, and two may believe to lead for that while: let what
    the leader writes to refuse an older `epoch`.

    Args:
        topic: With one partition; it must exist.
        config: Settings of a `Consumer`; group.id is by default the topic's name.

    Example:
        >>> with LeaderElection("scheduler", {"bootstrap.servers": "127.0.0.1:9490"}) as election:
        ...     if election.wait(timeout=10.0):
        ...         run_the_schedule(until=lambda: not election.is_leader)
    """

    def __init__(self, topic: str, config: Mapping[str, object]) -> None:
        settings: dict[str, object] = {"group.id": topic, **config}
        for name, value in (("enable.auto.commit", False), ("auto.offset.reset", "latest")):
            if name in config:
                raise ConfigError(f"{name} has no meaning in an election; leave it out", name=name)
            settings[name] = value
        self._topic = topic
        self._consumer = Consumer(settings)
        self._changed = threading.Condition()
        self._leads = False
        self._epoch = 0
        self._error: Exception | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mainstem-election", daemon=True)
        self._thread.start()

    @property
    def is_leader(self) -> bool:
        """This process leads, as far as it knows."""
        return self._leads

    @property
    def epoch(self) -> int:
        """Goes up with every new leadership, over all candidates. For fencing."""
        return self._epoch

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until this process leads; False: the time is over.

        Raises:
            MainstemError: It cannot take part any more, as when another has its instance id.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._leads:
                if self._error is not None:
                    raise self._error
                left_s = None if deadline is None else deadline - time.monotonic()
                if (left_s is not None and left_s <= 0) or self._closing.is_set():
                    return False
                self._changed.wait(left_s)
        return True

    def close(self) -> None:
        """Gives up the leadership, if it is held, and leaves."""
        self._closing.set()
        self._thread.join()
        self._set(leads=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            self._consumer.subscribe([self._topic], self._assigned, self._revoked, self._revoked)
            while not self._closing.is_set():
                self._consumer.poll(_POLL_S)
        except Exception as error:
            self._error = error
            self._set(leads=False)
        finally:
            self._leads = False
            with contextlib.suppress(Exception):
                self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Nothing is to be read, and nothing to be found out.
        consumer.pause(partitions)
        if any(tp.partition == 0 for tp in partitions):
            self._epoch = consumer.consumer_group_metadata().member_epoch
            self._set(leads=True)

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        if any(tp.partition == 0 for tp in partitions):
            self._set(leads=False)

    def _set(self, *, leads: bool) -> None:
        with self._changed:
            self._leads = leads
            self._changed.notify_all()
