"""Gateways in memory for programs that were written for another client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mainstem.testing import FakeGateway
from mainstem.testing._fake_fetch import FakeLogGateway


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeGateway]:
    """Takes records: topic `t` of 3 partitions and topic `one` of 1."""
    with FakeGateway({"t": 3, "one": 1}) as running:
        yield running


@pytest.fixture
def log(no_leaks: None) -> Iterator[FakeLogGateway]:
    """Gives records, and coordinates groups: the same topics."""
    with FakeLogGateway({"t": 3, "one": 1}) as running:
        yield running
