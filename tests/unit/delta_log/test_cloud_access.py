"""Who is asking, and where: settings, environment and profiles, in the order of the AWS tools."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.s3_server import S3Server

from mainstem.config import StoreSettings
from mainstem.delta_log.store.cloud import CloudStore
from mainstem.delta_log.store.cloud_access import CloudAccess, cloud_access
from mainstem.errors import InvalidConfigError, StoreUnavailableError

SECRET = "a-secret-that-nobody-sees"

CONFIG = f"""
[default]
region = eu-north-1

[profile work]
region = eu-central-1
endpoint_url = https://all.example.org
services = mine
aws_access_key_id = from-config
aws_secret_access_key = {SECRET}

[services mine]
s3 =
  endpoint_url = https://s3.example.org
dynamodb =
  endpoint_url = https://no.example.org

[profile single]
sso_session = x

[profile process]
credential_process = {{tool}}

[profile empty]
region = us-west-2
"""

CREDENTIALS = f"""
[default]
aws_access_key_id = from-default
aws_secret_access_key = {SECRET}

[temporary]
aws_access_key_id = from-temporary
aws_secret_access_key = {SECRET}
aws_session_token = token-{SECRET}
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose profiles are these."""
    tool = tmp_path / "tool"
    tool.write_text(
        "#!/bin/sh\n"
        'echo \'{"Version": 1, "AccessKeyId": "from-process", "SecretAccessKey": "s"}\'\n'
    )
    tool.chmod(0o755)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(CONFIG.format(tool=tool))
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS)
    return {"HOME": str(tmp_path)}


def _access(environment: Mapping[str, str], **settings: Any) -> CloudAccess:
    return cloud_access("s3://bucket/p", StoreSettings(**settings), environment=environment)


def _key_id(access: CloudAccess) -> str | None:
    return None if access.keys is None else access.keys().access_key_id


def test_the_default_profile_is_used_where_nothing_else_is_said(home: dict[str, str]) -> None:
    access = _access(home)
    assert _key_id(access) == "from-default"
    assert access.options["aws_region"] == "eu-north-1"


def test_keys_in_the_environment_win_over_profiles_and_a_web_identity_too(
    home: dict[str, str],
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        assert _access({**home, name: "x"}).keys is None
        assert _access({**home, name: "x", "AWS_PROFILE": "work"}).keys is None
        assert _key_id(_access({**home, name: "x"}, profile="work")) == "from-config"


def test_settings_win_over_everything(home: dict[str, str]) -> None:
    environment = {
        **home,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_REGION": "us-east-2",
        "AWS_ENDPOINT_URL": "https://other.example.org",
    }
    access = _access(
        environment,
        access_key_id="mine",
        secret_access_key="s",
        session_token="t",
        endpoint="http://127.0.0.1:1/",
        region="eu-west-1",
    )
    assert _key_id(access) == "mine"
    assert access.options["aws_region"] == "eu-west-1"
    assert access.options["aws_endpoint_url"] == "http://127.0.0.1:1"
    assert access.allow_http
    options = access.storage_options()
    assert options["AWS_ACCESS_KEY_ID"] == "mine"
    assert options["AWS_SESSION_TOKEN"] == "t"
    assert options["AWS_ALLOW_HTTP"] == "true"


def test_two_services_that_are_named_are_one_too_many(home: dict[str, str]) -> None:
    variable = {**home, "AWS_ENDPOINT_URL_S3": "https://other.example.org"}
    with pytest.raises(InvalidConfigError, match="unset one of them"):
        _access(variable, endpoint="https://s3.example.org")
    same = {**home, "AWS_ENDPOINT_URL_S3": "https://s3.example.org/"}
    assert _access(same, endpoint="https://s3.example.org").options


def test_a_profile_has_its_region_and_the_endpoint_of_its_own_for_s3(home: dict[str, str]) -> None:
    access = _access({**home, "AWS_PROFILE": "work"})
    assert access.options["aws_endpoint_url"] == "https://s3.example.org"
    assert access.options["aws_region"] == "eu-central-1"
    assert not access.allow_http
    named = {**home, "AWS_PROFILE": "work", "AWS_ENDPOINT_URL": "http://h", "AWS_REGION": "r"}
    assert not {"aws_endpoint_url", "aws_region"} & set(_access(named).options)
    temporary = _access(home, profile="temporary")
    assert temporary.keys is not None
    assert temporary.keys().session_token == f"token-{SECRET}"


def test_the_bucket_stands_in_the_address_where_it_is_to(home: dict[str, str]) -> None:
    access = _access(home, endpoint="https://s3.example.org", addressing_style="virtual")
    assert access.options["aws_endpoint_url"] == "https://bucket.s3.example.org"
    assert access.options["aws_virtual_hosted_style_request"] == "true"


def test_a_request_without_a_signature_needs_no_keys(home: dict[str, str]) -> None:
    access = _access(home, anonymous=True)
    assert access.keys is None
    assert access.options["aws_skip_signature"] == "true"


@pytest.mark.parametrize(
    ("profile", "words"), [("none", "no profile 'none'"), ("empty", "has no access keys")]
)
def test_a_profile_that_gives_no_keys_is_told(
    home: dict[str, str], profile: str, words: str
) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        _access(home, profile=profile)


def test_a_profile_whose_keys_a_process_gives_is_read_through_botocore(
    home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", home["HOME"])
    assert _key_id(_access(home, profile="process")) == "from-process"
    Path(home["HOME"], "tool").write_text(f"#!/bin/sh\necho {SECRET}\nexit 1\n")
    with pytest.raises(InvalidConfigError, match="gives no keys by credential_process") as told:
        _access(home, profile="process")
    assert SECRET not in str(told.value)
    with pytest.raises(InvalidConfigError, match="sso"):
        _access(home, profile="single")


def test_without_botocore_such_a_profile_says_what_to_install(
    home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("botocore"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidConfigError, match="pip install boto3"):
        _access(home, profile="single")


@pytest.mark.parametrize("text", [f"{SECRET}", f"[default\n{SECRET}", f"{SECRET} = {SECRET}\n[a]"])
def test_a_broken_file_is_told_without_what_is_in_it_and_only_to_who_needs_it(
    home: dict[str, str], text: str
) -> None:
    Path(home["HOME"], ".aws", "credentials").write_text(text)
    with pytest.raises(InvalidConfigError, match="is not a file of AWS profiles: line 1") as told:
        _access(home)
    assert SECRET not in str(told.value)
    assert told.value.__suppress_context__
    assert _access({**home, "AWS_ACCESS_KEY_ID": "x"}).keys is None


def test_settings_for_s3_are_refused_for_other_services() -> None:
    for settings in (
        StoreSettings(profile="p"),
        StoreSettings(endpoint="https://x"),
        StoreSettings(access_key_id="a", secret_access_key=SECRET),
    ):
        with pytest.raises(InvalidConfigError, match="is for s3://") as told:
            cloud_access("gs://bucket/p", settings)
        assert SECRET not in str(told.value)
    assert cloud_access("gs://b/p", StoreSettings(), environment={}).keys is None


def test_a_store_uses_settings_and_profiles_and_shows_no_secret(
    s3_server: S3Server, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in s3_server.options:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", home["HOME"])
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    uri = f"s3://{s3_server.make_bucket()}/lake"
    keys: dict[str, Any] = {"access_key_id": "k", "secret_access_key": SECRET}
    hows: list[dict[str, Any]] = [keys, {"profile": "temporary"}, {}]
    for how in hows:
        store = CloudStore(uri, settings=StoreSettings(endpoint=s3_server.url, **how))
        store.put("a", b"x")
        assert store.read("a") == b"x"
        assert store.storage_options["AWS_SECRET_ACCESS_KEY"] == SECRET
        assert SECRET not in repr(store) + repr(vars(store))
        store.close()
    dead = StoreSettings(endpoint="http://127.0.0.1:9", connect_timeout_ms=100, **keys)
    store = CloudStore(uri, settings=dead)
    with pytest.raises(StoreUnavailableError) as told:
        CloudStore("s3://b/p", settings=dead).self_check()
    assert SECRET not in str(told.value)
    store.close()
