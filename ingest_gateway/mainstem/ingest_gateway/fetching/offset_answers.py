"""Answers to ListOffsets: from a topic's state and, for a time, from its data files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mainstem.delta_log import TableState
from mainstem.delta_log.files import DataFileMissing, files_reaching, first_offset_at
from mainstem.delta_log.format import DataFile
from mainstem.errors import InvalidRecordError
from mainstem.ingest_gateway.failures import as_ours
from mainstem.ingest_gateway.fetching.refusals import partition_refusal
from mainstem.ingest_gateway.reader_threads import Reading
from mainstem.ingest_gateway.topics import GatewayTopic
from mainstem.protocol import error_to_message
from mainstem.protocol.v1 import log_pb2


@dataclass(frozen=True, slots=True)
class OffsetLookup:
    """An offset that has to be looked for in data files.

    Attributes:
        answer: Gets the offset.
        files: That may have it, by base offset; it is in [start_offset, end_offset).
    """

    answer: log_pb2.OffsetAnswer
    reader: GatewayTopic
    files: list[DataFile]
    start_offset: int
    end_offset: int
    timestamp_ms: int


def answer_query(
    query: log_pb2.OffsetQuery,
    answer: log_pb2.OffsetAnswer,
    state: TableState,
    reader: GatewayTopic,
) -> list[OffsetLookup]:
    """Fills the answer in as far as the state goes; returns what is left to do, in a thread."""
    partition = query.partition
    refusal = partition_refusal(state, reader, partition, "")
    asked = query.WhichOneof("at")
    if refusal is None and asked is None:
        refusal = InvalidRecordError(
            "a query needs one of earliest, latest and timestamp_ms", topic=query.topic
        )
    if refusal is not None:
        answer.error.CopyFrom(error_to_message(refusal))
        return []
    answer.topic_id = state.topic_id
    start, end = state.log_start_offset(partition), state.log_end_offset(partition)
    if asked == "earliest":
        answer.offset = start
    elif asked == "latest":
        answer.offset = end
    else:
        time_ms = query.timestamp_ms
        files = files_reaching(state, partition, time_ms)
        if files:
            return [OffsetLookup(answer, reader, files, start, end, time_ms)]
    return []


def look_up(lookups: Iterable[OffsetLookup], reading: Reading, *, last_attempt: bool) -> list[str]:
    """Finishes answers. Blocks.

    Args:
        reading: Is told the topic that is read.
        last_attempt: A data file that is gone is damage; else the state may be out of date.

    Returns:
        The topics of which a data file was gone; their answers are not finished.
    """
    outdated: list[str] = []
    for one in lookups:
        reading.topic = one.answer.topic
        try:
            offset = first_offset_at(
                one.reader.store, one.files, one.start_offset, one.end_offset, one.timestamp_ms
            )
        except DataFileMissing as failure:
            if last_attempt:
                one.answer.error.CopyFrom(error_to_message(failure))
            else:
                outdated.append(one.answer.topic)
        except Exception as failure:
            one.answer.error.CopyFrom(error_to_message(as_ours(failure)))
        else:
            one.answer.offset = -1 if offset is None else offset
    return outdated
