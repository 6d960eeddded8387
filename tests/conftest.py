"""What every test may use: a Spark session, one seed, and a check for leaks."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from tests.length import FULL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.s3_server import S3Server

ROOT = Path(__file__).resolve().parents[1]
SEED_VARIABLE = "MAINSTEM_TEST_SEED"
LEAK_GRACE_S = 5.0

#: For tests that start processes: a machine that is three times slower must not end them.
PROCESSES_TIMEOUT_S = 400

# Else each of the hundreds of processes that tests start compiles everything again, and each worker
# of pytest-xdist rewrites every assertion: a third of the time of all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What a script starts with `&` ignores Ctrl-C, and so do its children: tests that interrupt a
# program would wait for ever.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
sys.dont_write_bytecode = False

# Collecting makes millions of objects that live as long as the process: the garbage collector looks
# through them neither now nor, after `pytest_collection_finish`, whenever a test calls it.
gc.disable()

#: Of a JVM that lives for seconds: compiling well takes longer than running.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# No deadline: a shared machine is slow at random. The blob makes a failure repeatable from a log.
hypothesis.settings.register_profile(
    "mainstem", deadline=None, print_blob=True, max_examples=100 if FULL else 40
)
hypothesis.settings.load_profile("mainstem")


def pytest_configure(config: pytest.Config) -> None:
    # Set before any worker process starts, so that all of them share it.
    os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(2**32)))


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests that use a shared session into two groups, so that two workers start one each,
    and those that start a Spark of their own into a third; and give what starts processes time.

    The groups come first: what is left when they end are many short tests.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
            item.add_marker(pytest.mark.xdist_group(spark_group(item.path)))
        elif item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("own spark"))
        starts_processes = any(
            item.get_closest_marker(name) for name in ("spark", "end_to_end", "fault")
        )
        if starts_processes and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PROCESSES_TIMEOUT_S))


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let go of the connection to Java when a test has failed. One that ran into its time limit may
    have left an answer in it, which the next call, and so each later test, would take for its own.
    """
    report = yield
    if report.failed and "pyspark" in sys.modules:
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        connection = gateway and gateway._gateway_client.get_thread_connection()
        if connection is not None:
            connection.close()
    return report


def spark_group(file: Path) -> str:
    """Which of two shared sessions a file's tests use: streams are about half of the work."""
    return "spark streams" if "stream" in file.name or "sink" in file.name else "spark"


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run; set MAINSTEM_TEST_SEED to repeat one."""
    return int(os.environ[SEED_VARIABLE])


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """A random generator that depends on the seed of the run and on the test, not on the order."""
    return random.Random(f"{seed}:{request.node.nodeid.split('@')[0]}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of one worker's run, with the checkout as the workers' directory."""
    from mainstem.jobs._delta_jars import fetched_jars
    from mainstem.jobs._s3 import S3_JARS
    from mainstem.jobs.session import spark_session

    directory = tmp_path_factory.mktemp("spark")
    with contextlib.chdir(ROOT):
        session = spark_session(
            "mainstem-tests",
            **{
                "spark.jars": ",".join(fetched_jars({}, S3_JARS)),
                "spark.sql.warehouse.dir": str(directory / "warehouse"),
                # Many small queries, each run once.
                "spark.driver.extraJavaOptions": JAVA_OPTIONS,
                "spark.sql.codegen.wholeStage": "false",
            },
        )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A server that speaks the language of Amazon S3, for the whole run."""
    from tests.s3_server import running_s3_server

    with running_s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server on files, at full length and where it is installed: `make s3` installs it."""
    from tests.versitygw import find_versitygw, running_versitygw

    if not FULL or find_versitygw() is None:
        pytest.skip("runs with `make test-fault`, where versitygw is installed")
    with running_versitygw(tmp_path_factory.mktemp("versitygw")) as server:
        yield server


@pytest.fixture
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that the test starts, and that start Java, get `JAVA_OPTIONS`."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)


@pytest.fixture
def leak_check() -> Callable[[], AbstractContextManager[None]]:
    """A context manager that fails when its block leaves a thread or a descriptor behind."""
    return check_leaks


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fail the test when it leaves a thread or a descriptor behind.

    Name it before other fixtures, so that they are torn down first:
    `pytestmark = pytest.mark.usefixtures("no_leaks")`.
    """
    with check_leaks():
        yield


@contextlib.contextmanager
def check_leaks(grace_s: float = LEAK_GRACE_S) -> Iterator[None]:
    """Compare the threads and descriptors before and after the block.

    What is still closing gets `grace_s` seconds. Only files, pipes and sockets count: gRPC and
    pyarrow keep event queues for the life of the process.
    """
    threads_before = set(threading.enumerate())
    descriptors_before = _open_descriptors()
    yield
    deadline = time.monotonic() + grace_s
    while True:
        threads = [t for t in threading.enumerate() if t not in threads_before]
        descriptors = {
            number: what
            for number, what in _open_descriptors().items()
            if descriptors_before.get(number) != what and not _leads_to_spark(what)
        }
        if not threads and not descriptors:
            return
        if time.monotonic() > deadline:
            shown = {number: what + _ends_of(what) for number, what in descriptors.items()}
            pytest.fail(f"left behind after {grace_s} s: threads {threads}, files {shown}")
        time.sleep(0.02)


def _leads_to_spark(what: str) -> bool:
    """Whether it is a connection to the JVM of this process's Spark session: objects that are
    collected, in whatever test, let go of their Java part through one, which then stays."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    gateway = getattr(context, "_gateway", None)
    return gateway is not None and f" to {gateway.gateway_parameters.port}," in _ends_of(what)


def _ends_of(what: str) -> str:
    """Of a TCP socket: its two ends and its state, which say whose it is; else nothing."""
    inode = what.removeprefix("socket:[").removesuffix("]")
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[9] == inode:
                    here, there = (int(end.rpartition(":")[2], 16) for end in fields[1:3])
                    return f" port {here} to {there}, state {fields[3]}"
    return ""


def _open_descriptors() -> dict[int, str]:
    """The open files, pipes and sockets of this process, by number."""
    directory = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    found: dict[int, str] = {}
    for name in os.listdir(directory):
        number = int(name)
        try:
            status = os.fstat(number)
        except OSError:
            continue  # the descriptor of the listing itself
        mode = status.st_mode
        if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            what = f"{stat.filemode(mode)} inode {status.st_ino}"
            with contextlib.suppress(OSError):
                what = os.readlink(f"{directory}/{name}")
            found[number] = what
    return found
