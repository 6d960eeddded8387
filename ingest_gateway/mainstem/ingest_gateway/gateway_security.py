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
    """On the event loop.

    Args:
        proofs: More ways to sign in than the settings say, by their schemes.

    Attributes:
        sign_in: Finds out who calls.
        access: Decides what they may do.
        acls: The rules by which it does, or would; after `start`.

    Raises:
        InvalidConfigError: The settings contradict each other.
    """

    acls: FollowedAcls

    def __init__(self, config: GatewayConfig, proofs: Mapping[str, Proof] | None = None) -> None:
        self.sign_in = SignIn(proofs)
        self._acls = Acls(
            parse_super_users(config.text("super.users")),
            allow_if_none=config.flag("allow.everyone.if.no.acl.found"),
        )
        self._acls_decide = config.text("authorizer") == "acl"
        self.access = Access(self._acls if self._acls_decide else None)
        self._tasks: list[SupervisedTask] = []

    async def start(self, store: ObjectStore, pool: Executor, metrics: GatewayMetrics) -> None:
        """Opens the tables of security, and follows them. Before anybody is served.

        Args:
            pool: In which calls of the store run.

        Raises:
            StoreUnavailableError: The store failed.
        """
        self.acls = FollowedAcls(self._acls, store, pool, in_force=self._acls_decide)
        await self.acls.start()
        if self._acls_decide:
            self._tasks.append(SupervisedTask("follow acls", self.acls.watch, metrics))

    async def close(self) -> None:
        """Follows no table any more. After `start`, whether or not it went well."""
        for task in self._tasks:
            await task.stop()
        await self.acls.close()
