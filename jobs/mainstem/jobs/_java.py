"""What Spark needs of the machine, looked at before it does, so that a missing or old Java is one
sentence and not a stack trace.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

from mainstem.errors import ConfigError

#: Spark 4.2 refuses anything older.
JAVA_MAJOR_MIN: Final = 17

_HOW = (
    "install it (Debian and Ubuntu: apt-get install openjdk-17-jre-headless, macOS: brew install "
    "openjdk@17) "
    "and put it in PATH or JAVA_HOME"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

#: A JVM answers in a tenth of a second; one that does not in a minute hangs.
_ANSWER_S_MAX: Final = 60.0


class SparkUnavailableError(ConfigError):
    """Spark cannot start here: Java is missing or too old, or Delta's jars are. The message says
    what to install.
    """


def java_command(environment: Mapping[str, str] = os.environ) -> str:
    """The `java` that Spark will start: JAVA_HOME's, else the one in PATH.

    Raises:
        SparkUnavailableError: There is none, or it is older than Java 17.
    """
    home = environment.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    found = shutil.which(java, path=environment.get("PATH", os.defpath))
    if found is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is none in PATH"
        raise SparkUnavailableError(
            f"Spark needs Java {JAVA_MAJOR_MIN} or newer, and {where}: {_HOW}"
        )
    major = _major(found)
    if major is None or major < JAVA_MAJOR_MIN:
        what = "cannot say its version" if major is None else f"is Java {major}"
        raise SparkUnavailableError(
            f"Spark needs Java {JAVA_MAJOR_MIN} or newer, and {found} {what}: {_HOW}"
        )
    return found


def check_user(uid: int | None = None) -> None:
    """Refuses a user whom Hadoop, and so Spark, cannot log in, before it fails in Java's words.

    Args:
        uid: Default: this process's.

    Raises:
        SparkUnavailableError: The user has no name: there is no entry in `/etc/passwd` or wherever
            this machine keeps users.
    """
    uid = os.getuid() if uid is None else uid
    try:
        pwd.getpwuid(uid)
    except KeyError:
        raise SparkUnavailableError(
            f"Spark cannot run as user {uid}, which has no name on this machine: neither HOME nor "
            "HADOOP_USER_NAME helps. Add a line to /etc/passwd (in a Dockerfile: RUN echo "
            f"'mainstem:x:{uid}:0::/tmp:/sbin/nologin' >> /etc/passwd), or run as a user that it "
            "has"
        ) from None


def _major(java: str) -> int | None:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match[1]) if match else None
