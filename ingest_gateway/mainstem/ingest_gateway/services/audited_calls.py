"""Which calls have rows in the audit: the one table. A call without a row cannot be served.

Refusals have rows whatever the call; see `Call.require`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor

from mainstem.errors import AuthorizationError, MainstemError
from mainstem.ingest_gateway.audit import AuditKind, AuditLog, summary_of
from mainstem.ingest_gateway.connections import Connection
from mainstem.ingest_gateway.services.requirements import (
    Need,
    produce_needs,
    requirement_of,
    topic,
)
from mainstem.security import Operation, Principal


class CallKind(Enum):
    """What a call is to the audit."""

    #: It changes what others have: each has a row.
    ACT = "act"
    #: It is how records come and go: a sample has rows.
    DATA = "data"
    #: It looks, or is part of the work of a member or of a transaction: only refusals have rows.
    WORK = "work"


@dataclass(frozen=True, slots=True)
class AuditedCall:
    """What is written of a call.

    Attributes:
        kind: Of all its requests.
        is_act: Whether this request is an act, of a kind that has some.
        needs: What it is about, where its requirement does not say so.
    """

    kind: CallKind
    is_act: Callable[[Any], bool] = lambda _: True
    needs: Callable[[Any], Iterable[Need]] | None = None


def _changes(request: Any) -> bool:
    return not request.validate_only


def _fetch_needs(request: Any) -> Iterable[Need]:
    for name in dict.fromkeys(one.topic for one in request.partitions):
        yield topic(Operation.READ, name)


_WORK: Final = AuditedCall(CallKind.WORK)
_ACT: Final = AuditedCall(CallKind.ACT)
_CHECKED_ACT: Final = AuditedCall(CallKind.ACT, _changes)

AUDITED_CALLS: Final[dict[str, AuditedCall]] = {
    "mainstem.v1.Log.Produce": AuditedCall(CallKind.DATA),
    "mainstem.v1.Log.ProduceStream": AuditedCall(CallKind.DATA, needs=produce_needs),
    "mainstem.v1.Log.InitProducer": _WORK,
    "mainstem.v1.Log.Fetch": AuditedCall(CallKind.DATA, needs=_fetch_needs),
    "mainstem.v1.Log.ListOffsets": _WORK,
    "mainstem.v1.Log.Metadata": _WORK,
    "mainstem.v1.Admin.CreateTopic": AuditedCall(
        CallKind.ACT, _changes, lambda request: (topic(Operation.CREATE, request.topic),)
    ),
    "mainstem.v1.Admin.DeleteTopic": _ACT,
    "mainstem.v1.Admin.ListTopics": _WORK,
    "mainstem.v1.Admin.DescribeTopic": _WORK,
    "mainstem.v1.Admin.AlterTopicConfig": _CHECKED_ACT,
    "mainstem.v1.Admin.AddPartitions": _ACT,
    "mainstem.v1.Admin.TrimPrefix": _CHECKED_ACT,
    "mainstem.v1.Admin.DescribeCluster": _WORK,
    "mainstem.v1.Admin.Rebalance": _CHECKED_ACT,
    "mainstem.v1.Admin.ListConnections": _WORK,
    "mainstem.v1.Groups.Heartbeat": _WORK,
    "mainstem.v1.Groups.Leave": _WORK,
    # From outside the group, or by a consumer that is in none.
    "mainstem.v1.Groups.CommitOffsets": AuditedCall(
        CallKind.ACT, lambda request: request.member_epoch < 0
    ),
    "mainstem.v1.Groups.FetchOffsets": _WORK,
    "mainstem.v1.Groups.ListGroups": _WORK,
    "mainstem.v1.Groups.DescribeGroup": _WORK,
    "mainstem.v1.Groups.DeleteGroup": _ACT,
    "mainstem.v1.Transactions.InitTransactions": _WORK,
    "mainstem.v1.Transactions.BeginTransaction": _WORK,
    "mainstem.v1.Transactions.AddOffsets": _WORK,
    "mainstem.v1.Transactions.EndTransaction": _WORK,
    "mainstem.v1.Transactions.PrepareTransaction": _WORK,
    # Also a program's second phase: nothing tells it from an operator's.
    "mainstem.v1.Transactions.CompleteTransaction": _ACT,
    # Each epoch of a stream that writes, by the program.
    "mainstem.v1.Transactions.CompleteTransactions": _WORK,
    "mainstem.v1.Transactions.ListTransactions": _WORK,
    "mainstem.v1.Transactions.DescribeTransaction": _WORK,
    "mainstem.v1.Transactions.AppendTransaction": _WORK,
    "mainstem.v1.Transactions.SettleTransaction": _WORK,
    "mainstem.v1.Security.Authenticate": _WORK,
    "mainstem.v1.Security.AlterUserScramCredentials": _ACT,
    "mainstem.v1.Security.DescribeUserScramCredentials": _WORK,
    "mainstem.v1.Security.CreateAcls": _ACT,
    "mainstem.v1.Security.DescribeAcls": _WORK,
    "mainstem.v1.Security.DeleteAcls": _ACT,
    "mainstem.v1.Security.CheckAcl": _WORK,
    "mainstem.v1.Security.AlterClientQuotas": _ACT,
    "mainstem.v1.Security.DescribeClientQuotas": _WORK,
}


class MethodAudit:
    """Writes the rows of one method's calls.

    Raises:
        KeyError: It has no row: nobody has thought about what the audit says of it.
    """

    def __init__(self, audit: AuditLog, method: MethodDescriptor) -> None:
        self._audit = audit
        self._name = method.name
        self._audited = AUDITED_CALLS[method.full_name]
        self._needs = self._audited.needs or requirement_of(method).needs

    @classmethod
    def of(cls, audit: AuditLog | None, method: MethodDescriptor) -> MethodAudit | None:
        """None: there is no audit."""
        return None if audit is None else cls(audit, method)

    def served(
        self,
        connection: Connection,
        principal: Principal,
        request: Any,
        failure: BaseException | None = None,
    ) -> None:
        """A request was served, or failed: not as the caller may not make it."""
        if self._audited.kind is CallKind.ACT:
            if self._audited.is_act(request):
                self._write(AuditKind.ACT, connection, principal, request, _code(failure))
        elif self._audited.kind is CallKind.DATA and failure is None and self._audit.wants_sample:
            self._write(AuditKind.SAMPLE, connection, principal, request, "")

    def refused(
        self, connection: Connection, principal: Principal, error: AuthorizationError
    ) -> None:
        """The caller may not do what the error says."""
        facts = error.facts
        self._audit.refused(
            connection,
            principal,
            self._name,
            facts.get("operation", ""),
            facts.get("resource_type", ""),
            facts.get("name", ""),
            error.code,
        )

    def _write(
        self,
        kind: AuditKind,
        connection: Connection,
        principal: Principal,
        request: Any,
        error: str,
    ) -> None:
        try:
            operation, resource_type, names = _about(self._needs(request))
        except MainstemError:  # as of a token that is none: the call has failed with it
            operation, resource_type, names = "", "", ()
        self._audit.served(
            kind,
            connection,
            principal,
            self._name,
            operation=operation,
            resource_type=resource_type,
            resources=names,
            error=error,
            summary=summary_of(request) if kind is AuditKind.ACT else "",
        )


def _about(needs: Iterable[Need]) -> tuple[str, str, tuple[str, ...]]:
    """The operation and type of the first need, and the names of all of that type."""
    found = list(needs)
    if not found:
        return "", "", ()
    first = found[0]
    names = tuple(one.name for one in found if one.resource_type is first.resource_type)
    return first.operation, first.resource_type, names


def _code(failure: BaseException | None) -> str:
    """CancelledError: the caller has gone, and what was asked may have been done."""
    if failure is None:
        return ""
    return failure.code if isinstance(failure, MainstemError) else type(failure).__name__
