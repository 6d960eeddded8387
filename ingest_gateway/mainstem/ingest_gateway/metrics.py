"""What a gateway counts and measures, for Prometheus."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mainstem.delta_log import Appender
from mainstem.delta_log.store import DiskCache, Warehouse
from mainstem.delta_log.wal import Wal
from mainstem.errors import MainstemError
from mainstem.metrics import process_registry

Appenders = Callable[[], Iterable[Appender]]


class GatewayMetrics:
    """The metrics of one gateway, in a registry of its own.

    Labels are bounded: `topic` is a topic that exists, `reason` one of our codes.
    """

    def __init__(self) -> None:
        self.registry = process_registry()
        #: Bytes of records that were accepted, and that were given, since the gateway started.
        self.in_bytes = self.out_bytes = 0
        self._produce_records = self._counter("produce_records", "Records accepted.", "topic")
        self._produce_bytes = self._counter("produce_bytes", "Bytes of records accepted.", "topic")
        self.produce_rejected = self._counter("produce_rejected", "Requests refused.", "reason")
        self._fetch_records = self._counter("fetch_records", "Records given to readers.", "topic")
        self._fetch_bytes = self._counter("fetch_bytes", "Bytes of records given.", "topic")
        self.checkpoints = self._counter("checkpoints", "Checkpoints of topic tables.", "outcome")
        self.log_repairs = self._counter("log_repairs", "Files of logs that were mended.", "file")
        self.background_task_ends = self._counter(
            "background_task_ends",
            "Background tasks of the gateway that ended without having been told to. Each starts "
            "again by itself; the log has the reason.",
            "task",
        )
        self._commits = self._counter("table_commits", "Attempts at a table commit.", "outcome")
        self._roll_ups = self._counter("roll_ups", "Small files that were made one.", "outcome")
        self._rolled_up_files = self._counter(
            "rolled_up_files", "Small files that were, or were to be, made one.", "outcome"
        )
        self._duplicates = Counter(
            "mainstem_produce_duplicates",
            "Batches that idempotent producers sent again, and that were not stored again.",
            registry=self.registry,
        )
        self._producers_forgotten = self._counter(
            "producers_forgotten",
            "Producers in a partition that are not known any more: silent for too long, or for "
            "want of memory.",
            "reason",
        )
        self.producer_bytes = Gauge(
            "mainstem_producer_state_bytes",
            "Bytes of what is remembered of idempotent producers.",
            registry=self.registry,
        )
        self._orphaned_records = Counter(
            "mainstem_wal_orphaned_records",
            "Records acknowledged with acks=1 that another gateway's lead has kept from the table.",
            registry=self.registry,
        )
        self.wal_bytes = Gauge(
            "mainstem_wal_bytes", "Bytes of the write-ahead log.", registry=self.registry
        )
        self.wal_waiting = Gauge(
            "mainstem_wal_waiting_requests",
            "Requests in the write-ahead log whose topic is led elsewhere or not found.",
            registry=self.registry,
        )
        self._append = Histogram(
            "mainstem_append_seconds",
            "Time of a request in the queue, and of a table commit's encoding and commit.",
            ["stage"],
            registry=self.registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        #: Looked up once: each commit has several.
        self._append_stages = {
            stage: self._append.labels(stage) for stage in ("queue", "encode", "commit")
        }
        self.roll_up_bytes = Gauge(
            "mainstem_roll_up_bytes",
            "Bytes of small files that are kept until they are made one.",
            registry=self.registry,
        )
        self.queued_bytes = Gauge(
            "mainstem_queued_bytes", "Bytes accepted and not yet committed.", registry=self.registry
        )
        self.topics_waiting = Gauge(
            "mainstem_commit_waiting_topics",
            "Topics whose next table commit waits for its turn: see commit.rate.",
            registry=self.registry,
        )
        self._gateways = Gauge(
            "mainstem_gateways",
            "Gateways of the warehouse that are there, as this one sees them; itself among them.",
            ["state"],
            registry=self.registry,
        )
        self._topics_led = Gauge(
            "mainstem_topics_led", "Topics that are led here.", registry=self.registry
        )
        build = Gauge("mainstem_build_info", "Always 1.", ["version"], registry=self.registry)
        build.labels(version("mainstem")).set(1)

    def cluster(self, *, live_count: int, draining_count: int, topics_led: int) -> None:
        """Notes which gateways there are, and how many topics this one leads."""
        self._gateways.labels("live").set(live_count)
        self._gateways.labels("draining").set(draining_count)
        self._topics_led.set(topics_led)

    def watch_topics(self, appenders: Appenders) -> None:
        """Shows offsets and sizes of the topics that are led, asked for in other threads."""
        self.registry.register(_Topics(appenders))

    def watch_store(self, store: Warehouse) -> None:
        """Shows the store's failures and its free space, asked for in other threads."""
        self.registry.register(_Store(store))

    def watch_cache(self, cache: DiskCache) -> None:
        """Shows what the cache on a local disk gives and has, asked for in other threads."""
        self.registry.register(_Cache(cache))

    def watch_wal(self, wal: Wal) -> None:
        """Shows the size and the failures of the write-ahead log, asked for in other threads."""
        self.wal_bytes.set_function(lambda: wal.size_bytes)
        self.registry.register(_WalFailures(wal))

    def accepted(self, topic: str, record_count: int, record_bytes: int) -> None:
        """Counts records of a producer."""
        self._produce_records.labels(topic).inc(record_count)
        self._produce_bytes.labels(topic).inc(record_bytes)
        self.in_bytes += record_bytes

    def given(self, topic: str, record_count: int, record_bytes: int) -> None:
        """Counts records that a reader got."""
        self._fetch_records.labels(topic).inc(record_count)
        self._fetch_bytes.labels(topic).inc(record_bytes)
        self.out_bytes += record_bytes

    def forget_topic(self, topic: str) -> None:
        """Drops what carries the name of a topic that is no more."""
        for counter in (
            self._produce_records,
            self._produce_bytes,
            self._fetch_records,
            self._fetch_bytes,
        ):
            with contextlib.suppress(KeyError):
                counter.remove(topic)

    def append_seconds(self, stage: str, seconds: float) -> None:
        self._append_stages[stage].observe(seconds)

    def table_commit(self, outcome: str) -> None:
        self._commits.labels(outcome).inc()

    def duplicates(self, batch_count: int) -> None:
        self._duplicates.inc(batch_count)

    def roll_up(self, outcome: str, file_count: int) -> None:
        self._roll_ups.labels(outcome).inc()
        self._rolled_up_files.labels(outcome).inc(file_count)

    def orphaned(self, record_count: int) -> None:
        self._orphaned_records.inc(record_count)

    def producers_forgotten(self, reason: str, count: int) -> None:
        self._producers_forgotten.labels(reason).inc(count)

    def _counter(self, name: str, doc: str, label: str) -> Counter:
        return Counter(f"mainstem_{name}", doc, [label], registry=self.registry)


