"""What an answer means for the pieces of its request."""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.client._pending import Failure, Request
from mainstem.client._pieces import Piece
from mainstem.errors import InternalError, MainstemError
from mainstem.protocol.v1 import log_pb2

#: A piece that left: the base offset of each of its ranges, the table version, or the error.
PieceOutcome = tuple[Piece, Sequence[int] | None, int, MainstemError | None]


def accepted(
    topic: str, request: Request[Piece], answer: log_pb2.ProduceResponse
) -> list[PieceOutcome]:
    """The base offset of each range of each piece, out of one base offset a partition.

    An offset is -1 where the gateway does not tell it.
    """
    following = {result.partition: result.base_offset for result in answer.results}
    outcomes: list[PieceOutcome] = []
    for piece in request.pieces:
        base_offsets = []
        missing = None
        for partition, row_count in piece.ranges:
            base = following.get(partition)
            if base is None:
                missing = partition
                break
            base_offsets.append(base)
            if base >= 0:
                following[partition] = base + row_count
        if piece.done:
            continue
        piece.done = True
        if missing is None:
            outcomes.append((piece, base_offsets, answer.table_version, None))
        else:
            error = InternalError(
                f"the gateway accepted a request of topic {topic} without an offset for "
                f"partition {missing}; the records may be in the log"
            )
            outcomes.append((piece, None, -1, error))
    return outcomes


def failed(failures: list[Failure[Piece]]) -> list[PieceOutcome]:
    """What failed, each with its own error."""
    return [(piece, None, -1, error) for piece, error in failures]
