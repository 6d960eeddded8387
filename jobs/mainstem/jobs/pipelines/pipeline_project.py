"""The directory of a pipeline: its spec, its definitions, and Spark's settings for it."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from mainstem.errors import ConfigError
from mainstem.jobs._delta_jars import delta_jars
from mainstem.jobs.session import session_settings

SPEC: Final = "spark-pipeline.yml"

#: What Spark takes, too.
_SPECS: Final = (SPEC, "spark-pipeline.yaml")

_DEFAULTS: Final = "spark-defaults.conf"
_JARS: Final = "spark.jars"
_DELTA_JAR: Final = "delta-spark"

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

#: In a pipeline the session is Spark Connect's: the master is its address, which the command has.
_NOT_OURS: Final = ("spark.master", "spark.driver.extraJavaOptions")


class PipelineError(ConfigError):
    """A pipeline's directory cannot be made, or is none; or the pipeline runs already."""


@dataclass(frozen=True, slots=True)
class Project:
    """A pipeline's directory.

    Attributes:
        spec: Spark's file, which says where everything else is.
    """

    directory: Path
    spec: Path

    @classmethod
    def open(cls, directory: Path) -> Project:
        """The pipeline in that directory.

        Raises:
            PipelineError: There is none.
        """
        found = [directory / name for name in _SPECS if (directory / name).is_file()]
        if not found:
            raise PipelineError(
                f"there is no pipeline in {directory}: it has no {SPEC}; `mainstem pipeline init "
                "NAME` makes one"
            )
        return cls(directory.resolve(), found[0].resolve())

    @property
    def conf(self) -> Path:
        """What Spark calls SPARK_CONF_DIR."""
        return self.directory / "conf"

    def refresh_jars(self) -> bool:
        """Has the settings name Delta's jars of this machine where those that they name are not
        here; returns whether it changed them.

        Raises:
            SparkUnavailableError: The jars cannot be fetched.
            PipelineError: The settings cannot be read or written.
        """
        file = self.conf / _DEFAULTS
        try:
            lines = file.read_text().splitlines() if file.is_file() else []
            settings = dict(_setting(line) for line in lines if _setting(line)[0])
            named = [jar for jar in settings.get(_JARS, "").split(",") if jar]
            ours = [jar for jar in named if _is_delta(jar)]
            if named and not ours and any(_DELTA_JAR in jar for jar in named):
                return False  # of another place: the user's matter
            if ours and all(Path(jar).is_file() for jar in ours):
                return False
            jars = [jar for jar in named if jar not in ours] + delta_jars(settings)
            kept = [line for line in lines if _setting(line)[0] != _JARS]
            self.conf.mkdir(exist_ok=True)
            file.write_text("".join(f"{line}\n" for line in [*kept, f"{_JARS} {','.join(jars)}"]))
        except OSError as error:
            raise PipelineError(f"the settings {file} cannot be used: {error}") from error
        return True


def init_project(directory: Path, *, warehouse: str, servers: str, topic: str) -> Project:
    """Makes the directory of a new pipeline, with an example to begin with.

    Args:
        directory: It must not be there; the pipeline gets its last name.
        warehouse: Of the topics that the example reads: a directory or a URI.
        servers: `bootstrap.servers` of the gateways that the example writes to.
        topic: What the example reads.

    Raises:
        PipelineError: It is there, cannot be made, or its name cannot name a pipeline.
        SparkUnavailableError: Delta's jars cannot be fetched.
    """
    directory = directory.absolute()
    name = directory.name
    if not _NAME.fullmatch(name):
        raise PipelineError(
            f"{name!r} cannot name a pipeline: a name has letters, digits, `_`, `-` and `.`, and "
            "is 100 characters long at most"
        )
    if directory.exists():
        raise PipelineError(f"{directory} is there already: name a directory that is not")
    storage = directory / "storage"
    values = {
        "name": name,
        "storage": storage.as_uri(),
        "warehouse": repr(warehouse),
        "servers": repr(servers),
        "topic": repr(topic),
        "late": repr(f"{topic}.late"),
        "dead": f"{topic}.dlt",
        "table": repr(str(directory / "tables" / "delays")),
    }
    settings = session_settings({}, submitted=False)
    settings = {key: value for key, value in settings.items() if key not in _NOT_OURS}
    settings["spark.sql.warehouse.dir"] = (directory / "tables").as_uri()
    settings |= _SETTINGS
    settings[_JARS] = ",".join(delta_jars(settings))
    try:
        (directory / "transformations").mkdir(parents=True)
        (directory / "conf").mkdir()
        (directory / SPEC).write_text(_SPEC_TEXT.substitute(values))
        (directory / "transformations" / f"{_module(name)}.py").write_text(
            _EXAMPLE.substitute(values)
        )
        (directory / "conf" / _DEFAULTS).write_text(
            _DEFAULTS_HEAD + "".join(f"{key} {value}\n" for key, value in settings.items())
        )
        quiet = Path(__file__).parents[1] / "log4j2.properties"
        shutil.copyfile(quiet, directory / "conf" / quiet.name)
    except OSError as error:
        raise PipelineError(f"{directory} cannot be made: {error}") from error
    return Project.open(directory)


