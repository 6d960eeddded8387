"""Whether a client's connections are encrypted, with which certificates, and as whom it signs in:
its settings."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import grpc

from mainstem.client.bearer_tokens import CALLBACK
from mainstem.client.secret_files import first_line
from mainstem.client.sign_in import ChannelSignIn, CredentialSource
from mainstem.client.token_settings import TOKEN_KEYS, given_token_settings, token_source
from mainstem.config import ConfigKey, ConfigValue, Faults
from mainstem.errors import AuthenticationError, InvalidConfigError
from mainstem.security import SCRAM_MECHANISMS
from mainstem.tls import (
    CA,
    CERTIFICATE,
    KEY,
    TlsFiles,
    WatchedTls,
    channel_credentials,
    read_tls,
)

if TYPE_CHECKING:
    from mainstem.client.passwords import PasswordSource

T = TypeVar("T")

_log = logging.getLogger("mainstem.client")

PROTOCOL: Final = "security.protocol"

MECHANISM: Final = "sasl.mechanism"
USERNAME: Final = "sasl.username"
PASSWORD: Final = "sasl.password"
PASSWORD_FILE: Final = "sasl.password.location"

#: Has the password where neither of the two settings is given.
PASSWORD_VARIABLE: Final = "MAINSTEM_SASL_PASSWORD"

#: Other names of `SECURITY_KEYS`, and the function that makes tokens.
_ALIASES: Final = (
    "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    CALLBACK,
)

#: What every client has.
SECURITY_KEYS: Final = (
    ConfigKey(
        PROTOCOL,
        "enum",
        "plaintext",
        "plaintext, or ssl: connections are encrypted, and the gateway proves by its certificate "
        "that it is the host of its address; sasl_ssl: the client signs in as well. Kafka: "
        "security.protocol.",
        choices=("plaintext", "ssl", "sasl_ssl"),
    ),
    ConfigKey(
        CA,
        "str",
        "",
        "PEM file of the authorities that the gateways' certificates are from; empty: those that "
        "the operating system trusts. Kafka: ssl.ca.location.",
    ),
    ConfigKey(
        CERTIFICATE,
        "str",
        "",
        "PEM file of the client's own certificate, for gateways that ask for one. Read again when "
        "it changes. Kafka: ssl.certificate.location.",
    ),
    ConfigKey(
        KEY,
        "str",
        "",
        "PEM file of the certificate's key, not encrypted. Kafka: ssl.key.location.",
    ),
    ConfigKey(
        MECHANISM,
        "enum",
        "",
        "How the client signs in, with security.protocol=sasl_ssl: with a password (SCRAM), or a "
        "token (OAUTHBEARER). Kafka: sasl.mechanism.",
        choices=(*SCRAM_MECHANISMS, "OAUTHBEARER"),
    ),
    ConfigKey(
        USERNAME,
        "str",
        "",
        "Who signs in with a password. Kafka: sasl.username of librdkafka, username of "
        "sasl.jaas.config.",
    ),
    ConfigKey(
        PASSWORD,
        "str",
        "",
        "Their password; it is shown nowhere, and never sent. Kafka: likewise.",
        secret=True,
    ),
    ConfigKey(
        PASSWORD_FILE,
        "str",
        "",
        "File whose first line is the password, in the place of sasl.password; read again each "
        "time that the client signs in. With neither, the environment variable "
        f"{PASSWORD_VARIABLE} counts. Kafka: nothing like it.",
    ),
    *TOKEN_KEYS,
)

_SASL: Final = (MECHANISM, USERNAME, PASSWORD, PASSWORD_FILE)


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How gateways are reached.

    Attributes:
        tls: Files of the certificates; None: nothing is encrypted.
        credentials: Prove who the client is; None: it does not sign in.
    """

    tls: TlsFiles | None = None
    credentials: CredentialSource | None = None


def connection_of(config: Mapping[str, T]) -> dict[str, T]:
    """What one client's settings say of how gateways are reached, for another client."""
    names = ("bootstrap.servers", "client.id", *(key.name for key in SECURITY_KEYS), *_ALIASES)
    return {name: config[name] for name in names if name in config}


def connection_settings(
    values: Mapping[str, ConfigValue],
    faults: Faults,
    functions: Mapping[str, object] | None = None,
) -> ConnectionSettings:
    """What `SECURITY_KEYS` say, and `oauth_cb`. What is wrong goes to `faults`."""
    credentials = _credentials(values, faults, functions or {})
    return ConnectionSettings(_tls_files(values, faults), credentials)


