"""Spark as pyspark brings it, without the zipped copy of its own Python code.

Spark puts that copy in front of the path of every Python process that it starts, and a process that
imports from a zip compiles all of it, each time: 1 to 1.5 s of processor time, for each query that
is planned, read or written. Without it they import the pyspark that is installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: What is left out of pyspark's directory: `python/lib/pyspark.zip`, and nothing else.
_LEFT_OUT: Final = "python"

#: Making it takes milliseconds: whoever waits for longer does without.
_LOCK_S_MAX: Final = 10.0
_LOCK_EVERY_S: Final = 0.02


def quick_spark_home(keep_in: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """A directory for SPARK_HOME, whose entries are links to pyspark's own. Made once.

    Args:
        keep_in: Where it is kept, for this user.

    Returns:
        None: SPARK_HOME is set, the workers' Python is another one than this, which may have no
        pyspark; or no such directory can be made.
    """
    import pyspark

    python = environment.get("PYSPARK_PYTHON", sys.executable)
    if environment.get("SPARK_HOME") or python != sys.executable:
        return None
    source = Path(pyspark.__file__).resolve().parent
    mark = hashlib.sha256(str(source).encode()).hexdigest()[:8]
    home = keep_in / f"spark-{pyspark.__version__}-{mark}"
    try:
        if not _is_whole(home, source):
            _make_once(home, source)
    except OSError:
        return None
    return str(home) if _is_whole(home, source) else None


def _make_once(home: Path, source: Path) -> None:
    """Makes the directory, unless another process does so at this moment: to take its away, be it
    for an instant, would end the Spark that starts there."""
    home.parent.mkdir(parents=True, exist_ok=True)
    directory = os.open(home.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(directory)
        if not _is_whole(home, source):
            _make(home, source)
    finally:
        os.close(directory)


def _lock(directory: int) -> None:
    """Raises BlockingIOError where somebody else has it for too long."""
    deadline = time.monotonic() + _LOCK_S_MAX
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOCK_EVERY_S)
        else:
            return


def _make(home: Path, source: Path) -> None:
    draft = Path(tempfile.mkdtemp(prefix=".spark-", dir=home.parent))
    try:
        for entry in source.iterdir():
            if entry.name != _LEFT_OUT:
                (draft / entry.name).symlink_to(entry)
        if home.is_dir():  # of a pyspark that was installed anew
            with contextlib.suppress(FileNotFoundError):
                home.rename(draft.with_name(f"{draft.name}.old"))
        draft.rename(home)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(draft.with_name(f"{draft.name}.old"), ignore_errors=True)


def _is_whole(home: Path, source: Path) -> bool:
    """Whether everything that pyspark has now is there, and is what it was."""
    wanted = {entry.name for entry in source.iterdir()} - {_LEFT_OUT}
    try:
        found = {entry.name for entry in home.iterdir()}
    except FileNotFoundError:
        return False
    return found == wanted and (home / "jars").resolve() == source / "jars"
