"""The keys that an issuer of tokens lists."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from tests.oidc import SigningKey

from mainstem.ingest_gateway.security.key_set import (
    ALGORITHMS,
    KEYS_MAX,
    UnusableKeys,
    parse_keys,
)


def listed(*jwks: Any) -> bytes:
    return json.dumps({"keys": list(jwks)}).encode()


def test_a_key_is_for_the_algorithms_of_its_kind() -> None:
    kinds = {
        "RS256": {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"},
        "ES256": {"ES256"},
        "ES384": {"ES384"},
        "ES512": {"ES512"},
        "EdDSA": {"EdDSA"},
    }
    for algorithm, expected in kinds.items():
        (key,) = parse_keys(listed(SigningKey("one", algorithm).jwk)).keys
        assert key.kid == "one"
        assert key.algorithms == expected
    assert set().union(*kinds.values()) == ALGORITHMS


def test_a_key_that_names_its_algorithm_is_for_that_one_alone() -> None:
    found = parse_keys(listed(SigningKey("one", "RS256").jwk | {"alg": "PS256"}))
    assert found.candidates("one", "PS256")
    assert not found.candidates("one", "RS256")
    assert not found.candidates("two", "PS256")
    assert found.candidates(None, "PS256")


def test_keys_for_something_else_or_with_faults_are_left_out_and_the_others_read() -> None:
    good = SigningKey("good").jwk
    small = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key(), as_dict=True)
    found = parse_keys(
        listed(
            good,
            SigningKey("encrypts").jwk | {"use": "enc"},
            SigningKey("wraps").jwk | {"key_ops": ["wrapKey"]},
            {"kty": "oct", "kid": "shared", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U"},
            {"kty": "oct", "crv": "P-256", "kid": "shared", "k": "c2VjcmV0"},
            small | {"kid": "small"},
            good | {"x": "AAAA"},
            good | {"x": 7},
            good | {"kid": 7},
            good | {"crv": "secp256k1"},
            good | {"alg": "HS256"},
            {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
            {"kty": "RSA"},
            "text",
            None,
        )
    )
    assert [key.kid for key in found.keys] == ["good"]
    assert len(found.left_out) == 12


def test_of_a_private_key_the_public_part_counts() -> None:
    key = SigningKey("leaked")
    private = ECAlgorithm.to_jwk(key.private, as_dict=True) | {"kid": "leaked"}
    assert "d" in private
    (found,) = parse_keys(listed(private)).keys
    assert not hasattr(found.public, "sign")
    (same,) = parse_keys(listed(key.jwk)).keys
    assert found.fingerprint == same.fingerprint


def test_another_key_of_the_same_name_is_another_one() -> None:
    first, second = (parse_keys(listed(SigningKey("one").jwk)).keys[0] for _ in range(2))
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "AAAA"}]}',
        json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode(),
        b"<html>",
    ],
)
def test_what_has_no_key_is_refused(data: bytes) -> None:
    with pytest.raises(UnusableKeys):
        parse_keys(data)
