"""What each call uses of its caller's quotas."""

from __future__ import annotations

from typing import Final

from google.protobuf.descriptor import MethodDescriptor

from mainstem.ingest_gateway.quotas import Charge

#: Those that are more than requests, or none: calls between gateways are what others were allowed,
#: and who signs in is nobody yet.
_CHARGES: Final[dict[str, Charge | None]] = {
    "mainstem.v1.Log.Produce": Charge.PRODUCE,
    "mainstem.v1.Log.ProduceStream": Charge.PRODUCE,
    "mainstem.v1.Log.Fetch": Charge.FETCH,
    "mainstem.v1.Transactions.AppendTransaction": None,
    "mainstem.v1.Transactions.SettleTransaction": None,
    "mainstem.v1.Security.Authenticate": None,
    # Whoever has set a quota too low can take it back.
    "mainstem.v1.Security.AlterClientQuotas": None,
}


def charge_of(method: MethodDescriptor) -> Charge | None:
    """What a call uses; None: quotas are not about it."""
    return _CHARGES.get(method.full_name, Charge.REQUEST)
