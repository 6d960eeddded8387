"""Gateways and maintenance whose clocks are minutes apart, and jump."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

#: In each process before anything else: the time of day is up to twenty minutes off, by another
#: amount every half second. What the file system stamps, and what passes, stays as it is.
_HOOK = """
import os
import random
import sys
import time

if "gateway" in sys.orig_argv or any("maintenance_process" in one for one in sys.orig_argv):
    _steps = [random.Random(os.getpid() * 1000 + n).uniform(-1200, 1200) for n in range(1000)]
    _time, _time_ns = time.time, time.time_ns

    def _off_s():
        return _steps[int(time.monotonic() / 0.5) % len(_steps)]

    time.time = lambda: _time() + _off_s()
    time.time_ns = lambda: _time_ns() + int(_off_s() * 1e9)
"""


def give_wrong_clocks(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every gateway and maintenance process that starts from now on has a clock of its own."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(_HOOK)
    path = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


def commit_time_range_s(warehouse: Path, topic: str) -> float:
    """How far the times that commits say are apart, beyond what their files' times are."""
    apart: list[float] = []
    for file in (warehouse / "topics" / topic / "_delta_log").glob("*.json"):
        said_ms = json.loads(file.read_text().partition("\n")[0])["commitInfo"]["timestamp"]
        apart.append(said_ms / 1000 - file.stat().st_mtime)
    return max(apart) - min(apart)