def _module(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _is_delta(jar: str) -> bool:
    return Path(jar).name.startswith(("io.delta_", "io.unitycatalog_"))


def _setting(line: str) -> tuple[str, str]:
    """Name and value of a line as Java's properties have them; empty for a comment."""
    line = line.strip()
    if not line or line.startswith(("#", "!")):
        return "", ""
    name, _, value = re.sub(r"\s*[=:\s]\s*", " ", line, count=1).partition(" ")
    return name, value


_SETTINGS: Final = {
    # Transformations with state in Python need this store.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Each flow starts Python several times, for which Spark gives it 10 s each time: 16 flows at a
    # time, the default, are too much for a small machine that is busy.
    "spark.sql.pipelines.execution.maxConcurrentFlows": "2",
    "spark.sql.pipelines.maxFlowRetryAttempts": "5",
}

_DEFAULTS_HEAD: Final = """\
# Spark's settings for this pipeline. They have to be here: what is given as --conf comes too late.
# The jars are those of this machine; `mainstem pipeline run` names others where they are not there.
"""

_SPEC_TEXT: Final = Template("""\
# A pipeline of Spark's (pyspark.pipelines). `mainstem pipeline run` runs it, and so does
# SPARK_CONF_DIR=conf spark-pipelines run --remote 'local[*,4]' --spec spark-pipeline.yml
name: $name
# How far each flow has come, and its state. A flow without it begins anew.
storage: $storage
libraries:
  - glob:
      include: transformations/**
""")

_EXAMPLE: Final = Template('''\
"""Flights that left late go to a topic, delays to a Delta table, bad records to a topic of their
own. An example to begin with: change it, or put files of your own beside it.

Each run takes what has come since the run before, and ends. What comes out goes to sinks, topics or
Delta tables by their paths: those go on where they were, each record once. Tables of the pipeline's
own (`@dp.table`, `@dp.materialized_view`) cannot be Delta's for more than one run.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, StringType, StructField, StructType

from mainstem.jobs.streams import Parsed, parse_json

WAREHOUSE = $warehouse
SERVERS = $servers

FLIGHT = StructType(
    [StructField("carrier", StringType()), StructField("dep_delay", DoubleType())]
)

TO_TOPICS = {"mainstem.bootstrap.servers": SERVERS}

# Topics have to be there: mainstem topic create
dp.create_sink("late", "mainstem", {**TO_TOPICS, "topic": $late})
# Each dead letter names its topic, $dead.
dp.create_sink("dead_letters", "mainstem", TO_TOPICS)
dp.create_sink("delays", "delta", {"path": $table})


def flights() -> Parsed:
    records = (
        SparkSession.active()
        .readStream.format("mainstem")
        .option("mainstem.warehouse", WAREHOUSE)
        .option("subscribe", $topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    return parse_json(records, FLIGHT)


@dp.append_flow(target="late")
def late_flights() -> DataFrame:
    return flights().good.where("record.dep_delay > 60").select("key", "value", "headers")


@dp.append_flow(target="dead_letters")
def bad_records() -> DataFrame:
    return flights().dead_letters


@dp.append_flow(target="delays")
def all_delays() -> DataFrame:
    return flights().good.select("partition", "offset", "timestamp", "record.*")
''')
