"""`mainstem pipeline init|run|status`"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainstem.cli.context import (
    Settings,
    bootstrap_servers,
    fail,
    pass_settings,
    print_rows,
    reports_errors,
    say,
    say_if_empty,
)
from mainstem.cli.help import ExampleGroup
from mainstem.cli.signals import signals_set
from mainstem.cli.warehouse import warehouse_option, warehouse_place

if TYPE_CHECKING:
    from mainstem.jobs.pipelines import PipelineRun

_directory = click.argument(
    "directory", type=click.Path(path_type=Path), default=".", metavar="[DIRECTORY]"
)


@click.group(cls=ExampleGroup)
def pipeline() -> None:
    """Run Spark's declared pipelines over topics: a project, its runs, and their outcome.

    A pipeline is a directory with definitions in Python or SQL (pyspark.pipelines), which Spark's
    own spark-pipelines runs. It reads topics, and writes to topics and Delta tables.

    \b
    EXAMPLES
      mainstem pipeline init flights_pipeline
      mainstem pipeline run flights_pipeline --dry-run
      mainstem pipeline run flights_pipeline
      mainstem pipeline status flights_pipeline
    """


@pipeline.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("-T", "--topic", default="flights", show_default=True, help="What the example reads.")
@warehouse_option
@bootstrap_servers
@pass_settings
@reports_errors
def init(
    settings: Settings, directory: Path, topic: str, warehouse: str | None, bootstrap_servers: str
) -> None:
    """Make the directory of a new pipeline, with an example to begin with.

    In it are spark-pipeline.yml, which says what belongs to the pipeline; transformations/, with an
    example that reads a topic, and writes to two topics and a Delta table; and conf/, with Spark's
    settings, which name Delta's jars. The first time on a machine these are fetched (13 MB).

    \b
    EXAMPLES
      mainstem pipeline init flights_pipeline
      mainstem pipeline init /srv/orders -T orders --warehouse /data/warehouse -b gateway:9490
    """
    from mainstem.delta_log.store import LocalDirectory
    from mainstem.jobs.pipelines import init_project

    place = warehouse_place(settings, warehouse)
    where = str(Path(place.path).resolve()) if isinstance(place, LocalDirectory) else place.uri
    project = init_project(directory, warehouse=where, servers=bootstrap_servers, topic=topic)
    say(f"{project.directory} is made; its example writes to two topics, which have to be there:")
    for name in (f"{topic}.late", f"{topic}.dlt"):
        say(f"  mainstem topic create {shlex.quote(name)}")
    say(f"  mainstem pipeline run {shlex.quote(str(directory))}")


@pipeline.command()
@_directory
@click.option("--dry-run", is_flag=True, help="Only look whether it makes sense; write nothing.")
@click.option(
    "--refresh",
    multiple=True,
    metavar="NAME",
    help="Update this table only; may be repeated.  [default: all]",
)
@click.option(
    "--full-refresh",
    multiple=True,
    metavar="NAME",
    help="Empty this table first, `*`: all; may be repeated.",
)
@reports_errors
def run(
    directory: Path, dry_run: bool, refresh: Sequence[str], full_refresh: Sequence[str]
) -> None:
    """Run a pipeline on what is there when it begins.

    It ends when that is done; the next run goes on from there, also after one that failed or was
    killed, and sinks get each record once. Two runs of a pipeline never overlap. Steps are said on
    stderr; all that Spark says is in runs/ in the directory. SPARK_REMOTE names a Spark Connect
    server; without it Spark runs here, on all cores. Exit code 1 when it has failed. A scheduler
    runs pipelines by its file, see [pipelines] in conf/jobs.toml.

    \b
    EXAMPLES
      mainstem pipeline run
      mainstem pipeline run flights_pipeline --dry-run
      mainstem pipeline run flights_pipeline --full-refresh '*'
    """
    from mainstem.jobs.pipelines import COMPLETED, STOPPED, run_pipeline

    stopping = threading.Event()
    with signals_set(stopping):
        ended = run_pipeline(
            directory,
            dry_run=dry_run,
            refresh=refresh,
            full_refresh=full_refresh,
            on_progress=say,
            should_stop=stopping.is_set,
        )
    if ended.state == STOPPED:
        say("the run is stopped; the next one goes on where it was")
    elif ended.state != COMPLETED:
        fail(f"{ended.error} (all of it is in {ended.log})")


@pipeline.command()
@_directory
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Print at most so many runs; 0: all that are kept, a hundred.",
)
@pass_settings
@reports_errors
def status(settings: Settings, directory: Path, limit: int) -> None:
    """Print the last runs of a pipeline, the newest first.

    STATE is running, completed, failed, stopped (by a signal) or killed (its process has gone
    without a word). Exit code 1 when the last one failed or was killed.

    \b
    EXAMPLES
      mainstem pipeline status flights_pipeline
      mainstem pipeline status -n 1 --format json
    """
    from mainstem.jobs.pipelines import FAILED, KILLED, PipelineRuns, Project

    runs = PipelineRuns(Project.open(directory)).last(limit)
    columns = ["started_ms", "state", "dry_run", "seconds", "host", "pid", "error"]
    if settings.format != "text":
        columns.append("log")
    titles = [column.removesuffix("_ms").upper().replace("_", " ") for column in columns]
    rows = []
    for one in runs:
        facts = _facts(one, as_text=settings.format != "json")
        rows.append([facts[column] for column in columns])
    print_rows(settings, columns, rows, numbers=["seconds", "pid"], titles=titles)
    say_if_empty(settings, runs, "it has not run yet: mainstem pipeline run")
    if runs and runs[0].state in (FAILED, KILLED):
        raise SystemExit(1)


def _facts(one: PipelineRun, *, as_text: bool) -> dict[str, object]:
    from mainstem.records import format_timestamp_ms

    return {
        "started_ms": format_timestamp_ms(one.started_ms) if as_text else one.started_ms,
        "state": one.state,
        "dry_run": ("yes" if one.dry_run else "") if as_text else one.dry_run,
        "seconds": (one.ended_ms - one.started_ms) / 1000 if one.ended_ms else None,
        "host": one.host,
        "pid": one.pid,
        "error": one.error,
        "log": one.log,
    }
