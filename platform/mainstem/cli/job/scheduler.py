"""`mainstem job status|pause|resume|scheduler`"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from mainstem.cli.context import (
    Settings,
    pass_settings,
    print_rows,
    reports_errors,
    run_each,
    say,
)
from mainstem.cli.help import ExampleCommand
from mainstem.cli.warehouse import opened_warehouse, warehouse_option

if TYPE_CHECKING:
    from mainstem.jobs.scheduler_table import JobRow, LeaseRow


@click.command(cls=ExampleCommand)
@click.option(
    "--jobs",
    "jobs_file",
    type=click.Path(),
    envvar="MAINSTEM_JOBS",
    show_envvar=True,
    help="A TOML file with times and options, as conf/jobs.toml.  [default: the defaults in there]",
)
@warehouse_option
@pass_settings
@reports_errors
def scheduler(settings: Settings, jobs_file: str | None, warehouse: str | None) -> None:
    """Run the maintenance jobs, and pipelines, at their times until SIGTERM or Ctrl-C.

    Several may run on one warehouse: one runs the jobs, the others wait and take over when it ends
    or is not heard of. Spark starts when a job has something to do for it. A job that fails is
    tried again at its next time; what was missed while no scheduler ran is caught up with one run.
    The log goes to stderr, as log.level and log.format of the gateway's settings say. On SIGTERM no
    job starts any more, and those that run have shutdown.grace.ms to end.

    \b
    EXAMPLES
      mainstem job scheduler --warehouse ./warehouse
      mainstem --config conf/gateway.toml job scheduler --jobs conf/jobs.toml
      mainstem -X log.format=json job scheduler --warehouse /data/warehouse
    """
    from mainstem.delta_log.store import parse_warehouse
    from mainstem.ingest_gateway import configure_logging
    from mainstem.jobs.jobs_config import load_jobs_config
    from mainstem.jobs.scheduler_process import serve_scheduler

    gateway = settings.gateway_config(warns=False)
    config = load_jobs_config(jobs_file)
    configure_logging(gateway)
    serve_scheduler(
        parse_warehouse(warehouse or gateway.text("warehouse"), settings=gateway.store_settings()),
        config,
        lambda address: say(f"metrics on {address}") if address else None,
    )


@click.command(cls=ExampleCommand)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@warehouse_option
@pass_settings
@reports_errors
def pause(settings: Settings, names: tuple[str, ...], warehouse: str | None) -> None:
    """Keep jobs from being started by the scheduler, until they are resumed.

    A job that runs is not stopped. The scheduler sees it within its heartbeat interval; it need not
    run at all. `mainstem job run` still runs the job. A pipeline of the scheduler's file is called
    pipeline.NAME.

    \b
    EXAMPLES
      mainstem job pause compaction --warehouse ./warehouse
      mainstem job pause vacuum vacuum-orphans
    """
    _set_paused(settings, names, warehouse, paused=True)


@click.command(cls=ExampleCommand)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@warehouse_option
@pass_settings
@reports_errors
def resume(settings: Settings, names: tuple[str, ...], warehouse: str | None) -> None:
    """Let the scheduler start jobs again that were paused, each at its next time.

    \b
    EXAMPLES
      mainstem job resume compaction --warehouse ./warehouse
    """
    _set_paused(settings, names, warehouse, paused=False)


@click.command(cls=ExampleCommand)
@warehouse_option
@pass_settings
@reports_errors
def status(settings: Settings, warehouse: str | None) -> None:
    """Say what the scheduler does: for each job its state, its last run and its next one.

    STATE is scheduled, running, paused, disabled (enabled = false in the scheduler's file), or
    stopped: no scheduler was heard of. It is read from the warehouse. Exit code 1 when there is no
    scheduler, or the last run of a job failed or was abandoned. `mainstem job history` has the runs
    table by table.

    \b
    EXAMPLES
      mainstem job status --warehouse ./warehouse
      mainstem job status --format wide
      mainstem job status --format json | jq 'select(.outcome == "failed")'
    """
    from mainstem.jobs.catalogue import JOBS
    from mainstem.jobs.scheduler_table import JobRow, jobs_of, lease_of, read_rows

    with opened_warehouse(settings, warehouse) as store:
        rows = read_rows(store)
    now_ms = time.time_ns() // 1_000_000
    lease, known = lease_of(rows), jobs_of(rows)
    alive = lease is not None and now_ms - lease.heartbeat_ms < lease.session_timeout_ms
    _say_scheduler(lease, alive, now_ms)
    columns = ["job", "state", "cron", "started_ms", "seconds", "outcome", "next_ms"]
    if settings.format != "text":
        columns += ["last_success_ms", "error"]
    lines = []
    for name in sorted({*JOBS, *known}):
        row = known.get(name, JobRow())
        facts = _facts(name, row, lease if alive else None)
        if settings.format != "json":
            facts |= {key: _time(facts[key]) for key in facts if key.endswith("_ms")}
        lines.append([facts[column] for column in columns])
    titles = [column.removesuffix("_ms").upper().replace("_", " ") for column in columns]
    print_rows(settings, columns, lines, numbers=["seconds"], titles=titles)
    if not alive or any(row.outcome in ("failed", "abandoned") for row in known.values()):
        raise SystemExit(1)


def _set_paused(
    settings: Settings, names: tuple[str, ...], warehouse: str | None, *, paused: bool
) -> None:
    from mainstem.jobs.catalogue import job_kind
    from mainstem.jobs.jobs_config import PIPELINE_PREFIX
    from mainstem.jobs.scheduler_table import set_paused

    with opened_warehouse(settings, warehouse) as store:

        def act(name: str) -> Mapping[str, object]:
            if not name.startswith(PIPELINE_PREFIX):  # those are of a file that is not here
                job_kind(name)
            changed = set_paused(store, name, paused, time.time_ns() // 1_000_000)
            return {"state": ("paused" if paused else "resumed") if changed else "unchanged"}

        run_each(settings, "job", names, act, columns=["state"])


def _say_scheduler(lease: LeaseRow | None, alive: bool, now_ms: int) -> None:
    if lease is None:
        say("no scheduler runs: start one with `mainstem job scheduler`")
        return
    heard = f"on {lease.host} (pid {lease.pid}), heard of {_ago(now_ms - lease.heartbeat_ms)} ago"
    say(f"the scheduler {heard}" if alive else f"no scheduler runs; the last one was {heard}")


def _facts(name: str, row: JobRow, lease: LeaseRow | None) -> dict[str, object]:
    running = lease is not None and row.running == lease.incarnation
    if running:
        state = "running"
    elif row.paused:
        state = "paused"
    elif lease is None:
        state = "stopped"
    else:
        state = "scheduled" if row.cron else "disabled"
    seconds = None
    if row.started_ms is not None and row.ended_ms is not None and not row.running:
        seconds = (row.ended_ms - row.started_ms) / 1000
    return {
        "job": name,
        "state": state,
        "cron": row.cron,
        "started_ms": row.started_ms,
        "seconds": seconds,
        "outcome": row.outcome,
        "next_ms": row.next_ms if lease is not None else None,
        "last_success_ms": row.last_success_ms,
        "error": row.error,
    }


def _time(ms: object) -> str:
    from mainstem.records import format_timestamp_ms

    return format_timestamp_ms(ms) if isinstance(ms, int) else ""


def _ago(ms: int) -> str:
    seconds = max(ms, 0) // 1000
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
