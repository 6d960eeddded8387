"""Every job every few seconds, while producers write and readers read: what each reader got."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.fault.workload import tally
from tests.length import FULL

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.delta_log import LocalStore, Topics
from mainstem.delta_log.verify import verify_named
from mainstem.errors import MainstemError, OffsetOutOfRangeError
from mainstem.jobs.catalogue import JOBS
from mainstem.jobs.job_history import read_history
from mainstem.jobs.jobs_config import load_jobs_config
from mainstem.jobs.scheduler import Scheduler
from mainstem.jobs.spark_runs import SparkRuns
from mainstem.testing import GatewayProcess

#: An hour's schedule in half a minute: every three seconds what else is every five minutes, and
#: a removed file is kept for 20 seconds, at full length for a minute.
JOBS_TOML: Final = """
[scheduler]
jitter.ms = 500
heartbeat.interval.ms = 500
session.timeout.ms = 5000
""" + "".join(f'[jobs.{name}]\ncron = "*/3 * * * * *"\n' for name in JOBS)

#: `events` loses its oldest records, `accounts` superseded ones, `audit` none.
TOPICS: Final[Mapping[str, tuple[int, Mapping[str, object]]]] = {
    "events": (3, {"retention.ms": 15_000}),
    "accounts": (
        2,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.1",
            "delete.retention.ms": 5_000,
        },
    ),
    "audit": (2, {}),
}
COMMON: Final = {
    "commit.interval.ms": 50,
    "compaction.min.age.ms": 2_000,
    # Delta's own stream may be behind by that on a busy machine; then vacuum strands it.
    "vacuum.min.age.ms": 60_000 if FULL else 20_000,
    # Small files are what jobs are for.
    "rollup.files": 0,
}

KEYS: Final = 40
RECORDS_EACH: Final = 20
PAUSE_S: Final = 0.1
READ_S_MAX: Final = 120.0
WORK_S_MAX: Final = 180.0

#: Jobs that find something to do in such a run.
WORKING: Final = frozenset({"compaction", "keyed-compaction", "retention", "vacuum"})

#: The value of the last record of each partition.
END: Final = b"end"

Place = tuple[str, int]


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None


@dataclass
class Reader:
    """What a reader was given, in order, and what it was told of losses."""

    name: str
    topics: Sequence[str]
    offsets: dict[Place, list[int]] = field(default_factory=dict)
    records: dict[tuple[str, int, int], Record] = field(default_factory=dict)
    #: Partitions of which it was told that records are gone.
    told: set[Place] = field(default_factory=set)
    #: Partitions that it has read to the end.
    ended: set[Place] = field(default_factory=set)

    def take(self, topic: str, partition: int, offset: int, record: Record) -> None:
        self.offsets.setdefault((topic, partition), []).append(offset)
        self.records[topic, partition, offset] = record
        if record.value == END:
            self.ended.add((topic, partition))


@dataclass
class Report:
    """What came of a run."""

    appended: int = 0
    read: dict[str, int] = field(default_factory=dict)
    #: Runs on a table that had something to do, by job and outcome.
    runs: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.appended} records appended; read {self.read}",
                f"runs: {tally(self.runs)}",
                *self.findings,
            ]
        )


class Writer:
    """Produces to all topics; knows where each record is."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.appended: dict[tuple[str, int, int], Record] = {}
        self.failures: list[str] = []
        self._rng = random.Random(seed)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._number = 0

    def write_while(self, condition: Callable[[], bool]) -> None:
        while condition():
            for topic, (partitions, _) in TOPICS.items():
                for _ in range(RECORDS_EACH):
                    self._write(topic, self._rng.randrange(partitions))
            self._producer.poll(PAUSE_S)
        self._producer.flush(60)

    def write_ends(self) -> None:
        """A last record in each partition, which no job removes any more."""
        for topic, (partitions, _) in TOPICS.items():
            for partition in range(partitions):
                self._send(topic, partition, Record(b"end-%d" % partition, END))
        self._producer.flush(60)
        self._producer.close()

    def _write(self, topic: str, partition: int) -> None:
        self._number += 1
        key = b"%d-%d" % (partition, self._rng.randrange(KEYS))
        tombstone = topic == "accounts" and self._rng.random() < 0.05
        self._send(topic, partition, Record(key, None if tombstone else b"%d" % self._number))

    def _send(self, topic: str, partition: int, record: Record) -> None:
        def done(error: MainstemError | None, metadata: Any) -> None:
            if error is not None:
                self.failures.append(str(error))
            else:
                self.appended[topic, partition, metadata.offset] = record

        self._producer.produce(topic, record.value, record.key, partition, done)


