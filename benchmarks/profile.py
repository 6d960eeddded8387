"""Where does the time go? Flame graphs of the gateway and of the client, under the usual loads.

Each load runs in a worker of benchmarks/kafka against a gateway of its own; py-spy samples both
processes while it is measured, not before. Then it runs again, and pyinstrument samples the thread
of the client that produces or consumes: its calls in their order, which a flame graph has not.
Writes two SVGs and an HTML page a load, which any browser shows, and prints the functions with the
most time of their own.

Usage: python -m benchmarks.profile [--loads produce,batch,consume,latency] [--scale 1.0]
           [--directory .cache/profile] [--native]
Reading another process needs root, CAP_SYS_PTRACE, or `sysctl kernel.yama.ptrace_scope=0`.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from benchmarks.kafka.arguments import end_when_told, scale
from benchmarks.kafka.client import Task
from benchmarks.kafka.client_rows import run_worker
from benchmarks.kafka.row import MAINSTEM
from benchmarks.kafka.systems import PARTITIONS, Systems
from benchmarks.kafka.worker import BEGINS

_CHECKOUT: Final = Path(__file__).resolve().parents[1]
_PLACE: Final = _CHECKOUT / ".cache" / "profile"

_SAMPLES_A_SECOND: Final = 200
_TOP: Final = 15
_DEADLINE_S: Final = 600.0

#: Beginnings of functions in which threads wait for work in C: py-spy takes some of them for busy.
_WAITING: Final = (
    "thread (",
    "Thread.run (threading.py",
    "Condition.wait (threading.py",
    "_worker (concurrent/futures/thread.py",
    "_run_channel_spin_thread.",
)

_SVG: Final = "{http://www.w3.org/2000/svg}"
_FRAME: Final = "{http://github.com/jonhoo/inferno}"
_COUNT: Final = re.compile(r" \([\d,]+ samples?, [\d.]+%\)$")


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker does while it is sampled.

    Attributes:
        row: The worker's name for it.
        count: Records that are measured.
        warm_up: Records before.
        filled: The topic has its records before.
    """

    row: str
    count: int
    warm_up: int
    filled: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)


#: By name, as on the command line.
LOADS: Final = {
    "produce": Load("produce", 4_000_000, 300_000),
    "batch": Load("produce_batches", 8_000_000, 400_000),
    "consume": Load("consume", 4_000_000, 200_000, filled=True),
    "consume-batch": Load("consume_batches", 8_000_000, 200_000, filled=True),
    "latency": Load("latency", 4_000, 400, config={"linger.ms": 0}),
}

#: A reader by batch takes a batch more than it is asked for, at each end.
_SPARE: Final = 100_000


def own_times(flame_graph: str) -> tuple[Counter[str], int]:
    """The samples in which each function was the innermost, and all samples.

    Args:
        flame_graph: An SVG of py-spy: a box for each function below its caller's, as wide as it has
            samples.
    """
    rows: dict[float, list[tuple[int, int, str]]] = {}
    for group in ElementTree.fromstring(flame_graph).iter(f"{_SVG}g"):
        box, title = group.find(f"{_SVG}rect"), group.find(f"{_SVG}title")
        if box is None or title is None or f"{_FRAME}w" not in box.attrib:
            continue
        start, width = int(box.attrib[f"{_FRAME}x"]), int(box.attrib[f"{_FRAME}w"])
        name = _COUNT.sub("", title.text or "")
        rows.setdefault(float(box.attrib["y"]), []).append((start, width, name))
    own: Counter[str] = Counter()
    callers: list[tuple[int, int, str]] = []
    for y in sorted(rows):
        row = sorted(rows[y])
        for start, width, name in row:
            own[name] += width
            if callers:
                own[callers[bisect_right(callers, start, key=lambda box: box[0]) - 1][2]] -= width
        callers = row
    total = sum(width for _, width, _ in rows[min(rows)]) if rows else 0
    return own, total


def top(flame_graph: str, count: int) -> str:
    """A line each for the functions with the most time of their own, without those that wait."""
    own, total = own_times(flame_graph)
    waiting = {name for name in own if name.startswith(_WAITING)}
    total -= sum(own[name] for name in waiting)
    busy = [(name, samples) for name, samples in own.most_common() if name not in waiting]
    return "\n".join(f"  {n / total:6.1%}  {name}" for name, n in busy[:count] if n)


