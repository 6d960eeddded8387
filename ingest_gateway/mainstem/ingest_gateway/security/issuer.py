"""The keys of an issuer of tokens, fetched from it again and again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from mainstem.delta_log.store import time_elapsed_s
from mainstem.errors import AuthenticationError, GatewayUnavailableError
from mainstem.ingest_gateway.security.key_set import Key, KeySet, UnusableKeys, parse_keys
from mainstem.web import WebError, call_web, check_address

log = structlog.get_logger()

#: Between two fetches, also when tokens name keys that nobody has.
FETCH_EVERY_S: Final = 3.0

#: One request of a fetch, of which there are two.
_REQUEST_S: Final = 5.0

#: A fetch as a whole, with finding the issuer's host.
FETCH_S_MAX: Final = 15.0

#: A token waits so long for the key that it names.
FIND_S: Final = 8.0

#: As many tokens wait; the others are to be sent again.
WAITING_MAX: Final = 100

#: The longest time between two attempts while the issuer cannot be reached.
_RETRY_S_MAX: Final = 60.0


class Issuer:
    """Keeps the keys. On the event loop; its requests are made in threads of their own.

    What was read stays in use while the issuer cannot be reached, or answers with nothing that can
    be used. That is logged once.

    Args:
        read: Fetches the keys; blocks. See `reader_of`.
        refresh_s: Between two fetches.
        fetch_every_s: At least so much is between two, whoever asks.
    """

    def __init__(
        self,
        read: Callable[[], bytes],
        refresh_s: float,
        fetch_every_s: float = FETCH_EVERY_S,
        elapsed_s: Callable[[], float] = time_elapsed_s,
    ) -> None:
        self._read = read
        self._refresh_s = refresh_s
        self._fetch_every_s = fetch_every_s
        self._elapsed_s = elapsed_s
        self._keys: KeySet | None = None
        self._failure = ""
        self._began_at = -math.inf
        self._waiting = 0
        self._reading = False
        self._fetching: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to fetch the keys, and goes on until `close`."""
        self._refreshing = asyncio.create_task(self._refresh(), name="keys of the issuer")

    async def close(self) -> None:
        """Stops. A request that is under way ends by itself, and its answer is dropped."""
        for task in (self._refreshing, self._fetching):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def has(self, fingerprint: bytes) -> bool:
        """Whether a key is still one of the issuer's."""
        return self._keys is not None and fingerprint in self._keys.fingerprints

    async def find(self, kid: str | None, algorithm: str) -> list[Key]:
        """What a token may be signed with; fetches the keys again if there is none.

        Args:
            kid: That the token names; None: it names none.

        Raises:
            AuthenticationError: The issuer has no such key.
            GatewayUnavailableError: That cannot be told at the moment.
        """
        found = self._candidates(kid, algorithm)
        if found:
            return found
        with self._wait():
            asked_at = self._elapsed_s()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIND_S):
                    # One that is under way may have missed the key.
                    while not found and self._began_at < asked_at:
                        await asyncio.shield(self._fetch())  # of all that wait
                        found = self._candidates(kid, algorithm)
        if found:
            return found
        if self._failure or self._keys is None:
            raise GatewayUnavailableError(
                "the keys of the issuer of tokens cannot be read at the moment, and the token is "
                "signed with none of those that were read before; the gateway's log says why"
            )
        raise AuthenticationError(
            "the token is signed with a key that its issuer does not list, or not with one that "
            "is for its algorithm"
        )

    def _candidates(self, kid: str | None, algorithm: str) -> list[Key]:
        return [] if self._keys is None else self._keys.candidates(kid, algorithm)

    @contextlib.contextmanager
    def _wait(self) -> Iterator[None]:
        if self._waiting >= WAITING_MAX:
            raise GatewayUnavailableError(
                f"{WAITING_MAX} tokens wait for keys that the gateway does not know; try again"
            )
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def _refresh(self) -> None:
        failures = 0
        while True:
            await asyncio.shield(self._fetch())
            failures = failures + 1 if self._failure else 0
            retry_s = min(self._fetch_every_s * 2.0 ** min(failures, 10), _RETRY_S_MAX)
            await asyncio.sleep(min(retry_s, self._refresh_s) if failures else self._refresh_s)

    def _fetch(self) -> asyncio.Task[None]:
        """The fetch that is under way, or waits for its time; there is one at most."""
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetch_soon(), name="fetch of keys")
        return self._fetching

    async def _fetch_soon(self) -> None:
        wait_s = self._began_at + self._fetch_every_s - self._elapsed_s()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        self._began_at = self._elapsed_s()
        try:
            async with asyncio.timeout(FETCH_S_MAX):
                keys = parse_keys(await self._in_a_thread())
        except TimeoutError:
            self._failed(f"there was no answer within {FETCH_S_MAX:.0f} s")
        except (WebError, UnusableKeys) as error:
            self._failed(str(error))
        except Exception as failure:
            log.exception("the keys of the issuer of tokens could not be read")
            self._failed(type(failure).__name__)
        else:
            self._take(keys)

    async def _in_a_thread(self) -> bytes:
        """Runs `read` where nobody waits for it: not even the end of the process."""
        if self._reading:
            raise WebError("the last attempt has not ended yet")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()

        def tell(result: bytes | Exception) -> None:
            self._reading = False
            if answer.done():  # nobody waits any more
                return
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        def run() -> None:
            try:
                result: bytes | Exception = self._read()
            except Exception as failure:
                result = failure
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(tell, result)

        threading.Thread(target=run, name="keys-of-issuer", daemon=True).start()
        self._reading = True
        return await answer

    def _take(self, keys: KeySet) -> None:
        before = self._keys
        if before is None or self._failure or keys.fingerprints != before.fingerprints:
            log.info(
                "the keys of the issuer of tokens were read",
                keys=[key.kid for key in keys.keys],
                left_out=keys.left_out,
            )
        self._keys, self._failure = keys, ""

    def _failed(self, why: str) -> None:
        if not self._failure:  # once, not every minute
            log.warning(
                "the keys of the issuer of tokens cannot be read; those that were read before stay "
                "in use",
                keys=0 if self._keys is None else len(self._keys.keys),
                error=why,
            )
        self._failure = why


def reader_of(issuer: str, jwks_address: str) -> Callable[[], bytes]:
    """Fetches the keys of an issuer.

    Args:
        jwks_address: Where they are; empty: what the issuer says (OpenID Connect Discovery 1.0).
    """

    def read() -> bytes:
        return _get(jwks_address or _discovered(issuer))

    return read


def _discovered(issuer: str) -> str:
    address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    try:
        found = json.loads(_get(address))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise WebError(f"{address} is no JSON object")
    if found.get("issuer") != issuer:
        raise WebError(f"{address} is of another issuer than sasl.oauthbearer.expected.issuer")
    keys = found.get("jwks_uri")
    try:
        if not isinstance(keys, str):
            raise ValueError("there is none")
        return check_address(keys)
    except ValueError as error:
        raise WebError(f"{address} has no jwks_uri that can be used: {error}") from None


def _get(address: str) -> bytes:
    answer = call_web(address, _REQUEST_S, headers={"Accept": "application/json"})
    if answer.status != 200:
        raise WebError(f"{address}: it answered with status {answer.status}")
    return answer.body
