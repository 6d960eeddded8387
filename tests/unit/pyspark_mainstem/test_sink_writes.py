"""What tasks write and the driver commits, at a real gateway and without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from mainstem.client import AdminClient, Producer
from mainstem.errors import InvalidRecordError, TransactionAbortedError, UnknownTopicError
from mainstem.testing import GatewayProcess
from pyspark_mainstem._options import SourceOptions
from pyspark_mainstem._planner import Planner
from pyspark_mainstem._range_reader import read_range
from pyspark_mainstem._sink_commit import complete
from pyspark_mainstem._sink_options import SinkOptions
from pyspark_mainstem._sink_task import write_task

WAIT_S = 30
PARTITIONS = 3


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("warehouse")) as process:
        yield process


@pytest.fixture
def topics(gateway: GatewayProcess, request: pytest.FixtureRequest) -> list[str]:
    """Two topics of this test's own."""
    names = [f"{request.node.name[:60].replace('[', '-').rstrip(']')}-{one}" for one in "ab"]
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        for name in names:
            admin.create_topic(name, PARTITIONS)
    return names


def _options(gateway: GatewayProcess, **more: str) -> SinkOptions:
    return SinkOptions.parse({"mainstem.bootstrap.servers": gateway.address, **more}, stream=True)


def _rows(topic: str, values: Iterable[object], **more: list[object]) -> pa.RecordBatch:
    found = [str(value) for value in values]
    columns = {"topic": [topic] * len(found), "key": found, "value": found, **more}
    return pa.RecordBatch.from_pydict(columns)


def _stored(gateway: GatewayProcess, topic: str) -> list[tuple[int, int, str]]:
    """Partition, offset and value of each record in the table."""
    given = {"mainstem.warehouse": str(gateway.warehouse), "subscribe": topic}
    planner = Planner(SourceOptions.parse(given).for_batch())
    try:
        return [
            (row["partition"], row["offset"], row["value"].decode())
            for plan in planner.plan_batch()
            for batch in read_range(plan, ("partition", "offset", "value"))
            for row in batch.to_pylist()
        ]
    finally:
        planner.close()


def _values(gateway: GatewayProcess, topic: str) -> list[str]:
    return sorted(value for _, _, value in _stored(gateway, topic))


def _commit(options: SinkOptions, name: str, epoch: int, tokens: list[str]) -> bool:
    return complete(
        options, name, epoch, tokens, commit=True, one_off=False, timeout_s=float(WAIT_S)
    )


def test_what_tasks_wrote_is_there_once_it_is_committed_and_not_before(
    gateway: GatewayProcess, topics: list[str]
) -> None:
    a, b = topics
    options = _options(gateway)
    tokens = [
        write_task([_rows(a, range(5)), _rows(b, "xy")], options, "spark-q-0-0"),
        write_task([_rows(a, range(5, 8))], options, "spark-q-0-1"),
        write_task([], options, "spark-q-0-2"),
    ]
    assert tokens[2] == ""
    assert _values(gateway, a) == _values(gateway, b) == []
    assert not _commit(options, f"spark-{a}", 0, tokens[:2])
    assert _values(gateway, a) == [str(number) for number in range(8)]
    assert _values(gateway, b) == ["x", "y"]


def test_keys_go_where_the_producer_sends_them_and_tasks_follow_each_other(
    gateway: GatewayProcess, topics: list[str]
) -> None:
    a, b = topics
    options = _options(gateway)
    tokens = [
        write_task([_rows(a, range(first, first + 10))], options, "spark-q-0")
        for first in range(10, 50, 10)
    ]
    _commit(options, f"spark-{a}", 0, tokens)
    with Producer({"bootstrap.servers": gateway.address}) as producer:
        for number in range(10, 50):
            producer.produce(b, str(number), str(number))
    assert sorted(_stored(gateway, a)) == sorted(_stored(gateway, b))


def test_rows_say_their_partition_headers_and_time(
    gateway: GatewayProcess, topics: list[str]
) -> None:
    a = topics[0]
    options = _options(gateway, topic=a)
    headers = [[{"key": "h", "value": b"1"}], None]
    times = pa.array([1_700_000_000_000_000, None], pa.timestamp("us", "UTC"))
    rows = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"\xff", None], pa.binary()),
            "partition": pa.array([2, 2], pa.int32()),
            "headers": pa.array(
                headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
            ),
            "timestamp": times,
        }
    )
    _commit(options, f"spark-{a}", 0, [write_task([rows], options, "spark-q-0")])
    given = {"mainstem.warehouse": str(gateway.warehouse), "subscribe": a}
    planner = Planner(SourceOptions.parse(given).for_batch())
    (plan,) = planner.plan_batch()
    planner.close()
    columns = ("partition", "key", "value", "headers", "timestamp")
    first, second = next(iter(read_range(plan, columns))).to_pylist()
    assert (first["partition"], first["key"], first["value"]) == (2, None, b"\xff")
    assert first["headers"] == headers[0]
    assert first["timestamp"].timestamp() == 1_700_000_000
    assert (second["value"], second["headers"]) == (None, None)
    assert abs(second["timestamp"].timestamp() - time.time()) < 600


