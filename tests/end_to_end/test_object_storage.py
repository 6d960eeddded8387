"""A warehouse in an object storage service: real gateways on a server that speaks S3."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.faulty_http import Faults, faulty_proxy
from tests.s3_server import S3Server, free_port

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.delta_log import Topics
from mainstem.delta_log.store import open_warehouse
from mainstem.testing import GatewayProcess, GatewayProcessError

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(180)]

PARTITIONS = 2


def _verify(warehouse: str) -> None:
    """Every promise of the log holds, as far as its files say."""
    command = [sys.executable, "-m", "mainstem.cli", "cluster", "verify", "--warehouse", warehouse]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "orders" in result.stdout


def _read_with_examples(root: Path, warehouse: str) -> None:
    """Other readers of Delta tables, told by the environment alone how to reach it."""
    for name in ("read_duckdb.py", "read_polars.py"):
        command = [sys.executable, str(root / "examples" / name), warehouse, "orders"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "partition 0: 20 records, offsets 0 to 19" in result.stdout, result.stderr


def _use(monkeypatch: pytest.MonkeyPatch, server: S3Server, url: str | None = None) -> None:
    for name, value in server.options.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", url or server.url)


def _send(gateway: GatewayProcess, first: int, count: int) -> None:
    """Sends the numbers in tens, each of which is a commit, and looks at their offsets."""
    config = {"bootstrap.servers": gateway.address, "delivery.timeout.ms": 100_000}
    with Producer(config) as producer:
        for start in range(first, first + count, 10):
            sent = {
                number: producer.send("orders", b"%d" % number, partition=number % PARTITIONS)
                for number in range(start, start + 10)
            }
            for number, future in sent.items():
                assert future.result(100).offset == number // PARTITIONS


def _read_all(gateway: GatewayProcess, count: int) -> list[int]:
    with Consumer({"bootstrap.servers": gateway.address}) as consumer:
        consumer.assign([TopicPartition("orders", n, 0) for n in range(PARTITIONS)])
        found: list[int] = []
        while len(found) < count:
            records = consumer.consume(count - len(found), 60)
            assert records, f"{len(found)} of {count} records"
            found += [int(record.value or b"") for record in records]
    return sorted(found)


def test_a_topic_in_s3_is_written_read_and_verified_and_survives_a_killed_gateway(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo_root: Path
) -> None:
    _use(monkeypatch, s3_server)
    warehouse = f"s3://{s3_server.make_bucket()}/lake/streams"
    settings = {"wal.directory": tmp_path / "wal", "checkpoint.interval.commits": 2}
    with GatewayProcess(warehouse, settings=settings) as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            admin.create_topic("orders", PARTITIONS)
        _send(gateway, 0, 30)
        config = {"bootstrap.servers": gateway.address, "group.id": "g"}
        with Consumer({**config, "enable.auto.commit": False}) as consumer:
            consumer.commit(offsets=[TopicPartition("orders", 0, 7)])
        os.kill(gateway.pid, signal.SIGKILL)
        gateway.restart()
        _send(gateway, 30, 10)
        assert _read_all(gateway, 40) == list(range(40))
        with Consumer(config) as consumer:
            committed = consumer.committed([TopicPartition("orders", 0)])
            assert [partition.offset for partition in committed] == [7]
        _verify(warehouse)
        _read_with_examples(repo_root, warehouse)
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            admin.delete_topic("orders")
            assert not admin.list_topics()


def test_what_acks_1_promised_survives_the_machine_whoever_takes_the_topic_over(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No gateway has a disk of its own. What is not in the table yet is only in the log."""
    _use(monkeypatch, s3_server)
    warehouse = f"s3://{s3_server.make_bucket()}/lake/streams"
    quick: dict[str, object] = {
        "gateway.heartbeat.interval.ms": 1_000,
        "gateway.session.timeout.ms": 3_000,
    }
    with ExitStack() as stack:
        one = stack.enter_context(
            GatewayProcess(warehouse, settings={**quick, "gateway.id": "one"})
        )
        with AdminClient({"bootstrap.servers": one.address}) as admin:
            admin.create_topic("orders", PARTITIONS, {"commit.interval.ms": 60_000})
        _send_acks_1(one, 0, 10)
        os.kill(one.pid, signal.SIGKILL)
        assert _committed_count(warehouse) < 10
        two = stack.enter_context(
            GatewayProcess(warehouse, settings={**quick, "gateway.id": "two"})
        )
        assert _read_all(two, 10) == list(range(10))
        _send_acks_1(two, 10, 30)
        os.kill(two.pid, signal.SIGKILL)
        assert _committed_count(warehouse) < 40
        two.restart()  # its own successor takes it over in the same way
        assert _read_all(two, 40) == list(range(40))
        _verify(warehouse)


