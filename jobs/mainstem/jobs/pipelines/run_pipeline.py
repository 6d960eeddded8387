"""One run of a pipeline: Spark's own `spark-pipelines`, with what it needs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

from mainstem.delta_log.store import wall_clock_ms
from mainstem.jobs._delta_jars import ivy_home
from mainstem.jobs._java import check_user, java_command
from mainstem.jobs._spark_home import quick_spark_home
from mainstem.jobs.pipelines.pipeline_project import Project
from mainstem.jobs.pipelines.pipeline_runs import (
    COMPLETED,
    FAILED,
    STOPPED,
    PipelineRun,
    PipelineRuns,
)

#: Spark Connect's server is this machine's own; a task that failed is tried again.
_REMOTE: Final = "local[*,4]"

#: How often somebody who wants it to stop is listened to.
_LOOK_S: Final = 0.5

#: Spark has so long to end when it is asked to.
_STOP_S: Final = 10.0
_END_LOOK_S: Final = 0.05

#: Lines that may say why a run failed.
_LAST_LINES: Final = 200

#: What Spark says of its flows, and when.
_PROGRESS: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: (?P<what>.*)")

#: The last line of an exception, and lines that Java says of its own.
_EXCEPTION: Final = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception)\b:? ?(?P<why>.*)")
_CHATTER: Final = re.compile(r"^(WARNING: Using incubator|Picked up |Using Spark's default log4j)")


def run_pipeline(
    directory: Path,
    *,
    dry_run: bool = False,
    full_refresh: Sequence[str] = (),
    refresh: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> PipelineRun:
    """Runs the pipeline on what is there when it begins. Blocks until it has ended.

    What it has not done when it fails, is stopped or killed, the next run does; flows that write to
    topics or Delta tables, as sinks, write each record once.

    Args:
        dry_run: Only look whether it makes sense; nothing is written.
        full_refresh: Names of tables that are emptied first; `*`: all.
        refresh: Only these; Spark then updates nothing else. Default: everything.
        on_progress: Gets a line for each step, without its time, as `Flow late is RUNNING.`
        should_stop: Asked twice a second.

    Returns:
        The run; `failed` is in its `state`, and why in `error`.

    Raises:
        PipelineError: There is no pipeline, it runs already, or its directory cannot be written.
        SparkUnavailableError: There is no Java, or Delta's jars cannot be fetched.
    """
    project = Project.open(directory)
    runs = PipelineRuns(project)
    java_command()
    check_user()
    with runs.locked() as lock:
        if project.refresh_jars():
            on_progress("Delta's jars of this machine are now named in conf/spark-defaults.conf.")
        started_ms = max([wall_clock_ms(), *(run.started_ms + 1 for run in runs.last(1))])
        path, log = runs.new_log(started_ms)
        run = PipelineRun(
            started_ms, dry_run=dry_run, host=socket.gethostname(), pid=os.getpid(), log=str(path)
        )
        runs.write(run)
        command = _command(project, dry_run, full_refresh, refresh)
        state, error = FAILED, ""
        try:
            with log:
                state, error = _run(project, command, lock, log, on_progress, should_stop)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
            raise
        except BaseException:  # Ctrl-C
            state = STOPPED
            raise
        finally:
            run = replace(run, state=state, error=error, ended_ms=wall_clock_ms())
            runs.write(run)
    return run


def _command(
    project: Project, dry_run: bool, full_refresh: Sequence[str], refresh: Sequence[str]
) -> list[str]:
    import pyspark

    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines")]
    command += ["dry-run" if dry_run else "run", "--spec", str(project.spec)]
    if "SPARK_REMOTE" not in os.environ:
        command += ["--remote", _REMOTE]
    if not dry_run:
        if "*" in full_refresh:
            command.append("--full-refresh-all")
        elif full_refresh:
            command += ["--full-refresh", ",".join(full_refresh)]
        if refresh:
            command += ["--refresh", ",".join(refresh)]
    return command


def _run(
    project: Project,
    command: Sequence[str],
    lock: int,
    log: IO[bytes],
    on_progress: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> tuple[str, str]:
    import pyspark

    environment = {**os.environ, "SPARK_CONF_DIR": str(project.conf)}
    home = quick_spark_home(ivy_home({})) or str(Path(pyspark.__file__).parent)
    environment.setdefault("SPARK_HOME", home)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.setdefault(name, sys.executable)
    process = subprocess.Popen(
        command,
        cwd=project.directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=[lock],
    )
    assert process.stdout is not None
    last: deque[str] = deque(maxlen=_LAST_LINES)
    reader = threading.Thread(
        target=_read, args=(process.stdout, log, last, on_progress), name="pipeline", daemon=True
    )
    reader.start()
    stopped = False
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(_LOOK_S)
                break
            if should_stop():
                stopped = True
                _end(process)
    except BaseException:
        _end(process)
        raise
    finally:
        reader.join(_STOP_S)
        if not reader.is_alive():
            process.stdout.close()
    if stopped:
        return STOPPED, ""
    return (COMPLETED, "") if code == 0 else (FAILED, _why(last, code))


def _read(
    lines: IO[bytes], log: IO[bytes], last: deque[str], on_progress: Callable[[str], None]
) -> None:
    """Everything goes to the log; a full disk, or a terminal that is gone, stops no pipeline."""
    for line in lines:
        with contextlib.suppress(OSError, ValueError):
            log.write(line)
            log.flush()
        text = line.decode(errors="replace").rstrip()
        if not _CHATTER.match(text):
            last.append(text)
        if told := _PROGRESS.fullmatch(text):
            # Rich ends the thread that prints to a closed pipe with SystemExit.
            with contextlib.suppress(OSError, ValueError, SystemExit):
                on_progress(told["what"])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in _session(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        ends_at = time.monotonic() + _STOP_S
        while time.monotonic() < ends_at:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_LOOK_S)
                if not _session(process.pid):
                    return
                time.sleep(_END_LOOK_S)


def _session(leader: int) -> list[int]:
    """The processes of a session that still run; without /proc, the leader."""
    found = []
    stats = list(Path("/proc").glob("[0-9]*/stat"))
    for stat in stats:
        with contextlib.suppress(OSError, ValueError):
            state, _, _, session, *_ = stat.read_text().rpartition(")")[2].split()
            if int(session) == leader and state not in ("Z", "X"):
                found.append(int(stat.parent.name))
    return found if stats else [leader]


def _why(last: Sequence[str], code: int) -> str:
    """What is said of a failure, as far as one line can be."""
    for line in reversed(last):
        if found := _EXCEPTION.match(line.strip()):
            return found["why"].strip() or line.strip()
    told = next((line.strip() for line in reversed(last) if line.strip()), "")
    return told or f"spark-pipelines ended with the code {code} and without a word"
