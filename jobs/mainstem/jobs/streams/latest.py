"""The latest state by key: what a compacted topic means.

Spark's own `create_auto_cdc_flow` is not used: of a table of Delta 4.4 it says that it does not
support MERGE (AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mainstem.errors import InvalidConfigError
from mainstem.jobs.streams.parsed import check_columns

_LAST: Final = "__mainstem_last"
_DELETED: Final = "__mainstem_deleted"


def latest_by_key(
    records: DataFrame,
    keys: Sequence[str] = ("key",),
    *,
    order_by: str = "offset",
    deleted: str = "value IS NULL",
) -> DataFrame:
    """The last record of each key, without those keys whose last record deletes.

    A key's records are in one partition, where `offset` tells their order. Where partitions were
    added to the topic, a key may have gone to another one: order by `timestamp` then.

    On a stream this is an aggregation, for the output modes `complete` (memory grows with the
    number of keys) and, for those who deal with deletions themselves, not for `update`, which never
    tells that a key is gone: a stream into a table is `upsert_latest`.

    Args:
        records: With the columns that are named here. Rows with a null key are left out.
        order_by: The column that tells which record is later.
        deleted: SQL: whether a record deletes its key. Default: a tombstone does.

    Raises:
        InvalidConfigError: A column is missing.
    """
    last = _latest(records, keys, order_by, deleted)
    # Not with drop, for which Spark would look at the columns, which it refuses in a pipeline.
    return last.where(~F.col(_LAST)["deleted"]).select(f"{_LAST}.row.*")


def upsert_latest(
    table: str | os.PathLike[str],
    keys: Sequence[str] = ("key",),
    *,
    order_by: str = "offset",
    deleted: str = "value IS NULL",
) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch` that keeps a Delta table as `latest_by_key` of the whole
    stream: keys are inserted, updated and deleted.

    A batch that Spark runs again after a crash changes nothing more. The table is made by the first
    batch. Batches follow each other, so a later one always wins; only inside a batch `order_by`
    counts.

    Args:
        table: The table's directory or URI; nobody else writes there.
        keys, order_by, deleted: As for `latest_by_key`.

    Raises:
        InvalidConfigError: In the function: a column is missing.
    """
    place = os.fspath(table)

    def upsert(batch: DataFrame, batch_id: int) -> None:
        from delta.tables import DeltaTable

        session = batch.sparkSession
        last = _latest(batch, keys, order_by, deleted)
        latest = last.select(f"{_LAST}.row.*", F.col(_LAST)["deleted"].alias(_DELETED))
        if not DeltaTable.isDeltaTable(session, place):
            first = latest.where(f"NOT {_DELETED}").drop(_DELETED)
            first.write.format("delta").mode("error").save(place)
            return
        same = " AND ".join(f"t.{_quoted(key)} <=> s.{_quoted(key)}" for key in keys)
        columns: dict[str, str | Column] = {
            _quoted(name): f"s.{_quoted(name)}" for name in latest.columns[:-1]
        }
        (
            DeltaTable.forPath(session, place)
            .alias("t")
            .merge(latest.alias("s"), same)
            .whenMatchedDelete(f"s.{_DELETED}")
            .whenMatchedUpdate(set=columns)
            .whenNotMatchedInsert(f"NOT s.{_DELETED}", values=columns)
            .execute()
        )

    return upsert


def _latest(records: DataFrame, keys: Sequence[str], order_by: str, deleted: str) -> DataFrame:
    """The last record of each key: a struct of `row`, and whether it has `deleted` the key."""
    if not keys:
        raise InvalidConfigError("there is no key: name the columns that tell records apart")
    check_columns(records, [*keys, order_by])
    for key in keys:
        records = records.where(_column(key).isNotNull())
    deletes = F.coalesce(F.expr(deleted), F.lit(False))
    whole = F.struct(F.struct("*").alias("row"), deletes.alias("deleted"))
    groups = records.groupBy(*(_column(key) for key in keys))
    return groups.agg(F.max_by(whole, _column(order_by)).alias(_LAST)).select(_LAST)


def _column(name: str) -> Column:
    return F.col(_quoted(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
