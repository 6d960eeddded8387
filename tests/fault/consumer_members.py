"""Members of groups as processes that are paused, killed and started again."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SESSION_TIMEOUT_MS = 3_000
MAX_POLL_INTERVAL_MS = 8_000

#: A gateway, its members and the judge share two cores with other tests.
PATIENCE_S = 120.0

_PROGRAM = Path(__file__).with_name("consumer_process.py")


@dataclass(frozen=True)
class ConsumerSpec:
    """One member; its processes come one after the other.

    Attributes:
        style: How it reads and commits; see `consumer_process.STYLES`.
        instance_id: Of a static member.
        visibility: Its `fetch.visibility`.
    """

    name: str
    group: str
    style: str
    instance_id: str = ""
    visibility: str = "committed"


class Slot:
    """The processes of one member, one after the other."""

    def __init__(self, spec: ConsumerSpec, settings: Mapping[str, object], directory: Path) -> None:
        self.spec = spec
        self.process: subprocess.Popen[bytes] | None = None
        self.paused = False
        self._settings = settings
        self._directory = directory
        self._numbers = itertools.count()
        self._logs: dict[subprocess.Popen[bytes], Path] = {}

    @property
    def runs(self) -> bool:
        """There is a process, and it is not paused."""
        return self.process is not None and not self.paused

    def start(self) -> subprocess.Popen[bytes]:
        """Starts the member's next process; the last one may still run."""
        name = f"{self.spec.name}-{next(self._numbers)}"
        settings = {
            **self._settings,
            "name": name,
            "group": self.spec.group,
            "style": self.spec.style,
            "instance_id": self.spec.instance_id,
            "visibility": self.spec.visibility,
            "history": str(self._directory / f"{name}.jsonl"),
        }
        log = self._directory / f"{name}.log"
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stderr=stderr,
            )
        self._logs[self.process] = log
        self.paused = False
        return self.process

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if self.process is not None and self.paused:
            self.process.send_signal(signal.SIGCONT)
            self.paused = False

    def kill(self) -> None:
        """SIGKILL, whatever it is at."""
        if self.process is not None:
            end(self.process)
            self.process = None
            self.paused = False

    def close(self) -> None:
        """Kills every process of the member that still runs."""
        for process in self._logs:
            end(process)

    def stop(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Lets it close; raises if it does not, or failed.

        Args:
            pause: Sleeps for so many seconds, and may do what is due: what this member waits for
                another may have, which is paused.
        """
        self.resume()
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            ends_at = time.monotonic() + PATIENCE_S
            while self.process.poll() is None and time.monotonic() < ends_at:
                pause(0.02)
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGABRT)  # it shows where its threads are
            code = self.process.wait(PATIENCE_S)
            assert code == 0, f"{self.spec.name} ended with {code}:\n{self.log(self.process)}"
            self.process = None

    def check(self) -> None:
        """Raises if it has ended by itself."""
        if self.process is not None:
            code = self.process.poll()
            assert code is None, f"{self.spec.name} ended with {code}:\n{self.log(self.process)}"

    def log(self, process: subprocess.Popen[bytes]) -> str:
        return self._logs[process].read_text(errors="replace")


class Members:
    """All members, while the block lasts; leaving it kills those that still run."""

    def __init__(
        self,
        specs: Sequence[ConsumerSpec],
        topics: Iterable[str],
        directory: Path,
        bootstrap: str,
        database: Path,
    ) -> None:
        settings = {
            "bootstrap": bootstrap,
            "topics": sorted(topics),
            "database": str(database),
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
        }
        self.all = [Slot(spec, settings, directory) for spec in specs]

    def __enter__(self) -> Members:
        try:
            for slot in self.all:
                slot.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for slot in self.all:
            slot.close()

    def stacks(self) -> str:
        """Ends all members, and tells where their threads were."""
        found = []
        for slot in self.all:
            process = slot.process
            if process is not None:
                process.send_signal(signal.SIGABRT)
                process.wait(PATIENCE_S)
                found.append(f"--- {slot.spec.name}\n{slot.log(process)}")
        return "\n".join(found)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and closes its stdin."""
    process.kill()
    process.wait(PATIENCE_S)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
