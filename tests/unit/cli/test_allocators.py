"""The allocators of a gateway's process, in a process of its own: the choice is for good."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys

import pytest

# Threads that each take and give back a large message, all at the same time. Then what glibc says
# of its arenas.
_ARENAS = """
import ctypes, os, sys, tempfile, threading
from mainstem.cli.gateway.allocators import take_little_memory

take_little_memory()
together = threading.Barrier(4)

def message():
    together.wait()
    kept = [bytes(100_000) for _ in range(10)]
    together.wait()

threads = [threading.Thread(target=message) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fclose.argtypes = [ctypes.c_void_p]
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
"""


def _arena_count(path: str, **environment: str) -> int:
    kept = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    subprocess.run(
        [sys.executable, "-c", _ARENAS, path], check=True, timeout=60, env={**kept, **environment}
    )
    with open(path, encoding="ascii") as told:
        return len(re.findall(r"<heap nr=", told.read()))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others have one arena")
def test_threads_of_a_gateway_share_one_arena_unless_the_environment_says_otherwise(
    tmp_path: os.PathLike[str],
) -> None:
    path = os.path.join(tmp_path, "arenas.xml")
    assert _arena_count(path) == 1
    assert _arena_count(path, MALLOC_ARENA_MAX="3") == 3
