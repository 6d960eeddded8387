"""A token bucket: how long somebody has to wait to keep to a rate. Pure."""

from __future__ import annotations

from typing import Final

#: Who was quiet may use so many seconds' worth at once.
BURST_S: Final = 1.0

#: Nobody who reads or writes records has to wait for longer, however large what they used at once:
#: a client that waits for longer gives up, and sends it again. A rate that one request exceeds
#: tenfold is not kept.
DEBT_S_MAX: Final = 10.0

#: Less than this is what arithmetic leaves of a debt that is paid.
_WAIT_S_MIN: Final = 1e-6


class Bucket:
    """Fills at a rate, and is in debt after more was used than was in it.

    Args:
        rate: A second.
        now_s: A clock that only goes forward, here and below.
        debt_s_max: Nobody has to wait for longer.
    """

    __slots__ = ("_at_s", "_balance", "_debt_s_max", "rate")

    def __init__(self, rate: float, now_s: float, debt_s_max: float = DEBT_S_MAX) -> None:
        self.rate = rate
        self._debt_s_max = debt_s_max
        self._balance = rate * BURST_S
        self._at_s = now_s

    def set_rate(self, rate: float, now_s: float) -> None:
        """From now on it is another one; what is in the bucket stays worth the same seconds."""
        self._fill(now_s)
        self._balance *= rate / self.rate
        self.rate = rate

    def wait_s(self, now_s: float) -> float:
        """How long until the debt is paid; 0: more may be used."""
        self._fill(now_s)
        wait_s = -self._balance / self.rate
        return wait_s if wait_s > _WAIT_S_MIN else 0.0

    def use(self, amount: float, now_s: float) -> None:
        """Takes that much, which may leave a debt."""
        self._fill(now_s)
        self._balance = max(self._balance - amount, -self.rate * self._debt_s_max)

    def _fill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - self._at_s)
        self._at_s = max(now_s, self._at_s)
        self._balance = min(self._balance + passed_s * self.rate, self.rate * BURST_S)