def profile(name: str, scale: float, directory: Path, *, native: bool) -> dict[str, Path]:
    """Runs a load twice; returns the graphs of `gateway` and `client`, and the client's `calls`.

    Raises:
        RuntimeError: The load failed, or py-spy did; the message has what it said.
    """
    load = LOADS[name]
    count = max(round(load.count * scale / 100_000), 1) * 100_000
    if load.row == "latency":
        count = max(round(load.count * scale), 100)
    with (
        tempfile.TemporaryDirectory(prefix="mainstem-profile-") as folder,
        Systems(Path(folder)) as systems,
    ):
        task = Task(
            MAINSTEM,
            load.row,
            systems.address(MAINSTEM),
            systems.new_topic(MAINSTEM),
            PARTITIONS,
            systems.server_pid(MAINSTEM),
            count,
            load.warm_up,
            config=dict(load.config),
        )
        if load.filled:
            filling = Task(**{**asdict(task), "row": "produce_batches", "warm_up": 0})
            filling.count = count + load.warm_up + _SPARE
            run_worker(filling)
        drawn = _sampled(task, directory, name, native=native)
        calls = directory / f"{name}-calls.html"
        run_worker(replace(task, call_tree=str(calls.resolve())))
        return {**drawn, "calls": calls}


def _sampled(task: Task, directory: Path, name: str, *, native: bool) -> dict[str, Path]:
    graphs = {one: directory / f"{name}-{one}.svg" for one in ("gateway", "client")}
    worker = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.kafka.worker", json.dumps(asdict(task))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_CHECKOUT,
    )
    spies: list[subprocess.Popen[str]] = []
    try:
        assert worker.stderr is not None
        said = list(_lines_until(worker.stderr, BEGINS))
        if worker.poll() is None:
            pids = (task.server_pid, worker.pid)
            spies = [_spy(pid, graphs[one], native) for one, pid in zip(graphs, pids, strict=True)]
        _, rest = worker.communicate(timeout=_DEADLINE_S)
        if worker.returncode:
            raise RuntimeError(f"{name} failed:\n{''.join(said)[-1500:]}{rest[-1500:]}")
        for spy in spies:
            spy.send_signal(signal.SIGINT)  # then it writes its graph
            output, _ = spy.communicate(timeout=_DEADLINE_S)
            if spy.returncode:
                raise RuntimeError(f"py-spy failed:\n{output[-1500:]}")
    finally:
        for process in (worker, *spies):
            process.kill()
            process.wait()
    return graphs


def _lines_until(stream: Any, last: str) -> Iterator[str]:
    for line in stream:
        if line.strip() == last:
            return
        yield line


def _spy(pid: int, graph: Path, native: bool) -> subprocess.Popen[str]:
    graph.unlink(missing_ok=True)
    command = [str(Path(sys.executable).with_name("py-spy")), "record", "--pid", str(pid)]
    command += ["--function", "--threads", "--rate", str(_SAMPLES_A_SECOND)]
    command += ["--output", str(graph)]
    if native:
        command.append("--native")
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=_CHECKOUT
    )


def main() -> None:
    """Samples what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--loads", default=",".join(LOADS), help="with commas between")
    parser.add_argument("--scale", type=scale, default=1.0, help="of the numbers of records")
    parser.add_argument("--directory", type=Path, default=_PLACE)
    parser.add_argument("--native", action="store_true", help="with the functions of C and C++")
    options = parser.parse_args()
    loads = options.loads.split(",")
    if unknown := set(loads) - LOADS.keys():
        parser.error(f"there is no load {', '.join(sorted(unknown))}; there are {', '.join(LOADS)}")
    try:
        options.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--directory {options.directory} cannot be made: {error}")
    end_when_told()
    for name in loads:
        drawn = profile(name, options.scale, options.directory, native=options.native)
        for process in ("gateway", "client"):
            graph = drawn[process]
            print(f"{name}, {process}: {graph}\n{top(graph.read_text(), _TOP)}\n", flush=True)
        print(f"{name}, the calls of the client's thread: {drawn['calls']}\n", flush=True)


if __name__ == "__main__":
    main()