def test_an_epoch_is_written_once_whoever_runs_it_again(
    gateway: GatewayProcess, topics: list[str]
) -> None:
    a = topics[0]
    options = _options(gateway)
    first = [write_task([_rows(a, "ab")], options, "spark-q-7")]
    assert not _commit(options, f"spark-{a}", 7, first)
    assert _commit(options, f"spark-{a}", 7, first), "an answer was lost"
    again = [write_task([_rows(a, "ab")], options, "spark-q-7")]
    assert _commit(options, f"spark-{a}", 7, again), "a driver was killed"
    old = [write_task([_rows(a, "z")], options, "spark-q-6")]
    assert _commit(options, f"spark-{a}", 6, old)
    assert _values(gateway, a) == ["a", "b"]
    new = [write_task([_rows(a, "c")], options, "spark-q-8")]
    assert not _commit(options, f"spark-{a}", 8, new)
    assert _values(gateway, a) == ["a", "b", "c"]
    _check_nothing_left(gateway)


def test_a_task_that_fails_leaves_nothing_behind(
    gateway: GatewayProcess, topics: list[str]
) -> None:
    a = topics[0]

    def failing() -> Iterator[pa.RecordBatch]:
        yield _rows(a, "ab")
        raise ArithmeticError("the query's own")

    options = _options(gateway)
    with pytest.raises(ArithmeticError):
        write_task(failing(), options, "spark-q-0-0")
    with pytest.raises(UnknownTopicError, match="no-such-topic"):
        write_task([_rows(a, "ab"), _rows("no-such-topic", "c")], options, "spark-q-0-1")
    without = pa.RecordBatch.from_pydict({"topic": pa.nulls(1, pa.string()), "value": ["x"]})
    with pytest.raises(InvalidRecordError, match="null in the column 'topic'"):
        write_task([_rows(a, "ab"), without], options, "spark-q-0-2")
    _check_nothing_left(gateway)
    assert _values(gateway, a) == []


def test_attempts_that_lost_and_epochs_that_were_aborted_write_nothing(
    gateway: GatewayProcess, topics: list[str]
) -> None:
    a = topics[0]
    options = _options(gateway)
    lost, won = (write_task([_rows(a, "ab")], options, "spark-q-0-0") for _ in range(2))
    _commit(options, f"spark-{a}", 0, [won])
    complete(options, f"spark-{a}", 1, [lost], commit=False, one_off=False, timeout_s=float(WAIT_S))
    with pytest.raises(TransactionAbortedError):
        _commit(options, f"spark-{a}", 1, [lost])
    # What the driver has committed it cannot abort: Spark tries to after an answer that was lost.
    complete(options, f"spark-{a}", 0, [won], commit=False, one_off=False, timeout_s=float(WAIT_S))
    assert _values(gateway, a) == ["a", "b"]
    _check_nothing_left(gateway)


def test_one_that_waited_too_long_takes_the_others_of_its_epoch_along(
    gateway: GatewayProcess, topics: list[str]
) -> None:
    a = topics[0]
    short = write_task(
        [_rows(a, "x")], _options(gateway, **{"mainstem.commit.timeout.ms": "200"}), "spark-q-0-0"
    )
    long = write_task([_rows(a, "y")], _options(gateway), "spark-q-0-1")
    _wait_until_left(gateway, 1)
    with pytest.raises(TransactionAbortedError):
        _commit(_options(gateway), f"spark-{a}", 0, [short, long])
    _check_nothing_left(gateway)
    again = write_task([_rows(a, "y")], _options(gateway), "spark-q-0-1")
    assert not _commit(_options(gateway), f"spark-{a}", 0, [again]), "the epoch is still to come"
    assert _values(gateway, a) == ["y"]


def test_what_is_prepared_and_which_epochs_were_committed_outlives_the_gateway(
    tmp_path: Path,
) -> None:
    with GatewayProcess(tmp_path / "warehouse") as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            admin.create_topic("t", PARTITIONS)
        options = _options(gateway)
        _commit(options, "spark-q", 0, [write_task([_rows("t", "a")], options, "spark-q-0")])
        token = write_task([_rows("t", "b")], options, "spark-q-1")
        gateway.kill()
        gateway.start()
        replay = write_task([_rows("t", "a")], options, "spark-q-0")
        assert _commit(options, "spark-q", 0, [replay])
        assert not _commit(options, "spark-q", 1, [token])
        assert _values(gateway, "t") == ["a", "b"]


def _check_nothing_left(gateway: GatewayProcess) -> None:
    _wait_until_left(gateway, 0)


def _wait_until_left(gateway: GatewayProcess, count: int) -> None:
    """Until so many transactions are open, prepared or under way."""
    deadline = time.monotonic() + WAIT_S
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        while len(left := admin.list_transactions()) != count:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
