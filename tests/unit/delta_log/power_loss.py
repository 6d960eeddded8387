"""A disk that loses power: it forgets what was not synced, in part or whole, as a seed says.

A sync may also fail: then the disk has what a loss of power would have left, and a later sync says
yes without writing what was dropped.

Stands below `LocalStore` and `LocalWalFiles`, in the place of their `os` module: real files serve
the reads, and beside them a model remembers which contents and which names a sync has made durable.
A name counts from the sync of its directory only, a content from the sync of its file only; a real
file system often keeps more.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

#: Contents that were not synced survive by pieces of this size.
SECTOR_BYTES = 64


class PowerLost(BaseException):
    """The machine is off: nothing that is above the disk may catch this."""


@dataclass(eq=False)
class _File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    #: What a sync that failed has dropped: from where to where, and what the disk has there.
    dropped: tuple[int, int, bytes] | None = None

    def cut(self, length: int) -> None:
        del self.content[length:]
        if self.dropped is not None and length <= self.dropped[0]:
            self.dropped = None

    def sync(self) -> None:
        self.synced = bytes(self.content)
        if self.dropped is not None:
            start, end, found = self.dropped
            self.synced = self.synced[:start] + found.ljust(end - start, b"\0") + self.synced[end:]

    def sync_fails(self, survives: bytes) -> None:
        if bytes(self.content) != self.synced:
            start = min(len(self.synced), len(self.content))
            self.dropped = (start, len(self.content), survives[start:])
        self.synced = survives


@dataclass(eq=False)
class _Directory:
    entries: dict[str, _Node] = field(default_factory=dict)
    synced: dict[str, _Node] = field(default_factory=dict)
    #: Names that a sync that failed has dropped: what they were given to, None if they went.
    dropped: dict[str, _Node | None] = field(default_factory=dict)

    def sync(self) -> None:
        before, self.synced = self.synced, dict(self.entries)
        for name, node in list(self.dropped.items()):
            if self.entries.get(name) is not node:
                del self.dropped[name]  # given again, or gone
            elif name in before:
                self.synced[name] = before[name]
            else:
                self.synced.pop(name, None)

    def sync_fails(self) -> None:
        for name in {*self.entries, *self.synced}:
            if self.entries.get(name) is not self.synced.get(name):
                self.dropped[name] = self.entries.get(name)


_Node = _File | _Directory


class Disk:
    """Takes the place of `os`. Everything below `root` is on it.

    Args:
        root: An empty directory that exists, or one of `after_power_loss`.
        rng: Decides what survives.

    Attributes:
        fails_at: The call that changes something at which the power goes; counted from 1.
        steps: What changed something, in order: call and file name.
        faults: Errors that calls report instead of doing anything, by their number.
        faults_below: Only calls on paths that begin so report them.
        lies_about: Syncs that do nothing: `directory`, `file`, `wal`.
    """

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = str(root)
        self.rng = rng
        self.fails_at = -1
        self.faults: dict[int, OSError] = {}
        self.faults_below = ""
        self.steps: list[tuple[str, str]] = []
        self.lies_about: frozenset[str] = frozenset()
        self.off = False
        self._tree = _Directory()
        self._nodes: dict[int, tuple[_Node, str]] = {}
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        if self.off:
            raise PowerLost
        return getattr(os, name)

    # -- what `os` does --------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with self._lock:
            self._check_on()
            parent, name, whole = self._find(path, dir_fd)
            is_new = flags & os.O_CREAT and parent is not None and name not in parent.entries
            if is_new or flags & os.O_TRUNC:
                self._step("open", whole)
            fd = os.open(path, flags, mode, dir_fd=dir_fd)
            if parent is not None:
                if is_new:
                    parent.entries[name] = _File()
                node = parent.entries[name] if name else parent
                if flags & os.O_TRUNC and isinstance(node, _File):
                    node.content.clear()
                self._nodes[fd] = (node, whole)
            return fd

    def write(self, fd: int, data: Any) -> int:
        with self._lock:
            node, whole = self._nodes[fd]
            assert isinstance(node, _File)
            self._step("write", whole)
            count = os.write(fd, data)
            node.content += bytes(data)[:count]
            return count

    def ftruncate(self, fd: int, length: int) -> None:
        with self._lock:
            node, whole = self._nodes[fd]
            assert isinstance(node, _File)
            self._step("ftruncate", whole)
            os.ftruncate(fd, length)
            node.cut(length)

    def fsync(self, fd: int) -> None:
        self._sync("fsync", fd)

    def fdatasync(self, fd: int) -> None:
        self._sync("fdatasync", fd)

    def close(self, fd: int) -> None:
        with self._lock:
            self._nodes.pop(fd, None)
        os.close(fd)

    def mkdir(self, path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        with self._lock:
            parent, name, whole = self._find(path, dir_fd)
            if parent is not None and name not in parent.entries:
                self._step("mkdir", whole)
            os.mkdir(path, mode, dir_fd=dir_fd)
            if parent is not None:
                parent.entries[name] = _Directory()

    def link(
        self, src: str, dst: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool
    ) -> None:
        with self._lock:
            source, from_name, _ = self._find(src, src_dir_fd)
            target, to_name, whole = self._find(dst, dst_dir_fd)
            self._step("link", whole)
            os.link(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=False)
            assert source is not None
            assert target is not None
            target.entries[to_name] = source.entries[from_name]

    def rename(
        self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        with self._lock:
            source, from_name, _ = self._find(src, src_dir_fd)
            target, to_name, whole = self._find(dst, dst_dir_fd)
            self._step("rename", whole)
            os.rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            assert source is not None
            assert target is not None
            target.entries[to_name] = source.entries.pop(from_name)

    def unlink(self, path: str, *, dir_fd: int | None = None) -> None:
        with self._lock:
            parent, name, whole = self._find(path, dir_fd)
            if parent is not None and name in parent.entries:
                self._step("unlink", whole)
            os.unlink(path, dir_fd=dir_fd)
            if parent is not None:
                del parent.entries[name]

    # -- what a test does ------------------------------------------------------------------------

    def release(self) -> None:
        """Closes what the dead process has left open."""
        self.off = True
        for fd in list(self._nodes):
            with contextlib.suppress(OSError):
                self.close(fd)

    def after_power_loss(self, root: Path) -> Disk:
        """The disk as it is found when the power is back, in the new directory `root`."""
        self.release()
        root.mkdir()
        found = Disk(root, self.rng)
        found.lies_about = self.lies_about
        found._tree = self._survivor(self._tree, root, {})
        return found

    def _survivor(self, directory: _Directory, path: Path, files: dict[int, _File]) -> _Directory:
        found = _Directory()
        for name in sorted({*directory.entries, *directory.synced}):
            now, then = directory.entries.get(name), directory.synced.get(name)
            node = self.rng.choice([now, then]) if now is not then else now
            if node is None:
                continue
            if isinstance(node, _Directory):
                (path / name).mkdir()
                found.entries[name] = self._survivor(node, path / name, files)
                continue
            if id(node) not in files:
                content = self._surviving_content(node)
                files[id(node)] = _File(bytearray(content), content)
            found.entries[name] = files[id(node)]
            (path / name).write_bytes(files[id(node)].synced)
        found.synced = dict(found.entries)
        return found

    def _surviving_content(self, file: _File) -> bytes:
        content = bytes(file.content)
        if content == file.synced:
            return content
        how = self.rng.randrange(4)
        if how == 0:
            return file.synced
        if how == 1:
            return content
        begin = min(len(file.synced), len(content))
        if how == 2:
            return content[: self.rng.randint(begin, len(content))]
        torn = bytearray(content)
        for sector in range(0, len(torn), SECTOR_BYTES):
            if self.rng.random() < 0.5:
                for at in range(max(sector, begin), min(sector + SECTOR_BYTES, len(torn))):
                    torn[at] = 0
        return bytes(torn)

    # -- helpers ---------------------------------------------------------------------------------

    def _check_on(self) -> None:
        if self.off:
            raise PowerLost

    def _step(self, call: str, path: str) -> None:
        self._check_on()
        self.steps.append((call, path))
        if len(self.steps) == self.fails_at:
            self.off = True
            raise PowerLost
        if len(self.steps) in self.faults and path.startswith(self.faults_below):
            raise self.faults[len(self.steps)]

    def _sync(self, call: str, fd: int) -> None:
        with self._lock:
            node, whole = self._nodes[fd]
            try:
                self._step(call, whole)
            except OSError:
                if isinstance(node, _Directory):
                    node.sync_fails()
                else:
                    node.sync_fails(self._surviving_content(node))
                raise
            if isinstance(node, _Directory):
                if "directory" not in self.lies_about:
                    node.sync()
            elif ("wal" if call == "fdatasync" else "file") not in self.lies_about:
                node.sync()

    def _find(self, path: str, dir_fd: int | None) -> tuple[_Directory | None, str, str]:
        """The directory that has `path`, the name there, and the path from the root; None if that
        is not on this disk. The name is empty for the root itself."""
        base = self._nodes[dir_fd][1] if dir_fd is not None else ""
        if dir_fd is None:
            if not f"{path}/".startswith(f"{self.root}/"):
                return None, "", str(path)
            path = os.path.relpath(path, self.root)
        parts = [part for part in f"{base}/{path}".split("/") if part not in ("", ".")]
        node: _Node = self._tree
        for part in parts[:-1]:
            child = node.entries.get(part) if isinstance(node, _Directory) else None
            if not isinstance(child, _Directory):
                raise FileNotFoundError(path)
            node = child
        assert isinstance(node, _Directory)
        return node, parts[-1] if parts else "", "/".join(parts)


class InlineExecutor(Executor):
    """Runs what it is given at once, in the caller's thread: so that a seed decides everything."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass


@contextlib.contextmanager
def installed(disk: Disk) -> Iterator[None]:
    """Everything that the log writes goes to `disk`, in one thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mainstem.delta_log.store.disk.os", disk)
        patch.setattr("mainstem.delta_log.store.local.os", disk)
        patch.setattr("mainstem.delta_log.wal.files.os", disk)
        patch.setattr("mainstem.delta_log.wal.log.ThreadPoolExecutor", InlineExecutor)
        patch.setattr("mainstem.delta_log.files.roller._PAUSE_FACTOR", 0.0)
        yield
