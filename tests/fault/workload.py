"""What the fault loops share: producers as processes, a reader of tables, and the judgement."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from mainstem.delta_log import (
    ObjectStore,
    OpenTopic,
    TableState,
    Topics,
    read_data_file,
)
from mainstem.delta_log.store import Place, open_warehouse
from mainstem.delta_log.verify import TopicReport, verify_named
from mainstem.delta_log.wal import decode_entry, decode_segment
from mainstem.limits import KIB, MIB
from mainstem.testing import (
    Operation,
    Read,
    Run,
    Send,
    Verdict,
    check_history,
    read_history,
    runs_of,
)

#: Longer than `delivery_timeout_ms`, by which every record has ended.
STOP_TIMEOUT_S = 150.0
DELIVERY_TIMEOUT_MS = 120_000

_PROGRAM = Path(__file__).with_name("producer_process.py")


@dataclass(frozen=True)
class ProducerSpec:
    """One producer process.

    Attributes:
        batch_rows: Most records a batch has in each partition; 1: single records, each with a
            callback.
        pause_s: Between two batches.
        delivery_timeout_ms: Short: many records are given up while there is no gateway.
        request_bytes_max: Small: batches go in several requests, of which some may be stored.
    """

    name: str
    acks: str
    idempotent: bool
    batch_rows: int
    pause_s: float = 0.05
    batches_under_way: int = 8
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    request_timeout_ms: int = 10_000
    request_bytes_max: int = 8 * MIB


#: Every level of acks, with and without idempotence, in batches and one by one.
PRODUCERS = (
    ProducerSpec("all-idempotent-batches", "all", True, 120),
    ProducerSpec("all-idempotent-records", "all", True, 1),
    ProducerSpec("all-idempotent-parts", "all", True, 120, request_bytes_max=16 * KIB),
    ProducerSpec(
        "all-idempotent-hasty", "all", True, 60, delivery_timeout_ms=700, request_timeout_ms=600
    ),
    ProducerSpec("all-batches", "all", False, 120),
    ProducerSpec("all-records", "all", False, 1),
    ProducerSpec("leader-batches", "1", False, 120),
    ProducerSpec("leader-records", "1", False, 1),
    ProducerSpec("none-batches", "0", False, 60),
)


class Producers:
    """Runs producer processes while the block lasts; leaving it kills those that still run.

    Args:
        directory: Gets their histories and their stderr.
        bootstrap: By producer name, the gateways that it is told of.
    """

    def __init__(
        self,
        directory: Path,
        specs: Sequence[ProducerSpec],
        topics: Mapping[str, int],
        bootstrap: Mapping[str, str],
        seed: int,
    ) -> None:
        directory.mkdir()
        self.histories = [directory / f"{spec.name}.jsonl" for spec in specs]
        self._logs = [directory / f"{spec.name}.log" for spec in specs]
        self._settings = [
            {
                **asdict(spec),
                "topics": dict(topics),
                "bootstrap": bootstrap[spec.name],
                "seed": f"{seed}:{spec.name}",
                "history": str(history),
            }
            for spec, history in zip(specs, self.histories, strict=True)
        ]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._counted: dict[Path, int] = {}
        self._acknowledged = 0

    def __enter__(self) -> Producers:
        try:
            for settings, log in zip(self._settings, self._logs, strict=True):
                with log.open("wb") as stderr:
                    self._processes.append(
                        subprocess.Popen(
                            [sys.executable, str(_PROGRAM), json.dumps(settings)],
                            stdin=subprocess.PIPE,
                            stderr=stderr,
                        )
                    )
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def check_running(self) -> None:
        """Raises if one has ended by itself."""
        for process, log in zip(self._processes, self._logs, strict=True):
            assert process.poll() is None, f"a producer ended: {log.read_text()}"

    def wait_until_acknowledged(self, record_count: int, timeout_s: float) -> None:
        """Waits until so many records in all have been acknowledged with a promise."""
        ends_at = time.monotonic() + timeout_s
        while self.acknowledged_count() < record_count:
            self.check_running()
            assert time.monotonic() < ends_at, "the producers are too slow"
            time.sleep(0.1)

    def acknowledged_count(self) -> int:
        """Records that were acknowledged with a promise so far."""
        for path in self.histories:
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._counted.get(path, 0))
                lines = file.read().rpartition(b"\n")[0]
            if lines:
                self._counted[path] = self._counted.get(path, 0) + len(lines) + 1
            for line in lines.splitlines():
                body = json.loads(line)
                if body["outcome"] == "ok" and body["acks"] != "0":
                    self._acknowledged += body["count"]
        return self._acknowledged

    def stop(self) -> None:
        """Lets each end what it has begun; raises if one does not, or failed."""
        for process in self._processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        ends_at = time.monotonic() + STOP_TIMEOUT_S
        for process, log in zip(self._processes, self._logs, strict=True):
            try:
                code = process.wait(max(ends_at - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)
                code = process.wait(STOP_TIMEOUT_S)
            assert code == 0, f"a producer failed: {log.read_text()}"

    def _kill(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait(STOP_TIMEOUT_S)
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()


class Follower:
    """Reads topics from their tables as they grow, in a thread, while the block lasts."""

    def __init__(self, warehouse: Place, topics: Mapping[str, int]) -> None:
        self.reads: list[Read] = []
        self._warehouse = warehouse
        self._topics = dict(topics)
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="follower")

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(STOP_TIMEOUT_S)
        assert not self._thread.is_alive()

    def check(self) -> None:
        """Raises what went wrong."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with open_topics(self._warehouse, self._topics) as opened:
                states = {topic: one.state for topic, one in opened.items()}
                positions = {(t, p): 0 for t, count in self._topics.items() for p in range(count)}
                while not self._stopped.wait(0.3):
                    for topic, one in opened.items():
                        states[topic] = one.refresh()
                        self._poll(topic, one.store, states[topic], positions)
        except BaseException as error:
            self._failure = error

    def _poll(
        self,
        topic: str,
        store: ObjectStore,
        state: TableState,
        positions: dict[tuple[str, int], int],
    ) -> None:
        for partition in range(self._topics[topic]):
            start, end = positions[topic, partition], state.log_end_offset(partition)
            if start < end:
                runs = read_runs(store, state, partition, start, end)
                self.reads.append(Read("follower", topic, partition, runs))
                positions[topic, partition] = end


