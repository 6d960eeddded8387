"""Prints records until an end, and says of a group which of them count as done."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from mainstem.cli.context import fail, say
from mainstem.cli.output import Output, OutputError

if TYPE_CHECKING:
    from mainstem.client import AdminClient, Consumer, ConsumerRecord, TopicPartition

#: Records that are taken at a time: few enough to stay off the garbage collector.
_RECORDS_AT_ONCE: Final = 500

#: How long a wait lasts before the end is looked for again, and the reader of a pipe.
_WAIT_S: Final = 0.1

#: How often it is noted what was written. Two notes in a row make a record count as done.
_NOTE_EVERY_S: Final = 0.25

#: How often the coordinator is asked for the members of a group in which this one has nothing.
_ASK_EVERY_S: Final = 0.5


class Written:
    """How far each partition was written, by the bytes of output. Pure."""

    def __init__(self) -> None:
        self._bytes = 0
        self._pieces: deque[tuple[int, Sequence[ConsumerRecord], Sequence[bytes]]] = deque()
        self._taken: dict[TopicPartition, int] = {}

    def add(self, records: Sequence[ConsumerRecord], lines: Sequence[bytes]) -> None:
        """These were written, each as its line."""
        self._pieces.append((self._bytes, records, lines))
        self._bytes += sum(map(len, lines))

    def taken(self, unread_bytes: int) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition that was taken as a whole."""
        read = self._bytes - unread_bytes
        while self._pieces:
            start, records, lines = self._pieces[0]
            ends = list(accumulate(map(len, lines), initial=start))[1:]
            if ends[-1] <= read:
                self._take(records)
                self._pieces.popleft()
                continue
            count = sum(end <= read for end in ends)
            if count:
                self._take(records[:count])
                self._pieces[0] = (ends[count - 1], records[count:], lines[count:])
            break
        return self._taken

    def _take(self, records: Sequence[ConsumerRecord]) -> None:
        from mainstem.client import TopicPartition

        for record in records:
            self._taken[TopicPartition(record.topic, record.partition)] = record.offset + 1


