"""The demo, as a newcomer runs it: in a process of its own, whole, and interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("quick_java")]

DEMO = [sys.executable, "-m", "mainstem.cli", "--format", "json", "demo"]


@pytest.mark.timeout(400)
def test_the_demo_sends_every_flight_through_and_keeps_strangers_out(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--secure"], cwd=tmp_path, capture_output=True, text=True, timeout=360
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["records"] == 336_776 + 26_115
    assert len(report["checks"]) == 10
    assert all(report["checks"].values())
    assert report["table_commits"] > 0
    assert (tmp_path / "mainstem-demo" / "topics" / "flights" / "_delta_log").is_dir()


@pytest.mark.timeout(180)
def test_ctrl_c_in_the_demo_removes_its_tables_and_leaves_no_process(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        DEMO, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        _wait_until((tmp_path / "mainstem-demo" / "topics" / "flights").is_dir)
        os.killpg(demo.pid, signal.SIGINT)
        output, _ = demo.communicate(timeout=90)
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
            demo.wait()

    assert demo.returncode == 130, output.decode()
    assert b"Traceback" not in output
    assert not (tmp_path / "mainstem-demo").exists()
    _wait_until(lambda: not _processes_in(tmp_path))


def test_the_demo_refuses_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "thesis.txt").write_text("four years")

    done = subprocess.run(
        [*DEMO, "--warehouse", str(folder)], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 1
    assert "not from a demo" in done.stderr
    assert (folder / "thesis.txt").read_text() == "four years"


def _wait_until(holds: object, timeout_s: float = 90.0) -> None:
    assert callable(holds)
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)


def _processes_in(folder: Path) -> list[str]:
    """The command lines of the processes that run in `folder` or name it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            where = os.readlink(process / "cwd")
        except OSError:
            continue
        here = str(folder) in command or where.startswith(str(folder))
        if here and int(process.name) != os.getpid():
            found.append(command)
    return found
