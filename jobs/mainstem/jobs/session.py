"""One way to a Spark session that is set up right: Delta's jars, extension and catalog, and a quiet
small machine.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mainstem.delta_log.store import CloudPrefix, Place, parse_warehouse
from mainstem.jobs._delta_jars import DELTA_PACKAGE, delta_jars, fetched_jars, ivy_home
from mainstem.jobs._java import SparkUnavailableError, check_user, java_command
from mainstem.jobs._s3 import S3_JARS, is_s3, use_bucket
from mainstem.jobs._spark_home import quick_spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "SparkUnavailableError",
    "end_session",
    "session_is_alive",
    "session_settings",
    "spark_session",
]

_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

#: A JVM whose context is stopped has little left to do; one that does not end by then is killed.
_JVM_END_S_MAX: Final = 10.0

#: Lines that say why a JVM did not start, and how long its pipe may take to close after it has.
_LAST_LINES: Final = 50
_LAST_LINES_S_MAX: Final = 5.0

#: The JVM says this on every start, before any logging is set up, and nothing turns it off.
_CHATTER: Final = (b"WARNING: Using incubator modules: jdk.incubator.vector",)


def spark_session(
    app_name: str = "mainstem",
    *,
    master: str | None = None,
    warehouse: Place | None = None,
    reads: Place | None = None,
    **conf: object,
) -> SparkSession:
    """The running Spark session, or a new one that reads Delta tables and the source `mainstem`.

    The first call on a machine fetches Delta's jars (13 MB). `PYSPARK_PYTHON` is set to this
    interpreter unless it is set, so that workers find mainstem; on a cluster, install mainstem on
    every node.

    Args:
        app_name: What Spark calls the application.
        master: Where it runs. Default: what `spark-submit` was told, else `local[*]`.
        warehouse: Also make every topic of this warehouse a SQL table, see `register_topics`.
        reads: Also let Spark read the tables of this warehouse by their paths, which in S3 takes
            jars (13 MB, fetched once). `warehouse` is read in any case; a directory needs nothing.
        conf: Spark settings, as `**{"spark.driver.memory": "4g"}`. They win over ours; `spark.jars`
            is added to ours, unless it names a delta-spark jar itself.

    Raises:
        SparkUnavailableError: Java 17 is missing, the user has no name on this machine, Delta's
            jars cannot be fetched, the JVM did not start, or the session that runs already was
            started without Delta.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    place = warehouse if warehouse is not None else reads
    parsed = None if place is None else parse_warehouse(place)
    wanted = {name: _text(value) for name, value in conf.items()}
    if SparkContext._active_spark_context is None:
        session = _start(app_name, master, wanted, s3=is_s3(parsed))
    else:
        # The active session is one of the thread; the builder finds it from any other thread too.
        running = SparkSession.builder.getOrCreate()
        if _EXTENSION not in (running.conf.get("spark.sql.extensions", "") or ""):
            raise SparkUnavailableError(
                "a Spark session without Delta is running in this process; stop it before calling "
                "spark_session"
            )
        session = running
        for name, value in wanted.items():
            if running.conf.isModifiable(name):
                running.conf.set(name, value)
    if isinstance(parsed, CloudPrefix) and is_s3(parsed):
        use_bucket(session, parsed)
    if warehouse is not None:
        from mainstem.jobs.tables import register_topics

        register_topics(session, parsed or warehouse)
    return session


