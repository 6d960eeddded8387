"""The answers to produce requests. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from mainstem.delta_log import Appended
from mainstem.errors import MainstemError
from mainstem.protocol import error_to_message, refused_records
from mainstem.protocol.v1 import log_pb2

#: Stands for the offset and the table version of a batch that nobody waits for.
_UNKNOWN = -1


def answer(
    correlation_id: int, placed: npt.NDArray[np.int32] | None, appended: Appended
) -> log_pb2.ProduceResponse:
    """The answer to a batch that is durable.

    Args:
        placed: The partition of each record where the gateway chose it.
    """
    results: dict[int, log_pb2.PartitionResult] = {}
    for batch in appended.batches:
        result = results.get(batch.partition)
        if result is None:
            results[batch.partition] = log_pb2.PartitionResult(
                partition=batch.partition,
                base_offset=batch.base_offset,
                record_count=batch.record_count,
            )
        else:
            result.record_count += batch.record_count
    response = log_pb2.ProduceResponse(
        correlation_id=correlation_id,
        table_version=appended.table_version,
        results=[results[partition] for partition in sorted(results)],
    )
    if placed is not None:
        offsets = np.empty(len(placed), dtype=np.int64)
        for partition, result in results.items():
            rows = np.flatnonzero(placed == partition)
            offsets[rows] = result.base_offset + np.arange(len(rows))
        _add_positions(response, placed, offsets)
    return response


def unacknowledged(
    correlation_id: int,
    partitions: Iterable[tuple[int, int]],
    placed: npt.NDArray[np.int32] | None,
) -> log_pb2.ProduceResponse:
    """The answer to a batch that was accepted, where the caller does not wait for more (acks=0).

    Args:
        partitions: Partition and number of records of each slice.
    """
    counts: dict[int, int] = {}
    for partition, record_count in partitions:
        counts[partition] = counts.get(partition, 0) + record_count
    response = log_pb2.ProduceResponse(
        correlation_id=correlation_id,
        table_version=_UNKNOWN,
        results=[
            log_pb2.PartitionResult(
                partition=partition, base_offset=_UNKNOWN, record_count=record_count
            )
            for partition, record_count in sorted(counts.items())
        ],
    )
    if placed is not None:
        _add_positions(response, placed, np.full(len(placed), _UNKNOWN, dtype=np.int64))
    return response


def notice(correlation_id: int, trouble: MainstemError) -> log_pb2.ProduceResponse:
    """Not an answer: why that is still to come."""
    return log_pb2.ProduceResponse(correlation_id=correlation_id, notice=error_to_message(trouble))


def refusal(correlation_id: int, error: MainstemError) -> log_pb2.ProduceResponse:
    """The answer to a batch that was refused as a whole."""
    return log_pb2.ProduceResponse(
        correlation_id=correlation_id,
        table_version=_UNKNOWN,
        error=error_to_message(error),
        refused_records=refused_records(error),
    )


def _add_positions(
    response: log_pb2.ProduceResponse,
    partitions: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
) -> None:
    response.positions.extend(
        log_pb2.RecordPosition(partition=partition, offset=offset)
        for partition, offset in zip(partitions.tolist(), offsets.tolist(), strict=True)
    )
