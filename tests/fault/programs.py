"""A Python program in a process of its own, which is killed and started again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self


class Program:
    """One program; in a `with` block it runs, and is killed at the end.

    Attributes:
        ended_count: How often it has ended by itself, and was started again.

    Args:
        may_end: A program that ends with one of these in its last words is started again; any other
            fails the test.
    """

    def __init__(self, path: Path, arguments: Sequence[str], may_end: Sequence[str] = ()) -> None:
        self._command = [sys.executable, str(path), *arguments]
        self._may_end = may_end
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.ended_count = 0
        self._process = self._launch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._log.close()

    def _launch(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._log
        )

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def check(self) -> None:
        """Starts it again if it has ended by itself, as it may."""
        code = self._process.poll()
        if code is None:
            return
        log = self.log
        last = log.rstrip().rpartition("\n")[2]
        if not any(one in last for one in self._may_end):
            raise AssertionError(f"{self._command[1]} ended with exit code {code}:\n{log[-5_000:]}")
        self._process.communicate()
        self.ended_count += 1
        self._process = self._launch()

    def kill(self) -> None:
        """`kill -9`, and a new one."""
        self.end()
        self._process = self._launch()

    def end(self) -> None:
        """`kill -9`."""
        self._process.kill()
        self._process.communicate()

    def stop(self, timeout_s: float = 60) -> None:
        """Ends its stdin, with which it ends."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        code = self._process.wait(timeout_s)
        assert code == 0, f"{self._command[1]} ended with exit code {code}:\n{self.log[-5_000:]}"
