"""Tests that run in several processes share what they must share."""

from __future__ import annotations

import pytest


def test_every_test_with_spark_is_in_one_group(request: pytest.FixtureRequest) -> None:
    """Whatever of them is in this run. In a worker of pytest-xdist the group is part of the id."""
    with_spark = [
        item
        for item in request.session.items
        if item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ())
    ]
    groups = [item.get_closest_marker("xdist_group") for item in with_spark]
    assert {group.args if group else None for group in groups} <= {("spark",)}
    if hasattr(request.config, "workerinput") and request.config.getoption("loadgroup"):
        loose = [item.nodeid for item in with_spark if not item.nodeid.endswith("@spark")]
        assert loose == [], "two processes may run them, each with a session of its own"
