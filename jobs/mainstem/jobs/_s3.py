"""What Spark itself needs for tables in S3: Hadoop's file system `s3a`, in 13 MB of jars, and its
settings for a bucket.

The package `hadoop-aws` asks for a bundle of all of Amazon's services, 600 MB; S3 and what it needs
are a fiftieth of that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mainstem.delta_log.store import CloudPrefix, cloud_access
from mainstem.jobs._delta_jars import JarSet
from mainstem.jobs._java import SparkUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SDK: Final = "software.amazon.awssdk"
_SDK_VERSION: Final = "2.35.4"
#: That of the Hadoop client that pyspark 4.2.0 brings.
_HADOOP_VERSION: Final = "3.5.0"

_SDK_PACKAGES: Final = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")

#: What those need of the SDK.
_SDK_JARS: Final = (
    *_SDK_PACKAGES,
    *("annotations", "arns", "auth", "aws-core", "aws-query-protocol", "aws-xml-protocol"),
    *("checksums", "checksums-spi", "crt-core", "endpoints-spi", "http-auth", "http-auth-aws"),
    *("http-auth-aws-eventstream", "http-auth-spi", "http-client-spi", "identity-spi"),
    *("json-utils", "metrics-spi", "profiles", "protocol-core", "regions", "retries"),
    *("retries-spi", "sdk-core", "third-party-jackson-core", "utils", "utils-lite"),
)

#: What pyspark has already, in versions of its own.
_EXCLUDES: Final = (
    f"{_SDK}:bundle",
    "commons-codec:commons-codec",
    "commons-logging:commons-logging",
    "org.apache.httpcomponents:httpclient",
    "org.apache.httpcomponents:httpcore",
    "org.slf4j:slf4j-api",
    *(
        f"io.netty:netty-{name}"
        for name in (
            *("buffer", "codec", "codec-base", "codec-compression", "codec-http", "codec-http2"),
            *("common", "handler", "resolver", "transport", "transport-classes-epoll"),
            "transport-native-unix-common",
        )
    ),
)

S3_JARS: Final = JarSet(
    what="Hadoop's jars for S3",
    size="13 MB",
    packages=(
        f"org.apache.hadoop:hadoop-aws:{_HADOOP_VERSION}",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
        *(f"{_SDK}:{name}:{_SDK_VERSION}" for name in _SDK_PACKAGES),
    ),
    excludes=_EXCLUDES,
    jars=(
        f"org.apache.hadoop_hadoop-aws-{_HADOOP_VERSION}.jar",
        "org.reactivestreams_reactive-streams-1.0.4.jar",
        "org.wildfly.openssl_wildfly-openssl-2.2.5.Final.jar",
        "software.amazon.eventstream_eventstream-1.0.1.jar",
        "software.amazon.s3.analyticsaccelerator_analyticsaccelerator-s3-1.3.1.jar",
        *(f"{_SDK}_{name}-{_SDK_VERSION}.jar" for name in _SDK_JARS),
    ),
)

_FILE_SYSTEM: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_PROVIDER: Final = "org.apache.hadoop.fs.s3a.{}AWSCredentialsProvider"


def is_s3(place: object) -> bool:
    """Whether Spark needs Hadoop's `s3a` to read tables there."""
    return isinstance(place, CloudPrefix) and place.uri.startswith("s3://")


def use_bucket(spark: SparkSession, place: CloudPrefix) -> None:
    """Lets a session that runs read the tables of a warehouse in S3, with the warehouse's settings.

    They are set for its bucket alone, and in the running session: Java's command line, which
    everybody on the machine can read, has no secret. Keys that expire are those of now.

    Raises:
        SparkUnavailableError: The session was started without the jars.
        InvalidConfigError: As `open_warehouse`.
    """
    jvm: Any = spark._jvm
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(_FILE_SYSTEM):
        raise SparkUnavailableError(
            f"the Spark session that runs has no jars for {place.uri}: stop it, and start one with "
            "spark_session(reads=...), or give spark-submit --packages "
            f"{','.join(S3_JARS.packages)}"
        )
    context: Any = spark.sparkContext._jsc
    conf = context.hadoopConfiguration()
    # Of the session, too, where somebody has one of his own for `s3:`.
    if not conf.get("fs.s3.impl"):
        conf.set("fs.s3.impl", _FILE_SYSTEM)
    for name, value in s3a_settings(place).items():
        conf.set(name, value)


def s3a_settings(
    place: CloudPrefix, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Hadoop's settings for the bucket, secrets included. What they leave out, it finds as we do.

    Args:
        environment: None: the process's.
    """
    found = os.environ if environment is None else environment
    access = cloud_access(place.uri, place.settings, environment=found)
    endpoint = (
        place.settings.endpoint
        or found.get("AWS_ENDPOINT_URL_S3")
        or found.get("AWS_ENDPOINT_URL")
        or access.options.get("aws_endpoint_url", "")
    )
    region = (
        access.options.get("aws_region")
        or found.get("AWS_REGION")
        or found.get("AWS_DEFAULT_REGION")
        or ("us-east-1" if endpoint else "")
    )
    made = {"path.style.access": str(place.settings.addressing_style == "path").lower()}
    if endpoint:
        made["endpoint"] = endpoint
        made["connection.ssl.enabled"] = str(not endpoint.startswith("http://")).lower()
    if region:
        made["endpoint.region"] = region
    if place.settings.anonymous:
        made["aws.credentials.provider"] = _PROVIDER.format("Anonymous")
    elif access.keys is not None:
        keys = access.keys()
        kind = "Temporary" if keys.session_token else "Simple"
        made["aws.credentials.provider"] = _PROVIDER.format(kind)
        made["access.key"] = keys.access_key_id
        made["secret.key"] = keys.secret_access_key
        if keys.session_token:
            made["session.token"] = keys.session_token
    bucket = place.uri.removeprefix("s3://").partition("/")[0]
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in made.items()}
