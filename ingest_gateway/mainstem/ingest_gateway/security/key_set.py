"""The public keys of an issuer of tokens, as it publishes them (RFC 7517)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey

#: What a token may be signed with, by the kind of key. Algorithms with a secret that both sides
#: have are not among them: the public key would be that secret.
_ALGORITHMS: Final = {
    "RSA": frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    "P-256": frozenset(("ES256",)),
    "P-384": frozenset(("ES384",)),
    "P-521": frozenset(("ES512",)),
    "Ed25519": frozenset(("EdDSA",)),
    "Ed448": frozenset(("EdDSA",)),
}

ALGORITHMS: Final = frozenset(one for some in _ALGORITHMS.values() for one in some)

#: A set has a handful.
KEYS_MAX: Final = 100

_RSA_BITS_MIN: Final = 2048
_RSA_BITS_MAX: Final = 16_384

#: Of a key, what says which it is; whatever else there is, as a private part, is not looked at.
_MATERIAL: Final = ("kty", "crv", "n", "e", "x", "y")


class UnusableKeys(ValueError):
    """What was read is no set of keys, or has none that can be used."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key that tokens may be signed with.

    Attributes:
        kid: Its name; empty: it has none.
        algorithms: That it may be used with.
        fingerprint: The same wherever it is read, and of no other key.
    """

    kid: str
    algorithms: frozenset[str]
    public: PublicKey = field(repr=False)
    fingerprint: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys that an issuer has at one time.

    Attributes:
        left_out: Why others that it lists cannot be used.
    """

    keys: tuple[Key, ...]
    left_out: tuple[str, ...] = ()
    fingerprints: frozenset[bytes] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprints", frozenset(one.fingerprint for one in self.keys))

    def candidates(self, kid: str | None, algorithm: str) -> list[Key]:
        """What a token may be signed with.

        Args:
            kid: That the token names; None: any.
        """
        return [
            key
            for key in self.keys
            if algorithm in key.algorithms and (kid is None or kid == key.kid)
        ]


def parse_keys(data: bytes) -> KeySet:
    """Reads a JSON Web Key Set. Keys that cannot be used, or are for something else, are left out.

    Raises:
        UnusableKeys: It is none, or no key is left.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise UnusableKeys("it is no JSON") from None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise UnusableKeys('it has no list "keys"')
    if len(listed) > KEYS_MAX:
        raise UnusableKeys(f"it has {len(listed)} keys; at most {KEYS_MAX} are read")
    keys: list[Key] = []
    left_out: list[str] = []
    for index, jwk in enumerate(listed):
        try:
            keys += _key(jwk)
        except Exception as error:  # of PyJWT, cryptography or Python: it is the issuer's fault
            left_out.append(f"key {index}: {error}")
    if not keys:
        raise UnusableKeys("; ".join(["it has no key that signs tokens", *left_out[:3]]))
    return KeySet(tuple(keys), tuple(left_out))


def _key(jwk: object) -> Iterator[Key]:
    if not isinstance(jwk, Mapping):
        raise ValueError("it is no object")
    uses = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not isinstance(uses, list) or "verify" not in uses:
        return  # it encrypts
    kid = jwk.get("kid", "")
    if not isinstance(kid, str):
        raise ValueError("its kid is no text")
    kind = jwk.get("kty")
    kind = kind if kind == "RSA" else jwk.get("crv")
    algorithms = _ALGORITHMS.get(str(kind), frozenset())
    if "alg" in jwk:
        algorithms &= {str(jwk["alg"])}
    if not algorithms:
        raise ValueError("tokens are not to be signed with a key of its kind")
    material = {name: jwk[name] for name in _MATERIAL if name in jwk}
    digest = hashlib.sha256(json.dumps([kid, material], sort_keys=True).encode())
    yield Key(kid, algorithms, _public_key(material), digest.digest())


def _public_key(material: dict[str, Any]) -> PublicKey:
    kind = material.get("kty")
    if kind == "EC":
        found: object = ECAlgorithm.from_jwk(material)
    elif kind == "OKP":
        found = OKPAlgorithm.from_jwk(material)
    else:
        found = RSAAlgorithm.from_jwk(material)
        if isinstance(found, RSAPublicKey):
            bits = found.key_size
            if not _RSA_BITS_MIN <= bits <= _RSA_BITS_MAX:
                raise ValueError(f"it has {bits} bits; it must have {_RSA_BITS_MIN} or more")
    assert isinstance(
        found, RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey
    )
    return found