@contextlib.contextmanager
def open_topics(warehouse: Place, topics: Iterable[str]) -> Iterator[dict[str, OpenTopic]]:
    """The topics, opened for reading."""
    store = open_warehouse(warehouse)
    opened: dict[str, OpenTopic] = {}
    try:
        for topic in topics:
            opened[topic] = Topics(store).open(topic)
        yield opened
    finally:
        store.close()


def read_runs(
    store: ObjectStore, state: TableState, partition: int, start_offset: int, end_offset: int
) -> tuple[Run, ...]:
    """The records of [start_offset, end_offset), as runs of one producer."""
    runs: list[Run] = []
    for file in state.files(partition).between(start_offset, end_offset):
        for batch in read_data_file(store, file, start_offset, end_offset, ["key", "value"]):
            offsets = np.asarray(batch.column("offset"))
            numbers = np.asarray(batch.column("value").cast(pa.string()).cast(pa.int64()))
            runs += runs_of(offsets, batch.column("key"), numbers)
    return tuple(runs)


def read_all(warehouse: Place, topics: Mapping[str, int]) -> Iterator[Read]:
    """The whole content of the log."""
    with open_topics(warehouse, topics) as opened:
        for topic, one in opened.items():
            for partition in range(topics[topic]):
                end = one.state.log_end_offset(partition)
                runs = read_runs(one.store, one.state, partition, 0, end)
                yield Read("table", topic, partition, runs, whole=True)


#: (producer, topic, partition, number)
RecordName = tuple[str, str, int, int]


def acknowledged_records(histories: Iterable[Path], acks: str) -> set[RecordName]:
    """Every record that a producer was told is there, with this level of acks."""
    return {
        (one.producer, one.topic, one.partition, number)
        for one in read_history(histories)
        if isinstance(one, Send) and one.outcome == "ok" and one.acks == acks
        for number in range(one.number, one.number + one.count)
    }


