"""A member of a group in a process of its own: reads numbered records until its stdin ends.

Usage: python consumer_process.py SETTINGS      (a JSON object, see `consumer_loop.ConsumerSpec`)

What it is given, what it has, and what is acknowledged of its commits goes to a history file, in
the order in which it happens and before anything follows from it. Exit code 0: it closed; 3:
another process has its instance id.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import runpy
import select
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from mainstem.client import OFFSET_BEGINNING, Consumer, ConsumerRecord, TopicPartition
from mainstem.errors import InstanceFencedError, MainstemError
from mainstem.testing import HistoryWriter, OffsetCommit, Ownership, Read, runs_of

FENCED = 3

#: How long a database may be locked.
PATIENCE_S = 300.0

#: The example's own class stores records and offsets.
SINK = Path(__file__).resolve().parents[2] / "examples" / "exactly_once_sqlite.py"


class Member:
    """What all styles share: the consumer, its callbacks, and the history."""

    auto_commit = False

    def __init__(self, settings: dict[str, Any], history: HistoryWriter) -> None:
        self._name: str = settings["name"]
        self._group: str = settings["group"]
        self._topics: list[str] = settings["topics"]
        self._history = history
        config = {
            "bootstrap.servers": settings["bootstrap"],
            "group.id": self._group,
            "group.instance.id": settings["instance_id"],
            "client.id": self._name,
            "auto.offset.reset": "earliest",
            "fetch.visibility": settings["visibility"],
            "enable.auto.commit": self.auto_commit,
            "auto.commit.interval.ms": 300,
            "session.timeout.ms": settings["session_timeout_ms"],
            "heartbeat.interval.ms": 500,
            "max.poll.interval.ms": settings["max_poll_interval_ms"],
            "retry.backoff.ms": 50,
            "request.timeout.ms": 5_000,
            "default.api.timeout.ms": 10_000,
            "on_commit": self.commit_ended,
        }
        self.consumer = Consumer({name: one for name, one in config.items() if one != ""})

    def run(self) -> int:
        try:
            self.consumer.subscribe(self._topics, self._assigned, self._revoked, self._lost)
            while not _stdin_ended():
                self.turn()
            self.consumer.close()
        except InstanceFencedError:
            return FENCED
        return 0

    # -- what styles do ----------------------------------------------------------------------------

    def turn(self) -> None:
        raise NotImplementedError

    def taken(self, partitions: list[TopicPartition]) -> None:
        """Partitions came."""

    def going(self, partitions: list[TopicPartition]) -> None:
        """Partitions go; what was done of them can still be committed."""

    def losing(self, partitions: list[TopicPartition]) -> None:
        """Partitions went; nothing can be committed any more."""

    def commit_ended(self, error: MainstemError | None, offsets: list[TopicPartition]) -> None:
        """An asynchronous commit ended."""

    # -- history -----------------------------------------------------------------------------------

    def note_records(self, records: Sequence[ConsumerRecord]) -> None:
        by_partition: dict[tuple[str, int], list[ConsumerRecord]] = {}
        for record in records:
            by_partition.setdefault((record.topic, record.partition), []).append(record)
        for (topic, partition), found in by_partition.items():
            self._note(
                topic,
                partition,
                [record.offset for record in found],
                pa.array([record.key for record in found], pa.binary()),
                [int(record.value or b"") for record in found],
            )

    def note_batch(self, tp: TopicPartition, batch: pa.RecordBatch) -> None:
        self._note(
            tp.topic,
            tp.partition,
            batch.column("offset").to_pylist(),
            batch.column("key"),
            [int(value) for value in batch.column("value").to_pylist()],
        )

    def note_committed(self, offsets: list[TopicPartition], began_ms: int) -> None:
        for tp in offsets:
            self._history.write(
                OffsetCommit(
                    self._name, self._group, tp.topic, tp.partition, tp.offset, began_ms, _now_ms()
                )
            )

    def _note(
        self,
        topic: str,
        partition: int,
        offsets: list[int],
        producers: pa.Array,
        numbers: list[int],
    ) -> None:
        runs = runs_of(offsets, producers, numbers)
        self._history.write(Read(self._name, topic, partition, runs, group=self._group))

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._owns(partitions, "assigned")
        self.taken(partitions)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.going(partitions)
        self._owns(partitions, "revoked")

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.losing(partitions)
        self._owns(partitions, "lost")

    def _owns(
        self, partitions: list[TopicPartition], change: Literal["assigned", "revoked", "lost"]
    ) -> None:
        for tp in partitions:
            self._history.write(
                Ownership(self._name, self._group, tp.topic, tp.partition, change, _now_ms())
            )


class Automatic(Member):
    """Auto-commit: a consumer that polls again is done with what it had."""

    auto_commit = True

    def turn(self) -> None:
        self.note_records(self.consumer.consume(100, 0.1))


class AutomaticSingly(Automatic):
    """The same, record by record."""

    def turn(self) -> None:
        record = self.consumer.poll(0.1)
        if record is not None:
            self.note_records([record])


class Manual(Member):
    """poll(), and a synchronous commit now and then and when partitions go."""

    def __init__(self, settings: dict[str, Any], history: HistoryWriter) -> None:
        super().__init__(settings, history)
        self._pending: list[ConsumerRecord] = []
        self._to_commit = False

    def turn(self) -> None:
        ends_at = time.monotonic() + 0.2
        while len(self._pending) < 100 and time.monotonic() < ends_at:
            record = self.consumer.poll(0.05)
            if record is not None:
                self._pending.append(record)
        self._note_pending()
        self._commit()

    def going(self, partitions: list[TopicPartition]) -> None:
        self._note_pending()
        self._commit()

    def losing(self, partitions: list[TopicPartition]) -> None:
        self._note_pending()

    def _note_pending(self) -> None:
        self.note_records(self._pending)
        self._to_commit = self._to_commit or bool(self._pending)
        self._pending = []

    def _commit(self) -> None:
        if not self._to_commit:
            return
        began_ms = _now_ms()
        # What a refusal or a timeout leaves open, the next one says.
        with contextlib.suppress(MainstemError):
            self.note_committed(self.consumer.commit(asynchronous=False) or [], began_ms)
            self._to_commit = False


class Batches(Member):
    """poll_batch(), and asynchronous commits of offsets that it counts itself."""

    def __init__(self, settings: dict[str, Any], history: HistoryWriter) -> None:
        super().__init__(settings, history)
        self._began_ms: deque[int] = deque()
        self._done: dict[TopicPartition, int] = {}
        self._to_commit = False

    def turn(self) -> None:
        for tp, batch in self.consumer.poll_batch(0.1, 500).items():
            self.note_batch(tp, batch)
            self._done[tp] = batch.column("offset")[-1].as_py() + 1
            self._to_commit = True
        if self._to_commit and self._done and len(self._began_ms) < 3:
            self._to_commit = False
            self._began_ms.append(_now_ms())
            self.consumer.commit(offsets=self._offsets(self._done), asynchronous=True)

    def going(self, partitions: list[TopicPartition]) -> None:
        began_ms = _now_ms()
        gone = {tp: offset for tp, offset in self._done.items() if tp in partitions}
        if gone:
            with contextlib.suppress(MainstemError):
                committed = self.consumer.commit(offsets=self._offsets(gone), asynchronous=False)
                self.note_committed(committed or [], began_ms)
        self.losing(partitions)

    def losing(self, partitions: list[TopicPartition]) -> None:
        self._done = {tp: offset for tp, offset in self._done.items() if tp not in partitions}

    def commit_ended(self, error: MainstemError | None, offsets: list[TopicPartition]) -> None:
        began_ms = self._began_ms.popleft()  # they end in the order in which they were made
        if error is None:
            self.note_committed(offsets, began_ms)
        else:
            self._to_commit = True

    def _offsets(self, done: dict[TopicPartition, int]) -> list[TopicPartition]:
        return [TopicPartition(tp.topic, tp.partition, offset) for tp, offset in done.items()]


class Sqlite(Member):
    """Records and offsets in one transaction of a database; the group's offsets are not used."""

    def __init__(self, settings: dict[str, Any], history: HistoryWriter) -> None:
        super().__init__(settings, history)
        sink_class = runpy.run_path(str(SINK))["Sink"]
        self._sink = _patiently(lambda: sink_class(settings["database"]))

    def turn(self) -> None:
        records = self.consumer.consume(200, 0.1)
        if records:
            self.note_records(records)
            _patiently(lambda: self._sink.store(records))

    def taken(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            stored = _patiently(partial(self._sink.next_offset, tp.topic, tp.partition))
            where = OFFSET_BEGINNING if stored is None else stored
            self.consumer.seek(TopicPartition(tp.topic, tp.partition, where))


def _patiently(call: Callable[[], Any]) -> Any:
    """Again and again: the process that has the database's lock may be paused for long, and SQLite
    does not wait for one whose journal a killed process has left."""
    ends_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except sqlite3.OperationalError:
            if time.monotonic() >= ends_at:
                raise
        time.sleep(0.05)


STYLES: dict[str, type[Member]] = {
    "automatic": Automatic,
    "automatic singly": AutomaticSingly,
    "manual": Manual,
    "batches": Batches,
    "sqlite": Sqlite,
}


def main(settings: dict[str, Any]) -> int:
    faulthandler.enable()  # SIGABRT shows where every thread is
    with HistoryWriter(settings["history"]) as history:
        return STYLES[settings["style"]](settings, history).run()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _stdin_ended() -> bool:
    """Whether the process that started this one wants it to end, or is gone."""
    return bool(select.select([sys.stdin], [], [], 0.0)[0])


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
