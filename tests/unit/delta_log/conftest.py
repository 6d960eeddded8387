"""What the tests of the log share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

# Last in the path, so that nothing of the checkout's root hides an installed module. The tests' own
# helpers (`tests.unit.delta_log.faults`) are imported from there.
sys.path.append(str(Path(__file__).resolve().parents[3]))

from mainstem.delta_log import LocalStore, Topics


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    """An empty warehouse."""
    opened = LocalStore(tmp_path / "warehouse")
    yield opened
    opened.close()


@pytest.fixture
def topics(store: LocalStore) -> Topics:
    return Topics(store)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """The threads of an appender."""
    with ThreadPoolExecutor(4) as executor:
        yield executor
