"""What a gateway keeps of a password, and which names users may have."""

from __future__ import annotations

import pytest

from mainstem.errors import InvalidConfigError
from mainstem.security import ScramCredential, check_user_name, new_credential, prepared_name


def test_the_keys_are_those_of_the_rfcs_example() -> None:
    # RFC 7677, section 3: user "user", password "pencil".
    import base64
    import hashlib
    import hmac

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    found = new_credential("pencil", "SCRAM-SHA-256", 4096, salt)
    auth_message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = hmac.digest(found.server_key, auth_message, hashlib.sha256)
    assert base64.b64encode(proof) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_two_users_with_the_same_password_have_other_keys() -> None:
    one, other = new_credential("secret"), new_credential("secret")
    assert one.salt != other.salt
    assert one.stored_key != other.stored_key
    assert "salt" not in repr(one)


@pytest.mark.parametrize(
    ("password", "word"),
    [
        ("", "empty"),
        (" secret", "space"),
        ("secret\n", "space"),
        ("x" * 1025, "1025 characters"),
        ("con\x07trol", "control"),
        ("half\ud800", "character"),
    ],
)
def test_a_password_that_could_not_be_typed_again_is_refused_and_not_shown(
    password: str, word: str
) -> None:
    with pytest.raises(InvalidConfigError, match=word) as caught:
        new_credential(password)
    assert not password or password not in str(caught.value)


def test_iterations_and_mechanisms_are_kafkas() -> None:
    for iterations in (4095, 16385, -1):
        with pytest.raises(InvalidConfigError, match=str(iterations)):
            new_credential("secret", iterations=iterations)
    for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "plain", ""):
        with pytest.raises(InvalidConfigError, match="mechanism"):
            new_credential("secret", mechanism)


@pytest.mark.parametrize(
    "credential",
    [
        ScramCredential("SCRAM-SHA-256", 8192, b"s" * 11, b"k" * 32, b"k" * 32),
        ScramCredential("SCRAM-SHA-256", 8192, b"s" * 65, b"k" * 32, b"k" * 32),
        ScramCredential("SCRAM-SHA-256", 8192, b"s" * 16, b"k" * 64, b"k" * 32),
        ScramCredential("SCRAM-SHA-512", 8192, b"s" * 16, b"k" * 64, b""),
        ScramCredential("SCRAM-SHA-512", 1, b"s" * 16, b"k" * 64, b"k" * 64),
        ScramCredential("PLAIN", 8192, b"s" * 16, b"k" * 64, b"k" * 64),
    ],
)
def test_keys_that_no_client_has_made_are_refused(credential: ScramCredential) -> None:
    with pytest.raises(InvalidConfigError):
        credential.check()


@pytest.mark.parametrize("name", ["alice", "a,b=c:d", "Zoë", "用户", "CN=x, O=y", "x" * 249])
def test_a_name_that_can_be_is_what_signing_in_makes_of_it(name: str) -> None:
    check_user_name(name)
    assert prepared_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "ANONYMOUS",
        "x" * 250,
        "a\nb",
        "a\0b",
        " a",
        "a ",
        "\u200b",
        "ª",
        "a\u0301",
        "a\ud800",
        "\u0627a",
    ],
)
def test_a_name_that_cannot_be_or_is_another_spelling_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfigError):
        check_user_name(name)
