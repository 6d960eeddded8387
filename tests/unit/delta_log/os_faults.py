"""An operating system that fails on demand: takes the place of `os` below the log."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

#: What a file system says that cannot do something now. None of them says that a file is gone.
ERROR_NUMBERS = (
    errno.ESTALE,
    errno.EACCES,
    errno.EIO,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EPERM,
    errno.EINTR,
)

#: What is asked of the system. Closing is left out: Linux closes whatever it says.
CALLS = (
    "open",
    "pread",
    "pwrite",
    "write",
    "fsync",
    "fdatasync",
    "ftruncate",
    "link",
    "unlink",
    "rename",
    "stat",
    "fstat",
    "utime",
    "mkdir",
    "rmdir",
    "scandir",
    "listdir",
)

_flock = fcntl.flock

#: Called with the call and its first argument, before the real call. May raise.
Hook = Callable[[str, Any], None]


def name(number: int) -> str:
    """`EIO` for 5."""
    return errno.errorcode[number]


def failure(number: int) -> OSError:
    """What `os` raises for an error number."""
    return OSError(number, f"injected: {os.strerror(number)}")


class FaultyOs:
    """`os`, with `before` and `after` around what changes or reads the disk.

    Attributes:
        calls: Every such call, in order.
    """

    def __init__(self) -> None:
        self.before: Hook = nothing
        self.after: Hook = nothing
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            self.before(name, args[0])
            result = real(*args, **kwargs)
            try:
                self.after(name, args[0])
            except OSError:
                if name == "open":
                    os.close(result)
                elif name == "scandir":
                    result.close()
                raise
            return result

        return call

    def flock(self, fd: int, operation: int) -> None:
        self.calls.append("flock")
        self.before("flock", fd)
        _flock(fd, operation)


def fail_at(system: FaultyOs, position: int, number: int, *, landed: bool) -> None:
    """Fails the call at `position`, from 0, of those that are still to come; once.

    Args:
        landed: It takes place, and reports a failure nonetheless.
    """
    left = [position]

    def hook(_: str, __: Any) -> None:
        left[0] -= 1
        if left[0] == -1:
            raise failure(number)

    system.before, system.after = (nothing, hook) if landed else (hook, nothing)


def fail_calls(system: FaultyOs, call: str, number: int, count: int) -> None:
    """Fails the next `count` calls of that name."""
    left = [count]

    def hook(found: str, _: Any) -> None:
        if found == call and left[0]:
            left[0] -= 1
            raise failure(number)

    system.before, system.after = hook, nothing


def heal(system: FaultyOs) -> None:
    """Nothing fails any more."""
    system.before = system.after = nothing


@contextmanager
def installed() -> Iterator[FaultyOs]:
    """A system under every `LocalStore` and `LocalWalFiles` of this process."""
    system = FaultyOs()
    with pytest.MonkeyPatch.context() as patch:
        for module in ("disk", "local", "random_access"):
            patch.setattr(f"mainstem.delta_log.store.{module}.os", system)
        patch.setattr("mainstem.delta_log.wal.files.os", system)
        patch.setattr("mainstem.delta_log.wal.files.fcntl.flock", system.flock)
        # Arrow opens files by itself.
        patch.setattr("mainstem.delta_log.store.random_access._DESCRIPTORS", "/nowhere")
        yield system


def nothing(_: str, __: Any) -> None:
    """The hook of a healthy system."""
