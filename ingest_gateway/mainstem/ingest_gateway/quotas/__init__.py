"""How much of this gateway somebody may use, and how those are slowed down who use more.

`bucket` is pure; `quotas` decides and waits; `rows` follows the table `system/quotas`.
"""

from mainstem.ingest_gateway.quotas.bucket import Bucket
from mainstem.ingest_gateway.quotas.quotas import Charge, Quotas, Throttle
from mainstem.ingest_gateway.quotas.rows import QUOTAS_MAX, Alter, FollowedQuotas

__all__ = ["QUOTAS_MAX", "Alter", "Bucket", "Charge", "FollowedQuotas", "Quotas", "Throttle"]
