"""The clients' rows of the comparison with Kafka, with few records: mainstem and NATS. Kafka's
broker needs Maven."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.kafka.client_rows import Work
from benchmarks.kafka.row import MAINSTEM, NATS, NATS_UNSYNCED, Variant
from benchmarks.kafka.systems import Systems

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systems]:
    with Systems(tmp_path_factory.mktemp("systems")) as systems:
        yield systems


_LATENCY = Work("latency", 200, 20, rate=1_000.0, scales=False)
_CONSUME = Work("consume", 10_000, 10_000, filled=True)


@pytest.mark.parametrize(
    ("system", "work"),
    [(MAINSTEM, _LATENCY), (NATS_UNSYNCED, _LATENCY), (NATS_UNSYNCED, _CONSUME)],
    ids=lambda value: value if isinstance(value, str) else value.row,
)
def test_a_turn_measures_all_records_and_what_they_cost(
    systems: Systems, system: str, work: Work
) -> None:
    found = work(systems, Variant(system, system), 1.0)
    assert found.value > 0
    assert found.records >= work.count
    assert found.client_cpu_s > 0
    assert found.client_peak_bytes > 10_000_000
    assert found.server_peak_bytes > 10_000_000


def test_a_fresh_turn_has_servers_of_its_own_that_leave_nothing_behind(tmp_path: Path) -> None:
    one_at_a_time = Work("one_at_a_time", 50, 10, scales=False, fresh=True)
    with Systems(tmp_path) as systems:
        found = one_at_a_time(systems, Variant("NATS, synced", NATS), 1.0)
        assert 0 < found.value <= found.more["p99"]
        assert list(tmp_path.iterdir()) == []
