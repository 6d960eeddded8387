"""What a process has used, from /proc."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def cpu_s(pid: int) -> float:
    """Processor seconds of a process, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int) -> int:
    """The most memory that a process had resident since `reset_peak`, from /proc."""
    return _status_bytes(pid, "VmHWM:")


def resident_bytes(pid: int) -> int:
    """The memory that a process has resident now, from /proc."""
    return _status_bytes(pid, "VmRSS:")


def reset_peak(pid: int) -> None:
    """Forgets the peak so far. Where the kernel does not offer that, it stays."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0
