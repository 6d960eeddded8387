"""Makes what a gateway's settings say of security: who is asked, what they may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Final

import structlog

from mainstem.config import GatewayConfig
from mainstem.delta_log.store import ObjectStore
from mainstem.errors import InvalidConfigError
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.security import (
    GATEWAY_CALL,
    SESSION,
    Access,
    FollowedAcls,
    GatewayCalls,
    Proof,
    Secret,
    Sessions,
    SignIn,
    Users,
    bearer_proof,
    certificate_proof,
)
from mainstem.ingest_gateway.supervised import SupervisedTask
from mainstem.security import SCRAM_MECHANISMS, Acls, parse_super_users
from mainstem.tls import CERTIFICATE

log = structlog.get_logger()

_MECHANISMS: Final = "sasl.enabled.mechanisms"


class GatewaySecurity:
    """On the event loop.

    Args:
        config: That has passed `check_security`.
        store: Where the system tables are.
        pool: Runs the calls of the tables.
        proofs: More ways to sign in than the settings say, by their schemes.

    Attributes:
        sign_in: Finds out who calls.
        access: Decides what they may do.
        acls: The rules by which it does, or would.
        users: Those with passwords; None: nobody signs in with one.
    """

    def __init__(
        self,
        config: GatewayConfig,
        store: ObjectStore,
        pool: Executor,
        metrics: GatewayMetrics,
        proofs: Mapping[str, Proof] | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._pool = pool
        self._metrics = metrics
        self._tasks: list[SupervisedTask] = []
        self._secret = Secret(config.text("gateway.secret"))
        self._gateway_calls = GatewayCalls(self._secret)
        self.users = self._users()
        self._bearer = bearer_proof(config)
        self._certificate = certificate_proof(config)
        self.sign_in = self._sign_in(proofs or {})
        acls = _acls(config)
        self._acls_decide = config.text("authorizer") == "acl"
        self.access = Access(acls if self._acls_decide else None)
        self.acls = FollowedAcls(acls, store, pool, in_force=self._acls_decide)

    def authorization(self, gateway_id: str) -> Callable[[], str] | None:
        """Makes what proves to other gateways that this one calls, afresh for each call; None:
        nobody is asked, or its certificate proves it."""
        if not self.sign_in.asks:
            return None
        if self._certificate is not None and not self._config.text("gateway.secret"):
            return None  # its certificate does, as a client's: others know no secret of this one
        return lambda: self._gateway_calls.authorization(gateway_id)

    async def start(self) -> None:
        """Reads the tables, and follows them.

        Raises:
            StoreUnavailableError: The store failed.
        """
        self._warn()
        await self.acls.start()
        if self._acls_decide:
            self._follow("follow acls", self.acls)
        if self.users is not None:
            await self.users.start()
            self._follow("watch users", self.users)
        if self._bearer is not None:
            self._bearer.start()

    async def close(self) -> None:
        """Follows the tables no longer."""
        if self._bearer is not None:
            await self._bearer.close()
        for task in self._tasks:
            await task.stop()
        await self.acls.close()

    def _follow(self, name: str, followed: Users | FollowedAcls) -> None:
        self._tasks.append(SupervisedTask(name, followed.watch, self._metrics))

    def _warn(self) -> None:
        if self._acls_decide and not self.sign_in.asks:
            log.warning(
                "authorizer is acl and nobody is asked who they are: access control lists have to "
                "be about User:ANONYMOUS, which is everybody; see sasl.enabled.mechanisms"
            )

    def _users(self) -> Users | None:
        passwords = [one for one in _mechanisms(self._config) if one in SCRAM_MECHANISMS]
        if not passwords:
            return None
        sessions = Sessions(self._secret, self._config.number("connections.max.reauth.ms"))
        return Users(self._store, self._pool, passwords, self._secret, sessions)

    def _sign_in(self, more: Mapping[str, Proof]) -> SignIn:
        proofs = dict(more)
        if self.users is not None:
            proofs[SESSION] = self.users.prove
        if self._bearer is not None:
            proofs["bearer"] = self._bearer
        if proofs or self._certificate is not None:
            proofs[GATEWAY_CALL] = self._gateway_calls.prove
        return SignIn(proofs, self._certificate)


def check_security(config: GatewayConfig) -> None:
    """Looks at the settings, before anything is made.

    Raises:
        InvalidConfigError: They contradict each other.
    """
    Secret(config.text("gateway.secret"))
    mechanisms = _mechanisms(config)
    if mechanisms and not config.text(CERTIFICATE):
        raise InvalidConfigError(
            f"{_MECHANISMS} is {','.join(mechanisms)} and {CERTIFICATE} is not set: whoever "
            "listens on a connection that is not encrypted could go on in the name of who has "
            "signed in; set it and ssl.key.location",
            name=CERTIFICATE,
        )
    _acls(config)
    certificate_proof(config)
    bearer_proof(config)


def _acls(config: GatewayConfig) -> Acls:
    return Acls(
        parse_super_users(config.text("super.users")),
        allow_if_none=config.flag("allow.everyone.if.no.acl.found"),
    )


def _mechanisms(config: GatewayConfig) -> tuple[str, ...]:
    """By which clients may sign in."""
    text = config.text(_MECHANISMS)
    return tuple(text.split(",")) if text else ()
