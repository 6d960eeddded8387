"""`mainstem.tls`: what is wrong with a file is said, and one that is half replaced is not taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mainstem.cli.cert.development import Pair, new_authority, new_certificate, write_pair
from mainstem.errors import InvalidConfigError
from mainstem.tls import TlsFiles, WatchedTls, read_tls


@pytest.fixture(scope="module")
def authority() -> Pair:
    return new_authority(days=1)


@pytest.fixture
def files(tmp_path: Path, authority: Pair) -> TlsFiles:
    (tmp_path / "ca.pem").write_bytes(authority.certificate_pem())
    pair = new_certificate(authority, "gateway", ["localhost"], days=1)
    write_pair(pair, tmp_path / "own.pem", tmp_path / "own.key")
    return TlsFiles(*(str(tmp_path / name) for name in ("ca.pem", "own.pem", "own.key")))


def test_files_that_belong_together_are_read(files: TlsFiles) -> None:
    found = read_tls(files)
    assert found.ca == Path(files.ca).read_bytes()
    assert found.key == Path(files.key).read_bytes()
    assert os.stat(files.key).st_mode & 0o077 == 0, "nobody else can read the key"
    assert read_tls(TlsFiles()).certificate is None


def wrong(tmp_path: Path, files: TlsFiles, authority: Pair, kind: str) -> tuple[TlsFiles, str]:
    """Files of which something is wrong, and the setting that it is about."""
    other = tmp_path / "other"
    match kind:
        case "no such file":
            return TlsFiles(files.ca, str(other), files.key), "ssl.certificate.location"
        case "a directory":
            return TlsFiles(str(tmp_path)), "ssl.ca.location"
        case "a name with a zero byte":
            return TlsFiles("a\0b"), "ssl.ca.location"
        case "no certificate":
            other.write_bytes(b"\xff\x00 no certificate")
            return TlsFiles(str(other)), "ssl.ca.location"
        case "an empty file":
            other.touch()
            return TlsFiles(files.ca, str(other), files.key), "ssl.certificate.location"
        case "another key":
            pair = new_certificate(authority, "other", [], days=1)
            other.write_bytes(pair.key_pem())
            return TlsFiles(files.ca, files.certificate, str(other)), "ssl.key.location"
        case "an encrypted key":
            from cryptography.hazmat.primitives import serialization

            pair = new_certificate(authority, "other", [], days=1)
            other.write_bytes(
                pair.key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.BestAvailableEncryption(b"secret"),
                )
            )
            return TlsFiles(files.ca, files.certificate, str(other)), "ssl.key.location"
        case "a certificate alone":
            return TlsFiles(files.ca, files.certificate), "ssl.key.location"
        case "a key alone":
            return TlsFiles("", "", files.key), "ssl.certificate.location"
    raise AssertionError(kind)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no such file", "cannot be read: No such file"),
        ("a directory", "cannot be read: Is a directory"),
        ("a name with a zero byte", "cannot be read: embedded null byte"),
        ("no certificate", "has no certificate"),
        ("an empty file", "are no certificate and its key in PEM"),
        ("another key", "is not the key of the certificate in"),
        ("an encrypted key", "is encrypted; decrypt it"),
        ("a certificate alone", "set both"),
        ("a key alone", "set both"),
    ],
)
def test_what_cannot_be_used_is_said_with_its_setting_and_file(
    tmp_path: Path, files: TlsFiles, authority: Pair, kind: str, words: str
) -> None:
    broken, setting = wrong(tmp_path, files, authority, kind)
    with pytest.raises(InvalidConfigError, match=words) as caught:
        read_tls(broken)
    assert caught.value.facts["name"] == setting


def test_new_files_are_taken_when_they_are_a_pair_and_not_before(
    files: TlsFiles, authority: Pair, tmp_path: Path
) -> None:
    now = 0.0
    told: list[str] = []
    watched = WatchedTls(files, lambda error: told.append(error.message), lambda: now)
    number, before = watched.current()
    pair = new_certificate(authority, "next", ["localhost"], days=1)
    Path(files.certificate).write_bytes(pair.certificate_pem())
    assert watched.current() == (number, before), "it looks once a second"
    now = 1.0
    assert watched.current() == (number, before), "the key is still the old one"
    now = 2.0
    watched.current()
    assert len(told) == 1, "told once"
    assert "is not the key of" in told[0]
    write_pair(pair, tmp_path / "x.pem", Path(files.key))
    now = 3.0
    changed, after = watched.current()
    assert changed != number
    assert after.certificate == pair.certificate_pem()
    assert after.key == pair.key_pem()


def test_files_that_vanish_leave_what_was_read_in_use(files: TlsFiles) -> None:
    now = 0.0
    told: list[str] = []
    watched = WatchedTls(files, lambda error: told.append(error.message), lambda: now)
    before = watched.current()
    for path in (files.ca, files.certificate, files.key):
        os.unlink(path)
    now = 5.0
    assert watched.current() == before
    assert "No such file" in told[0]
