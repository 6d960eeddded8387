"""Who a caller is, and for how long that holds."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mainstem.delta_log.store import time_elapsed_s
from mainstem.security import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """What somebody has proved.

    Attributes:
        principal: Who they are.
        ends_at: By `time_elapsed_s`; from then on they have to prove it again.
        is_revoked: Whether what proved it counts no longer: the user is deleted, or has another
            password.
    """

    principal: Principal
    ends_at: float = math.inf
    is_revoked: Callable[[], bool] = field(default=lambda: False)

    @property
    def is_over(self) -> bool:
        """Whether it has to be proved again."""
        return (self.ends_at != math.inf and time_elapsed_s() >= self.ends_at) or self.is_revoked()


#: How often is looked whether an identity is revoked, at least.
_LOOK_S: Final = 0.5


async def session_end(identity: Identity) -> None:
    """Waits until it has to be proved again; for ever where that never is."""
    if identity is NOBODY:
        await asyncio.Event().wait()
    while not identity.is_over:
        left_s = identity.ends_at - time_elapsed_s()
        await asyncio.sleep(max(0.001, min(left_s, _LOOK_S)))


#: Of a caller where nobody is asked.
NOBODY: Final = Identity(ANONYMOUS)
