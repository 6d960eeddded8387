"""The project's own compaction of a topic, as an operator runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

_CHECKOUT: Final = Path(__file__).resolve().parents[2]
_DEADLINE_S: Final = 300


def compact(warehouse: Path, topic: str) -> None:
    """Compacts all of a topic's files, however young they are.

    Raises:
        RuntimeError: It failed; the message has the end of what it printed.
    """
    command = ["job", "run", "compaction", "-T", topic, "--warehouse", str(warehouse)]
    done = subprocess.run(
        [sys.executable, "-m", "mainstem.cli", *command, "-o", "compaction.min.age.ms=0"],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        cwd=_CHECKOUT,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"compaction failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