@dataclass(slots=True)
class ConsumeRun:
    """One run of `mainstem topic consume`.

    With a group, an offset is stored for its commit when the record was written and synced to a
    file, or when the reader of the pipe has read it and was still there a moment later: `head -1`
    reads a block, prints a line and goes.

    Attributes:
        num: End after so many records.
        exit_eof: End where the logs ended; with a group, those of its own partitions at the first
            look.
        ends: Where to end in each partition; what lies there or later is not printed.
        group: The group's id, or None.
        topics: What is read, for messages.
        timeout_s: How long the reader of a pipe may take for what is left in it at the end, and the
            group to give out partitions.
    """

    consumer: Consumer
    admin: AdminClient
    output: Output
    printer: Callable[[ConsumerRecord], bytes]
    num: int | None
    exit_eof: bool
    ends: dict[TopicPartition, int]
    group: str | None
    topics: str
    timeout_s: float
    count: int = 0
    _written: Written | None = None
    _candidates: Mapping[TopicPartition, int] | None = None
    _noted_at: float = 0.0
    _asked_at: float = 0.0
    _alone_since: float | None = None
    _said_why: bool = False

    def run(self) -> None:
        """Prints until the end.

        Raises:
            OutputError: The output broke, or the reader of a pipe is gone. What it may not have
                got is not stored.
            MainstemError: As `Consumer.poll`.
        """
        self._written = Written() if self.group is not None else None
        try:
            self._print()
        except KeyboardInterrupt:
            # The reader of a pipe was interrupted as well: what it took just now may be lost.
            if not self.output.is_pipe:
                self._note(time.monotonic())
                self._store()
            raise
        if self._written is not None:
            self._finish(self._written)

    def store_before_revocation(self) -> None:
        """For on_revoke: the next owner of a partition goes on where this one's output ended."""
        if not self.output.is_pipe:
            self._note(time.monotonic())
        self._store()

    def _print(self) -> None:
        from mainstem.client import TopicPartition

        num, ends = self.num, self.ends
        while num is None or self.count < num:
            limit = _RECORDS_AT_ONCE if num is None else min(_RECORDS_AT_ONCE, num - self.count)
            if self.consumer.wait_ready(_WAIT_S):
                records = self.consumer.take_ready_many(limit)
                if ends:
                    records = [
                        one
                        for one in records
                        if one.offset < ends.get(TopicPartition(one.topic, one.partition), 2**63)
                    ]
                self._write(records)
            if self.output.reader_is_gone():
                raise _gone()
            now = time.monotonic()
            if self._written is not None and now - self._noted_at >= _NOTE_EVERY_S:
                self._store()
                self._note(now)
            if (self.group is not None or self.exit_eof or ends) and self._at_end(now):
                return

    def _write(self, records: Sequence[ConsumerRecord]) -> None:
        if not records:
            return
        lines = list(map(self.printer, records))
        self.output.write(b"".join(lines))
        self.count += len(records)
        if self._written is not None:
            self._written.add(records, lines)
            if not self.output.is_pipe:
                self._written.taken(0)  # keeps no lines

    def _note(self, now: float) -> None:
        """What was taken until now; it counts when the reader is still there the next time."""
        if self._written is None:
            return
        self._noted_at = now
        self.output.sync()
        self._candidates = dict(self._written.taken(self.output.unread_bytes()))
        if not self.output.is_pipe:
            self._store()

    def _store(self) -> None:
        """The candidates are done: the next commit has them."""
        from mainstem.client import TopicPartition

        if not self._candidates:
            return
        own = set(self.consumer.assignment())
        done = [
            TopicPartition(tp.topic, tp.partition, offset)
            for tp, offset in self._candidates.items()
            if tp in own
        ]
        self._candidates = None
        if done:
            self.consumer.store_offsets(offsets=done)

    def _finish(self, written: Written) -> None:
        if self.output.is_pipe and not self.output.wait_until_read(self.timeout_s):
            if self.output.reader_is_gone():
                raise _gone()
            say(
                f"the reader of the output has not read all of it within {self.timeout_s:g} s: "
                "what it has not read is not committed"
            )
        self._note(time.monotonic())
        if self.output.is_pipe:
            time.sleep(_WAIT_S)
            if self.output.reader_is_gone():
                raise _gone()
        self._store()

    def _at_end(self, now: float) -> bool:
        assigned = self.consumer.assignment()
        if not assigned:
            return self.group is None or self._has_no_part(now)
        self._alone_since = None
        if not self.exit_eof and not self.ends:
            return False
        if self.group is not None:
            # What the others read is their business; this member's own partitions count.
            for tp in assigned:
                if tp not in self.ends:
                    self.ends[tp] = self.consumer.get_watermark_offsets(tp)[1]
        return all(
            tp.offset >= self.ends[tp] for tp in self.consumer.position(assigned) if tp in self.ends
        )

    def _has_no_part(self, now: float) -> bool:
        """True with -e: every partition is another member's, and nothing moves. Says so, once."""
        assert self.group is not None
        if self._alone_since is None:
            self._alone_since = now
        if self.exit_eof and now - self._alone_since >= self.timeout_s:
            fail(
                f"group {self.group} gave this member no partition within {self.timeout_s:g} s; "
                f"see `mainstem group describe {self.group}`"
            )
        if self._said_why or now - self._asked_at < _ASK_EVERY_S:
            return False
        self._asked_at = now
        why = self._why_nothing()
        if why is None:
            return False
        say(f"nothing to read: {why}" if self.exit_eof else f"waiting: {why}")
        self._said_why = True
        return self.exit_eof

    def _why_nothing(self) -> str | None:
        """Why this member has no partitions, and will get none as things are; None: it may."""
        from mainstem.errors import MainstemError

        assert self.group is not None
        try:
            found = self.admin.describe_consumer_groups([self.group], timeout=self.timeout_s)
        except MainstemError:
            return None
        described = found[self.group]
        if isinstance(described, MainstemError) or described.state != "STABLE":
            return None
        me = self.consumer.consumer_group_metadata().member_id
        mine = [one for one in described.members if one.member_id == me]
        if not mine or mine[0].assignment or mine[0].target:
            return None
        if not any(one.assignment for one in described.members):
            fits = "fits" if self.topics.startswith("^") else "is called"
            return f"no topic {fits} {self.topics}"
        others = len(described.members) - 1
        return (
            f"{others} other member{'s' * (others != 1)} of group {self.group} "
            f"{'have' if others != 1 else 'has'} all partitions of {self.topics}"
        )


def _gone() -> OutputError:
    import errno
    import os

    return OutputError(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))
