"""Tests that run in several processes share what they must share."""

from __future__ import annotations

import re

import pytest


def test_every_test_with_spark_is_in_one_of_three_groups(request: pytest.FixtureRequest) -> None:
    """Whatever of them is in this run: those that share one of two sessions, and those that start
    their own. In a worker of pytest-xdist the group is part of the id."""
    in_workers = hasattr(request.config, "workerinput") and request.config.getoption("loadgroup")
    for item in request.session.items:
        if "spark" in getattr(item, "fixturenames", ()):
            group = "spark streams" if re.search("stream|sink", item.path.name) else "spark"
        elif item.get_closest_marker("spark"):
            group = "own spark"
        else:
            continue
        mark = item.get_closest_marker("xdist_group")
        assert mark is not None, item.nodeid
        assert mark.args == (group,), item.nodeid
        if in_workers:
            assert item.nodeid.endswith(f"@{group}"), "two processes may run it and its neighbours"