class GroupReader:
    """A consumer group with one member, over `events` and `accounts`, in a thread."""

    def __init__(self, bootstrap: str) -> None:
        self.reader = Reader("group", ("events", "accounts"))
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group reader")
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with (
            _told_by_log(self.reader),
            Consumer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "group.id": "readers",
                    "auto.offset.reset": "earliest",
                    "auto.commit.interval.ms": 500,
                }
            ) as consumer,
        ):
            consumer.subscribe(list(self.reader.topics))
            while not self._stopping.is_set():
                for one in consumer.consume(500, 0.2):
                    record = Record(one.key, one.value)
                    self.reader.take(one.topic, one.partition, one.offset, record)


class StreamReader:
    """A Spark stream; started again where it was when it was told that records are gone."""

    def __init__(self, reader: Reader, start: Callable[[bool], StreamingQuery]) -> None:
        self.reader = reader
        self._start = start
        self.query = start(True)

    def stop(self) -> None:
        self.query.stop()

    def check(self) -> None:
        """Raises what ended the stream, unless that was the loss of what a policy removed."""
        failure = self.query.exception()
        if failure is None:
            return
        if OffsetOutOfRangeError.__name__ not in str(failure):
            raise failure
        self.reader.told |= {("events", number) for number in range(TOPICS["events"][0])}
        self.query = self._start(False)


def run_jobs_loop(directory: Path, spark: SparkSession, seed: int, seconds: float) -> Report:
    """Writes for so many seconds while all jobs run, then lets the readers come to the end.

    On a machine that is busy it writes for longer, until each job has done something.
    """
    warehouse = directory / "warehouse"
    report = Report()
    with contextlib.ExitStack() as at_end:
        gateway = at_end.enter_context(GatewayProcess(warehouse))
        _create_topics(gateway.address)
        store = LocalStore(warehouse)
        at_end.callback(store.close)
        streams = [
            _mainstem_stream(spark, warehouse, directory),
            _delta_stream(spark, warehouse, directory),
        ]
        for stream in streams:
            at_end.callback(stream.stop)
        group = GroupReader(gateway.address)
        at_end.callback(group.stop)
        writer = Writer(gateway.address, seed)
        with _jobs(directory, store):
            writer.write_while(_WorkLeft(store, seconds, streams))
        writer.write_ends()
        _wait_for_ends([group.reader, *(one.reader for one in streams)], streams)

        report.appended = len(writer.appended)
        report.findings += writer.failures
        report.findings += _below_the_start(gateway.address, store)
        for reader in (group.reader, *(one.reader for one in streams)):
            report.read[reader.name] = len(reader.records)
            report.findings += judge(reader, writer.appended, _log_starts(store))
        for topic in TOPICS:
            verified = verify_named(store, topic)
            report.findings += [f"{topic}: {one}" for one in verified.findings]
        for run in read_history(store, limit=0):
            if run.outcome.kind.value != "nothing":
                report.runs[f"{run.job} {run.outcome.kind.value}"] += 1
            if run.outcome.kind.value == "failed":
                report.findings.append(f"{run.job} of {run.topic}: {run.outcome.error}")
    return report


def judge(
    reader: Reader,
    appended: Mapping[tuple[str, int, int], Record],
    log_starts: Mapping[Place, int],
) -> list[str]:
    """What a reader was given and should not have been, and the other way round."""
    findings = []
    for (topic, partition), offsets in reader.offsets.items():
        repeated = [offset for offset, count in Counter(offsets).items() if count > 1]
        if repeated:
            findings.append(f"{reader.name}: {topic}-{partition} twice: {repeated[:5]}")
        if reader.name != "delta" and offsets != sorted(offsets):
            findings.append(f"{reader.name}: {topic}-{partition} out of order")
    for where, record in reader.records.items():
        if appended.get(where) != record:
            findings.append(f"{reader.name}: {where} is {record}, not {appended.get(where)}")
    newest: dict[tuple[str, int, bytes | None], int] = {}
    for (topic, partition, offset), record in appended.items():
        key = (topic, partition, record.key)
        newest[key] = max(newest.get(key, -1), offset)
    for (topic, partition, offset), record in appended.items():
        if topic not in reader.topics or (topic, partition, offset) in reader.records:
            continue
        place = (topic, partition)
        if topic == "accounts":
            is_newest = newest[topic, partition, record.key] == offset
            if not is_newest or record.value is None:
                continue  # superseded, or a tombstone whose time was over
        elif offset < log_starts[place] and place in reader.told:
            continue  # retention, and the reader was told
        findings.append(f"{reader.name}: {topic}-{partition} {offset} was never delivered")
    return findings


