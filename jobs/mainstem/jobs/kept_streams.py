"""What a warehouse keeps of the streams that SQL started: below `<warehouse>/streams/<name>`, the
statement, the checkpoint, how the last run ended, and a file that whoever runs it has locked.

The lock is that of the process in which Spark works, the JVM, not of the one that started it: as
long as it lives it may write, and nobody else may begin.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import struct
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Final

from mainstem.config import nearest_name
from mainstem.errors import ConfigError

#: Beside `topics`, `system` and `tables` in a warehouse.
STREAMS: Final = "streams"

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

#: Before what a stream's directory is called while it is removed.
_GRAVE: Final = ".forgotten-"

#: How a run can be: what the file says, but for the last, which is found out.
RUNNING: Final = "running"
STOPPED: Final = "stopped"
ENDED: Final = "ended"
FAILED: Final = "failed"
KILLED: Final = "killed"

#: How often somebody who waits for a stream to stop looks.
_LOOK_S: Final = 0.2


class StreamError(ConfigError):
    """A stream cannot be started, stopped or found."""


@dataclass(frozen=True, slots=True)
class KeptStream:
    """What is known of a stream. Times are ms since 1970 UTC.

    Attributes:
        statement: The INSERT.
        table: The table that it writes to, in lower case; empty: it writes to a topic.
        topic: The topic that it writes to; empty: it writes to a table.
        table_id: Delta's id of the table, or the topic's; empty: it has not begun to write.
        state: `running`, `stopped`, `ended` (with everything that was there), `failed` or `killed`.
        error: Why it failed.
        host, pid: Of the process that runs it, or did.
    """

    name: str
    statement: str
    table: str = ""
    topic: str = ""
    table_id: str = ""
    state: str = STOPPED
    error: str = ""
    host: str = ""
    pid: int = 0
    started_ms: int = 0
    ended_ms: int = 0


class KeptStreams:
    """The streams of a warehouse.

    Args:
        warehouse: Its directory.
    """

    def __init__(
        self,
        warehouse: Path,
        *,
        sleep: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = warehouse / STREAMS
        self._sleep = sleep
        self._monotonic = monotonic

    def checkpoint(self, name: str) -> Path:
        """Where Spark keeps its offsets and state."""
        return self._root / name / "checkpoint"

    def lock_file(self, name: str) -> Path:
        """What the process that runs it has locked (POSIX)."""
        return self._root / name / "lock"

    def all(self) -> list[KeptStream]:
        """All, by name. What cannot be read is left out."""
        found = []
        for name in self._names():
            with contextlib.suppress(StreamError):
                found.append(self.read(name))
        return found

    def _names(self) -> list[str]:
        """Those that have begun: others leave no more than an empty directory."""
        with contextlib.suppress(OSError):
            found = [file.parent.name for file in self._root.glob("*/stream.json")]
            return sorted(name for name in found if _NAME.fullmatch(name))
        return []

    def read(self, name: str) -> KeptStream:
        """The stream of that name, as it is now.

        Raises:
            StreamError: There is none, or its file is damaged.
        """
        check_name(name)
        file = self._root / name / "stream.json"
        try:
            body = json.loads(file.read_text())
            known = {field.name for field in fields(KeptStream)}
            stream = KeptStream(**{key: body[key] for key in known & body.keys()})
        except FileNotFoundError:
            raise self._unknown(name) from None
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise StreamError(f"{file} cannot be read: {error}") from error
        if self.is_running(name):
            return replace(stream, state=RUNNING)
        return replace(stream, state=KILLED) if stream.state == RUNNING else stream

    def is_running(self, name: str) -> bool:
        """Whether a process has the stream."""
        try:
            with open(self.lock_file(name), "rb") as file:
                return _is_locked(file.fileno())
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def writer_of(self, table: str) -> KeptStream | None:
        """The stream that writes to the table now."""
        return next(
            (one for one in self.all() if one.table == table.lower() and one.state == RUNNING),
            None,
        )

    def prepare(self, name: str, statement: str, *, table: str = "", topic: str = "") -> KeptStream:
        """Makes the stream, or finds the one that was started before with the same statement.

        Args:
            table, topic: What it writes to, one of them.

        Raises:
            StreamError: It runs, or is another statement, or its directory cannot be made.
        """
        check_name(name)
        kept = new = KeptStream(name, statement, table.lower(), topic)
        with contextlib.suppress(_UnknownStream):
            kept = self.read(name)
        if kept.state == RUNNING:
            raise StreamError(
                f"stream {name} runs already, on {kept.host} (pid {kept.pid}); stop it with "
                f"`mainstem sql --stream --stop {name}`, or give this one another --name"
            )
        if _words(kept.statement) != _words(statement):
            raise StreamError(
                f"stream {name} is another statement: {kept.statement!r}. Give this one another "
                f"--name; or `mainstem sql --stream --forget {name}`, after which it begins anew"
            )
        if (kept.table, kept.topic) != (new.table, new.topic):
            # A topic's name goes before a table's: one of the two was made or deleted since.
            before = f"the topic {kept.topic}" if kept.topic else f"the table {kept.table}"
            now = f"the topic {topic}" if topic else f"the table {table}"
            raise StreamError(
                f"stream {name} wrote to {before}, and the statement now means {now}: give this "
                f"one another --name; or `mainstem sql --stream --forget {name}`, after which it "
                "begins anew"
            )
        try:
            (self._root / name).mkdir(parents=True, exist_ok=True)
            self.lock_file(name).touch()
        except OSError as error:
            raise StreamError(f"{self._root / name} cannot be made: {error}") from error
        return kept

    def write(self, stream: KeptStream) -> None:
        """Keeps what is known of it now. Of the process that runs it.

        Raises:
            StreamError: It cannot be written.
        """
        directory = self._root / stream.name
        draft = directory / f".stream-{uuid.uuid4().hex}"
        try:
            with open(draft, "w") as file:
                json.dump(asdict(stream), file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(directory / "stream.json")
        except OSError as error:
            raise StreamError(f"{directory} cannot be written: {error}") from error

    # -- stopping ----------------------------------------------------------------------------------

    def stop(self, name: str, timeout_s: float) -> bool:
        """Asks the process that runs the stream to stop it, and waits until it has.

        Returns:
            False: nobody ran it.

        Raises:
            StreamError: There is no such stream, it cannot be asked, or it has not stopped by then.
        """
        stream = self.read(name)
        if stream.state != RUNNING:
            return False
        ends_at = self._monotonic() + timeout_s
        while self.is_running(name):
            # Again and again: a process that starts takes away what was there before.
            try:
                self._request(name).touch()
            except OSError as error:
                if not self.is_running(name):
                    break  # and was forgotten
                raise StreamError(f"stream {name} cannot be asked to stop: {error}") from error
            if self._monotonic() >= ends_at:
                raise StreamError(
                    f"stream {name} has not stopped within {timeout_s:g} s: it runs on "
                    f"{stream.host} (pid {stream.pid}), is asked to, and stops when that process "
                    "looks; to end it at once, kill that process: nothing is lost"
                )
            self._sleep(_LOOK_S)
        self.forget_request(name)
        return True

    def is_asked_to_stop(self, name: str) -> bool:
        return self._request(name).exists()

    def forget_request(self, name: str) -> None:
        """Takes away what asks the stream to stop."""
        with contextlib.suppress(OSError):
            self._request(name).unlink()

    def forget(self, name: str) -> None:
        """Removes what is kept of the stream, and with it how far it has come; not its table.

        Raises:
            StreamError: There is no such stream, it runs, or its files cannot be removed.
        """
        check_name(name)
        directory = self._root / name
        if not directory.is_dir():
            raise self._unknown(name)
        if self.is_running(name):
            raise StreamError(f"stream {name} runs: stop it first")
        try:
            grave = self._root / f"{_GRAVE}{uuid.uuid4().hex}"
            directory.rename(grave)
            with contextlib.suppress(FileNotFoundError):  # another one clears it away as well
                shutil.rmtree(grave)
            for left in self._root.glob(f"{_GRAVE}*"):  # by one that was cut short
                shutil.rmtree(left, ignore_errors=True)
        except OSError as error:
            raise StreamError(f"the files of stream {name} cannot be removed: {error}") from error

    def _request(self, name: str) -> Path:
        return self._root / name / "stop"

    def _unknown(self, name: str) -> _UnknownStream:
        names = self._names()
        close = nearest_name(name, names)
        hint = f"did you mean {close}?" if close else f"there are {', '.join(names) or 'none'}"
        return _UnknownStream(f"there is no stream {name!r} in {self._root.parent}; {hint}")


class _UnknownStream(StreamError):
    """There is none of that name."""


def check_name(name: str) -> None:
    """Refuses what cannot name a stream, and a directory.

    Raises:
        StreamError: It cannot.
    """
    if not _NAME.fullmatch(name):
        raise StreamError(
            f"{name!r} cannot name a stream: a name has letters, digits, `_`, `-` and `.`, begins "
            "with none of the last two, and is 100 characters long at most"
        )


def _is_locked(file: int) -> bool:
    """Whether another process has locked the file. Only asks: a look that took the lock, be it for
    an instant, would be a run to who looks as well, and keep away who wants to run the stream."""
    # struct flock: a lock for writing, of the whole file.
    start = length = pid = 0
    if sys.platform == "darwin":
        form, values, kind_index = "@qqihh", (start, length, pid, fcntl.F_WRLCK, os.SEEK_SET), 3
    else:
        form, values, kind_index = "@hhqqi4x", (fcntl.F_WRLCK, os.SEEK_SET, start, length, pid), 0
    answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(form, *values))
    return bool(struct.unpack(form, answer)[kind_index] != fcntl.F_UNLCK)


def _words(statement: str) -> str:
    """The statement, however it was folded."""
    return " ".join(statement.split()).rstrip("; ")
