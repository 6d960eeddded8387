"""What the tests of the Spark source share. None of them starts Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Last in the path, so that nothing of the checkout's root hides an installed module.
sys.path.append(str(Path(__file__).resolve().parents[3]))

from tests.unit.pyspark_mainstem.topic_log import TopicLog


@pytest.fixture
def topic_log(tmp_path: Path) -> Iterator[TopicLog]:
    """An empty warehouse."""
    log = TopicLog(tmp_path / "warehouse")
    yield log
    log.close()
