from __future__ import annotations

import os
import subprocess
import sys

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
