"""Makes what a gateway's settings say of security: who is asked, what they may do."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor

from mainstem.config import GatewayConfig
from mainstem.delta_log import ObjectStore
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.security import Access, FollowedAcls, Proof, SignIn
from mainstem.ingest_gateway.supervised import SupervisedTask
from mainstem.security import Acls, parse_super_users


class GatewaySecurity:
    """On the event loop; calls of the store run in `pool`.

    Args:
        proofs: More ways to sign in than the settings say, by their schemes.

    Attributes:
        sign_in: Finds out who calls.
        access: Decides what they may do.
        acls: The rules by which it does, or would.

    Raises:
        InvalidConfigError: The settings contradict each other.
    """

    def __init__(
        self,
        config: GatewayConfig,
        store: ObjectStore,
        pool: Executor,
        metrics: GatewayMetrics,
        proofs: Mapping[str, Proof] | None = None,
    ) -> None:
        self._metrics = metrics
        self._tasks: list[SupervisedTask] = []
        self.sign_in = SignIn(proofs)
        acls = Acls(
            parse_super_users(config.text("super.users")),
            allow_if_none=config.flag("allow.everyone.if.no.acl.found"),
        )
        decides = config.text("authorizer") == "acl"
        self.acls = FollowedAcls(acls, store, pool, in_force=decides)
        self.access = Access(acls if decides else None)

    async def start(self) -> None:
        """Opens the tables of security, and follows them. Before anybody is served.

        Raises:
            StoreUnavailableError: The store failed.
        """
        await self.acls.start()
        if self.acls.in_force:
            self._tasks.append(SupervisedTask("follow acls", self.acls.watch, self._metrics))

    async def close(self) -> None:
        """Follows no table any more."""
        for task in self._tasks:
            await task.stop()
        await self.acls.close()
