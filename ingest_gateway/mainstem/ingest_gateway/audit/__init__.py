"""Who did what: rows of the table `system/audit`, which are written beside the calls.

`row` and `queue` are pure; `log` is what the rest of the gateway has.
"""

from mainstem.ingest_gateway.audit.log import TABLE, AuditLog
from mainstem.ingest_gateway.audit.queue import AuditQueue
from mainstem.ingest_gateway.audit.row import AuditKind, AuditRow
from mainstem.ingest_gateway.audit.summary import summary_of

__all__ = ["TABLE", "AuditKind", "AuditLog", "AuditQueue", "AuditRow", "summary_of"]
