"""Consume, transform, produce with `kill -9` of each process in turn: the output is the input
transformed, each record once, in order per partition.

`make test` does it with 3 kills; MAINSTEM_TEST_FAULTS=full with 50.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault.transform_loop import TransformLoop, differences, run_transform_loop
from tests.length import FULL

pytestmark = [pytest.mark.end_to_end, pytest.mark.fault]


@pytest.mark.slow
@pytest.mark.timeout(900 if FULL else 240)
def test_the_output_is_the_input_transformed_once_each_in_order_whatever_is_killed(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    size = TransformLoop(50 if FULL else 3)
    result = run_transform_loop(tmp_path, seed, size)
    report(result)
    assert result.ok, str(result)
    assert result.kills == size.kill_count
    assert result.record_count > 100


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([b"A", b"B"], "lost"),
        ([b"A", b"B", b"B", b"C"], "doubled"),
        ([b"A", b"C", b"B"], "out of order at 1"),
        ([b"A", b"B", b"C", b"D"], "nobody has sent"),
    ],
)
def test_the_judge_tells_what_is_wrong_with_an_output(found: list[bytes], said: str) -> None:
    assert differences(0, [b"A", b"B", b"C"], [b"A", b"B", b"C"]) == []
    assert said in "\n".join(differences(0, [b"A", b"B", b"C"], found))