class _WorkLeft:
    """Whether it is too early to stop: for so many seconds, and until each job has done something.

    At most `WORK_S_MAX` longer. Looks after the streams meanwhile.
    """

    def __init__(self, store: LocalStore, seconds: float, streams: Sequence[StreamReader]) -> None:
        self._store = store
        self._streams = streams
        self._look_at = time.monotonic()
        self._enough_at = self._look_at + seconds
        self._give_up_at = self._enough_at + WORK_S_MAX

    def __call__(self) -> bool:
        now = time.monotonic()
        if now < self._look_at:
            return True
        self._look_at = now + 1.0
        for stream in self._streams:
            stream.check()
        if now < self._enough_at:
            return True
        done = {run.job for run in read_history(self._store, limit=0) if run.outcome.version}
        return not done >= WORKING and now < self._give_up_at


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for topic, (partitions, config) in TOPICS.items():
        settings = {name: str(value) for name, value in {**COMMON, **config}.items()}
        admin.create_topic(topic, partitions, config=settings)
    admin.close()


@contextlib.contextmanager
def _jobs(directory: Path, store: LocalStore) -> Iterator[None]:
    """The scheduler, on the Spark session of the tests."""
    file = directory / "jobs.toml"
    file.write_text(JOBS_TOML)
    config = load_jobs_config(file)
    runs = SparkRuns(store.uri, config.spark)
    scheduler = Scheduler(store, config, runs.run, runs.abandon)
    clean: list[bool] = []
    thread = threading.Thread(target=lambda: clean.append(scheduler.run()), name="scheduler")
    thread.start()
    try:
        yield
    finally:
        scheduler.stop()
        thread.join()
    assert clean == [True], "a job did not end"


def _mainstem_stream(spark: SparkSession, warehouse: Path, directory: Path) -> StreamReader:
    reader = Reader("spark", ("events", "accounts"))

    def take(frame: DataFrame, _: int) -> None:
        for row in frame.select("topic", "partition", "offset", "key", "value").collect():
            key, value = (None if one is None else bytes(one) for one in (row.key, row.value))
            reader.take(row.topic, row.partition, row.offset, Record(key, value))

    def start(fail_on_data_loss: bool) -> StreamingQuery:
        frame = (
            spark.readStream.format("mainstem")
            .option("mainstem.warehouse", str(warehouse))
            .option("subscribe", ",".join(reader.topics))
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", fail_on_data_loss)
            .load()
        )
        return (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(directory / "mainstem-checkpoint"))
            .start()
        )

    return StreamReader(reader, start)


def _delta_stream(spark: SparkSession, warehouse: Path, directory: Path) -> StreamReader:
    reader = Reader("delta", ("audit",))

    def take(frame: DataFrame, _: int) -> None:
        for row in frame.select("partition", "offset", "key", "value").collect():
            record = Record(bytes(row.key), bytes(row.value))
            reader.take("audit", row.partition, row.offset, record)

    def start(_: bool) -> StreamingQuery:
        frame = (
            spark.readStream.format("delta")
            .option("skipChangeCommits", "true")
            .load(str(warehouse / "topics" / "audit"))
        )
        return (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(directory / "delta-checkpoint"))
            .start()
        )

    return StreamReader(reader, start)


def _wait_for_ends(readers: Sequence[Reader], streams: Sequence[StreamReader]) -> None:
    """Until each reader has the last record of each of its partitions."""
    deadline = time.monotonic() + READ_S_MAX
    wanted = {
        (reader.name, topic, partition)
        for reader in readers
        for topic in reader.topics
        for partition in range(TOPICS[topic][0])
    }
    while missing := wanted - {(one.name, *place) for one in readers for place in set(one.ended)}:
        for stream in streams:
            stream.check()
        assert time.monotonic() < deadline, f"readers did not come to the end: {missing}"
        time.sleep(0.2)


def _log_starts(store: LocalStore) -> dict[Place, int]:
    found = {}
    for topic, (partitions, _) in TOPICS.items():
        opened = Topics(store).open(topic)
        for partition in range(partitions):
            found[topic, partition] = opened.state.log_start_offset(partition)
    return found


def _below_the_start(bootstrap: str, store: LocalStore) -> list[str]:
    """Who reads what retention has removed must be told where the log begins."""
    findings = []
    settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "error"}
    for (topic, partition), start in _log_starts(store).items():
        if topic != "events":
            continue
        if not start:
            findings.append(f"retention has removed nothing of {topic}-{partition}")
            continue
        with Consumer(settings) as consumer:
            consumer.assign([TopicPartition(topic, partition, 0)])
            try:
                got = consumer.poll(READ_S_MAX)
                findings.append(f"{topic}-{partition} at 0 gave {got}")
            except OffsetOutOfRangeError as error:
                if str(start) not in error.facts.values():
                    findings.append(f"{topic}-{partition} begins at {start}, told {error.facts}")
    return findings


@contextlib.contextmanager
def _told_by_log(reader: Reader) -> Iterator[None]:
    """Notes the warnings in which the client tells of offsets that are gone."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "is out of range" in record.msg and isinstance(record.args, tuple):
                _, topic, partition, *_ = record.args
                reader.told.add((str(topic), int(str(partition))))

    notes = Notes()
    logger = logging.getLogger("mainstem.client")
    logger.addHandler(notes)
    try:
        yield
    finally:
        logger.removeHandler(notes)
