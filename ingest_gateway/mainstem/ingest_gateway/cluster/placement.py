"""Which gateway should lead which topic: rendezvous hashing over those that are alive. Pure.

Every gateway that sees the same gateways says the same, without asking anybody; when one comes or
goes, only the topics move that it takes or had. (Thaler and Ravishankar, "A Name-Based Mapping
Scheme for Rendezvous", 1996.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from mainstem.delta_log.system import gateway_key
from mainstem.limits import TOPICS_OPEN_MAX

_U64: Final = np.uint64
#: The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): each bit of the input moves half of
#: those of the output.
_STEPS: Final = (
    (_U64(30), _U64(0xBF58476D1CE4E5B9)),
    (_U64(27), _U64(0x94D049BB133111EB)),
)
_LAST: Final = _U64(31)
_GAMMA: Final = 0x9E3779B97F4A7C15

#: Topics whose gateways are remembered: all that are led, which are looked at with each heartbeat,
#: and as many others. To find one out takes 20 us.
REMEMBERED_MAX: Final = 2 * TOPICS_OPEN_MAX


class Placement:
    """Over a set of gateways.

    Attributes:
        keys: Of the gateways (`gateway_key`).
    """

    def __init__(self, keys: Iterable[int]) -> None:
        self.keys = frozenset(keys)
        self._keys = np.array(sorted(self.keys), dtype=_U64)
        self._found = lru_cache(REMEMBERED_MAX)(self._find)

    def target(self, topic: str) -> int | None:
        """The key of the gateway that should lead the topic; None: there is no gateway."""
        if len(self.keys) < 2:
            return next(iter(self.keys), None)
        return self._found(topic)

    def _find(self, topic: str) -> int:
        return int(self._keys[int(np.argmax(self._weights(topic)))])

    def _weights(self, topic: str) -> npt.NDArray[np.uint64]:
        mixed = self._keys ^ _U64(gateway_key(topic))
        mixed = mixed + _U64(_GAMMA)
        for shift, factor in _STEPS:
            mixed = (mixed ^ (mixed >> shift)) * factor
        return mixed ^ (mixed >> _LAST)


def moves(
    led: Iterable[str], own_key: int, target: Callable[[str], int | None], moves_max: int
) -> list[tuple[str, int]]:
    """Which of the topics that a gateway leads should go elsewhere, and where.

    Args:
        own_key: Of the gateway.
        target: Where a topic belongs, as `Placement.target`.
        moves_max: No more than so many.

    Returns:
        Topics by name, with the key of the gateway that each belongs to.
    """
    found: list[tuple[str, int]] = []
    for topic in sorted(led):
        if len(found) >= moves_max:
            break
        wanted = target(topic)
        if wanted is not None and wanted != own_key:
            found.append((topic, wanted))
    return found
