"""How long to wait before a call is tried again."""

from __future__ import annotations

import random


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
