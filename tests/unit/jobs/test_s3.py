"""What Spark is told of a bucket, and which jars it needs."""

from __future__ import annotations

import pytest

from mainstem.config import StoreSettings
from mainstem.delta_log.store import CloudPrefix, LocalDirectory
from mainstem.jobs._s3 import S3_JARS, is_s3, s3a_settings
from mainstem.jobs.sql_guard import _same_prefix

_PREFIX = "fs.s3a.bucket.lake."


def _settings(environment: dict[str, str], **given: str | bool) -> dict[str, str]:
    place = CloudPrefix("s3://lake/streams", StoreSettings(**given))  # type: ignore[arg-type]
    found = s3a_settings(place, {"HOME": "/nowhere", **environment})
    assert all(name.startswith(_PREFIX) for name in found)
    return {name.removeprefix(_PREFIX): value for name, value in found.items()}


def test_settings_are_for_the_bucket_alone_and_keys_come_as_they_are_kept() -> None:
    keys = {"access_key_id": "id", "secret_access_key": "s"}
    assert _settings({}, endpoint="http://127.0.0.1:7070", **keys) == {
        "path.style.access": "true",
        "endpoint": "http://127.0.0.1:7070",
        "connection.ssl.enabled": "false",
        "endpoint.region": "us-east-1",
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "access.key": "id",
        "secret.key": "s",
    }
    temporary = _settings({}, session_token="t", **keys)
    assert temporary["aws.credentials.provider"].endswith(".TemporaryAWSCredentialsProvider")
    assert temporary["session.token"] == "t"


def test_what_the_environment_has_hadoop_finds_itself_but_for_the_address() -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_ENDPOINT_URL": "https://minio:9000",
        "AWS_REGION": "eu-central-1",
    }
    assert _settings(environment, addressing_style="virtual") == {
        "path.style.access": "false",
        "endpoint": "https://minio:9000",
        "connection.ssl.enabled": "true",
        "endpoint.region": "eu-central-1",
    }
    assert _settings({}) == {"path.style.access": "true"}
    anonymous = _settings({}, anonymous=True)["aws.credentials.provider"]
    assert anonymous.endswith(".AnonymousAWSCredentialsProvider")


def test_only_s3_needs_the_jars_which_are_not_the_bundle() -> None:
    assert is_s3(CloudPrefix("s3://lake"))
    assert not is_s3(CloudPrefix("gs://lake"))
    assert not is_s3(LocalDirectory("/lake"))
    assert "software.amazon.awssdk:bundle" in S3_JARS.excludes
    assert not any("bundle" in name for name in S3_JARS.jars)
    assert len(set(S3_JARS.jars)) == len(S3_JARS.jars) == 37


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("s3a://lake/streams", True),
        ("s3n://lake/streams/topics/a", True),
        ("s3://lake", True),
        ("s3a://lake//streams", True),
        ("s3a://lake/streams2", False),
        ("s3a://other/streams", False),
    ],
)
def test_a_place_in_a_warehouse_is_known_by_whatever_name(one: str, same: bool) -> None:
    assert _same_prefix(one, "s3://lake/streams") is same
