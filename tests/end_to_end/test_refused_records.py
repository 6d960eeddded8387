"""One bad record among a thousand good ones, against a real gateway."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from mainstem.client import AdminClient, Consumer, Producer, RecordMetadata, TopicPartition
from mainstem.errors import MainstemError
from mainstem.testing import GatewayProcess

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("refused") / "warehouse") as process:
        yield process


@pytest.mark.parametrize(
    ("name", "config", "bad", "code"),
    [
        ("large", {"max.message.bytes": 1_000}, {"value": b"z" * 2_000}, "RECORD_TOO_LARGE"),
        (
            "late",
            {"message.timestamp.after.max.ms": 1_000},
            {"timestamp": 4_000_000_000_000},
            "INVALID_RECORD",
        ),
        ("keyed", {"cleanup.policy": "compact"}, {"key": None}, "INVALID_RECORD"),
    ],
)
@pytest.mark.parametrize("idempotent", [True, False])
def test_only_the_bad_record_of_a_request_fails(
    gateway: GatewayProcess,
    name: str,
    config: dict[str, object],
    bad: dict[str, object],
    code: str,
    idempotent: bool,
) -> None:
    topic = f"{name}-{idempotent}"
    servers = {"bootstrap.servers": gateway.address}
    with AdminClient(servers) as admin:
        admin.create_topic(topic, 2, config)
    ends: Counter[str] = Counter()

    def note(error: MainstemError | None, where: RecordMetadata) -> None:
        ends["ok" if error is None else error.code] += 1

    settings = {**servers, "linger.ms": 200, "enable.idempotence": idempotent}
    with Producer(settings) as producer:
        for number in range(1_000):
            good = {"value": b"good", "key": b"%d" % number}
            kind = bad if number % 400 == 300 else {}
            producer.produce(topic, on_delivery=note, **{**good, **kind})  # type: ignore[arg-type]
    assert ends == {"ok": 998, code: 2}
    partitions = [TopicPartition(topic, partition, 0) for partition in range(2)]
    with Consumer(servers) as consumer:
        consumer.assign(partitions)
        found: dict[int, list[int]] = {0: [], 1: []}
        deadline = time.monotonic() + 30
        while sum(map(len, found.values())) < 998 and time.monotonic() < deadline:
            for record in consumer.consume(1_000, 1.0):
                found[record.partition].append(int(record.key or b""))
    assert sum(map(len, found.values())) == 998
    assert all(numbers == sorted(numbers) for numbers in found.values())
