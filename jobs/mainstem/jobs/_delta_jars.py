"""Delta's jars, and others: fetched once with Spark's own resolver (Ivy), then used from where it
keeps them.

`spark.jars.packages` would resolve, and print a report of forty lines, at every start.
"""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from mainstem.jobs._java import SparkUnavailableError

#: delta-spark 4.4.0 for Spark 4.2; the Python package of the same version is pinned in
#: pyproject.toml.
DELTA_PACKAGE: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"

#: What Delta needs beside the jars that pyspark brings. The names are those that Ivy gives.
DELTA_JARS: Final = (
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar",
    "io.delta_delta-storage-4.4.0.jar",
    "io.delta_delta-kernel-api-4.4.0.jar",
    "io.delta_delta-kernel-defaults-4.4.0.jar",
    "io.delta_delta-kernel-unitycatalog-4.4.0.jar",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar",
)

#: What the package asks for and pyspark has already: 27 jars, 74 MB, and a second Hadoop client in
#: one JVM.
DELTA_EXCLUDES: Final = (
    "com.fasterxml.jackson.core:jackson-annotations",
    "com.fasterxml.jackson.core:jackson-core",
    "com.fasterxml.jackson.core:jackson-databind",
    "com.fasterxml.jackson.datatype:jackson-datatype-jdk8",
    "com.google.code.findbugs:jsr305",
    "commons-logging:commons-logging",
    "io.unitycatalog:unitycatalog-hadoop",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.logging.log4j:log4j-api",
    "org.apache.logging.log4j:log4j-core",
    "org.apache.logging.log4j:log4j-slf4j2-impl",
    "org.apache.parquet:parquet-hadoop",
    "org.roaringbitmap:RoaringBitmap",
    "org.roaringbitmap:shims",
    "org.slf4j:slf4j-api",
)


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that Spark needs beside its own.

    Attributes:
        what: They are, for messages.
        size: What is fetched.
        packages: As Maven calls them, `group:artifact:version`.
        excludes: What those ask for and is not needed, `group:artifact`.
        jars: The names of all of them, as Ivy gives them.
    """

    what: str
    size: str
    packages: tuple[str, ...]
    excludes: tuple[str, ...]
    jars: tuple[str, ...]


DELTA: Final = JarSet(
    "Delta's jars for Spark", "13 MB", (DELTA_PACKAGE,), DELTA_EXCLUDES, DELTA_JARS
)

#: Spark 4.2's default for `spark.jars.ivy`, below the home directory.
_IVY_HOME: Final = ".ivy2.5.2"

#: Settings of Spark's resolver that the caller may have: mirrors, credentials, where the cache is.
_RESOLVER_SETTINGS: Final = ("spark.jars.ivy", "spark.jars.ivySettings", "spark.jars.repositories")

#: 13 MB; a resolver that has not ended by then waits for a network that is not there.
_FETCH_S_MAX: Final = 600.0


def delta_jars(settings: Mapping[str, str]) -> list[str]:
    """As `fetched_jars`, of Delta's."""
    return fetched_jars(settings, DELTA)


def fetched_jars(settings: Mapping[str, str], wanted: JarSet) -> list[str]:
    """The paths of jars, after fetching them when this machine does not have them yet.

    Args:
        settings: Spark settings; those of its resolver (`spark.jars.ivy` and others) are honoured.

    Raises:
        SparkUnavailableError: They are not here and cannot be fetched.
    """
    ivy = ivy_home(settings)
    jars = [ivy / "jars" / name for name in wanted.jars]
    if not all(jar.is_file() for jar in jars):
        with _lock_file(ivy, wanted) as lock:
            # Ivy copies the jars under their final names: a second process must not see half of
            # one.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not all(jar.is_file() for jar in jars):
                _fetch(settings, wanted, jars)
    return [str(jar) for jar in jars]


def ivy_home(settings: Mapping[str, str]) -> Path:
    """Where this user keeps what Spark needs beside its own."""
    return Path(settings.get("spark.jars.ivy") or Path.home() / _IVY_HOME)


def _lock_file(ivy: Path, wanted: JarSet) -> TextIO:
    try:
        ivy.mkdir(parents=True, exist_ok=True)
        return open(ivy / ".mainstem.lock", "w")
    except OSError as error:
        raise SparkUnavailableError(
            f"{wanted.what} cannot be kept in {ivy}: {error}. Let HOME, or the Spark "
            "setting spark.jars.ivy, name a directory that can be written"
        ) from error


def _fetch(settings: Mapping[str, str], wanted: JarSet, jars: list[Path]) -> None:
    print(f"mainstem: fetching {wanted.what} ({wanted.size}, once)", file=sys.stderr)
    chosen = {name: settings[name] for name in _RESOLVER_SETTINGS if name in settings}
    chosen["spark.jars.ivy"] = str(jars[0].parents[1])
    command = [str(_spark_home() / "bin" / "spark-submit"), "--master", "local[1]"]
    for name, value in chosen.items():
        command += ["--conf", f"{name}={value}"]
    # Spark resolves before it looks for the class, so a class that does nothing is enough.
    command += ["--packages", ",".join(wanted.packages)]
    command += ["--exclude-packages", ",".join(wanted.excludes)]
    command += ["--class", "java.lang.Object", "spark-internal"]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_S_MAX, check=False
        )
        output = run.stdout + run.stderr
    except subprocess.TimeoutExpired:
        output = f"no answer within {_FETCH_S_MAX:.0f} s"
    missing = [jar.name for jar in jars if not jar.is_file()]
    if missing:
        told = [line.strip() for line in output.splitlines() if _TELLING.search(line)]
        raise SparkUnavailableError(
            f"{wanted.what} are not in {jars[0].parent} and could not be fetched "
            f"({', '.join(wanted.packages)}): "
            f"{'; '.join(told[:3]) or output.strip()[-300:]}. Connect to a Maven repository, name "
            "a mirror in "
            "spark.jars.ivySettings, or put the jars there: " + ", ".join(missing)
        )


_TELLING = re.compile(
    r"unresolved dependency|not found|UNRESOLVED|ERROR|timed out|UnknownHost", re.IGNORECASE
)


def _spark_home() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())
