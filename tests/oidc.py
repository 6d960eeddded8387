"""An OpenID provider for tests: real HTTP on port 0, whose keys change, and that fails and lies."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

DISCOVERY: Final = "/.well-known/openid-configuration"
JWKS: Final = "/keys"
TOKENS: Final = "/token"


#: Keys take a while to make, and a test does not look at which it has.
_RSA_KEYS: Final[list[rsa.RSAPrivateKey]] = []


class SigningKey:
    """A key that tokens are signed with.

    Attributes:
        jwk: Its public part, as it is listed.
    """

    def __init__(self, kid: str, algorithm: str = "ES256") -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.private: Any
        if algorithm[:2] in ("RS", "PS"):
            self.private = _rsa_key()
            self.jwk: dict[str, Any] = RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        elif algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
            self.jwk = OKPAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        else:
            curves: dict[str, ec.EllipticCurve] = {
                "ES256": ec.SECP256R1(),
                "ES384": ec.SECP384R1(),
                "ES512": ec.SECP521R1(),
            }
            self.private = ec.generate_private_key(curves[algorithm])
            self.jwk = ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        self.jwk |= {"kid": kid, "use": "sig"}

    def sign(self, claims: dict[str, Any], **headers: Any) -> str:
        """A token."""
        return jwt.encode(claims, self.private, self.algorithm, {"kid": self.kid} | headers)


def _rsa_key() -> rsa.RSAPrivateKey:
    if not _RSA_KEYS:
        _RSA_KEYS.append(rsa.generate_private_key(65537, 2048))
    return _RSA_KEYS[0]


class OidcServer:
    """An issuer of tokens.

    Attributes:
        url: Of the issuer.
        keys: That it lists; the last one signs.
        answers: What a path answers instead of what it should: a status, a body, or both.
        hangs: Paths that answer only when the server is closed.
        clients: Passwords of those that get tokens at the token endpoint, by their id.
        lifetime_s: Of the tokens that it gives there.
        requests: How often each path was asked for.
        forms: What was sent to the token endpoint.
    """

    def __init__(self, certificate: Path | None = None, key: Path | None = None) -> None:
        self.keys = [SigningKey("first")]
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.hangs: set[str] = set()
        self.drips: set[str] = set()
        self.redirects: dict[str, str] = {}
        self.clients = {"alice": "secret"}
        self.lifetime_s = 60.0
        self.requests: Counter[str] = Counter()
        self.forms: list[dict[str, list[str]]] = []
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler, self)
        scheme = "http"
        if certificate is not None:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self._server.tls = context
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    def rotate(self, kid: str, algorithm: str = "ES256", keep: bool = True) -> SigningKey:
        """Signs with a new key; the older ones stay listed, or not."""
        key = SigningKey(kid, algorithm)
        self.keys = [*self.keys, key] if keep else [key]
        return key

    def claims(self, sub: str = "alice", lifetime_s: float = 60.0, **more: Any) -> dict[str, Any]:
        """Of a token that is good. A claim that is None is left out."""
        now = time.time()
        claims = {
            "iss": self.url,
            "aud": "mainstem",
            "sub": sub,
            "iat": now,
            "exp": now + lifetime_s,
        } | more
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, sub: str = "alice", lifetime_s: float = 60.0, **more: Any) -> str:
        """One that is good, if `more` does not say otherwise."""
        return self.keys[-1].sign(self.claims(sub, lifetime_s, **more))

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def oidc_server(certificate: Path | None = None, key: Path | None = None) -> Iterator[OidcServer]:
    """One that runs while the block lasts, by https where it has a certificate."""
    server = OidcServer(certificate, key)
    try:
        yield server
    finally:
        server.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, address: tuple[str, int], handler: Any, issuer: OidcServer) -> None:
        super().__init__(address, handler)
        self.issuer = issuer
        self.tls: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        # In the thread of the request: the handshake waits for the client.
        if self.tls is not None:
            try:
                request = self.tls.wrap_socket(request, server_side=True)
            except OSError:
                return  # who asks does not trust it
        with contextlib.closing(request):
            super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # who asked has gone


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        issuer = cast(_Server, self.server).issuer
        if self._odd(issuer):
            return
        if self.path == DISCOVERY:
            self._answer(200, {"issuer": issuer.url, "jwks_uri": issuer.url + JWKS})
        elif self.path == JWKS:
            self._answer(200, {"keys": [key.jwk for key in issuer.keys]})
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        issuer = cast(_Server, self.server).issuer
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if self._odd(issuer):
            return
        issuer.forms.append(form)
        scheme, _, credentials = self.headers.get("Authorization", "").partition(" ")
        client, _, secret = base64.b64decode(credentials).decode().partition(":")
        if scheme != "Basic" or not secret or issuer.clients.get(client) != secret:
            self._answer(401, {"error": "invalid_client", "error_description": "who are you?"})
            return
        token = issuer.token(client, issuer.lifetime_s)
        self._answer(
            200,
            {"access_token": token, "token_type": "Bearer", "expires_in": issuer.lifetime_s},
        )

    def _odd(self, issuer: OidcServer) -> bool:
        """Whether it is answered otherwise than it should be."""
        issuer.requests[self.path] += 1
        if self.path in issuer.hangs:
            issuer.closing.wait(60)
            return True
        if self.path in issuer.drips:
            self.send_response(200)
            self.end_headers()
            while not issuer.closing.wait(0.05):
                try:
                    self.wfile.write(b" ")
                except OSError:
                    break
            return True
        if self.path in issuer.redirects:
            self.send_response(302)
            self.send_header("Location", issuer.redirects[self.path])
            self.end_headers()
            return True
        if self.path in issuer.answers:
            self._send(*issuer.answers[self.path])
            return True
        return False

    def _answer(self, status: int, found: dict[str, Any]) -> None:
        self._send(status, json.dumps(found).encode())

    def _send(self, status: int, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass  # who asked has gone
