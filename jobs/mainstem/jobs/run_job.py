"""A job as a plain Spark application, for a cluster:

    spark-submit --master spark://... .../mainstem/jobs/run_job.py compaction --warehouse URI

Every node needs mainstem in the Python that `PYSPARK_PYTHON` names, and the warehouse at the same
URI. How an object storage service is reached (`store.*` in `--config FILE`, in the environment or
with `-X`) the tasks are told; else each node finds it as the service's own tools do. Delta's jars
are not needed: tasks read and write the data files by themselves. One JSON object a table goes to
stdout; exit code 1: a table failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainstem.config import load_gateway_config
from mainstem.delta_log.store import parse_warehouse
from mainstem.errors import InvalidConfigError, MainstemError
from mainstem.jobs.catalogue import JOBS, make_job
from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.runner import plan_job, run_job
from mainstem.jobs.task_pool import SparkPool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job that the command line names; returns the exit code."""
    given = _parser().parse_args(arguments)
    try:
        job = make_job(given.job, dict(_pair(text) for text in given.options))
        config = load_gateway_config(
            given.config, flags=dict(_pair(text) for text in given.settings)
        )
        place = parse_warehouse(given.warehouse, settings=config.store_settings())
        if given.dry_run:
            plans, errors = plan_job(place, job, given.topics)
            for plan in plans:
                for line in plan.lines:
                    _print({"topic": plan.name, **line.to_json()})
            for topic, error in errors.items():
                _print({"topic": topic, "error": error})
            return 1 if errors else 0
        rows = run_job(
            place,
            job,
            given.topics,
            pool=lambda: SparkPool(lambda: _session(f"mainstem {given.job}")),
        )
    except MainstemError as error:
        print(f"error: {error.code}: {error.message}", file=sys.stderr)
        return 2 if isinstance(error, InvalidConfigError) else 1
    for row in rows:
        _print(row.to_json())
    return 1 if any(row.outcome.kind is OutcomeKind.FAILED for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run_job.py", description="Run a maintenance job of mainstem once."
    )
    parser.add_argument("job", help=f"one of {', '.join(JOBS)}")
    parser.add_argument("--warehouse", required=True, help="where the tables are")
    parser.add_argument(
        "-T", "--topic", dest="topics", action="append", default=[], help="only this; default: all"
    )
    parser.add_argument(
        "-o", dest="options", action="append", default=[], metavar="OPTION=VALUE", help="of the job"
    )
    parser.add_argument(
        "--config", metavar="FILE", help="the gateway's settings, of which store.* are used"
    )
    parser.add_argument(
        "-X",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting; one that is secret can be seen in the list of processes",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidConfigError(f"{text!r} is not NAME=VALUE", name=text)
    return name.strip(), value.strip()


def _print(body: dict[str, object]) -> None:
    print(json.dumps(body), flush=True)


def _session(app_name: str) -> SparkSession:
    from pyspark.sql import SparkSession

    from mainstem.jobs.session import spark_session

    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM
        return SparkSession.builder.appName(app_name).getOrCreate()
    return spark_session(app_name)


if __name__ == "__main__":
    sys.exit(main())
