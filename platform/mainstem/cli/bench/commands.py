"""`mainstem bench ...`"""

from __future__ import annotations

from collections.abc import Sequence

import click

from mainstem.cli.bench.options import (
    acks_option,
    bench_place,
    client_flags,
    directory_option,
    key_bytes_option,
    partitions_option,
    percentiles_text,
    print_figures,
    servers_option,
    topic_config_option,
    value_bytes_option,
)
from mainstem.cli.bench.reading_commands import consume, end_to_end
from mainstem.cli.context import (
    Settings,
    parse_pairs,
    pass_settings,
    print_object,
    reports_errors,
)
from mainstem.cli.help import ExampleGroup


@click.group(cls=ExampleGroup)
def bench() -> None:
    """Measure how fast it is here.

    \b
    EXAMPLES
      mainstem bench produce
      mainstem bench produce --mode sync
      mainstem bench consume
      mainstem bench end-to-end --rate 200
    """


bench.add_command(consume)
bench.add_command(end_to_end)


@bench.command()
@click.option(
    "--records",
    type=click.IntRange(min=1),
    help="Records to measure.  [default: 1000000; sync: 2000]",
)
@value_bytes_option
@key_bytes_option
@partitions_option
@acks_option
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
@topic_config_option
@servers_option
@directory_option
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
      mainstem bench produce --value-bytes 1000 --format json > result.json
      mainstem -X linger.ms=50 bench produce -b 10.0.0.1:9490
    """
    from mainstem.cli.bench.produce import ProduceBenchmark, measure_produce

    is_sync = mode == "sync"
    config = parse_pairs(pairs, "-c")
    if commit_interval_ms is None and is_sync:
        commit_interval_ms = 0
    if commit_interval_ms is not None:
        config.setdefault("commit.interval.ms", str(commit_interval_ms))
    place = bench_place(settings, bootstrap_servers, directory, partitions, config)
    producer: dict[str, object] = {"acks": acks, "compression.type": compression_type}
    if is_sync:
        producer["linger.ms"] = 0
    producer |= client_flags(settings)
    result = measure_produce(
        ProduceBenchmark(
            mode=mode,
            record_count=records or (2_000 if is_sync else 1_000_000),
            warm_up_count=warm_up if warm_up is not None else 100 if is_sync else 400_000,
            value_bytes=value_bytes,
            key_bytes=key_bytes,
            batch_rows=batch_rows,
            producer_config=producer,
        ),
        place,
    )
    if settings.format == "json":
        print_object(settings, result)
        return
    print_figures(
        settings,
        result,
        {
            "records/s": f"{result['records_per_second']:,}",
            "MB/s": f"{result['megabytes_per_second']:,.1f}",
            "ack ms": percentiles_text(result["ack_ms"]),
        },
    )
