"""A small disk that can be filled to the last byte: a tmpfs, where mounting is possible."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SIZE_BYTES = 8 * 1024 * 1024


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """Mounts it at `place`, or skips the test."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Takes all that is free; returns the file that has it."""
    ballast = disk / "ballast"
    with open(ballast, "ab", buffering=0) as file:
        for size in (1024 * 1024, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    assert free_bytes(disk) == 0
    return ballast


def free_bytes(disk: Path) -> int:
    """What is left for everybody."""
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


def is_no_space(error: BaseException | None) -> bool:
    """Whether an error goes back to a full disk."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return True
        error = error.__cause__
    return False
