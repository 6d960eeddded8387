"""`spark.readStream.format("mainstem")`: progress, checkpoints, what is new, and what is lost."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.conftest import WAIT_S, Streams
from tests.unit.pyspark_mainstem.topic_log import START_MS, Record, TopicLog


def _wait_for(query: StreamingQuery, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        failure = query.exception()
        if failure is not None:
            raise failure
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)


def test_a_restart_goes_on_from_the_checkpoint_which_is_kafkas(
    topic_log: TopicLog, streams: Streams
) -> None:
    topic_log.create("orders", 11)
    topic_log.count_up("orders", 0, 5)
    topic_log.count_up("orders", 10, 2)
    assert len(streams.run(subscribe="orders", startingOffsets="earliest")[0]) == 7
    rest = {str(partition): 0 for partition in range(1, 10)}
    assert streams.offsets() == [{"orders": {"0": 5, **rest, "10": 2}}]
    assert list(streams.offsets()[0]["orders"])[-1] == "10"

    topic_log.count_up("orders", 0, 4)
    # Start options are for a new query only: this one would skip what came in between.
    batches = streams.run(subscribe="orders", startingOffsets="latest")
    assert [[(row.partition, row.offset) for row in rows] for rows in batches] == [
        [(0, 5), (0, 6), (0, 7), (0, 8)]
    ]
    assert streams.offsets()[-1]["orders"]["0"] == 9
    assert streams.run(subscribe="orders") == []


def test_a_batch_that_was_planned_but_not_finished_is_read_again_the_same(
    topic_log: TopicLog, streams: Streams
) -> None:
    topic_log.create("orders")
    topic_log.count_up("orders", 0, 10, file_count=2)
    streams.run(subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="6")
    first = streams.batches.copy()
    topic_log.count_up("orders", 0, 5)
    # As after a crash between the work and the commit of the last batch.
    for name in ("1", ".1.crc"):
        (streams.checkpoint / "commits" / name).unlink(missing_ok=True)
    del streams.batches[1]
    streams.run(subscribe="orders")
    assert streams.batches[1] == first[1]
    assert [row.offset for row in streams.rows()] == list(range(15))


def test_a_limit_bounds_each_batch_and_order_in_a_partition_is_kept(
    topic_log: TopicLog, streams: Streams
) -> None:
    topic_log.create("orders", 2)
    topic_log.count_up("orders", 0, 30, file_count=7)
    topic_log.count_up("orders", 1, 10, file_count=3)
    batches = streams.run(subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="8")
    assert [len(rows) for rows in batches] == [8, 8, 8, 8, 8]
    for partition, count in ((0, 30), (1, 10)):
        offsets = [row.offset for row in streams.rows() if row.partition == partition]
        assert offsets == list(range(count))


def test_more_tasks_than_partitions_on_request(topic_log: TopicLog, streams: Streams) -> None:
    topic_log.create("orders")
    topic_log.count_up("orders", 0, 40, file_count=8)
    streams.count_tasks = True
    (rows,) = streams.run(subscribe="orders", startingOffsets="earliest", minPartitions="4")
    assert streams.task_counts == [4]
    assert [row.offset for row in rows] == list(range(40))


def test_small_partitions_share_tasks_on_request(topic_log: TopicLog, streams: Streams) -> None:
    topic_log.create("orders", 6)
    for partition in range(6):
        topic_log.count_up("orders", partition, 5)
    streams.count_tasks = True
    (rows,) = streams.run(
        subscribe="orders", startingOffsets="earliest", maxRecordsPerPartition="15"
    )
    assert streams.task_counts == [2]
    assert [(row.partition, row.offset) for row in rows] == [
        (partition, offset) for partition in range(6) for offset in range(5)
    ]


def test_available_now_ends_although_records_keep_coming(
    topic_log: TopicLog, streams: Streams
) -> None:
    topic_log.create("orders")
    topic_log.count_up("orders", 0, 4)
    take = streams._take

    def append_more(frame: object, batch_id: int) -> None:
        topic_log.count_up("orders", 0, 4)
        take(frame, batch_id)  # type: ignore[arg-type]

    streams._take = append_more  # type: ignore[method-assign]
    batches = streams.run(subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert [[row.offset for row in rows] for rows in batches] == [[0, 1], [2, 3]]


def test_a_new_query_starts_at_the_end_by_default_or_where_it_is_told(
    topic_log: TopicLog, streams: Streams
) -> None:
    topic_log.create("orders", 2)
    topic_log.count_up("orders", 0, 5)
    topic_log.count_up("orders", 1, 5)
    assert streams.run(subscribe="orders") == [[]]
    assert streams.offsets() == [{"orders": {"0": 5, "1": 5}}]

    for name, options in {
        "offsets": {"startingOffsets": '{"orders":{"0":3,"1":-1}}'},
        "timestamps": {
            "startingOffsetsByTimestamp": f'{{"orders":{{"0":{START_MS + 3000},"1":{2**50}}}}}',
            "startingOffsetsByTimestampStrategy": "latest",
        },
    }.items():
        fresh = Streams(streams.spark, streams.warehouse, streams.checkpoint / name)
        fresh.run(subscribe="orders", **options)
        assert [(row.partition, row.offset) for row in fresh.rows()] == [(0, 3), (0, 4)], name


def test_new_partitions_and_new_topics_are_picked_up_from_their_start_while_it_runs(
    topic_log: TopicLog, streams: Streams
) -> None:
    topic_log.create("orders")
    topic_log.create("other")
    query = streams.start(subscribePattern="orders.*", columns="topic,partition,offset")
    try:
        _wait_for(query, lambda: len(streams.offsets()) == 1)
        topic_log.count_up("orders", 0, 2)
        topic_log.add_partitions("orders", 2)
        topic_log.count_up("orders", 1, 3)
        topic_log.create("orders.eu")
        topic_log.count_up("orders.eu", 0, 1)
        topic_log.count_up("other", 0, 1)
        _wait_for(query, lambda: len(streams.rows()) == 6)
    finally:
        query.stop()
    assert sorted(tuple(row) for row in streams.rows()) == [
        ("orders", 0, 0),
        ("orders", 0, 1),
        ("orders", 1, 0),
        ("orders", 1, 1),
        ("orders", 1, 2),
        ("orders.eu", 0, 0),
    ]
    assert query.lastProgress is not None
    assert list(streams.offsets()[-1]) == ["orders", "orders.eu"]


def test_headers_come_on_request(topic_log: TopicLog, streams: Streams) -> None:
    topic_log.create("orders")
    topic_log.append("orders", (0, [Record(b"v", headers=[("h", b"1")])]))
    ((row,),) = streams.run(subscribe="orders", startingOffsets="earliest", includeHeaders="true")
    assert [tuple(header) for header in row.headers] == [("h", b"1")]


def test_a_batch_waits_for_the_minimum(topic_log: TopicLog, streams: Streams) -> None:
    topic_log.create("orders")
    topic_log.count_up("orders", 0, 1)
    query = streams.start(
        subscribe="orders",
        startingOffsets="earliest",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="1h",
    )
    try:
        _wait_for(query, lambda: len(streams.rows()) == 1)
        for _ in range(4):
            topic_log.count_up("orders", 0, 1)
        topic_log.count_up("orders", 0, 2)
        _wait_for(query, lambda: len(streams.rows()) == 7)
    finally:
        query.stop()
    assert [len(rows) for _, rows in sorted(streams.batches.items())] in ([1, 6], [1, 5, 1])


def test_what_retention_took_away_unread_is_an_error_unless_told_otherwise(
    topic_log: TopicLog, streams: Streams
) -> None:
    topic_log.create("orders")
    topic_log.count_up("orders", 0, 3)
    streams.run(subscribe="orders", startingOffsets="earliest")
    topic_log.count_up("orders", 0, 12, file_count=3)
    topic_log.trim("orders", 0, 7)
    with pytest.raises(StreamingQueryException, match="4 records have been removed unread"):
        streams.run(subscribe="orders")
    (rows,) = streams.run(subscribe="orders", failOnDataLoss="false")
    assert [row.offset for row in rows] == list(range(7, 15))


def test_a_topic_that_is_deleted_or_created_again_stops_the_query(
    topic_log: TopicLog, streams: Streams
) -> None:
    topic_log.create("orders")
    topic_log.count_up("orders", 0, 3)
    query = streams.start(subscribe="orders", startingOffsets="earliest")
    try:
        _wait_for(query, lambda: len(streams.rows()) == 3)
        topic_log.delete("orders")
        topic_log.create("orders")
        topic_log.count_up("orders", 0, 9)
        with pytest.raises(
            StreamingQueryException, match=r"created again while the query|there is no topic"
        ):
            query.awaitTermination(WAIT_S)
    finally:
        query.stop()
    assert len(streams.rows()) == 3
    topic_log.delete("orders")
    topic_log.create("orders")
    with pytest.raises(StreamingQueryException, match="at offset 3 of orders-0, but its log ends"):
        streams.run(subscribe="orders")


def test_available_now_reads_a_topic_that_is_created_again_meanwhile_once_where_loss_is_allowed(
    topic_log: TopicLog, streams: Streams
) -> None:
    topic_log.create("orders", 2)
    topic_log.append("orders", *((partition, [Record(b"old")] * 20) for partition in range(2)))
    take = streams._take

    def recreate(frame: DataFrame, batch_id: int) -> None:
        take(frame, batch_id)
        if batch_id == 1:
            topic_log.delete("orders")
            topic_log.create("orders", 3)

    streams._take = recreate  # type: ignore[method-assign]
    options = {"subscribe": "orders", "maxOffsetsPerTrigger": "10", "failOnDataLoss": "false"}
    streams.run(startingOffsets="earliest", **options)
    assert [len(streams.batches[number]) for number in sorted(streams.batches)] == [10, 10, 0]
    assert streams.offsets()[-1] == {"orders": {"0": 0, "1": 0, "2": 0}}

    streams._take = take  # type: ignore[method-assign]
    topic_log.append("orders", *((partition, [Record(b"new")] * 12) for partition in range(3)))
    batches = streams.run(**options)
    rows = sorted((row.partition, row.offset) for rows in batches for row in rows)
    assert rows == [(partition, offset) for partition in range(3) for offset in range(12)]


def test_a_missing_data_file_stops_the_query_and_it_resumes_when_it_is_back(
    topic_log: TopicLog, streams: Streams
) -> None:
    topic_log.create("orders")
    topic_log.count_up("orders", 0, 9, file_count=3)
    file = topic_log.data_files("orders", 0)[1]
    data = file.read_bytes()
    file.unlink()
    with pytest.raises(StreamingQueryException, match="offsets 3 to 5"):
        streams.run(subscribe="orders", startingOffsets="earliest")
    assert streams.rows() == []
    file.write_bytes(data)
    streams.run(subscribe="orders", startingOffsets="earliest")
    assert [row.offset for row in streams.rows()] == list(range(9))


def test_an_end_is_refused(topic_log: TopicLog, streams: Streams) -> None:
    topic_log.create("orders")
    with pytest.raises(Exception, match="endingOffsets is for batch queries"):
        streams.run(subscribe="orders", endingOffsets="latest")
