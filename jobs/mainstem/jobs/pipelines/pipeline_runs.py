"""What is known of the runs of a pipeline: a file and a log of each, in its directory."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import IO, Final

from mainstem.jobs.pipelines.pipeline_project import PipelineError, Project

#: How a run can be; the last is found out.
RUNNING: Final = "running"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
STOPPED: Final = "stopped"
KILLED: Final = "killed"

#: Older ones are removed.
RUNS_KEPT: Final = 100

#: Who only looks has the lock for a moment.
_LOCK_TRIES: Final = 5
_LOCK_RETRY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """A run. Times are ms since 1970 UTC.

    Attributes:
        state: `running`, `completed`, `failed`, `stopped` or `killed`.
        dry_run: It only looked whether the pipeline makes sense.
        error: Why it failed.
        host, pid: Of the process that runs it, or did.
        log: The file with all that Spark said.
    """

    started_ms: int
    state: str = RUNNING
    dry_run: bool = False
    error: str = ""
    ended_ms: int = 0
    host: str = ""
    pid: int = 0
    log: str = ""


class PipelineRuns:
    """The runs of a pipeline."""

    def __init__(self, project: Project) -> None:
        self._root = project.directory / "runs"

    def last(self, limit: int) -> list[PipelineRun]:
        """The last runs, the newest first. What cannot be read is left out.

        Args:
            limit: At most so many; 0: all that are kept.
        """
        found = []
        known = {field.name for field in fields(PipelineRun)}
        for file in self._files()[: limit or None]:
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
                body = json.loads(file.read_text())
                found.append(PipelineRun(**{key: body[key] for key in known & body.keys()}))
        if any(run.state == RUNNING for run in found) and not self.is_running():
            found = [replace(run, state=KILLED) if run.state == RUNNING else run for run in found]
        return found

    def is_running(self) -> bool:
        """Whether a process runs the pipeline."""
        try:
            descriptor = os.open(self._root / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Nobody else runs the pipeline while the block lasts, or while a process lives that has
        inherited the descriptor.

        Raises:
            PipelineError: Somebody else runs it, or the directory cannot be written.
        """
        try:
            self._root.mkdir(exist_ok=True)
            descriptor = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise PipelineError(f"{self._root} cannot be written: {error}") from error
        try:
            for tries_left in range(_LOCK_TRIES - 1, -1, -1):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if not tries_left:
                        raise PipelineError(
                            f"the pipeline in {self._root.parent} runs already; `mainstem pipeline "
                            "status` says where"
                        ) from None
                    time.sleep(_LOCK_RETRY_S)
            yield descriptor
        finally:
            os.close(descriptor)

    def new_log(self, started_ms: int) -> tuple[Path, IO[bytes]]:
        """The log of a run that begins. Older runs than `RUNS_KEPT` go.

        Raises:
            PipelineError: It cannot be written.
        """
        for file in self._files()[RUNS_KEPT - 1 :]:
            for one in (file, file.with_suffix(".log")):
                with contextlib.suppress(OSError):
                    one.unlink()
        path = self._root / f"{started_ms}.log"
        try:
            return path, open(path, "wb")
        except OSError as error:
            raise PipelineError(f"{path} cannot be written: {error}") from error

    def write(self, run: PipelineRun) -> None:
        """Keeps what is known of it now. Of the process that runs it.

        Raises:
            PipelineError: It cannot be written.
        """
        draft = self._root / f".run-{uuid.uuid4().hex}"
        try:
            draft.write_text(json.dumps(asdict(run), indent=1))
            draft.replace(self._root / f"{run.started_ms}.json")
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise PipelineError(f"{self._root} cannot be written: {error}") from error

    def _files(self) -> list[Path]:
        """Of each run, the newest first."""
        return sorted(self._root.glob("[0-9]*.json"), key=lambda file: int(file.stem), reverse=True)
