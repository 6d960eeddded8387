"""Whose a client's certificate is."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography import x509

from mainstem.delta_log.store import time_elapsed_s
from mainstem.errors import AuthenticationError
from mainstem.ingest_gateway.caller import Identity
from mainstem.ingest_gateway.security.distinguished_names import subject_of
from mainstem.ingest_gateway.security.mapping_rules import RULES, map_subject, parse_rules
from mainstem.ingest_gateway.security.names import check_name
from mainstem.security import USER, Principal

#: Of a subject. The time of a regular expression grows with a power of this, and a certificate has
#: a tenth of it.
SUBJECT_CHARACTERS_MAX: Final = 500

#: As many certificates are remembered: those of all connections that a gateway takes, many times.
REMEMBERED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Certificate:
    """What was found out of one.

    Attributes:
        name: Whose it is.
        ends_at: In seconds since 1970: its last one.
        refusal: Why it is nobody's; empty: it is somebody's.
    """

    name: str = ""
    ends_at: float = 0.0
    refusal: str = ""


class Certificates:
    """Says whose certificates are. On the event loop.

    gRPC has found by then that a certificate is of one of the authorities, and is valid.

    Args:
        rules: `ssl.principal.mapping.rules`.
        wall_clock_s: Seconds since 1970.

    Raises:
        InvalidConfigError: A rule is malformed.
    """

    def __init__(
        self,
        rules: str,
        wall_clock_s: Callable[[], float] = time.time,
        elapsed_s: Callable[[], float] = time_elapsed_s,
    ) -> None:
        self._rules = parse_rules(rules)
        self._wall_clock_s = wall_clock_s
        self._elapsed_s = elapsed_s
        #: By the hash of the PEM, those that were used last at the end.
        self._known: OrderedDict[bytes, _Certificate] = OrderedDict()

    def __call__(self, pem: bytes) -> Identity:
        """Whose this certificate is, until it ends.

        Raises:
            AuthenticationError: No rule fits its subject, or it has ended.
        """
        digest = hashlib.sha256(pem).digest()
        found = self._known.get(digest)
        if found is None:
            found = self._known[digest] = self._read(pem)
            if len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(digest)
        if found.refusal:
            raise AuthenticationError(found.refusal)
        left_s = found.ends_at - self._wall_clock_s()
        if left_s <= 0:
            raise AuthenticationError(
                f"the certificate of {found.name!r} has ended; replace the file of "
                "ssl.certificate.location"
            )
        return Identity(Principal(USER, found.name), self._elapsed_s() + left_s)

    def _read(self, pem: bytes) -> _Certificate:
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            ends_at = certificate.not_valid_after_utc.timestamp()
            subject = subject_of(certificate.tbs_certificate_bytes)
        except ValueError as error:
            return _Certificate(refusal=f"the client's certificate cannot be read: {error}")
        if not subject:
            return _Certificate(refusal="the client's certificate has no subject")
        if len(subject) > SUBJECT_CHARACTERS_MAX:
            return _Certificate(
                refusal=f"the subject of the client's certificate has {len(subject)} characters; "
                f"a gateway reads {SUBJECT_CHARACTERS_MAX}"
            )
        name = map_subject(self._rules, subject)
        if name is None:
            return _Certificate(
                refusal=f"no rule of {RULES} fits the certificate of {subject!r}: add one, or "
                "DEFAULT as the last"
            )
        try:
            check_name(name, f"the name that {RULES} makes of {subject!r}", SUBJECT_CHARACTERS_MAX)
        except AuthenticationError as error:
            return _Certificate(refusal=error.message)
        return _Certificate(name, ends_at)
