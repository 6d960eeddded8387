"""`mainstem bench consume` and `bench end-to-end`: what they print, and how they check it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mainstem.cli.bench import consume as consume_benchmark
from mainstem.cli.root import cli
from mainstem.client import AdminClient, Consumer, ConsumerRecord
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

Bench = Callable[..., Result]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("bench") / "warehouse") as process:
        yield process


@pytest.fixture
def bench(gateway: GatewayProcess) -> Iterator[Bench]:
    """Runs a benchmark against the module's gateway, where no topic may be left."""

    def run(*arguments: str, before: tuple[str, ...] = ()) -> Result:
        return CliRunner().invoke(
            cli, ["--format", "json", *before, "bench", *arguments, "-b", gateway.address]
        )

    yield run
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        assert admin.list_topics() == ()


def the_object(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_consuming_is_measured_from_the_tail_and_from_history(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli,
        [
            *("--format", "json", "-X", "append.threads=2", "-X", "fetch.min.bytes=1"),
            *("bench", "consume", "--records", "5000", "--rounds", "2", "--partitions", "2"),
            *("-c", "commit.interval.ms=20", "--directory", str(tmp_path)),
        ],
    )
    found = the_object(result)
    assert [(one["source"], one["call"]) for one in found["results"]] == [
        (source, call)
        for source in ("tail", "history")
        for call in ("consume", "poll", "poll_batch")
    ]
    for one in found["results"]:
        assert len(one["rounds"]) == 2
        assert min(one["rounds"]) <= one["records_per_second"] <= max(one["rounds"])
        assert one["megabytes_per_second"] > 0
    settings = found["settings"]
    assert (settings["records"], settings["partitions"]) == (5_000, 2)
    assert settings["topic commit.interval.ms"] == "20"
    assert settings["gateway append.threads"] == "2"
    assert settings["fetch.min.bytes"] == "1"
    assert list(tmp_path.iterdir()) == [], "the warehouse is removed"


def test_a_running_gateway_is_measured_from_the_tail_and_printed_as_a_table(
    gateway: GatewayProcess,
) -> None:
    arguments = ["bench", "consume", "--records", "500", "--rounds", "1", "--call", "poll_batch"]
    result = CliRunner().invoke(cli, [*arguments, "-b", gateway.address])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].split() == [
        "SOURCE",
        "CALL",
        "RECORDS/S",
        "MB/S",
        "ROUNDS",
    ]
    assert result.stdout.splitlines()[1].split()[:2] == ["tail", "poll_batch"]
    assert f"gateway          {gateway.address}" in result.stdout


def test_history_needs_a_gateway_of_its_own(bench: Bench) -> None:
    result = bench("consume", "--source", "history")
    assert result.exit_code == 2
    assert "does not go with -b" in result.stderr


def test_records_that_are_missing_fail_the_benchmark(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_benchmark, "_STALL_S", 0.5)
    fill = consume_benchmark._fill

    def fill_less(benchmark: Any, *more: Any) -> None:
        fill(replace(benchmark, record_count=90), *more)

    monkeypatch.setattr(consume_benchmark, "_fill", fill_less)
    result = bench("consume", "--records", "100", "--call", "consume")
    assert result.exit_code == 1
    assert "no record came for 0.5 s after 90 of 100" in result.stderr


def test_latency_is_measured_at_a_rate(bench: Bench) -> None:
    found = the_object(
        bench(
            *("end-to-end", "--rate", "100", "--seconds", "0.5", "--warm-up", "0.1"),
            *("--partitions", "2", "--commit-interval-ms", "5", "--acks", "1"),
            before=("-X", "fetch.max.wait.ms=300", "-X", "batch.size=20000"),
        )
    )
    assert found["records"] == 50
    latency = found["latency_ms"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]
    assert found["sent_per_second"] > 0
    settings = found["settings"]
    assert (settings["acks"], settings["topic commit.interval.ms"]) == ("1", "5")
    assert (settings["fetch.max.wait.ms"], settings["batch.size"]) == ("300", "20000")


def test_a_record_that_comes_twice_fails_the_benchmark(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[ConsumerRecord] = []
    poll = Consumer.poll

    def poll_again(consumer: Any, timeout: float | None = None) -> ConsumerRecord | None:
        record = first[0] if first else poll(consumer, timeout)
        if record is not None:
            first.append(record)
        return record

    monkeypatch.setattr(Consumer, "poll", poll_again)
    result = bench("end-to-end", "--rate", "100", "--seconds", "0.2", "--warm-up", "0")
    assert result.exit_code == 1
    assert "came twice" in result.stderr


def test_a_gateway_that_is_not_there_is_told(tmp_path: Path) -> None:
    for command in ("consume", "end-to-end"):
        arguments = ["--timeout", "1", "bench", command, "-b", "127.0.0.1:1"]
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 1
        assert "GATEWAY_UNAVAILABLE" in result.stderr
