"""Requests of pieces: their bytes, and what an answer or a refusal means for each piece. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from mainstem.client.producer.pieces import END_OF_STREAM, Piece
from mainstem.client.producer.queue import Failure, Request
from mainstem.client.producer.sequences import Numbers
from mainstem.errors import InternalError, MainstemError, RequestTooLargeError
from mainstem.protocol import field_tag, varint
from mainstem.protocol.v1 import log_pb2

_ARROW_TAG: Final = field_tag(log_pb2.ProduceRequest, "arrow")
_IPC_STREAM_TAG: Final = field_tag(log_pb2.ArrowRecords, "ipc_stream")


class Outgoing(NamedTuple):
    """A request as it goes out once: what is done to it later does not reach what was handed on."""

    topic: str
    correlation_id: int
    resume: bool
    pieces: tuple[Piece, ...]
    numbers: Numbers | None

    @classmethod
    def of(cls, request: Request[Piece], topic: str) -> Self:
        """The request as it is now."""
        return cls(
            topic, request.correlation_id, request.resume, tuple(request.pieces), request.numbers
        )


def encode_request(request: Outgoing, acks: log_pb2.Acks) -> bytes:
    """The bytes of the ProduceRequest message.

    The payload is put together by hand, in one copy; protobuf would make three more.
    """
    ranges = []
    first_row = 0
    for piece in request.pieces:
        for partition, row_count in piece.ranges:
            ranges.append(
                log_pb2.PartitionRange(
                    partition=partition, first_row=first_row, row_count=row_count
                )
            )
            first_row += row_count
    head = log_pb2.ProduceRequest(
        correlation_id=request.correlation_id,
        topic=request.topic,
        acks=acks,
        resume=request.resume,
    )
    if request.numbers is not None:
        identity = request.numbers.identity
        head.producer_id, head.producer_epoch = identity.producer_id, identity.epoch
        head.transactional_id = identity.transactional_id
        head.transaction_number = identity.transaction_number
        for one, base_sequence in zip(ranges, request.numbers.base_sequences, strict=True):
            one.base_sequence = base_sequence
    head.resends_rest = True
    head.takes_notices = True
    tail = log_pb2.ArrowRecords(ranges=ranges).SerializeToString()
    layout = request.pieces[0].layout
    messages = [piece.message for piece in request.pieces]
    stream_bytes = len(layout) + sum(m.size for m in messages) + len(END_OF_STREAM)
    stream_head = _IPC_STREAM_TAG + varint(stream_bytes)
    arrow_bytes = len(stream_head) + stream_bytes + len(tail)
    return b"".join(
        [
            head.SerializeToString(),
            _ARROW_TAG,
            varint(arrow_bytes),
            stream_head,
            layout,
            *messages,
            END_OF_STREAM,
            tail,
        ]
    )


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


class Remainder(NamedTuple):
    """What becomes of the pieces of a refused request.

    Attributes:
        left: What may be taken, as the pieces of one request or of several.
        lost: What will never be.
        replaced: Pieces that were cut in two, each with its parts. A part that is `lost` is among
            these; the others take the place of the piece.
    """

    left: list[list[Piece]]
    lost: list[Piece]
    replaced: list[tuple[Piece, list[Piece]]]

    def lose(self, error: MainstemError) -> list[Failure[Piece]]:
        """Fails what will never be taken."""
        failures = [(piece, error) for piece in self.lost if not piece.done]
        for piece, _ in failures:
            piece.done = True
        return failures


def remainder(
    request: Request[Piece],
    error: MainstemError,
    refused_records: Iterable[int],
    compression: str | None,
) -> Remainder | None:
    """What is left of a refused request; None: the refusal is for all of it.

    Args:
        refused_records: Rows of the request that are refused for what they are.
        compression: Of the pieces.
    """
    if request.in_doubt:
        return None  # it may be stored, whatever this attempt was told
    if isinstance(error, RequestTooLargeError):
        return _halves(request, compression)
    rows = [piece.row_count for piece in request.pieces]
    wrong = np.zeros(sum(rows), dtype=bool)
    try:
        wrong[list(refused_records)] = True
    except IndexError:
        return None
    if not wrong.any() or wrong.all():
        return None
    return _without(request.pieces, np.split(wrong, np.cumsum(rows)[:-1]), compression)


def _without(
    pieces: Sequence[Piece], wrong: Sequence[npt.NDArray[np.bool_]], compression: str | None
) -> Remainder:
    found = Remainder([[]], [], [])
    left = found.left[0]
    for piece, rows in zip(pieces, wrong, strict=True):
        if not rows.any():
            left.append(piece)
        elif rows.all() or piece.promise is not None:
            found.lost.append(piece)  # a batch is taken whole or not at all
        else:
            bad, rest = piece.split(rows, compression)
            found.lost.append(bad)
            left.append(rest)
            found.replaced.append((piece, [bad, rest]))
    return found


def _halves(request: Request[Piece], compression: str | None) -> Remainder | None:
    pieces = request.pieces
    if len(pieces) > 1:
        middle = len(pieces) // 2
        return Remainder([pieces[:middle], pieces[middle:]], [], [])
    piece = pieces[0]
    if piece.row_count == 1 or piece.promise is not None:
        return None
    first_half = np.arange(piece.row_count) < piece.row_count // 2
    halves = list(piece.split(first_half, compression))
    return Remainder([[half] for half in halves], [], [(piece, halves)])