class _WalFailures(Collector):
    """Counted by the log itself."""

    def __init__(self, wal: Wal) -> None:
        self._wal = wal

    def collect(self) -> Iterator[CounterMetricFamily]:
        found = CounterMetricFamily(
            "mainstem_wal_failures",
            "Attempts to write to the write-ahead log that failed.",
            labels=["reason"],
        )
        for reason, count in list(self._wal.failures.items()):
            found.add_metric([reason], count)
        yield found


class _Store(Collector):
    """What the store has failed at, and what is free there."""

    def __init__(self, store: Warehouse) -> None:
        self._store = store

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        failures = CounterMetricFamily(
            "mainstem_store_failures", "Calls to the store that failed.", labels=["reason"]
        )
        for reason, count in self._store.failures.items():
            failures.add_metric([reason], count)
        yield failures
        free = GaugeMetricFamily(
            "mainstem_warehouse_free_bytes", "Bytes that are free on the disk of the warehouse."
        )
        with contextlib.suppress(MainstemError):
            free_bytes = self._store.free_bytes()
            if free_bytes is not None:
                free.add_metric([], free_bytes)
        yield free


class _Cache(Collector):
    """What the cache on a local disk has done."""

    def __init__(self, cache: DiskCache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        counts = self._cache.counts
        yield GaugeMetricFamily(
            "mainstem_fetch_cache_disk_bytes",
            "Bytes in fetch.cache.directory.",
            value=counts.used_bytes,
        )
        lookups = CounterMetricFamily(
            "mainstem_fetch_cache_disk_lookups",
            "Parts of data files that were looked for in fetch.cache.directory.",
            labels=["outcome"],
        )
        lookups.add_metric(["hit"], counts.hits)
        lookups.add_metric(["miss"], counts.misses)
        yield lookups
        failures = CounterMetricFamily(
            "mainstem_fetch_cache_disk_failures",
            "Failures of the disk of fetch.cache.directory; reads went to the store.",
            labels=["reason"],
        )
        for reason, count in counts.failures.items():
            failures.add_metric([reason], count)
        yield failures


class _Topics(Collector):
    """Offsets and sizes of topics, read when somebody asks."""

    def __init__(self, appenders: Appenders) -> None:
        self._appenders = appenders

    def collect(self) -> Iterator[GaugeMetricFamily]:
        high_watermark = GaugeMetricFamily(
            "mainstem_topic_partition_high_watermark",
            "One past the last committed offset.",
            labels=["topic", "partition"],
        )
        log_start_offset = GaugeMetricFamily(
            "mainstem_topic_partition_log_start_offset",
            "The first offset that can be read.",
            labels=["topic", "partition"],
        )
        log_end_offset = GaugeMetricFamily(
            "mainstem_topic_partition_log_end_offset",
            "One past the last accepted offset.",
            labels=["topic", "partition"],
        )
        table_files = GaugeMetricFamily(
            "mainstem_table_files", "Data files of the topic's table.", labels=["topic"]
        )
        table_bytes = GaugeMetricFamily(
            "mainstem_table_bytes", "Bytes of the topic's data files.", labels=["topic"]
        )
        oldest = GaugeMetricFamily(
            "mainstem_oldest_uncommitted_seconds",
            "For how long the oldest accepted request waits to be in the table; 0: there is none, "
            "or its answer was given already and its commit may come later.",
            labels=["topic"],
        )
        for appender in self._appenders():
            oldest.add_metric([appender.topic], appender.oldest_waiting_s)
            topic, state = appender.topic, appender.state
            for partition in range(state.partition_count):
                labels = [topic, str(partition)]
                high_watermark.add_metric(labels, state.log_end_offset(partition))
                log_start_offset.add_metric(labels, state.log_start_offset(partition))
                log_end_offset.add_metric(labels, appender.log_end_offset(partition))
            table_files.add_metric([topic], state.file_count)
            table_bytes.add_metric([topic], state.size_bytes)
        yield oldest
        yield table_files
        yield table_bytes
        yield high_watermark
        yield log_end_offset
        yield log_start_offset
