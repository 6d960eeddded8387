"""What a call says of many topics, when some of them have to be looked up in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

#: A store far away takes a tenth of a second for each, and does not mind several at a time. So many
#: that are known already take a millisecond of the loop.
_AT_ONCE: Final = 50


async def one_for_each(names: Sequence[str], call: Callable[[str], Awaitable[T]]) -> list[T]:
    """The results of a call for each name, in the order of the names; some are asked at a time, in
    as many steps of the loop.

    Raises: What the first call raises that does.
    """
    found: list[T] = []
    for start in range(0, len(names), _AT_ONCE):
        found += await asyncio.gather(*map(call, names[start : start + _AT_ONCE]))
    return found
