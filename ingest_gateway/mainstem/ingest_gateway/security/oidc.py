"""Whose a token of an OpenID provider is: the `Proof` of `authorization: Bearer TOKEN`."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from jwt import InvalidSignatureError
from jwt.api_jws import PyJWS

from mainstem.config import GatewayConfig
from mainstem.delta_log.store import time_elapsed_s
from mainstem.errors import AuthenticationError, InvalidConfigError
from mainstem.ingest_gateway.caller import Identity
from mainstem.ingest_gateway.security.claims import ExpectedClaims, check_claims
from mainstem.ingest_gateway.security.issuer import Issuer, reader_of
from mainstem.ingest_gateway.security.key_set import ALGORITHMS, Key
from mainstem.web import check_address

#: What gRPC lets through as one header, by default, is 8 KiB as well.
TOKEN_BYTES_MAX: Final = 8 * 1024

#: As many tokens are remembered; more than a gateway takes connections.
REMEMBERED_MAX: Final = 10_000

_ISSUER: Final = "sasl.oauthbearer.expected.issuer"
_AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
_JWKS: Final = "sasl.oauthbearer.jwks.endpoint.url"
_NAME_CLAIM: Final = "sasl.oauthbearer.sub.claim.name"


class BearerProof:
    """Finds out whose tokens are. On the event loop.

    Args:
        issuer: Has the keys.
        expected: What a token must say.
        wall_clock_s: Seconds since 1970.
    """

    def __init__(
        self,
        issuer: Issuer,
        expected: ExpectedClaims,
        wall_clock_s: Callable[[], float] = time.time,
        elapsed_s: Callable[[], float] = time_elapsed_s,
    ) -> None:
        self._issuer = issuer
        self._expected = expected
        self._wall_clock_s = wall_clock_s
        self._elapsed_s = elapsed_s
        self._jws = PyJWS(algorithms=sorted(ALGORITHMS))
        #: By the hash of the token, those that were used last at the end.
        self._known: OrderedDict[bytes, Identity] = OrderedDict()

    def start(self) -> None:
        """Begins to fetch the issuer's keys. A gateway starts also while there are none."""
        self._issuer.start()

    async def close(self) -> None:
        """Stops it."""
        await self._issuer.close()

    async def __call__(self, credentials: str) -> Identity:
        """Whose this token is, until it ends or its key is the issuer's no longer.

        Raises:
            AuthenticationError: It is not good; the message says which check failed.
            GatewayUnavailableError: That cannot be told at the moment.
        """
        if len(credentials) > TOKEN_BYTES_MAX:
            raise AuthenticationError(
                f"the token has {len(credentials)} bytes; a gateway takes {TOKEN_BYTES_MAX}"
            )
        digest = hashlib.sha256(credentials.encode("utf-8", "replace")).digest()
        known = self._known.get(digest)
        if known is not None and not known.is_over:
            self._known.move_to_end(digest)
            return known
        self._known.pop(digest, None)
        found = self._known[digest] = await self._verify(credentials)
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return found

    async def _verify(self, token: str) -> Identity:
        algorithm, kid = self._header(token)
        key, payload = self._signed(token, algorithm, await self._issuer.find(kid, algorithm))
        now_s = self._wall_clock_s()
        principal, ends_at = check_claims(payload, self._expected, now_s)
        issuer, fingerprint = self._issuer, key.fingerprint
        return Identity(
            principal, self._elapsed_s() + ends_at - now_s, lambda: not issuer.has(fingerprint)
        )

    def _header(self, token: str) -> tuple[str, str | None]:
        try:
            header: dict[str, Any] = self._jws.get_unverified_header(token)
        # Whatever hostile bytes make of PyJWT and Python: a few kinds of their errors are not
        # PyJWT's own. The text is not shown, as it may be of the token.
        except Exception as error:
            raise AuthenticationError(
                f"the token is no signed JSON web token ({type(error).__name__})"
            ) from None
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise AuthenticationError(
                f"the token's alg is none of {', '.join(sorted(ALGORITHMS))}: a gateway takes "
                "signatures of public keys only"
            )
        return algorithm, header.get("kid")

    def _signed(self, token: str, algorithm: str, keys: list[Key]) -> tuple[Key, bytes]:
        """The key that a token is signed with, and what it says."""
        for key in keys:
            try:
                found = self._jws.decode_complete(token, key.public, algorithms=[algorithm])
            except InvalidSignatureError:
                continue
            except Exception as error:
                raise AuthenticationError(
                    f"the token's signature cannot be checked ({type(error).__name__})"
                ) from None
            payload: bytes = found["payload"]
            return key, payload
        raise AuthenticationError("the token's signature is not that of its issuer's key")


def bearer_proof_of(config: GatewayConfig) -> BearerProof:
    """What the settings say of tokens.

    Raises:
        InvalidConfigError: One is missing, or cannot be used.
    """
    issuer, jwks = config.text(_ISSUER), config.text(_JWKS)
    audiences = frozenset(filter(None, map(str.strip, config.text(_AUDIENCE).split(","))))
    for name, missing in ((_ISSUER, not issuer), (_AUDIENCE, not audiences)):
        if missing:
            raise InvalidConfigError(
                f"sasl.enabled.mechanisms has OAUTHBEARER and {name} is not set: without it "
                "tokens that are meant for others would be good here",
                name=name,
            )
    name, address = (_JWKS, jwks) if jwks else (_ISSUER, issuer)
    try:
        check_address(address)
    except ValueError as error:
        raise InvalidConfigError(
            f"{name} is {address!r}, from where keys are to be fetched: {error}",
            name=name,
            value=address,
        ) from None
    if not config.text(_NAME_CLAIM):
        raise InvalidConfigError(
            f"{_NAME_CLAIM} is empty; it must name the claim that is the user's name",
            name=_NAME_CLAIM,
        )
    expected = ExpectedClaims(
        issuer,
        audiences,
        config.number("sasl.oauthbearer.clock.skew.seconds"),
        config.text(_NAME_CLAIM),
        config.text("sasl.oauthbearer.groups.claim.name"),
    )
    refresh_s = config.number("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000
    return BearerProof(Issuer(reader_of(issuer, jwks), refresh_s), expected)
