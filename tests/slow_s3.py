"""A proxy that makes an S3 server as slow as Amazon's, and as faulty as is asked, in a process of
its own: it takes nothing from the interpreter of who measures or judges.

    python -m tests.slow_s3 TARGET FAULT_RATE SEED
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from tests.faulty_http import Faults, faulty_proxy

#: Of S3 Standard as published: at the median, by method, in seconds; with a spread that makes
#: 195 ms of a put's 100 at the 99th percentile.
LATENCY_S: Final = {"PUT": 0.100, "GET": 0.060, "HEAD": 0.060, "POST": 0.100, "DELETE": 0.060}
SPREAD: Final = 0.287

#: Of the requests, where a test wants faults.
S3_FAULT_RATE: Final = 0.02


class SlowS3:
    """A running proxy.

    Attributes:
        url: Where it listens.
    """

    def __init__(self, ask: IO[str], answers: IO[str]) -> None:
        self._ask = ask
        self._answers = answers
        self.url = answers.readline().strip()

    def requests(self) -> Counter[str]:
        """How often each method came."""
        return Counter(self._tell("count")["requests"])

    def happened(self) -> Counter[str]:
        """How often each kind of fault did."""
        return Counter(self._tell("count")["happened"])

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Nothing gets through while the block lasts."""
        self._tell("cut off")
        try:
            yield
        finally:
            self._tell("let through")

    def _tell(self, what: str) -> dict[str, dict[str, int]]:
        self._ask.write(f"{what}\n")
        self._ask.flush()
        found: dict[str, dict[str, int]] = json.loads(self._answers.readline())
        return found


@contextlib.contextmanager
def slow_s3(target: str, fault_rate: float = 0.0, seed: int = 7) -> Iterator[SlowS3]:
    """Starts a proxy for the server `target`, and ends it."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.slow_s3", target, str(fault_rate), str(seed)],
        cwd=Path(__file__).resolve().parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield SlowS3(process.stdin, process.stdout)
        finally:
            process.stdin.close()  # and so it ends


def main(target: str, fault_rate: str, seed: str) -> None:
    """Serves until its input ends."""
    faults = Faults(float(fault_rate), random.Random(int(seed)))
    faults.latency_s, faults.latency_spread = LATENCY_S, SPREAD
    with faulty_proxy(target, faults) as url:
        print(url, flush=True)
        for line in sys.stdin:
            if line.strip() in ("cut off", "let through"):
                faults.cut_off = line.startswith("cut")
            print(
                json.dumps({"requests": faults.requests, "happened": faults.happened}), flush=True
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
