"""Where groups stand: asked of the gateway, read in the offsets table, and found in a database."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from tests.fault.consumer_members import PATIENCE_S, Members

from mainstem.client import Consumer, TopicPartition
from mainstem.delta_log import Topics, read_data_file
from mainstem.delta_log.store import Place, open_warehouse
from mainstem.delta_log.topics import SYSTEM
from mainstem.errors import MainstemError, UnknownTopicError
from mainstem.testing import OffsetCommit, OffsetRow, Operation, Output, runs_of

_TABLE = "consumer_offsets"

#: Members commit nothing to this group: a database has the offsets.
SQLITE_GROUP = "exactly-once"


class Onlooker:
    """Looks at the committed offsets again and again, in threads, while the block lasts.

    One thread asks the gateway as a client does; the other reads the table as it grows, so that it
    sees every offset that was ever stored.

    Attributes:
        seen: What they saw.
    """

    def __init__(
        self, warehouse: Place, bootstrap: str, groups: Sequence[str], tps: Sequence[TopicPartition]
    ) -> None:
        self.seen: list[Operation] = []
        self._warehouse = warehouse
        self._bootstrap = bootstrap
        self._groups = groups
        self._tps = tps
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(look,), name=f"onlooker {look.__name__}")
            for look in (self._ask, self._follow)
        ]

    def __enter__(self) -> Onlooker:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def check(self) -> None:
        """Raises what went wrong."""
        if self._failure is not None:
            raise self._failure

    def _run(self, look: Callable[[], None]) -> None:
        try:
            look()
        except BaseException as error:
            self._failure = error

    def _ask(self) -> None:
        while not self._stopped.wait(0.3):
            for group in self._groups:
                began_ms = _now_ms()
                with contextlib.suppress(MainstemError):  # there is no gateway now
                    for tp, offset in committed(self._bootstrap, group, self._tps).items():
                        self.seen.append(
                            OffsetCommit(
                                "onlooker",
                                group,
                                tp.topic,
                                tp.partition,
                                max(offset, -1),
                                began_ms,
                                _now_ms(),
                            )
                        )

    def _follow(self) -> None:
        with contextlib.ExitStack() as stack:
            store = stack.enter_context(contextlib.closing(open_warehouse(self._warehouse)))
            while True:
                if self._stopped.wait(0.1):
                    return
                with contextlib.suppress(UnknownTopicError):
                    opened = Topics(store, folder=SYSTEM).open(_TABLE)
                    break
            state, position = opened.state, 0
            last = False
            while not last:
                last = self._stopped.wait(0.3)
                end = state.log_end_offset(0)
                for file in state.files(0).between(position, end):
                    for batch in read_data_file(
                        opened.store, file, position, end, ["key", "value"]
                    ):
                        self.seen += _offset_rows(batch)
                position = end
                state = opened.refresh()


def _offset_rows(batch: pa.RecordBatch) -> Iterator[OffsetRow]:
    for value in batch.column("value").to_pylist():
        body = {} if value is None else json.loads(value)
        if "offset" in body:  # else it is a group's own row
            yield OffsetRow(body["group"], body["topic"], body["partition"], body["offset"])


def committed(
    bootstrap: str, group: str, tps: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """What the group has committed; negative where it has nothing."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    with Consumer(config) as asking:
        return {tp: tp.offset for tp in asking.committed(tps, 5.0)}


def stored(database: Path) -> dict[TopicPartition, int]:
    """The next offset of each partition in the database."""
    with contextlib.closing(sqlite3.connect(database, timeout=PATIENCE_S)) as connection:
        rows = connection.execute("SELECT topic, partition, next_offset FROM progress").fetchall()
    return {TopicPartition(topic, partition): offset for topic, partition, offset in rows}


def behind(
    ends: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets that are not at the end of their partition."""
    return {tp: offsets.get(tp, 0) for tp, end in ends.items() if end and offsets.get(tp) != end}


def unread(
    members: Members,
    groups: Sequence[str],
    tps: Sequence[TopicPartition],
    bootstrap: str,
    database: Path,
    patience_s: float,
) -> dict[str, dict[TopicPartition, int]]:
    """Waits until every group has committed, or stored, all that there is.

    Returns:
        By group, what was left of each partition after that time.

    Raises:
        MainstemError: Nobody says what is committed, at the end of that time. Before it a gateway
            may begin to coordinate the groups, which takes seconds where the store is far away.
    """
    ends_at = time.monotonic() + patience_s
    with Consumer({"bootstrap.servers": bootstrap}) as asking:
        ends = {tp: asking.get_watermark_offsets(tp)[1] for tp in tps}
    while True:
        is_last = time.monotonic() >= ends_at
        for slot in members.all:
            slot.check()
        try:
            left = {
                group: behind(
                    ends,
                    stored(database) if group == SQLITE_GROUP else committed(bootstrap, group, tps),
                )
                for group in groups
            }
        except MainstemError:
            if is_last:
                raise
        else:
            if not any(left.values()):
                return {}
            if is_last:
                return left
        time.sleep(0.2)


def outputs(database: Path, group: str, tps: Sequence[TopicPartition]) -> Iterator[Output]:
    """What the database has, in the order in which it was stored."""
    query = "SELECT offset, key, value FROM record WHERE topic = ? AND partition = ? ORDER BY rowid"
    with contextlib.closing(sqlite3.connect(database, timeout=PATIENCE_S)) as connection:
        for tp in tps:
            rows = connection.execute(query, (tp.topic, tp.partition)).fetchall()
            runs = runs_of(
                [row[0] for row in rows],
                pa.array([row[1] for row in rows], pa.binary()),
                [int(row[2]) for row in rows],
            )
            yield Output(group, tp.topic, tp.partition, runs)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
