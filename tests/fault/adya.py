"""adya, an independent checker of histories: it names the anomalies of isolation that a history
shows, as Jepsen does, whose checker Elle it takes after.

It is a program in Rust (https://crates.io/crates/adya), which nobody needs but these tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INSTALL: Final = "cargo install adya --version 0.1.0 --no-default-features"

#: Exit codes: the history is as the model says; it is not; nobody can tell.
_CODES: Final = (0, 1, 2)


def find_adya() -> str | None:
    """The program, in PATH or where cargo installs programs; None: it is not installed."""
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "bin"
    return shutil.which("adya") or shutil.which("adya", path=str(home))


@dataclass(frozen=True)
class Verdict:
    """What the checker says.

    Attributes:
        valid: Whether the history is as the model says; None: it cannot tell.
        anomalies: How many of each kind.
        explanations: Of each of them one.
    """

    valid: bool | None
    anomalies: Counter[str]
    explanations: list[str]

    def __str__(self) -> str:
        return "\n".join([f"valid: {self.valid}, {dict(self.anomalies)}", *self.explanations])


def check_list_append(history: Path, model: str) -> Verdict:
    """Judges a history of list-append transactions, as JSON lines.

    Args:
        model: Of consistency, as "serializable".
    """
    program = find_adya()
    assert program is not None, INSTALL
    command = [program, "check", "--model", "list-append", "--consistency-models", model]
    ended = subprocess.run(
        [*command, "--cycle-search-timeout", "20000", "--json", str(history)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode in _CODES, ended.stderr
    report = json.loads(ended.stdout)
    found = report["anomalies"]
    return Verdict(
        {0: True, 1: False, 2: None}[ended.returncode],
        Counter({kind: len(several) for kind, several in found.items()}),
        [f"{kind}: {several[0]['explanation']}" for kind, several in found.items()],
    )
