"""The settings of an object storage service: `store.*`. Without them, what its own tools use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Self

from mainstem.config._keys import ConfigKey, ConfigValue, keys_by_name, parse_value
from mainstem.errors import InvalidConfigError

_KEY_ID: Final = "store.access.key.id"
_SECRET: Final = "store.secret.access.key"
_TOKEN: Final = "store.session.token"
_PROFILE: Final = "store.profile"
_ANONYMOUS: Final = "store.anonymous"

_ENDPOINT: Final = re.compile(r"https?://[^\s/?#@]+/?")

STORE_KEYS: Final[dict[str, ConfigKey]] = keys_by_name(
    (
        ConfigKey(
            "store.endpoint",
            "str",
            "",
            "Address of the service that has the warehouse, as https://host:port; http:// is taken "
            "as meant. Empty: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile's endpoint_url, "
            "else the provider's own.",
        ),
        ConfigKey(
            "store.region",
            "str",
            "",
            "Region of the bucket. Empty: AWS_REGION, AWS_DEFAULT_REGION or the profile's region.",
            pattern=r"[A-Za-z0-9-]*",
        ),
        ConfigKey(
            "store.addressing.style",
            "enum",
            "path",
            "Where the bucket is in an address: path, https://host/bucket; or virtual, "
            "https://bucket.host.",
            choices=("path", "virtual"),
        ),
        ConfigKey(
            _KEY_ID,
            "str",
            "",
            "Access key for s3://. Empty: AWS_ACCESS_KEY_ID, a web identity, a profile in ~/.aws, "
            "or the role of the machine, in this order. Shown nowhere.",
            secret=True,
        ),
        ConfigKey(
            _SECRET,
            "str",
            "",
            "What belongs to store.access.key.id. In a file that nobody else can read, or as "
            "MAINSTEM_STORE_SECRET_ACCESS_KEY: a command line can be seen. Shown nowhere.",
            secret=True,
        ),
        ConfigKey(
            _TOKEN,
            "str",
            "",
            "Session token of temporary keys. Shown nowhere.",
            secret=True,
        ),
        ConfigKey(
            _PROFILE,
            "str",
            "",
            "Profile in ~/.aws/config and ~/.aws/credentials, for s3://. Empty: AWS_PROFILE, or "
            "default. One that has no keys of its own (sso, role_arn, credential_process) needs "
            "the package botocore.",
        ),
        ConfigKey(
            _ANONYMOUS,
            "bool",
            False,
            "Send requests without a signature, to read a public bucket.",
        ),
        ConfigKey(
            "store.request.timeout.ms",
            "int",
            30_000,
            "How long one request to the service may take; then it is repeated, or its outcome "
            "looked up.",
            unit="ms",
            minimum=1_000,
            maximum=600_000,
        ),
        ConfigKey(
            "store.connect.timeout.ms",
            "int",
            5_000,
            "How long a connection to the service may take.",
            unit="ms",
            minimum=100,
            maximum=60_000,
        ),
    )
)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How an object storage service is reached. What is empty is found as its own tools find it.

    Printing it shows no secret. It can be pickled, with its secrets: for tasks of a cluster.

    Attributes:
        endpoint, region, addressing_style, access_key_id, secret_access_key, session_token,
            profile, anonymous, request_timeout_ms, connect_timeout_ms: As the settings `store.*`
            of these names.
    """

    endpoint: str = ""
    region: str = ""
    addressing_style: str = "path"
    access_key_id: str = field(default="", repr=False)
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    profile: str = ""
    anonymous: bool = False
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 5_000

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Self:
        """Reads the settings `store.*`; those that are not given have their defaults.

        Raises:
            InvalidConfigError: One is malformed, or they contradict each other.
        """
        values = {
            key.name: parse_value(key, given.get(key.name, key.default))
            for key in STORE_KEYS.values()
        }
        settings = cls(**{_attribute(name): value for name, value in values.items()})  # type: ignore[arg-type]
        settings._check()
        return settings

    def given(self) -> dict[str, ConfigValue]:
        """The settings that are not as by default, by name, secrets included."""
        values = {name: getattr(self, _attribute(name)) for name in STORE_KEYS}
        return {name: value for name, value in values.items() if value != STORE_KEYS[name].default}

    @property
    def named_credentials(self) -> tuple[str, ...]:
        """The settings that say who is asking, as far as they are given."""
        names = (_KEY_ID, _SECRET, _TOKEN, _PROFILE, _ANONYMOUS)
        return tuple(name for name in names if getattr(self, _attribute(name)))

    def _check(self) -> None:
        if self.endpoint and not _ENDPOINT.fullmatch(self.endpoint):
            # A user and a password can stand before an @.
            shown = "" if "@" in self.endpoint else f" is {self.endpoint!r}; it"
            raise InvalidConfigError(
                f"store.endpoint{shown} must be an address as https://host:port, without a path",
                name="store.endpoint",
            )
        if bool(self.access_key_id) != bool(self.secret_access_key):
            lacking = _SECRET if self.access_key_id else _KEY_ID
            raise InvalidConfigError(
                f"{lacking} is missing: {_KEY_ID} and {_SECRET} go together", name=lacking
            )
        if self.session_token and not self.access_key_id:
            raise InvalidConfigError(f"{_TOKEN} needs the {_KEY_ID} that it is of", name=_TOKEN)
        ways = [name for name in self.named_credentials if name not in (_SECRET, _TOKEN)]
        if len(ways) > 1:
            raise InvalidConfigError(
                f"{' and '.join(ways)} are both set; one of them says who is asking", name=ways[1]
            )


def _attribute(name: str) -> str:
    return name.removeprefix("store.").replace(".", "_")


assert {_attribute(name) for name in STORE_KEYS} == {one.name for one in fields(StoreSettings)}