def session_is_alive() -> bool:
    """Whether this process has a Spark session that answers: its JVM runs, its context too."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return False
    try:
        return not context._jsc.sc().isStopped()
    except Exception:  # py4j has many ways to say that nobody is there
        return False


def end_session() -> None:
    """Ends this process's Spark session and its JVM, whether they still answer or not.

    The next `spark_session` starts again, which after a JVM has died it cannot do by itself:
    pyspark goes on asking the one that is gone. Under `spark-submit` the JVM stays, it is our
    parent.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    if context is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # that the JVM was gone already
            with contextlib.suppress(Exception):
                context.stop()
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    process.stdin.close()  # the JVM takes this for our end, and ends as well
    try:
        process.wait(_JVM_END_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


def session_settings(
    conf: Mapping[str, str],
    *,
    master: str | None = None,
    core_count: int | None = None,
    submitted: bool = False,
) -> dict[str, str]:
    """The Spark settings of `spark_session`, without starting anything.

    Args:
        conf: The caller's; they win.
        master: Counts where `conf` has no `spark.master`.
        core_count: Default: this machine's.
        submitted: The JVM runs already, started by `spark-submit`: leave out what is its matter.
    """
    cores = str(core_count or os.cpu_count() or 1)
    chosen_master = conf.get("spark.master") or master or ("" if submitted else "local[*]")
    settings = {
        "spark.sql.extensions": _EXTENSION,
        "spark.sql.catalog.spark_catalog": _CATALOG,
        # Timestamps are UTC instants; a session in another zone would print and truncate them
        # otherwise.
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        # It draws over whatever else is on the terminal.
        "spark.ui.showConsoleProgress": "false",
        # An entry in the table's log for each VACUUM: only the committer writes there.
        "spark.databricks.delta.vacuum.logging.enabled": "false",
        # Data files have a checksum for each page. Spark looks at them only if it is told to, and
        # would show a changed byte as data. As an option of a single read it has no effect.
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        # As the gateway makes its files: the group may read, and nobody else.
        "spark.hadoop.fs.permissions.umask-mode": "027",
    }
    if chosen_master:
        settings["spark.master"] = chosen_master
    if chosen_master.startswith("local"):
        settings |= {
            # The driver's ports are for its own worker threads; a host name that does not resolve
            # would stop it.
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
            # The defaults (200, 50, 10000) are made for clusters: a small machine does nothing but
            # start tasks.
            "spark.sql.shuffle.partitions": cores,
            "spark.databricks.delta.snapshotPartitions": cores,
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": cores,
        }
    settings.update(conf)
    options = settings.get(_JAVA_OPTIONS, "")
    if not submitted and "log4j2.configurationFile" not in options:
        quiet = Path(__file__).with_name("log4j2.properties").as_uri()
        settings[_JAVA_OPTIONS] = f"{options} -Dlog4j2.configurationFile={quiet}".strip()
    return settings


def _start(app_name: str, master: str | None, conf: Mapping[str, str], *, s3: bool) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = session_settings(conf, master=master, submitted=submitted)
    _quiet_python()
    jars = settings.get("spark.jars", "")
    if not submitted:
        java_command()
        check_user()
    if not submitted and "delta-spark" not in jars:
        ours = delta_jars(settings)
        settings["spark.jars"] = ",".join([*filter(None, [jars]), *ours])
    if s3 and not submitted and "hadoop-aws" not in jars:
        settings["spark.jars"] = ",".join(
            [*filter(None, [settings.get("spark.jars", "")]), *fetched_jars(settings, S3_JARS)]
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
    spark_conf = SparkConf(loadDefaults=False).setAppName(app_name).setAll(list(settings.items()))
    said = _JvmStderr()
    try:
        # A stopped session leaves its JVM behind, and the next one lives in it.
        gateway: Any = SparkContext._gateway
        launched = gateway is None
        if launched:
            # YARN sends the copy that is left out there to its executors.
            local = settings.get("spark.master", "").startswith("local")
            home = quick_spark_home(ivy_home(settings)) if local else None
            with said:
                gateway = launch_gateway(  # type: ignore[no-untyped-call]
                    spark_conf, _PopenSettings(home, stderr=said.write_end)
                )
        if "spark.sql.warehouse.dir" not in settings:
            spark_conf.set("spark.sql.warehouse.dir", _scratch_directory(gateway.jvm))
        if launched:
            context = SparkContext(conf=spark_conf, gateway=gateway)
        else:
            context = SparkContext.getOrCreate(spark_conf)
        jvm = context._jvm
        assert jvm is not None
        if not jvm.org.apache.spark.util.Utils.classIsLoadable(_EXTENSION):
            context.stop()
            raise SparkUnavailableError(
                f"Java runs without Delta's jars: give spark-submit --packages {DELTA_PACKAGE}, "
                "or, where Spark ran in this process before, start a new process"
            )
    except PySparkRuntimeError as error:
        raise SparkUnavailableError(_why_not(error, said.last_lines())) from error
    return SparkSession(context)


class _PopenSettings(dict[str, object]):
    """Settings of pyspark's Popen, without the function that it would have run between fork and
    exec, and with a SPARK_HOME of ours where there is one.

    A process with gRPC's threads must not run Python there: one start in five failed. The function
    keeps Ctrl-C from the JVM, which a process group of its own does as well.
    """

    def __init__(self, home: str | None, **settings: object) -> None:
        super().__init__(settings, process_group=0)
        self._home = home

    def __setitem__(self, name: str, value: object) -> None:
        if name == "env" and isinstance(value, dict) and self._home is not None:
            value = {**value, "SPARK_HOME": self._home}
        if name != "preexec_fn":
            super().__setitem__(name, value)


class _JvmStderr:
    """A pipe for the JVM's standard error, passed on to ours line by line but for the chatter."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._thread: threading.Thread | None = None

    def __enter__(self) -> _JvmStderr:
        read_end, self.write_end = os.pipe()
        self._thread = threading.Thread(
            target=self._pass_on, args=(read_end,), name="spark stderr", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.write_end)  # the JVM has its own copy: the thread ends when that one closes

    def last_lines(self) -> str:
        """What a JVM that has ended said last."""
        if self._thread is not None:
            self._thread.join(_LAST_LINES_S_MAX)
        return "\n".join(self._lines)

    def _pass_on(self, read_end: int) -> None:
        with open(read_end, "rb") as lines:
            for line in lines:
                if not line.startswith(_CHATTER):
                    self._lines.append(line.decode(errors="replace").rstrip())
                    with_end = line if line.endswith(b"\n") else line + b"\n"
                    with contextlib.suppress(OSError):  # it is closed: nobody listens
                        os.write(2, with_end)


def _why_not(error: Exception, said: str) -> str:
    """Why Spark did not start, from what the JVM said last."""
    if "jdk.incubator.vector" in said:
        return (
            "Spark did not start: this Java is cut down and lacks the module jdk.incubator.vector; "
            "use a full JDK or JRE, 17 or newer"
        )
    if not said:
        return f"Spark did not start, and its JVM ended without a word ({error}); try again"
    return f"Spark did not start ({error}); what its JVM said is above"


def _quiet_python() -> None:
    """Keeps pyspark from printing each exception that it raises, stack trace and all, as a line of
    JSON.
    """
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _scratch_directory(jvm: Any) -> str:
    """Where managed tables would go, which nobody makes here: Spark creates it in any case, by
    default in the current directory. Removed by whoever ends in an orderly way: this process, or
    the JVM, which does so also where a signal has ended this process."""
    directory = tempfile.mkdtemp(prefix="mainstem-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    hooks = jvm.org.apache.spark.util.ShutdownHookManager
    hooks.registerShutdownDeleteDir(jvm.java.io.File(directory))
    return directory


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
