"""The users that can sign in with a password, and the sessions of those who have."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Final

from mainstem.delta_log.store import ObjectStore, time_elapsed_s
from mainstem.delta_log.system import Deletion, User, change_users, check_changes, open_users
from mainstem.errors import MainstemError, SessionExpiredError
from mainstem.ingest_gateway.caller import Identity
from mainstem.ingest_gateway.security.scram import ScramExchange
from mainstem.ingest_gateway.security.sessions import Secret, Sessions
from mainstem.ingest_gateway.security.watched_rows import WatchedRows
from mainstem.security import ScramCredential

_FINGERPRINT_CHARACTERS: Final = 32

#: Between two looks at the table that somebody waits for, beside those of `WatchedRows`.
_LOOK_EVERY_S: Final = 0.1


class Users:
    """On the event loop.

    Args:
        mechanisms: Of `SCRAM_MECHANISMS`, those by which clients may sign in.
        pool: Runs the calls of the table.
    """

    def __init__(
        self,
        store: ObjectStore,
        pool: Executor,
        mechanisms: Sequence[str],
        secret: Secret,
        sessions: Sessions,
    ) -> None:
        self.mechanisms = tuple(mechanisms)
        self._sessions = sessions
        self._fingerprint_key = secret.key("fingerprint")
        self._decoy_key = secret.key("decoy")
        #: By name: changes when a credential of the user does.
        self._fingerprints: dict[str, str] = {}
        self._rows = WatchedRows("users", lambda: open_users(store), pool, self._take)
        self._looking = asyncio.Lock()
        self._looked_at = 0.0

    async def start(self) -> None:
        """Reads the table. Raises StoreUnavailableError."""
        await self._rows.start()

    def watch(self) -> Coroutine[Any, Any, None]:
        """Follows the table; see `WatchedRows.watch`."""
        return self._rows.watch()

    # ------------------------------------------------------------------------------- who there is

    @property
    def all(self) -> Mapping[str, User]:
        """By name."""
        return self._rows.rows

    async def change(
        self,
        upsertions: Sequence[tuple[str, ScramCredential]],
        deletions: Sequence[Deletion],
    ) -> None:
        """Changes credentials, all or none.

        Raises:
            InvalidConfigError, StoreUnavailableError, OutcomeUnknownError: As named.
        """

        def change(rows: Mapping[str, User]) -> Mapping[str, User | None]:
            check_changes(upsertions, deletions)  # beside the event loop: there may be many
            return change_users(rows, upsertions, deletions)

        await self._rows.update(change)

    def _take(self, rows: Mapping[str, User]) -> None:
        self._fingerprints = {
            name: self._fingerprint(user.credentials.values()) for name, user in rows.items()
        }

    def _fingerprint(self, credentials: Iterable[ScramCredential]) -> str:
        digest = hmac.new(self._fingerprint_key, digestmod=hashlib.sha256)
        for one in sorted(credentials, key=lambda one: one.mechanism):
            for part in (one.mechanism.encode(), one.salt, one.stored_key, one.server_key):
                digest.update(b"%d:%b" % (len(part), part))
        return digest.hexdigest()[:_FINGERPRINT_CHARACTERS]

    # --------------------------------------------------------------------------------- signing in

    def exchange(self, mechanism: str) -> ScramExchange:
        """Somebody begins to sign in by one of `mechanisms`."""
        return ScramExchange(mechanism, self._credential(mechanism), self._decoy_key)

    def _credential(self, mechanism: str) -> Callable[[str], ScramCredential | None]:
        def find(name: str) -> ScramCredential | None:
            user = self._rows.rows.get(name)
            return None if user is None else user.credentials.get(mechanism)

        return find

    def session(self, name: str, mechanism: str) -> tuple[str, int]:
        """The token of a user who has signed in, and how long it is good for, in ms.

        Raises:
            SessionExpiredError: The user is deleted meanwhile.
        """
        fingerprint = self._fingerprints.get(name)
        if fingerprint is None:
            raise SessionExpiredError("the user was deleted meanwhile")
        token = self._sessions.token(name, mechanism, fingerprint)
        return token, self._sessions.lifetime_ms

    async def changed_since(self, exchange: ScramExchange, began_at: float) -> bool:
        """Whether the credential that an exchange was about is another one now: another gateway may
        have changed it a moment ago."""
        await self._look_after(began_at)
        mechanism = exchange.mechanism
        return self._credential(mechanism)(exchange.name) != exchange.credential

    async def prove(self, token: str) -> Identity:
        """See `Proof`."""
        session = self._sessions.read(token)
        name, fingerprint = session.name, session.fingerprint

        def is_revoked() -> bool:
            found = self._fingerprints.get(name, "")
            return not hmac.compare_digest(found, fingerprint)

        if is_revoked():
            await self._look_after(time_elapsed_s())
            if is_revoked():
                raise SessionExpiredError("the session is over; sign in again")
        return self._sessions.identity(session, is_revoked)

    async def _look_after(self, at: float) -> None:
        """Sees what was in the table at that time; many callers share a look. A store that fails
        changes nothing."""
        async with self._looking:
            if self._looked_at >= at:
                return
            # Whoever guesses at passwords must not keep the store busy.
            await asyncio.sleep(max(0.0, self._looked_at + _LOOK_EVERY_S - time_elapsed_s()))
            began_at = time_elapsed_s()
            with contextlib.suppress(MainstemError):
                await self._rows.look()
            self._looked_at = began_at
