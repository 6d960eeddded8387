"""The process of `mainstem job scheduler`: signals, the metrics' endpoint, the Spark session."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

import structlog

from mainstem.delta_log.store import Place, open_warehouse
from mainstem.jobs.jobs_config import JobsConfig
from mainstem.jobs.scheduler import Scheduler
from mainstem.jobs.scheduler_http import serve_http
from mainstem.jobs.scheduler_metrics import SchedulerMetrics
from mainstem.jobs.spark_runs import SparkRuns

log = structlog.get_logger()


def serve_scheduler(
    warehouse: Place, config: JobsConfig, on_ready: Callable[[str], None] = lambda _: None
) -> None:
    """Runs jobs at their times until SIGTERM, SIGINT or SIGHUP, then lets those that run end.

    When one does not end in time, this ends the process with exit code 1: its thread would keep it
    alive.

    Args:
        on_ready: Gets host:port of the metrics' endpoint, empty without one, before the first job.

    Raises:
        StoreUnavailableError: There is no such warehouse.
        InvalidConfigError: The metrics' endpoint cannot be bound.
    """
    store = open_warehouse(warehouse)
    metrics = SchedulerMetrics()
    runs = SparkRuns(warehouse, config.spark)
    with contextlib.ExitStack() as at_end:
        at_end.callback(store.close)
        listener = config.text("metrics.listeners")
        scheduler = Scheduler(store, config, runs.run, runs.abandon, metrics=metrics)
        address = ""
        if listener:
            server = serve_http(listener, scheduler, metrics, store.uri)
            at_end.callback(server.close)
            address = server.address

        def stop(_number: int, _frame: FrameType | None) -> None:
            scheduler.stop()

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, stop)
        log.info("scheduler ready", warehouse=store.uri, metrics=address)
        on_ready(address)
        clean = scheduler.run()
        if not clean:
            log.error("a job did not end within shutdown.grace.ms")
            logging.shutdown()
            sys.stdout.flush()
            os._exit(1)
        runs.close()
