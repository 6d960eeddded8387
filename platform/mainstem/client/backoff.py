"""How long to wait before a call is tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from mainstem.errors import QuotaExceededError

T = TypeVar("T")

#: The least wait after a call that was refused for a quota.
_THROTTLED_S_MIN: Final = 0.1


def backoff_s(
    first_s: float, longest_s: float, failures: int, jitter: float | None = None
) -> float:
    """Seconds to wait before retry number `failures` (from 0): doubling, with 20 % of chance both
    ways, so that many clients do not come back at the same moment.

    Args:
        first_s: retry.backoff.ms.
        longest_s: retry.backoff.max.ms; where it is less than `first_s`, the wait is always this.
        jitter: In [0, 1); None: by chance.
    """
    wait_s = min(first_s * 2.0 ** min(failures, 30), longest_s)
    return wait_s * (0.8 + 0.4 * (random.random() if jitter is None else jitter))


def again_when_throttled(
    call: Callable[[float], T],
    timeout_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """What a call gives that a gateway refuses, before it does anything, while its caller has used
    up a quota: it is made again after the time that the gateway names.

    Args:
        call: Gets the seconds that are left.
        timeout_s: Of all attempts together.

    Raises:
        QuotaExceededError: There is no time left for another.
    """
    ends_at = clock() + timeout_s
    left_s = timeout_s
    failures = 0
    while True:
        try:
            return call(left_s)
        except QuotaExceededError as error:
            wait_s = max(backoff_s(_THROTTLED_S_MIN, 1.0, failures), error.retry_delay_ms / 1000)
            failures += 1
            if clock() + wait_s >= ends_at:
                raise
            sleep(wait_s)
            left_s = max(0.001, ends_at - clock())
