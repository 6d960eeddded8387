"""What is left of a range whose data files have gone while it was read."""

from __future__ import annotations

import logging
from dataclasses import replace

from mainstem.delta_log import ObjectStore, TableState, load_table
from mainstem.delta_log.files import DataFileMissing
from mainstem.errors import OffsetOutOfRangeError, UnknownTopicError
from pyspark_mainstem._offsets import OffsetRange, TopicPartition
from pyspark_mainstem._range_plan import RangePlan, plan_range

log = logging.getLogger(__name__)


def plan_rest(
    store: ObjectStore,
    plan: RangePlan,
    next_offset: int,
    missing: DataFileMissing,
    *,
    fail_on_data_loss: bool,
) -> RangePlan:
    """The plan of [next_offset, plan.end) by the table's newest version. Blocks.

    A job has merged the files since the range was planned: the records are in others. Or retention
    has removed them.

    Args:
        missing: The file that is not there.
        fail_on_data_loss: Refuse where records are gone; else go on from the first that is there,
            if there is one.

    Raises:
        OffsetOutOfRangeError: Records were removed; the log start offset is in the facts.
        UnknownTopicError: The topic was deleted, and `fail_on_data_loss`.
        LogDamagedError: The table still has the file, so it is lost.
    """
    state = _newest(store, plan)
    if state is None:
        deleted = UnknownTopicError(
            f"topic {plan.topic!r} was deleted while offsets {plan.start} to {plan.end} "
            f"(exclusive) of partition {plan.partition} were read: those from {next_offset} on are "
            "gone",
            topic=plan.topic,
            partition=plan.partition,
        )
        if fail_on_data_loss:
            raise deleted from missing
        log.warning("failOnDataLoss is false, the query goes on: %s", deleted.message)
        return replace(plan, files=())
    begin, first = next_offset, state.log_start_offset(plan.partition)
    if begin < first:
        error = OffsetOutOfRangeError(
            f"offset {begin} of topic {plan.topic!r}, partition {plan.partition}, was removed "
            f"while a batch that ends at {plan.end} was read: the log now starts at {first}. "
            "failOnDataLoss=false goes on from there",
            topic=plan.topic,
            partition=plan.partition,
            offset=begin,
            log_start_offset=first,
        )
        if fail_on_data_loss:
            raise error from missing
        log.warning("failOnDataLoss is false, the query goes on: %s", error.message)
        begin = min(first, plan.end)
    where = TopicPartition(plan.topic, plan.partition)
    rest = plan_range(state, OffsetRange(where, begin, plan.end))
    if missing.facts["file"] in {part.path for part in rest.files}:
        raise missing
    return rest


def _newest(store: ObjectStore, plan: RangePlan) -> TableState | None:
    """The topic as it is now; None where it was deleted, created again or not."""
    try:
        state = load_table(store)
    except UnknownTopicError:
        return None
    return state if state.topic_id == plan.topic_id and not state.deleted else None
