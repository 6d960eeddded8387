"""`mainstem bench ...`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from mainstem.cli._context import (
    Settings,
    out,
    parse_pairs,
    pass_settings,
    print_object,
    reports_errors,
)
from mainstem.cli._help import ExampleGroup
from mainstem.config import GATEWAY_KEYS


@click.group(cls=ExampleGroup)
def bench() -> None:
    """Measure how fast it is here.

    \b
    EXAMPLES
      mainstem bench produce
      mainstem bench produce --mode sync
    """


@bench.command()
@click.option(
    "--records",
    type=click.IntRange(min=1),
    help="Records to measure.  [default: 1000000; sync: 2000]",
)
@click.option(
    "--value-bytes",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Size of a value; values are random bytes.",
)
@click.option(
    "--key-bytes",
    type=click.IntRange(min=0),
    default=16,
    show_default=True,
    help="Size of a key; 0: no key.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=6,
    show_default=True,
    help="Partitions of the topic.",
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="When a record counts as delivered.",
)
@click.option(
    "--mode",
    type=click.Choice(["record", "batch", "sync"]),
    default="record",
    show_default=True,
    help="What is called: produce() for each record, produce_batch(), or send() and wait.",
)
@click.option(
    "--batch-rows",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Rows of a batch in mode batch.",
)
@click.option(
    "--warm-up",
    type=click.IntRange(min=0),
    help="Records before the measurement, by the same process.  [default: 400000; sync: 100]",
)
@click.option(
    "--commit-interval-ms",
    type=click.IntRange(min=0),
    help="commit.interval.ms of the topic.  [default: the topic's default; sync: 0]",
)
@click.option(
    "--compression-type",
    type=click.Choice(["none", "lz4", "zstd", "gzip"]),
    default="none",
    show_default=True,
    help="How requests are compressed on their way.",
)
@click.option(
    "-c",
    "--config",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Another setting of the topic; may be repeated.",
)
@click.option(
    "-b",
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    help="Measure these gateways.  [default: one that is started for it]",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False),
    help="Where the started gateway's warehouse is made, and removed.  [default: the system's "
    "temporary directory]",
)
@pass_settings
@reports_errors
def produce(
    settings: Settings,
    records: int | None,
    value_bytes: int,
    key_bytes: int,
    partitions: int,
    acks: str,
    mode: str,
    batch_rows: int,
    warm_up: int | None,
    commit_interval_ms: int | None,
    compression_type: str,
    pairs: Sequence[str],
    bootstrap_servers: str | None,
    directory: str | None,
) -> None:
    """Measure producing: records/s, MB/s, and the time to the acknowledgement.

    The clock runs from the first call until all records are acknowledged. MB/s counts the bytes of
    keys and values (1 MB = 1,000,000 bytes). `ack` is the time from the call to the
    acknowledgement (with acks=0: until the gateway has read it): of every 1,000th record in mode
    record, of each batch, of each record in mode sync. When a producer is driven as fast as it can,
    most of it is waiting for room in its own buffer (buffer.memory).

    The topic is made for the measurement and deleted after it. At the end its high watermarks must
    sum to the number of records sent, else it is a failure. The peak memory is the gateway's
    (Linux; only of a gateway started here), the warm-up included.

    Settings with `-X` go to the producer, or to the started gateway if it is one of its own.

    \b
    EXAMPLES
      mainstem bench produce
      mainstem bench produce --mode batch --records 10000000 --batch-rows 40000
      mainstem bench produce --mode sync
      mainstem --format json bench produce --value-bytes 1000 > result.json
      mainstem -X linger.ms=50 bench produce -b 10.0.0.1:9490
    """
    from mainstem.cli._bench_produce import ProduceBenchmark, measure_produce

    is_sync = mode == "sync"
    config = parse_pairs(pairs, "-c")
    if commit_interval_ms is None and is_sync:
        commit_interval_ms = 0
    if commit_interval_ms is not None:
        config.setdefault("commit.interval.ms", str(commit_interval_ms))
    gateway = {name: value for name, value in settings.flags.items() if name in GATEWAY_KEYS}
    if gateway and bootstrap_servers:
        raise click.UsageError(
            f"{', '.join(gateway)}: a setting of the gateway, which runs already"
        )
    producer: dict[str, object] = {"acks": acks, "compression.type": compression_type}
    if is_sync:
        producer["linger.ms"] = 0
    producer |= {name: v for name, v in settings.flags.items() if name not in GATEWAY_KEYS}
    result = measure_produce(
        ProduceBenchmark(
            mode=mode,
            record_count=records or (2_000 if is_sync else 1_000_000),
            warm_up_count=warm_up if warm_up is not None else 100 if is_sync else 400_000,
            value_bytes=value_bytes,
            key_bytes=key_bytes,
            partition_count=partitions,
            batch_rows=batch_rows,
            topic_config=config,
            producer_config=producer,
            gateway_config=gateway,
        ),
        bootstrap_servers,
        directory,
        settings.timeout_s,
    )
    if settings.format == "json":
        print_object(settings, result)
    else:
        _print_result(settings, result)


def _print_result(settings: Settings, result: Mapping[str, Any]) -> None:
    ack = "  ".join(f"{name} {value:,.1f}" for name, value in result["ack_ms"].items())
    peak = result["gateway_peak_rss_bytes"]
    print_object(
        settings,
        {
            "records/s": f"{result['records_per_second']:,}",
            "MB/s": f"{result['megabytes_per_second']:,.1f}",
            "ack ms": ack,
            "gateway peak memory": "unknown" if peak is None else f"{peak / 1e6:,.0f} MB",
        },
    )
    out.print()
    print_object(settings, result["settings"])