def stored_records(warehouse: Path, topics: Mapping[str, int]) -> set[RecordName]:
    """Every record in the tables."""
    return {
        (run.producer, read.topic, read.partition, number)
        for read in read_all(warehouse, topics)
        for run in read.runs
        for number in range(run.number, run.number + run.count)
    }


def orphaned_records(warehouse: Path) -> set[RecordName]:
    """Every record that a gateway kept beside its write-ahead log, or in it: where the topic's
    leader has not appended to the partition since, records wait."""
    found: set[RecordName] = set()
    logs = warehouse / "wal"
    for path in [*logs.glob("*/*.orphans"), *logs.glob("*/*.wal")]:
        for frame in decode_segment(path.read_bytes(), str(path), is_last=False):
            for _, entry in frame.entries:
                request = decode_entry(entry)
                for slice_ in request.slices:
                    keys = slice_.records.column("key").to_pylist()
                    values = slice_.records.column("value").to_pylist()
                    found |= {
                        (key.decode(), request.topic, slice_.partition, int(value))
                        for key, value in zip(keys, values, strict=True)
                    }
    return found


@dataclass(frozen=True)
class Judgement:
    """What the tables and the histories say at the end."""

    verdict: Verdict
    topics: tuple[TopicReport, ...]

    @property
    def ok(self) -> bool:
        """Whether every table is sound and no promise was broken."""
        return self.verdict.ok and all(topic.ok for topic in self.topics)

    @property
    def acknowledged_count(self) -> int:
        """Records that were acknowledged with a promise: with acks=1 or all."""
        return sum(n for acks, n in self.verdict.acknowledged_count.items() if acks != "0")

    def __str__(self) -> str:
        verdict, counts = self.verdict, self.verdict.counts
        acknowledged = ", ".join(
            f"acks={acks} {count:,}" for acks, count in sorted(verdict.acknowledged_count.items())
        )
        commits = sum(topic.table_version for topic in self.topics)
        allowed = verdict.duplicate_count - counts["duplicate"]
        lines = [
            f"acknowledged          {self.acknowledged_count:,} records ({acknowledged})",
            f"stored                {verdict.stored_count:,} records, {commits:,} table commits",
            f"lost                  {counts['lost write'] + counts['unseen']:,}",
            f"duplicated            {counts['duplicate']:,} of idempotent producers",
            f"copies allowed        {allowed:,} of producers without idempotence",
            f"out of order          {counts['non-monotonic send']:,}",
            f"unknown               {verdict.unknown_count:,}",
            f"unknown and stored    {verdict.unknown_stored_count:,}",
            f"other findings        {self._others()}",
            f"cluster verify        {self._verified()}",
        ]
        lines += [f"  {finding}" for finding in verdict.findings]
        lines += [
            f"  {topic.topic}: {finding.code}: {finding}"
            for topic in self.topics
            for finding in topic.findings
        ]
        return "\n".join(lines)

    def _others(self) -> str:
        shown = {"lost write", "unseen", "duplicate", "non-monotonic send"}
        others = {k: n for k, n in self.verdict.counts.items() if n and k not in shown}
        return tally(others) or "none"

    def _verified(self) -> str:
        found = sum(result.finding_count for topic in self.topics for result in topic.results)
        return f"{found:,} findings" if found else f"OK, {len(self.topics)} topics"


def tally(counts: Mapping[str, int]) -> str:
    """How often each came, by name."""
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def judge(
    warehouse: Place,
    topics: Mapping[str, int],
    histories: Iterable[Path],
    seen: Iterable[Operation],
) -> Judgement:
    """Verifies the tables, reads them whole, and checks everything that anybody was told.

    Args:
        histories: Of the producers, and of consumers.
        seen: What others saw meanwhile.
    """
    store = open_warehouse(warehouse)
    try:
        reports = tuple(verify_named(store, topic) for topic in topics)
    finally:
        store.close()
    operations = chain(read_history(histories), seen, read_all(warehouse, topics))
    return Judgement(check_history(operations), reports)
