"""What the tests of faults share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Last in the path, so that nothing of the checkout's root hides an installed module. The tests' own
# helpers (`tests.fault.kill_loop`) are imported from there.
sys.path.append(str(Path(__file__).resolve().parents[2]))


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[object], None]:
    """Prints a test's figures where people see them, also when pytest captures output."""

    def show(figures: object) -> None:
        with capsys.disabled():
            print(f"\n{figures}", file=sys.stderr, flush=True)

    return show
