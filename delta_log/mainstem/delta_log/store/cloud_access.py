"""How a service is reached and who is asking: from settings, the environment and profiles, in the
order in which the AWS tools look.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from mainstem.config import StoreSettings
from mainstem.delta_log.store.aws_profile import AwsProfile, read_profile
from mainstem.errors import InvalidConfigError

#: Any of these in the environment says who is asking; profiles are then not looked at, but for
#: region and endpoint.
_KEYS_IN_ENVIRONMENT: Final = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")

_ENDPOINT_OF_S3: Final = "AWS_ENDPOINT_URL_S3"
_ENDPOINTS_IN_ENVIRONMENT: Final = (_ENDPOINT_OF_S3, "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_OTHER_ENDPOINTS: Final = ("AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL")
_REGIONS_IN_ENVIRONMENT: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")

#: Keys that a process or a role gives are asked for again so long before they expire.
_KEYS_KEPT: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class CloudKeys:
    """Access keys, which may expire."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class CloudAccess:
    """What clients of a service are given. What is not here they find themselves.

    Attributes:
        options: By the environment's names in lower case. Without secrets, unless `CloudStore` was
            given some by these names.
        keys: Gives the keys to use now; None: the client finds them.
        allow_http: The address begins with http://.
    """

    options: Mapping[str, str] = field(repr=False)
    keys: Callable[[], CloudKeys] | None
    request_timeout: timedelta
    connect_timeout: timedelta
    allow_http: bool

    @property
    def obstore_config(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name != "aws_allow_http"}

    def credential_provider(self) -> Callable[[], dict[str, Any]] | None:
        """As obstore asks for keys."""
        keys = self.keys
        if keys is None:
            return None

        def provide() -> dict[str, Any]:
            now = keys()
            return {
                "access_key_id": now.access_key_id,
                "secret_access_key": now.secret_access_key,
                "token": now.session_token or None,
                "expires_at": datetime.now(UTC) + _KEYS_KEPT,
            }

        return provide

    def storage_options(self) -> dict[str, str]:
        """For delta-rs, with the keys of now."""
        found = {name.upper(): value for name, value in self.options.items()}
        if self.keys is not None:
            now = self.keys()
            found["AWS_ACCESS_KEY_ID"] = now.access_key_id
            found["AWS_SECRET_ACCESS_KEY"] = now.secret_access_key
            if now.session_token:
                found["AWS_SESSION_TOKEN"] = now.session_token
        if self.allow_http and found:
            found.setdefault("AWS_ALLOW_HTTP", "true")
        return found


