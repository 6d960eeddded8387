"""What does a pass of a job cost over many topics of which few have changed?

One process that runs each job again and again, as the scheduler does: a first pass over topics with
small files, in which log-cleanup and compaction find work, a second after some of them got another
record, and a third after that happened again. Tasks run in this process, without Spark.

Usage: python benchmarks/job_passes.py [--topics 1000] [--commits 20] [--changed 10] [--open-all]
       [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from idle_topics import fill  # type: ignore[import-not-found]  # the script beside this one

from mainstem.delta_log import LocalStore, Topics
from mainstem.jobs.catalogue import make_job
from mainstem.jobs.quiet_tables import QuietTables
from mainstem.jobs.runner import run_job
from mainstem.jobs.task_pool import InProcessPool

PASSES = ("first", "second", "third")

#: In this order, with the options with which topics that were made a minute ago have work for them.
JOBS = {
    "log-cleanup": {"checkpoint.min.commits": "20"},
    "compaction": {"compaction.min.age.ms": "0"},
    "keyed-compaction": {},
    "retention": {},
    "vacuum": {},
    "vacuum-orphans": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--commits", type=int, default=20, help="of each topic, one record each")
    parser.add_argument("--changed", type=int, default=10, help="topics that change between passes")
    parser.add_argument("--open-all", action="store_true", help="keep no notes between passes")
    parser.add_argument("--directory", help="where the warehouse is made; default: a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="job-passes-") as folder:
        store = LocalStore(Path(folder, "warehouse"))
        topics = Topics(store)
        names = [f"topic-{number:05d}" for number in range(options.topics)]
        for name in names:
            topics.create(name, 1, {})
            fill(topics.open(name), options.commits)
        for job in JOBS:
            quiet = QuietTables(notes_max=0) if options.open_all else QuietTables()
            for turn in PASSES:
                figures = run(store.uri, job, quiet)
                print(json.dumps({"job": job, "pass": turn, **figures}), flush=True)
                for name in names[: options.changed]:
                    fill(topics.open(name), 1)
        store.close()


def run(warehouse: str, job: str, quiet: QuietTables) -> dict[str, object]:
    wall, processor = time.perf_counter(), time.process_time()
    rows = run_job(warehouse, make_job(job, JOBS[job]), pool=InProcessPool, quiet=quiet)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    outcomes = [row.outcome.kind.value for row in rows]
    return {
        "seconds": round(wall, 2),
        "cpu_seconds": round(processor, 2),
        "outcomes": {kind: outcomes.count(kind) for kind in sorted(set(outcomes))},
        "quiet": len(quiet),
    }


if __name__ == "__main__":
    main()
