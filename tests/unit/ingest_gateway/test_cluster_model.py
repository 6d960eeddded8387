"""The simulation of a cluster: it ends, says the same twice, and finds what it should."""

from __future__ import annotations

import pytest
from benchmarks.cluster_model import Model


@pytest.mark.parametrize(("lost", "slow"), [(0.1, 0.0), (0.5, 0.0), (0.2, 0.5)])
def test_every_topic_of_lost_gateways_is_led_again_soon_after_the_session(
    lost: float, slow: float
) -> None:
    report = Model(20, 500, lost, slow, 2.0, 6.0, seed=3).run()
    assert report.topics_lost > 0
    # A heartbeat may have been under way when its gateway was lost, or two seconds before.
    assert 4.0 < report.leaders_half_s <= report.leaders_p99_s <= report.leaders_all_s
    assert report.leaders_all_s < 6.0 + (4.0 if slow else 2.5)
    assert report == Model(20, 500, lost, slow, 2.0, 6.0, seed=3).run()


def test_each_gateway_writes_once_in_a_heartbeat_interval() -> None:
    report = Model(20, 100, 0.0, 0.0, 2.0, 6.0, seed=1).run()
    assert report.puts_per_s == 10.0
    assert report.topics_lost == 0
