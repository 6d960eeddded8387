from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.kafka.processes import peak_bytes, tree_cpu_s, tree_peak_bytes

_BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"


def test_the_processor_time_of_a_tree_includes_children_that_run_and_that_have_ended() -> None:
    before = tree_cpu_s(os.getpid())
    running = subprocess.Popen(
        [sys.executable, "-c", _BUSY + "print(flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with running:
        assert running.stdout is not None
        running.stdout.readline()
        while_it_runs = tree_cpu_s(os.getpid())
        assert while_it_runs - before >= 0.25
        assert tree_peak_bytes(os.getpid()) >= peak_bytes(os.getpid()) + peak_bytes(running.pid)
        running.communicate(b"\n", timeout=10)
    assert tree_cpu_s(os.getpid()) >= while_it_runs


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_measurement_that_is_ended_stops_what_it_started_and_prints_no_traceback(
    number: signal.Signals,
) -> None:
    code = (
        "import signal, time\n"
        "from benchmarks.kafka.arguments import end_when_told\n"
        # Ignored where the tests themselves run in the background, or under nohup.
        f"signal.signal({number.value}, signal.SIG_DFL)\n"
        "end_when_told()\n"
        "try:\n"
        "    print('runs', flush=True)\n"
        "    time.sleep(60)\n"
        "finally:\n"
        "    print('stopped', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.send_signal(number)
        said, errors = process.communicate(timeout=30)
    assert (said, errors, process.returncode) == ("stopped\n", "", 128 + number)
