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


def tree_cpu_s(root: int) -> float:
    """Processor seconds of a process and of all below it, those that have ended included."""
    return sum(ticks for _, ticks in _tree(root).values()) / os.sysconf("SC_CLK_TCK")


def tree_peak_bytes(root: int) -> int:
    """The sum of `peak_bytes` of a process and of all below it that run now.

    Memory that forked processes share counts for each of them.
    """
    total = 0
    for pid in _tree(root):
        with contextlib.suppress(OSError):  # it has just ended
            total += peak_bytes(pid)
    return total


def _tree(root: int) -> dict[int, tuple[int, int]]:
    """Parent and clock ticks, by pid; the ticks are also those of children that have ended."""
    stats: dict[int, tuple[int, int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = file.read_text().rpartition(")")[2].split()
            stats[int(file.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    tree = {root}
    while below := {pid for pid, (parent, _) in stats.items() if parent in tree} - tree:
        tree |= below
    return {pid: stats[pid] for pid in tree if pid in stats}
