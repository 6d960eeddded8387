"""What a token says, once its signature is good: whose it is, for whom, and for how long."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mainstem.errors import AuthenticationError
from mainstem.ingest_gateway.security.names import check_name
from mainstem.security import USER, Principal

NAME_CHARACTERS_MAX: Final = 249
GROUPS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class ExpectedClaims:
    """What a token must say.

    Attributes:
        issuer: Whose it is.
        audiences: It is for one of these.
        skew_s: How far the issuer's clock may be from this one.
        name_claim: Has the user's name.
        groups_claim: Has the names of the groups; a token may lack it.
    """

    issuer: str
    audiences: frozenset[str]
    skew_s: float
    name_claim: str
    groups_claim: str


def check_claims(payload: bytes, expected: ExpectedClaims, now_s: float) -> tuple[Principal, float]:
    """Whose a token is, and until when, in seconds since 1970, with the skew.

    Args:
        payload: The middle part of the token, decoded.
        now_s: Seconds since 1970.

    Raises:
        AuthenticationError: A claim is missing or is not as it must be; the message names it.
    """
    claims = _read(payload)
    if claims.get("iss") != expected.issuer:
        raise _refused("iss is not sasl.oauthbearer.expected.issuer: it is another issuer's")
    audiences = claims.get("aud")
    for_whom = audiences if isinstance(audiences, list) else [audiences]
    if not any(isinstance(one, str) and one in expected.audiences for one in for_whom):
        raise _refused(
            "aud has nothing of sasl.oauthbearer.expected.audience: it is for somebody else"
        )
    ends_at = _time(claims, "exp")
    if ends_at is None:
        raise _refused("exp is missing: a token has to end some time")
    if now_s >= ends_at + expected.skew_s:
        raise _refused(f"exp was {now_s - ends_at:.0f} s ago: it is over")
    for claim, what in (("nbf", "it is not good yet"), ("iat", "it is from the future")):
        begins_at = _time(claims, claim)
        if begins_at is not None and begins_at > now_s + expected.skew_s:
            raise _refused(f"{claim} is in {begins_at - now_s:.0f} s: {what}; compare the clocks")
    return _principal(claims, expected), ends_at + expected.skew_s


def _principal(claims: Mapping[str, Any], expected: ExpectedClaims) -> Principal:
    name = claims.get(expected.name_claim)
    if not isinstance(name, str):
        raise _refused(f"{expected.name_claim} is missing or no text: it is the user's name")
    check_name(name, f"the token's claim {expected.name_claim}", NAME_CHARACTERS_MAX)
    return Principal(USER, name, _groups(claims, expected.groups_claim))


def _groups(claims: Mapping[str, Any], claim: str) -> frozenset[str]:
    found = claims.get(claim) if claim else None
    if found is None:
        return frozenset()
    if isinstance(found, str):
        found = re.split(r"[\s,]+", found.strip(" ,")) if found.strip(" ,") else []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise _refused(f"{claim} is neither a list of names nor a text of them")
    if len(found) > GROUPS_MAX:
        raise _refused(f"{claim} has {len(found)} names; it may have {GROUPS_MAX}")
    for name in found:
        check_name(name, f"a name in the token's claim {claim}", NAME_CHARACTERS_MAX)
    return frozenset(found)


def _read(payload: bytes) -> Mapping[str, Any]:
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise AuthenticationError("the token has no claims")
    return claims


def _time(claims: Mapping[str, Any], claim: str) -> float | None:
    """Seconds since 1970."""
    found = claims.get(claim)
    if found is None:
        return None
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        try:
            seconds = float(found)
        except OverflowError:
            seconds = math.inf
        if math.isfinite(seconds):
            return seconds
    raise _refused(f"{claim} is no time in seconds")


def _refused(why: str) -> AuthenticationError:
    return AuthenticationError(f"the token's claim {why}")
