"""What a gateway counts of its topics, and what it tells the others of its load."""

from __future__ import annotations

from mainstem.ingest_gateway.metrics import GatewayMetrics


def test_what_a_deleted_topic_had_still_counts_for_the_load_of_the_gateway() -> None:
    metrics = GatewayMetrics()
    metrics.accepted("a", 2, 30)
    metrics.accepted("b", 1, 5)
    metrics.given("a", 2, 40)
    metrics.forget_topic("a")
    assert (metrics.in_bytes, metrics.out_bytes) == (35, 40)
    read = metrics.registry.get_sample_value
    assert read("mainstem_produce_bytes_total", {"topic": "a"}) is None
    assert read("mainstem_produce_bytes_total", {"topic": "b"}) == 5
    assert read("mainstem_produce_records_total", {"topic": "b"}) == 1
    metrics.given("a", 1, 7)  # an answer that was under way
    assert read("mainstem_fetch_bytes_total", {"topic": "a"}) == 7
