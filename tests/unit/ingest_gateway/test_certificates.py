"""Whose the certificates of clients are."""

from __future__ import annotations

import math
import os
import warnings
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from mainstem.errors import AuthenticationError, InvalidConfigError
from mainstem.ingest_gateway.security import certificates as module
from mainstem.ingest_gateway.security.certificates import Certificates
from mainstem.security import USER, Principal

UTF8 = _ASN1Type.UTF8String
BMP = _ASN1Type.BMPString
T61 = _ASN1Type.T61String

KEY = ec.generate_private_key(ec.SECP256R1())
ENDS = datetime(2030, 1, 1, tzinfo=UTC)


def attribute(
    oid: x509.ObjectIdentifier, value: str, kind: object = UTF8
) -> x509.NameAttribute[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its length: authorities are not that careful
        return x509.NameAttribute(oid, value, kind, _validate=False)  # type: ignore[arg-type]


def pem(subject: x509.Name, ends: datetime = ENDS) -> bytes:
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([attribute(NameOID.COMMON_NAME, "authority")]))
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - timedelta(days=3650))
        .not_valid_after(ends)
        .sign(KEY, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def named(*attributes: x509.NameAttribute[str]) -> x509.Name:
    return x509.Name(list(attributes))


def name_of(subject: x509.Name, rules: str = "DEFAULT") -> str:
    return Certificates(rules, lambda: 0.0)(pem(subject)).principal.name


CN, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (
            named(
                attribute(NameOID.COUNTRY_NAME, "DE"),
                attribute(NameOID.ORGANIZATION_NAME, "example"),
                attribute(OU, "trade"),
                attribute(CN, "alice"),
            ),
            "CN=alice,OU=trade,O=example,C=DE",
        ),
        (
            named(
                attribute(NameOID.DOMAIN_COMPONENT, "com"),
                attribute(NameOID.DOMAIN_COMPONENT, "example"),
                attribute(NameOID.STATE_OR_PROVINCE_NAME, "Hessen"),
                attribute(NameOID.LOCALITY_NAME, "Kassel"),
                attribute(NameOID.STREET_ADDRESS, "Am Wall 1"),
                attribute(NameOID.USER_ID, "42"),
            ),
            "UID=42,STREET=Am Wall 1,L=Kassel,ST=Hessen,DC=example,DC=com",
        ),
        (named(attribute(CN, 'a,b=c+d<e>f#g;h"i\\j')), r"CN=a\,b\=c\+d\<e\>f\#g\;h\"i\\j"),
        (named(attribute(CN, "  two  ")), r"CN=\ \ two\ \ "),
        (named(attribute(CN, "Zoë 🦊")), "CN=Zoë 🦊"),
        (named(attribute(CN, "Zoë", BMP)), "CN=Zoë"),
        (named(attribute(CN, "Zoe", T61)), "CN=Zoe"),
        # What has no keyword, as Java: its number, and the bytes of the value.
        (named(attribute(NameOID.EMAIL_ADDRESS, "a@b")), "1.2.840.113549.1.9.1=#0c03614062"),
        (
            named(attribute(x509.ObjectIdentifier("2.999.1"), "x" * 130)),
            "2.999.1=#0c8182" + b"x".hex() * 130,
        ),
        (
            x509.Name(
                [
                    x509.RelativeDistinguishedName([attribute(OU, "trade")]),
                    x509.RelativeDistinguishedName(
                        [attribute(CN, "alice"), attribute(NameOID.USER_ID, "42")]
                    ),
                ]
            ),
            "CN=alice+UID=42,OU=trade",
        ),
        (named(attribute(CN, "x" * 200)), "CN=" + "x" * 200),
    ],
)
def test_a_subject_is_written_as_java_does(subject: x509.Name, name: str) -> None:
    assert name_of(subject) == name


def test_a_name_that_looks_like_another_part_of_the_subject_is_told_from_it() -> None:
    rules = "RULE:^CN=([^,]*),OU=admins$/admin/, DEFAULT"
    honest = named(attribute(OU, "admins"), attribute(CN, "alice"))
    forged = named(attribute(CN, "alice,OU=admins"))
    assert name_of(honest, rules) == "admin"
    assert name_of(forged, rules) == r"CN=alice\,OU\=admins"


def test_a_certificate_says_whose_it_is_until_it_ends() -> None:
    now = [ENDS.timestamp() - 100]
    find = Certificates("RULE:^CN=(.*)$/$1/", lambda: now[0], lambda: 5.0)
    certificate = pem(named(attribute(CN, "alice")))
    found = find(certificate)
    assert found.principal == Principal(USER, "alice")
    assert found.ends_at == pytest.approx(105.0)
    now[0] += 40
    assert find(certificate).ends_at == pytest.approx(65.0)
    now[0] += 60
    with pytest.raises(AuthenticationError, match="'alice' has ended"):
        find(certificate)


def test_a_certificate_of_the_last_day_of_all_has_an_end() -> None:
    forever = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    found = Certificates("DEFAULT")(pem(named(attribute(CN, "alice")), forever))
    assert math.isfinite(found.ends_at)
    assert not found.is_over


@pytest.mark.parametrize(
    ("subject", "rules", "words"),
    [
        (named(attribute(CN, "alice")), "RULE:^CN=x$/y/", "no rule of ssl.principal.mapping.rules"),
        (named(attribute(CN, "alice")), "RULE:^CN=alice$//", "is empty"),
        (named(), "DEFAULT", "no subject"),
        (named(attribute(CN, "x" * 600)), "DEFAULT", "603 characters"),
        (named(attribute(CN, "a\nb")), "DEFAULT", "control character"),
    ],
)
def test_a_certificate_that_names_nobody_is_refused(
    subject: x509.Name, rules: str, words: str
) -> None:
    find = Certificates(rules, lambda: 0.0)
    for _ in range(2):  # also when it is known
        with pytest.raises(AuthenticationError, match=words):
            find(pem(subject))


@pytest.mark.parametrize(
    "data",
    [b"", b"-----BEGIN CERTIFICATE-----", os.urandom(500), b"\0" * 9],
    ids=["nothing", "cut off", "random", "zeros"],
)
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(AuthenticationError, match="cannot be read"):
        Certificates("DEFAULT")(data)


def test_as_many_certificates_are_remembered_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REMEMBERED_MAX", 2)
    find = Certificates("DEFAULT", lambda: 0.0)
    for number in range(5):
        assert find(pem(named(attribute(CN, str(number))))).principal.name == f"CN={number}"
    assert len(find._known) == 2


def test_a_malformed_rule_is_told_at_the_start() -> None:
    with pytest.raises(InvalidConfigError, match="'RULE:x'"):
        Certificates("RULE:x")