def cloud_access(
    url: str,
    settings: StoreSettings,
    options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> CloudAccess:
    """How the place at `url` is reached.

    Args:
        options: Win over everything, by the environment's names in lower case.
        environment: None: the process's.

    Raises:
        InvalidConfigError: A profile is missing or cannot be used, or the settings are for another
            kind of service.
    """
    given = dict(options or {})
    found = os.environ if environment is None else environment
    keys: Callable[[], CloudKeys] | None = None
    if url.startswith("s3://"):
        # Also of s3a://, which is parsed to it.
        bucket = url.removeprefix("s3://").partition("/")[0]
        made, keys = _s3(bucket, settings, found, "aws_access_key_id" in given)
        given = {**made, **given}
    elif settings.endpoint or settings.region or settings.named_credentials:
        names = [
            *(("store.endpoint",) if settings.endpoint else ()),
            *(("store.region",) if settings.region else ()),
            *settings.named_credentials,
        ]
        raise InvalidConfigError(
            f"{names[0]} is for s3://; {url.partition(':')[0]}:// takes credentials and address "
            "from the environment (GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME, "
            "...)",
            name=names[0],
        )
    return CloudAccess(
        given,
        keys,
        timedelta(milliseconds=settings.request_timeout_ms),
        timedelta(milliseconds=settings.connect_timeout_ms),
        any(value.startswith("http://") for value in _endpoints(given, found)),
    )


def _s3(
    bucket: str, settings: StoreSettings, environment: Mapping[str, str], has_keys: bool
) -> tuple[dict[str, str], Callable[[], CloudKeys] | None]:
    profile = (
        read_profile(settings.profile, environment)
        if _uses_profile(settings, environment, has_keys)
        else AwsProfile("")
    )
    made: dict[str, str] = {}
    endpoint = settings.endpoint.rstrip("/")
    if not endpoint and not any(map(environment.get, _ENDPOINTS_IN_ENVIRONMENT)):
        endpoint = profile.endpoint.rstrip("/")
    for_s3 = environment.get(_ENDPOINT_OF_S3, "").rstrip("/")
    if settings.endpoint and for_s3 not in ("", endpoint):
        # obstore takes the variable whatever it is given.
        raise InvalidConfigError(
            f"store.endpoint is {endpoint!r}, and {_ENDPOINT_OF_S3} in the environment is another: "
            "unset one of them",
            name="store.endpoint",
        )
    if endpoint:
        if settings.addressing_style == "virtual":
            scheme, _, host = endpoint.partition("://")
            endpoint = f"{scheme}://{bucket}.{host}"
        made["aws_endpoint_url"] = endpoint
    region = settings.region
    if not region and not any(map(environment.get, _REGIONS_IN_ENVIRONMENT)):
        region = profile.region
    if region:
        made["aws_region"] = region
    if settings.addressing_style == "virtual":
        made["aws_virtual_hosted_style_request"] = "true"
    if settings.anonymous:
        made["aws_skip_signature"] = "true"
        return made, None
    if settings.access_key_id:
        return made, _fixed(
            settings.access_key_id, settings.secret_access_key, settings.session_token
        )
    if has_keys or (not settings.profile and any(map(environment.get, _KEYS_IN_ENVIRONMENT))):
        return made, None
    if profile.access_key_id and profile.secret_access_key:
        return made, _fixed(profile.access_key_id, profile.secret_access_key, profile.session_token)
    if profile.elsewhere:
        return made, _from_botocore(profile)
    if settings.profile:
        raise InvalidConfigError(
            f"the profile {profile.name!r} has no access keys", name="store.profile"
        )
    return made, None


def _uses_profile(settings: StoreSettings, environment: Mapping[str, str], has_keys: bool) -> bool:
    """Whether anything could come from a profile: a broken file that nobody needs stops nothing."""
    if settings.profile or environment.get("AWS_PROFILE"):
        return True
    known = has_keys or settings.access_key_id or settings.anonymous
    return not known and not any(map(environment.get, _KEYS_IN_ENVIRONMENT))


def _fixed(access_key_id: str, secret: str, token: str) -> Callable[[], CloudKeys]:
    keys = CloudKeys(access_key_id, secret, token)
    return lambda: keys


def _from_botocore(profile: AwsProfile) -> Callable[[], CloudKeys]:
    """Keys that a single sign-on, a role or a process gives, and renews."""
    try:
        import botocore.session
    except ImportError:
        raise InvalidConfigError(
            f"the profile {profile.name!r} gets its keys by {profile.elsewhere}, for which the "
            "package botocore is needed: pip install boto3",
            name="store.profile",
        ) from None
    session = botocore.session.Session(profile=profile.name)
    try:
        credentials = session.get_credentials()
    except Exception as error:
        raise _no_keys(profile, error) from None
    if credentials is None:
        raise InvalidConfigError(
            f"the profile {profile.name!r} gives no keys by {profile.elsewhere}",
            name="store.profile",
        )

    def now() -> CloudKeys:
        try:
            frozen = credentials.get_frozen_credentials()
        except Exception as error:
            raise _no_keys(profile, error) from None
        return CloudKeys(frozen.access_key, frozen.secret_key, frozen.token or "")

    now()
    return now


def _no_keys(profile: AwsProfile, error: Exception) -> InvalidConfigError:
    # Its text can have what a process printed.
    return InvalidConfigError(
        f"the profile {profile.name!r} gives no keys by {profile.elsewhere}: "
        f"{type(error).__name__}; try `aws sts get-caller-identity --profile {profile.name}`",
        name="store.profile",
    )


def _endpoints(options: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[str]:
    """The addresses that somebody has named: http is what was meant where it is said."""
    for name in (*_ENDPOINTS_IN_ENVIRONMENT, *_OTHER_ENDPOINTS):
        yield options.get(name.lower()) or environment.get(name, "")