def _tls_files(values: Mapping[str, ConfigValue], faults: Faults) -> TlsFiles | None:
    files = TlsFiles(*(str(values[name]) for name in (CA, CERTIFICATE, KEY)))
    if values[PROTOCOL] == "plaintext":
        for name in (CA, CERTIFICATE, KEY):
            if values[name]:
                faults.add(
                    InvalidConfigError(
                        f"{name} is set and {PROTOCOL} is plaintext: set {PROTOCOL}=ssl"
                    ),
                    name,
                )
        return None
    with faults.about(CA, CERTIFICATE, KEY):
        read_tls(files)
    return files


def _credentials(
    values: Mapping[str, ConfigValue], faults: Faults, functions: Mapping[str, object]
) -> CredentialSource | None:
    tokens = given_token_settings(values, functions)
    if values[PROTOCOL] != "sasl_ssl":
        for name in (*_SASL, *tokens):
            if name in tokens or values[name]:
                faults.add(
                    InvalidConfigError(
                        f"{name} is set and {PROTOCOL} is {values[PROTOCOL]}: set "
                        f"{PROTOCOL}=sasl_ssl"
                    ),
                    name,
                )
        return None
    mechanism = str(values[MECHANISM])
    with faults.about(*_SASL):
        if not mechanism:
            raise InvalidConfigError(
                f"{PROTOCOL} is sasl_ssl and {MECHANISM} is not set: set it to one of "
                f"{', '.join((*SCRAM_MECHANISMS, 'OAUTHBEARER'))}"
            )
        if mechanism in SCRAM_MECHANISMS:
            if tokens:
                raise InvalidConfigError(
                    f"{tokens[0]} is set and {MECHANISM} is {mechanism}: set {MECHANISM}="
                    "OAUTHBEARER, or remove it",
                    name=tokens[0],
                )
            return _password_source(mechanism, values)
        return token_source(values, functions)
    return None


def _password_source(mechanism: str, values: Mapping[str, ConfigValue]) -> PasswordSource:
    username, password, file = (str(values[name]) for name in (USERNAME, PASSWORD, PASSWORD_FILE))
    if not username:
        raise InvalidConfigError(f"{MECHANISM} is {mechanism} and {USERNAME} is not set")
    if password and file:
        raise InvalidConfigError(f"{PASSWORD} and {PASSWORD_FILE} are both set: keep one")
    from mainstem.client.passwords import PasswordSource  # most clients need no SCRAM

    find = _password(password, file)
    try:
        find()
        return PasswordSource(mechanism, username, find)
    except AuthenticationError as error:
        raise InvalidConfigError(error.message) from None


def _password(password: str, file: str) -> Callable[[], str]:
    """Finds the password, when it is needed."""

    def find() -> str:
        found = password or (
            first_line(PASSWORD_FILE, file) if file else os.environ.get(PASSWORD_VARIABLE, "")
        )
        if not found:
            where = f"{PASSWORD_FILE} {file} has an empty first line" if file else "there is none"
            raise AuthenticationError(
                f"signing in needs a password, and {where}: set {PASSWORD_FILE}, {PASSWORD} or the "
                f"environment variable {PASSWORD_VARIABLE}"
            )
        return found

    return find


class Security:
    """Opens channels. Thread-safe.

    Raises:
        InvalidConfigError: The files of the certificates cannot be used any more.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._tls = None if settings.tls is None else WatchedTls(settings.tls, _say)
        self._credentials = settings.credentials
        self._sign_ins: weakref.WeakKeyDictionary[grpc.Channel, ChannelSignIn] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def version(self) -> int:
        """Another one when the certificates have changed: channels that were opened before have
        the old ones."""
        return 0 if self._tls is None else self._tls.current()[0]

    def open(self, address: str, options: list[tuple[str, int | str]]) -> grpc.Channel:
        """A channel to host:port."""
        if self._tls is None:
            return grpc.insecure_channel(address, options=options)
        _, pems = self._tls.current()
        credentials = channel_credentials(pems)
        if self._credentials is None:
            return grpc.secure_channel(address, credentials, options=options)
        sign_in = ChannelSignIn(self._credentials)
        credentials = grpc.composite_channel_credentials(
            credentials, grpc.metadata_call_credentials(sign_in, "mainstem")
        )
        channel = grpc.secure_channel(address, credentials, options=options)
        sign_in.use(channel)
        self._sign_ins[channel] = sign_in
        return channel

    def session_over(self, channel: grpc.Channel) -> None:
        """A gateway has said so: the next call of the channel signs in again."""
        sign_in = self._sign_ins.get(channel)
        if sign_in is not None:
            sign_in.expired()


def _say(error: InvalidConfigError) -> None:
    _log.warning("%s; the certificates that were read before stay in use", error.message)
