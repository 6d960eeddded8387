"""The SQL of docs/concepts/groups.md, as it stands there."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession
from tests.unit.pyspark_mainstem.topic_log import TopicLog

from mainstem.consumers.offset_rows import GroupRow, OffsetKey, Row, StoredOffset, offset_row
from mainstem.consumers.offsets_table import OffsetsTable
from mainstem.delta_log import ByteBudget, LocalStore


async def fill(warehouse: str, *commits: list[Row]) -> None:
    """Writes rows, one table commit for each list."""
    store = LocalStore(warehouse)
    pool = ThreadPoolExecutor(2)
    table = await OffsetsTable.lead(store, pool, budget=ByteBudget(2**24))
    for rows in commits:
        await table.write(rows)
    await table.close(10.0)
    pool.shutdown()
    store.close()


def offset(group: str, partition: int, number: int) -> Row:
    return offset_row(group, StoredOffset("orders", "id", partition, number, commit_timestamp_ms=5))


def test_the_documented_view_and_join_give_the_lag_of_each_group(
    spark: SparkSession, topic_log: TopicLog, repo_root: Path
) -> None:
    topic_log.create("orders", 3)
    topic_log.count_up("orders", 0, 10)
    topic_log.count_up("orders", 1, 4)
    gone = Row("g", OffsetKey("id", 1), None)
    asyncio.run(
        fill(
            topic_log.uri,
            [offset("g", 0, 3), offset("g", 1, 4), Row("g", None, GroupRow(9, None))],
            [offset("g", 0, 7), offset("h", 1, 1), offset("h", 2, 0)],
            [gone],
        )
    )
    text = (repo_root / "docs/concepts/groups.md").read_text()
    view, lag = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    spark.sql(view.replace("<warehouse>", topic_log.uri))
    rows = [tuple(row) for row in spark.sql(lag.replace("<warehouse>", topic_log.uri)).collect()]
    assert rows == [("g", 0, 7, 3), ("h", 1, 1, 3), ("h", 2, 0, 0)]
