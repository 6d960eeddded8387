"""What the tests of the jobs share. None of them starts Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Last in the path, so that nothing of the checkout's root hides an installed module.
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
