"""What is left of a request that was refused for some of its records, or for its size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem.client.producer.pieces import Piece
from mainstem.client.producer.queue import Request
from mainstem.errors import MainstemError, RequestTooLargeError


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
