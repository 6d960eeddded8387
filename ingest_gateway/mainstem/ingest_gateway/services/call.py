"""One call: who makes it, from where, and what they may do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import grpc.aio

from mainstem.errors import AuthorizationError
from mainstem.ingest_gateway.caller import NOBODY, Identity
from mainstem.ingest_gateway.connections import Connection
from mainstem.ingest_gateway.quotas import Charge, Quotas, Throttle
from mainstem.ingest_gateway.security import Access, refusal
from mainstem.ingest_gateway.services.audited_calls import MethodAudit
from mainstem.ingest_gateway.services.requirements import Need
from mainstem.security import CLUSTER_NAME, Operation, Principal, QuotaName, ResourceType

Context = grpc.aio.ServicerContext[Any, Any]

_AGENT = "user-agent"

#: Names that are decided about in one step of the loop, in some milliseconds.
_ASKED_AT_ONCE: Final = 500


class Call:
    """What a service is told of a call beside its request.

    Attributes:
        context: gRPC's.
        connection: That it came by.
        identity: Who makes it.
    """

    __slots__ = (
        "_access",
        "_audit",
        "_quotas",
        "_refusal",
        "connection",
        "context",
        "identity",
    )

    def __init__(
        self,
        context: Context,
        connection: Connection,
        identity: Identity,
        access: Access,
        audit: MethodAudit | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.context = context
        self.connection = connection
        self.identity = identity
        self._access = access
        self._audit = audit
        self._quotas = quotas
        #: The last that the audit has.
        self._refusal: BaseException | None = None

    @property
    def peer(self) -> str:
        """The caller's address, as gRPC has it."""
        return self.connection.peer

    @property
    def client_id(self) -> str:
        """The caller's client.id; empty: it gave none."""
        return self.connection.client_id

    @property
    def principal(self) -> Principal:
        """Who makes the call."""
        return self.identity.principal

    def facts(self) -> dict[str, str]:
        """Who makes the call, for the log."""
        facts = {"peer": self.peer}
        if self.client_id:
            facts["client_id"] = self.client_id
        if not self._access.is_open:
            facts["principal"] = str(self.principal)
        return facts

    @property
    def owner(self) -> str:
        """Whose what the caller makes is: a principal, or nobody's where nobody is asked."""
        return "" if self.identity is NOBODY else str(self.principal)

    def owns(self, owner: str) -> bool:
        """Whether the caller may use what is that principal's, or nobody's."""
        return (
            not owner
            or self._access.is_open
            or owner == str(self.principal)
            or self._access.is_super_user(self.principal)
        )

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the caller may do this."""
        return self._access.is_open or self._access.may(
            self.principal, self.connection.host, operation, resource_type, name
        )

    def may_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there may be something of that type with which the caller may do this."""
        return self._access.may_any(self.principal, self.connection.host, operation, resource_type)

    def check_creates(self, topic: str) -> None:
        """Raises TopicAuthorizationError unless the caller may make a topic of that name."""
        if not self.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            self.require(Operation.CREATE, ResourceType.TOPIC, topic)

    def check_creates_itself(self, topic: str, partition_count: int) -> None:
        """`check_creates`, for a topic that the caller's records make: counts its partitions.

        Raises:
            QuotaExceededError: It would have to wait for them.
        """
        self.check_creates(topic)
        throttle = self.throttle
        if throttle is not None:
            throttle.mutate(partition_count)

    def may_each(
        self, operation: Operation, resource_type: ResourceType
    ) -> Callable[[str], bool] | None:
        """`may`, for names that come later; see `Access.decider`."""
        return self._access.decider(self.principal, self.connection.host, operation, resource_type)

    def refusals(
        self, operation: Operation, resource_type: ResourceType, names: Iterable[str]
    ) -> dict[str, AuthorizationError]:
        """Why the caller may not do this, by the names of what it may not do it with.

        Args:
            names: Not looked at where everybody may do everything.
        """
        if self._access.is_open:
            return {}
        return {
            name: self.refused(operation, resource_type, name)
            for name in dict.fromkeys(names)
            if not self.may(operation, resource_type, name)
        }

    async def allowed(
        self, operation: Operation, resource_type: ResourceType, names: Sequence[str]
    ) -> Sequence[str]:
        """Those of the names with which the caller may do this, in steps of the event loop."""
        if self._access.is_open:
            return names
        found: list[str] = []
        for start in range(0, len(names), _ASKED_AT_ONCE):
            some = names[start : start + _ASKED_AT_ONCE]
            found += [name for name in some if self.may(operation, resource_type, name)]
            await asyncio.sleep(0)
        return found

    def require(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raises AuthorizationError, of the type of the resource, unless the caller may do this."""
        if not self.may(operation, resource_type, name):
            raise self.refused(operation, resource_type, name)

    def refused(
        self, operation: Operation, resource_type: ResourceType, name: str
    ) -> AuthorizationError:
        """What the caller is told who may not do this; written to the audit. For a service that
        tells it of one thing among several."""
        error = refusal(self.principal, operation, resource_type, name)
        if self._audit is not None:
            self._refusal = error
            self._audit.refused(self.connection, self.principal, error)
        return error

    def require_all(self, needs: Callable[[Any], Iterable[Need]], request: Any) -> None:
        """`require`, for everything that a request needs."""
        access = self._access
        if access.is_open:
            return
        principal, host = self.identity.principal, self.connection.host
        remembered = access.remembered
        for operation, resource_type, name in needs(request):
            if not (
                remembered.get((principal, host, operation, resource_type, name))
                or access.may(principal, host, operation, resource_type, name)
            ):
                raise self.refused(operation, resource_type, name)

    def served(self, request: Any, failure: BaseException | None = None) -> None:
        """A request of the call was served, or failed: for the audit."""
        if self._audit is None:
            return
        if isinstance(failure, AuthorizationError):
            if failure is not self._refusal:
                self._audit.refused(self.connection, self.principal, failure)
        else:
            self._audit.served(self.connection, self.principal, request, failure)

    @property
    def throttle(self) -> Throttle | None:
        """What holds the caller back; None: nothing does."""
        if self._quotas is None:
            return None
        return self._quotas.throttle(self.principal, self.client_id)

    async def until_within_quota(self, charge: Charge) -> None:
        """Waits while the caller has used too much: for a stream, before it reads on."""
        if self.throttle is not None and self._quotas is not None:
            await self._quotas.pause(self.principal, self.client_id, charge)

    def used(self, charge: Charge, size_bytes: int) -> None:
        """Counts a request of a stream."""
        throttle = self.throttle
        if throttle is not None:
            throttle.use(charge, size_bytes)

    def taking(
        self, quota: QuotaName, name: str, is_there: Callable[[str], bool]
    ) -> AbstractContextManager[None]:
        """Counts what the caller begins or joins in the block; see `Throttle.taking`."""
        throttle = self.throttle
        return nullcontext() if throttle is None else throttle.taking(quota, name, is_there)

    async def admit_mutation(self, count_partitions: Callable[[], Awaitable[int]]) -> None:
        """Waits until the caller may make or delete partitions; see `Throttle.admit_mutation`.

        Args:
            count_partitions: How many; not asked where nobody wants to know.
        """
        throttle = self.throttle
        if throttle is not None and throttle.limits_mutations:
            await throttle.admit_mutation(await count_partitions())

    def add_done_callback(self, callback: Any) -> None:
        """Has gRPC call it when the call is over."""
        self.context.add_done_callback(callback)


def client_id(context: Context) -> str:
    """The caller's client.id; empty: it gave none.

    Our client sends it in the user agent, between its name and gRPC's.
    """
    agents = [str(value) for name, value in context.invocation_metadata() or () if name == _AGENT]
    if not agents or not agents[0].startswith("mainstem-client"):
        return ""
    return agents[0].partition(" ")[2].partition("grpc-python/")[0].strip()
