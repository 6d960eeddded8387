"""`mainstem job ...`"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mainstem.cli.context import (
    Settings,
    err,
    parse_pairs,
    pass_settings,
    print_rows,
    reports_errors,
    say,
)
from mainstem.cli.help import ExampleGroup
from mainstem.cli.job.scheduler import pause, resume, scheduler, status
from mainstem.cli.warehouse import opened_warehouse, warehouse_option, warehouse_place
from mainstem.config import format_value
from mainstem.errors import InvalidConfigError

if TYPE_CHECKING:
    from mainstem.delta_log.store import Place
    from mainstem.jobs.job import Job
    from mainstem.jobs.job_history import JobRun
    from mainstem.jobs.runner import Progress as RunProgress


@click.group(cls=ExampleGroup)
def job() -> None:
    """Maintain the tables with Spark: compaction and other jobs, and what they did.

    The jobs work on the warehouse, beside the gateways that write to it; none needs to be stopped.

    \b
    EXAMPLES
      mainstem job list
      mainstem job run compaction --dry-run
      mainstem job run compaction -T orders --warehouse ./warehouse
      mainstem job history -n 20
      mainstem job scheduler --jobs conf/jobs.toml
    """


for _command in (pause, resume, scheduler, status):
    job.add_command(_command)


@job.command("list")
@pass_settings
@reports_errors
def list_(settings: Settings) -> None:
    """List the jobs. With `--format wide` their options too.

    An option is given to `mainstem job run` with -o. One that has the name of a topic's setting
    replaces that setting for the run; by default each topic's own holds.

    \b
    EXAMPLES
      mainstem job list
      mainstem job list --format wide
    """
    from mainstem.jobs.catalogue import JOBS

    columns = ["job", "summary"]
    rows: list[list[object]] = [[kind.name, kind.summary] for kind in JOBS.values()]
    if settings.format != "text":
        columns.append("options")
        for row, kind in zip(rows, JOBS.values(), strict=True):
            options = {key.name: key.default for key in kind.options.values()}
            texts = [f"{name}={format_value(value)}" for name, value in options.items()]
            row.append(options if settings.format == "json" else " ".join(texts))
    print_rows(settings, columns, rows)


@job.command()
@click.argument("name")
@click.option(
    "-T",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Only this topic; may be repeated.  [default: all]",
)
@warehouse_option
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="OPTION=VALUE",
    help="An option of the job, see `mainstem job list`; may be repeated.",
)
@click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of Spark; may be repeated.  [default: all cores of this machine]",
)
@click.option("--dry-run", is_flag=True, help="Print the plan, change nothing.")
@pass_settings
@reports_errors
def run(
    settings: Settings,
    name: str,
    topics: Sequence[str],
    warehouse: str | None,
    options: Sequence[str],
    conf: Sequence[str],
    dry_run: bool,
) -> None:
    """Run a job once.

    A row for each table that had something to do, and with `--format wide` or `json` for the others
    as well. OUTCOME is `ok`; `nothing`; `superseded`: another writer removed the files first, and
    nothing was done; or `failed`. A table that fails does not stop the others; then the exit code
    is 1. Spark is started only if there is work for it. On a cluster, submit
    `mainstem/jobs/run_job.py`.

    \b
    EXAMPLES
      mainstem job run compaction
      mainstem job run compaction -T orders -o compaction.min.age.ms=0 --dry-run
      mainstem job run compaction --conf spark.master=local[4] --conf spark.driver.memory=2g
    """
    from mainstem.jobs.catalogue import make_job

    try:
        one = make_job(name, parse_pairs(options, "-o"))
    except InvalidConfigError as error:
        raise click.UsageError(error.message) from None
    place = warehouse_place(settings, warehouse)
    if dry_run:
        _print_plan(settings, place, one, topics)
        return
    spark_conf = parse_pairs(conf, "--conf")
    rows = _run(place, one, topics, spark_conf)
    shown = rows
    if settings.format == "text":
        shown = [row for row in rows if row.outcome.kind.value != "nothing"]
        if len(shown) < len(rows):
            say(f"{len(rows) - len(shown)} of {len(rows)} tables had nothing to do")
    columns = [
        "topic",
        "outcome",
        "files_before",
        "files_after",
        "bytes_before",
        "bytes_after",
        "error",
    ]
    if settings.format != "text":
        columns[2:2] = ["attempts", "records_before", "records_after"]
    bodies = [row.to_json() for row in shown]
    if shown or settings.format != "text":
        print_rows(
            settings,
            columns,
            [[body[column] for column in columns] for body in bodies],
            numbers=columns[2:-1],
        )
    if any(row.outcome.kind.value == "failed" for row in rows):
        raise SystemExit(1)


@job.command()
@click.option("--job", "name", metavar="NAME", help="Only runs of this job.")
@click.option("-T", "--topic", metavar="TOPIC", help="Only what was done to this topic.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Print at most so many rows; 0: all.",
)
@warehouse_option
@pass_settings
@reports_errors
def history(
    settings: Settings, name: str | None, topic: str | None, limit: int, warehouse: str | None
) -> None:
    """Print what jobs did to each table, the newest first.

    The rows are those of the Delta table `system/job_history`. A run that found nothing to do with
    a table has no row for it.

    \b
    EXAMPLES
      mainstem job history
      mainstem job history --job compaction -T orders -n 5
      mainstem job history -n 0 --format json > history.ndjson
    """
    from mainstem.jobs.job_history import read_history
    from mainstem.records import format_timestamp_ms

    with opened_warehouse(settings, warehouse) as store:
        rows = read_history(store, job=name, topic=topic, limit=limit)
    bodies = [row.to_json() for row in rows]
    if settings.format == "json":
        columns = list(bodies[0]) if bodies else []
    else:
        for body, row in zip(bodies, rows, strict=True):
            body["started"] = format_timestamp_ms(row.started_ms)
            body["seconds"] = f"{(row.ended_ms - row.started_ms) / 1000:.1f}"
        columns = ["started", "seconds", "job", "topic", "outcome", "files_before", "files_after"]
        if settings.format == "wide":
            columns += ["records_before", "records_after", "bytes_before", "bytes_after"]
            columns += ["attempts", "table_version", "run_id"]
        columns.append("error")
    print_rows(
        settings,
        columns,
        [[body[column] for column in columns] for body in bodies],
        numbers=[
            column
            for column in columns
            if column.endswith(("_before", "_after")) or column in ("seconds", "attempts")
        ],
    )


def _run(
    warehouse: Place, one: Job[Any, Any], topics: Sequence[str], conf: dict[str, str]
) -> list[JobRun]:
    from mainstem.jobs.runner import run_job
    from mainstem.jobs.session import spark_session
    from mainstem.jobs.task_pool import SparkPool

    def pool() -> SparkPool:
        say("starting Spark ...")
        return SparkPool(lambda: spark_session(f"mainstem {one.name}", **conf))

    with _progress_bar(one.name) as on_progress:
        return run_job(warehouse, one, topics, pool=pool, on_progress=on_progress)


def _print_plan(
    settings: Settings, warehouse: Place, one: Job[Any, Any], topics: Sequence[str]
) -> None:
    from mainstem.jobs.runner import plan_job

    plans, failed = plan_job(warehouse, one, topics)
    columns = ["topic", "partition", "what", "files", "records", "bytes"]
    bodies = [{"topic": plan.name, **line.to_json()} for plan in plans for line in plan.lines]
    if bodies:
        rows = [[body[column] for column in columns] for body in bodies]
        numbers = ["partition", "files", "records", "bytes"]
        print_rows(settings, columns, rows, numbers=numbers)
    idle = sum(plan.nothing for plan in plans)
    if idle:
        say(f"{idle} of {len(plans) + len(failed)} tables have nothing to do")
    for topic, error in failed.items():
        say(f"{topic}: {error}")
    if failed:
        raise SystemExit(1)


@contextmanager
def _progress_bar(name: str) -> Iterator[Callable[[RunProgress], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%  {task.fields[tables]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(name, total=None, tables="")

        def show(progress: RunProgress) -> None:
            bar.update(
                task,
                total=progress.bytes_total,
                completed=progress.bytes_done,
                tables=f"{progress.tables_done}/{progress.tables_total} tables",
            )

        yield show
