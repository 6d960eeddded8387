"""The line of a comparison: medians, the ratio, and its spread over the pairs."""

from __future__ import annotations

import pytest
from benchmarks.compare import line
from benchmarks.kafka.row import Outcome, Row


@pytest.mark.parametrize(
    ("lower_is_better", "after", "ratio", "spread"),
    [
        (False, [110.0, 240.0, 90.0], "1.10", "0.90-2.40"),
        (True, [50.0, 100.0, 40.0], "2.00", "1.00-2.50"),
    ],
)
def test_more_than_one_means_that_the_second_revision_is_better(
    lower_is_better: bool, after: list[float], ratio: str, spread: str
) -> None:
    row = Row("produce", "ms", (), lambda *_: Outcome(0.0), lower_is_better=lower_is_better)
    words = line(row, [100.0, 100.0, 100.0], after).split()
    assert words[:2] == ["produce", "100"]
    assert words[-2:] == [ratio, spread]
