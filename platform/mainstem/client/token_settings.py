"""The settings of a client that signs in with tokens: `sasl.mechanism=OAUTHBEARER`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mainstem.client.bearer_tokens import CALLBACK, BearerTokens, tokens_of_callback
from mainstem.client.secret_files import first_line
from mainstem.config import ConfigKey, ConfigValue
from mainstem.errors import AuthenticationError, InvalidConfigError

if TYPE_CHECKING:
    from mainstem.client.token_endpoint import TokenEndpoint

METHOD: Final = "sasl.oauthbearer.method"
CONFIG: Final = "sasl.oauthbearer.config"
ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.id"
SECRET: Final = "sasl.oauthbearer.client.secret"
SECRET_FILE: Final = "sasl.oauthbearer.client.secret.location"
SCOPE: Final = "sasl.oauthbearer.scope"
AUTHORITIES: Final = "https.ca.location"

TOKEN_KEYS: Final = (
    ConfigKey(
        METHOD,
        "enum",
        "default",
        "Where tokens are from, with sasl.mechanism=OAUTHBEARER. default: from the function "
        "oauth_cb. oidc: from sasl.oauthbearer.token.endpoint.url, which the client asks with an "
        "id and a secret of its own (the OAuth grant of client credentials). Kafka: the same, of "
        "librdkafka.",
        choices=("default", "oidc"),
    ),
    ConfigKey(CONFIG, "str", "", "What oauth_cb is called with. Kafka: the same, of librdkafka."),
    ConfigKey(
        ENDPOINT,
        "str",
        "",
        "Where the provider gives tokens, an https address. Kafka: the same.",
    ),
    ConfigKey(
        CLIENT_ID,
        "str",
        "",
        "The id that the client has at the provider. Kafka: the same, of librdkafka.",
    ),
    ConfigKey(
        SECRET,
        "str",
        "",
        "The secret of that id; it is shown nowhere, and sent to the token endpoint alone. Kafka: "
        "the same, of librdkafka.",
        secret=True,
    ),
    ConfigKey(
        SECRET_FILE,
        "str",
        "",
        "File whose first line is the secret, in the place of sasl.oauthbearer.client.secret; "
        "read again for each token. Kafka: a ConfigProvider.",
    ),
    ConfigKey(
        SCOPE,
        "str",
        "",
        "What the token is to be good for, with spaces between; empty: what the provider gives. "
        "Kafka: the same.",
    ),
    ConfigKey(
        AUTHORITIES,
        "str",
        "",
        "PEM file, or directory of them, of the authorities that the token endpoint's certificate "
        "may be from; empty: those that the operating system trusts. Kafka: the same, of "
        "librdkafka.",
    ),
)

#: What only the token endpoint has a use for.
_OIDC_ONLY: Final = (ENDPOINT, CLIENT_ID, SECRET, SECRET_FILE, SCOPE, AUTHORITIES)


def given_token_settings(
    values: Mapping[str, ConfigValue], functions: Mapping[str, object]
) -> list[str]:
    """Those that were given, by name: they are of no use with another mechanism."""
    found = [key.name for key in TOKEN_KEYS if values[key.name] != key.default]
    return [*found, *(name for name in functions if name == CALLBACK)]


def token_source(
    values: Mapping[str, ConfigValue], functions: Mapping[str, object]
) -> BearerTokens:
    """What the settings say.

    Args:
        functions: With `oauth_cb`, or without.

    Raises:
        InvalidConfigError: One is missing or cannot be used, or two contradict each other; its
            `name` says which.
    """
    callback = functions.get(CALLBACK)
    if values[METHOD] == "oidc":
        if callback is not None:
            raise _wrong(CALLBACK, f"{CALLBACK} is given and {METHOD} is oidc: keep one")
        return BearerTokens(_endpoint(values), f"the token endpoint {values[ENDPOINT]}")
    for name in _OIDC_ONLY:
        if values[name]:
            raise _wrong(name, f"{name} is set and {METHOD} is default: set {METHOD}=oidc")
    if callback is None:
        raise _wrong(
            CALLBACK,
            f"sasl.mechanism is OAUTHBEARER, and nothing says where tokens are from: give "
            f"{CALLBACK}, a function that returns (token, its end in seconds since 1970), or set "
            f"{METHOD}=oidc with {ENDPOINT}, {CLIENT_ID} and {SECRET}",
        )
    return BearerTokens(tokens_of_callback(_plain(callback), str(values[CONFIG])))


def _endpoint(values: Mapping[str, ConfigValue]) -> TokenEndpoint:
    # Most clients never speak HTTP.
    from mainstem.client.token_endpoint import TokenEndpoint
    from mainstem.web import check_address, check_authorities

    address, client_id, secret, file = (
        str(values[name]) for name in (ENDPOINT, CLIENT_ID, SECRET, SECRET_FILE)
    )
    for name, value in ((ENDPOINT, address), (CLIENT_ID, client_id), (SECRET, secret or file)):
        if not value:
            raise _wrong(name, f"{METHOD} is oidc and {name} is not set")
    if secret and file:
        raise _wrong(SECRET, f"{SECRET} and {SECRET_FILE} are both set: keep one")
    if ":" in client_id:
        raise _wrong(CLIENT_ID, f"{CLIENT_ID} is {client_id!r}; it must have no colon")
    try:
        check_address(address)
    except ValueError as error:
        raise _wrong(ENDPOINT, f"{ENDPOINT} is {address!r}: {error}") from None
    authorities = str(values[AUTHORITIES])
    try:
        check_authorities(authorities)
    except ValueError as error:
        raise _wrong(AUTHORITIES, f"{AUTHORITIES}: {error}") from None
    find = _secret(secret, file)
    try:
        find()
    except AuthenticationError as error:
        raise _wrong(SECRET_FILE, error.message) from None
    return TokenEndpoint(address, client_id, find, str(values[SCOPE]), authorities)


def _secret(secret: str, file: str) -> Callable[[], str]:
    def find() -> str:
        found = secret or first_line(SECRET_FILE, file)
        if not found:
            raise AuthenticationError(f"{SECRET_FILE} {file} has an empty first line")
        return found

    return find


def _plain(callback: Any) -> Callable[[str], object]:
    call = getattr(callback, "__call__", None)  # noqa: B004
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(call):
        raise _wrong(
            CALLBACK,
            f"{CALLBACK} is a coroutine function, which nobody would await: give a plain function",
        )
    found: Callable[[str], object] = callback
    return found


def _wrong(name: str, why: str) -> InvalidConfigError:
    return InvalidConfigError(why, name=name)
