"""The line of a comparison: medians, the ratio, and its spread over the pairs."""

from __future__ import annotations

import pytest
from benchmarks import compare
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["HEAD", "--rows", "prodcue"], "no row has 'prodcue' in its name; there are: produce;"),
        (["HEAD", "--pairs", "0"], "'0' is not a number from 1 on"),
        (["no-such-revision"], "no-such-revision is not a commit, branch or tag of this checkout"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_built(
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def too_late(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(compare, "worktree", too_late)
    monkeypatch.setattr("sys.argv", ["compare", *arguments])
    with pytest.raises(SystemExit) as ended:
        compare.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
