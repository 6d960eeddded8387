"""A Spark session whose JVM dies, in a process of its own: the shared session stays as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import os, signal, sys
from mainstem.jobs.session import end_session, session_is_alive, spark_session

assert not session_is_alive()
first = spark_session("one", master="local[1]")
jvm = first.sparkContext._gateway.proc
assert session_is_alive()
assert first.range(3).count() == 3
os.kill(jvm.pid, signal.SIGKILL)
jvm.wait()
assert not session_is_alive()
end_session()
assert not session_is_alive()
second = spark_session("two", master="local[1]")
assert session_is_alive()
assert second.range(4).count() == 4
second.stop()
assert not session_is_alive(), "the JVM is there, the context is not"
end_session()
end_session()
print("both counted")
"""


@pytest.mark.spark
def test_after_the_jvm_was_killed_a_new_session_starts_in_the_same_process(
    repo_root: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "both counted\n"
