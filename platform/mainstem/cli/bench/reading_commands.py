"""`mainstem bench consume` and `mainstem bench end-to-end`"""

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
from mainstem.cli.context import (
    Settings,
    out,
    parse_pairs,
    pass_settings,
    print_object,
    print_rows,
    reports_errors,
    split_flags,
)
from mainstem.cli.help import ExampleCommand


@click.command(cls=ExampleCommand)
@click.option(
    "--records",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Records to read.",
)
@value_bytes_option
@key_bytes_option
@partitions_option
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Choice(["tail", "history"]),
    help="From where; may be repeated.  [default: both; with -b: tail]",
)
@click.option(
    "--call",
    "calls",
    multiple=True,
    type=click.Choice(["consume", "poll", "poll_batch"]),
    help="What is called; may be repeated.  [default: all three]",
)
@click.option(
    "--at-once",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="Records that consume() is asked for.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How often each is measured.",
)
@topic_config_option
@servers_option
@directory_option
@pass_settings
@reports_errors
def consume(
    settings: Settings,
    records: int,
    value_bytes: int,
    key_bytes: int,
    partitions: int,
    sources: Sequence[str],
    calls: Sequence[str],
    at_once: int,
    rounds: int,
    pairs: Sequence[str],
    bootstrap_servers: str | None,
    directory: str | None,
) -> None:
    """Measure consuming: records/s and MB/s, through each call.

    A topic is filled, then read from its start to its end by a new consumer in each round, without
    a group. The clock runs from assign() to the last record. Printed is the median of the rounds.
    Tail: the gateway has just taken the records and has the newest of them in memory. History: it
    was restarted before each round and reads the data files, which the system may still have in
    memory.

    Each round must read as many records as were written, and end at the high watermarks, else it is
    a failure. MB/s counts the bytes of keys and values (1 MB = 1,000,000 bytes). The topic is
    deleted after it.

    Settings with `-X` go to the consumer, or to the started gateway if it is one of its own.

    \b
    EXAMPLES
      mainstem bench consume
      mainstem bench consume --call poll_batch --source history --records 10000000
      mainstem -X fetch.max.bytes=8388608 bench consume --call consume --at-once 100
      mainstem bench consume -b 10.0.0.1:9490 --format json > result.json
    """
    from mainstem.cli.bench.consume import ConsumeBenchmark, measure_consume

    if bootstrap_servers and "history" in sources:
        raise click.UsageError("--source history restarts the gateway, so it does not go with -b")
    place = bench_place(
        settings, bootstrap_servers, directory, partitions, parse_pairs(pairs, "-c")
    )
    result = measure_consume(
        ConsumeBenchmark(
            record_count=records,
            value_bytes=value_bytes,
            key_bytes=key_bytes,
            sources=tuple(dict.fromkeys(sources))
            or (("tail",) if bootstrap_servers else ("tail", "history")),
            calls=tuple(dict.fromkeys(calls)) or ("consume", "poll", "poll_batch"),
            rounds=rounds,
            records_at_once=at_once,
            consumer_config=client_flags(settings),
        ),
        place,
    )
    if settings.format == "json":
        print_object(settings, result)
        return
    columns = ["source", "call", "records/s", "MB/s", "rounds"]
    rows = [
        [
            one["source"],
            one["call"],
            f"{one['records_per_second']:,}",
            f"{one['megabytes_per_second']:,.1f}",
            "  ".join(f"{rate:,}" for rate in one["rounds"]),
        ]
        for one in result["results"]
    ]
    print_rows(settings, columns, rows, numbers=columns[2:4])
    out.print()
    print_figures(settings, result, {})


@click.command("end-to-end", cls=ExampleCommand)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=200.0,
    show_default=True,
    help="Records a second.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="How long it is measured.",
)
@click.option(
    "--warm-up",
    type=click.FloatRange(min=0),
    default=2.0,
    show_default=True,
    help="Seconds of the same before the measurement.",
)
@click.option(
    "--value-bytes",
    type=click.IntRange(min=16),
    default=100,
    show_default=True,
    help="Size of a value.",
)
@partitions_option
@acks_option
@click.option(
    "--commit-interval-ms",
    type=click.IntRange(min=0),
    help="commit.interval.ms of the topic.  [default: the topic's default]",
)
@topic_config_option
@servers_option
@directory_option
@pass_settings
@reports_errors
def end_to_end(
    settings: Settings,
    rate: float,
    seconds: float,
    warm_up: float,
    value_bytes: int,
    partitions: int,
    acks: str,
    commit_interval_ms: int | None,
    pairs: Sequence[str],
    bootstrap_servers: str | None,
    directory: str | None,
) -> None:
    """Measure the time from produce() to poll(): p50, p95, p99 and the longest.

    One thread produces records without keys on a timetable, with linger.ms=0, and does not wait for
    answers; another polls them, in the same process and with the same clock. `sent/s` below the
    rate says that the machine did not keep up. A record is seen when its table commit is done, so
    commit.interval.ms is most of it, unless the consumer reads to the durable mark:
    -X fetch.visibility=durable with acks=1.

    A record that is lost or comes twice is a failure. The topic is deleted after it.

    Settings with `-X` go to the producer and the consumer, or to the started gateway.

    \b
    EXAMPLES
      mainstem bench end-to-end
      mainstem bench end-to-end --commit-interval-ms 5
      mainstem bench end-to-end --rate 5000 --seconds 30 --partitions 1
      mainstem -X fetch.max.wait.ms=100 bench end-to-end -b 10.0.0.1:9490
    """
    from mainstem.cli.bench.latency import LatencyBenchmark, measure_latency

    config = parse_pairs(pairs, "-c")
    if commit_interval_ms is not None:
        config.setdefault("commit.interval.ms", str(commit_interval_ms))
    place = bench_place(settings, bootstrap_servers, directory, partitions, config)
    flags = client_flags(settings)
    producer, consumer = split_flags(flags)
    result = measure_latency(
        LatencyBenchmark(
            rate=rate,
            seconds=seconds,
            warm_up_seconds=warm_up,
            value_bytes=value_bytes,
            producer_config={"acks": acks, "linger.ms": 0, **producer},
            consumer_config=consumer,
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
            "latency ms": percentiles_text(result["latency_ms"]),
            "records": f"{result['records']:,}",
            "sent/s": f"{result['sent_per_second']:,}",
        },
    )