def _send_acks_1(gateway: GatewayProcess, first: int, count: int) -> None:
    """The first one alone: it is committed at once, and those that follow are not."""
    with Producer({"bootstrap.servers": gateway.address, "acks": 1, "linger.ms": 0}) as producer:
        for numbers in (range(first, first + 1), range(first + 1, first + count)):
            sent = [
                producer.send("orders", b"%d" % number, partition=number % PARTITIONS)
                for number in numbers
            ]
            for number, future in zip(numbers, sent, strict=True):
                assert future.result(60).offset == number // PARTITIONS


def _committed_count(warehouse: str) -> int:
    """How many records are in the table."""
    with closing(open_warehouse(warehouse)) as store:
        state = Topics(store).open("orders").state
        return sum(state.log_end_offset(partition) for partition in range(PARTITIONS))


def test_answers_that_are_lost_and_errors_of_the_service_lose_and_double_nothing(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    faults = Faults(0.0, rng)
    with faulty_proxy(s3_server.url, faults) as url:
        _use(monkeypatch, s3_server, url)
        warehouse = f"s3://{s3_server.make_bucket()}/lake"
        settings = {"wal.directory": tmp_path / "wal", "checkpoint.interval.commits": 10}
        with GatewayProcess(warehouse, settings=settings) as gateway:
            with AdminClient({"bootstrap.servers": gateway.address}) as admin:
                admin.create_topic("orders", PARTITIONS)
            faults.rate = 0.2
            _send(gateway, 0, 80)
            assert _read_all(gateway, 80) == list(range(80))
            faults.rate = 0.0
            _verify(warehouse)
    assert sum(faults.happened.values()) > 5
    assert any(kind.startswith("PUT") for kind in faults.happened)


def test_a_commit_to_a_topic_that_is_in_use_lists_nothing_and_takes_five_requests_at_most(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults()
    with faulty_proxy(s3_server.url, faults) as url:
        _use(monkeypatch, s3_server, url)
        settings = {
            "wal.directory": tmp_path / "wal",
            # Nothing else in the way: heartbeats are requests of their own.
            "gateway.heartbeat.interval.ms": 60_000,
            "gateway.session.timeout.ms": 120_000,
        }
        with GatewayProcess(f"s3://{s3_server.make_bucket()}/lake", settings=settings) as gateway:
            with AdminClient({"bootstrap.servers": gateway.address}) as admin:
                admin.create_topic("orders", PARTITIONS, {"rollup.files": 0})
            config = {"bootstrap.servers": gateway.address, "linger.ms": 0}
            with Producer(config) as producer:
                for _ in range(3):
                    producer.send("orders", b"x", partition=0).result(60)
                before, listed = faults.requests.total(), Counter(faults.listings)
                for _ in range(20):
                    producer.send("orders", b"x", partition=0).result(60)
                requests = faults.requests.total() - before
            assert not [prefix for prefix in faults.listings - listed if "orders" in prefix]
            assert requests <= 20 * 5 + 10
            assert _read_some(gateway) == 23


def _read_some(gateway: GatewayProcess) -> int:
    """How many records a consumer finds in the first partition."""
    with Consumer({"bootstrap.servers": gateway.address}) as consumer:
        consumer.assign([TopicPartition("orders", 0, 0)])
        found = 0
        while found < 23:
            found += len(consumer.consume(23 - found, 60))
        return found


def test_what_was_read_is_read_again_from_the_gateways_own_disk_whatever_becomes_of_that(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(monkeypatch, s3_server)
    warehouse = f"s3://{s3_server.make_bucket()}/lake"
    cache = tmp_path / "cache"
    metrics = f"127.0.0.1:{free_port()}"
    settings = {
        "wal.directory": tmp_path / "wal",
        "fetch.cache.directory": cache,
        "fetch.cache.bytes": 0,
    }

    def counted(line: str) -> float:
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
        found = re.search(
            rf"^mainstem_fetch_cache_disk_{re.escape(line)} (.*)$", text, re.MULTILINE
        )
        return float(found[1]) if found else 0.0

    with GatewayProcess(warehouse, settings=settings | {"metrics.listeners": metrics}) as gateway:
        with AdminClient({"bootstrap.servers": gateway.address}) as admin:
            admin.create_topic("orders", PARTITIONS, {"rollup.files": 0})
        _send(gateway, 0, 20)
        assert _read_all(gateway, 20) == list(range(20))
        gateway.restart()
        assert counted("bytes") > 0, "it outlives the gateway"
        assert _read_all(gateway, 20) == list(range(20))
        hits = counted('lookups_total{outcome="hit"}')
        assert hits >= 2 * PARTITIONS, "each partition has two data files"
        another = GatewayProcess(warehouse, settings=settings)
        with (
            pytest.raises(GatewayProcessError, match=r"fetch\.cache\.directory of its own"),
            another,
        ):
            pytest.fail("two gateways share a directory")
        gateway.terminate()
        for path in cache.glob("??/*"):
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        gateway.restart()
        assert _read_all(gateway, 20) == list(range(20))
        assert counted('failures_total{reason="DAMAGED"}') >= 2 * PARTITIONS
