"""SPARK_HOME without the zipped copy of pyspark."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import pyspark
import pytest

from mainstem.jobs._spark_home import quick_spark_home

PYSPARK = Path(pyspark.__file__).parent


def test_it_has_all_of_pyspark_but_the_copy_and_is_made_once(tmp_path: Path) -> None:
    home = quick_spark_home(tmp_path / "ivy", {})
    assert home is not None
    names = {entry.name for entry in Path(home).iterdir()}
    assert names == {entry.name for entry in PYSPARK.iterdir()} - {"python"}
    assert {"bin", "jars"} <= names
    made = os.stat(home).st_ino
    assert quick_spark_home(tmp_path / "ivy", {"PYSPARK_PYTHON": sys.executable}) == home
    assert os.stat(home).st_ino == made
    assert os.listdir(tmp_path / "ivy") == [Path(home).name]
    assert os.access(Path(home, "bin", "spark-class"), os.X_OK)


def test_one_that_is_damaged_or_of_another_installation_is_made_again(tmp_path: Path) -> None:
    home = quick_spark_home(tmp_path, {})
    assert home is not None
    (Path(home) / "jars").unlink()
    assert quick_spark_home(tmp_path, {}) == home
    assert (Path(home) / "jars").resolve() == (PYSPARK / "jars").resolve()
    (Path(home) / "jars").unlink()
    (Path(home) / "jars").symlink_to(tmp_path)
    assert quick_spark_home(tmp_path, {}) == home
    assert (Path(home) / "jars").resolve() == (PYSPARK / "jars").resolve()
    assert os.listdir(tmp_path) == [Path(home).name]


def test_none_where_the_user_has_one_another_python_or_no_room(tmp_path: Path) -> None:
    assert quick_spark_home(tmp_path, {"SPARK_HOME": "/opt/spark"}) is None
    assert quick_spark_home(tmp_path, {"PYSPARK_PYTHON": "/usr/bin/python3"}) is None
    file = tmp_path / "file"
    file.touch()
    assert quick_spark_home(file, {}) is None


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_python_processes_of_a_session_import_what_is_installed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from mainstem.jobs import spark_session\n"
        "import pyarrow as pa\n"
        "def path(batches):\n"
        "    import pyspark, sys\n"
        "    yield pa.record_batch({'file': [pyspark.__file__]})\n"
        "frame = spark_session().range(1, numPartitions=1).mapInArrow(path, 'file string')\n"
        "print(frame.collect()[0].file)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    told = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines()[-1] == pyspark.__file__


def test_of_two_processes_that_make_it_at_the_same_time_none_takes_it_from_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark that starts in one of them would find no `bin/spark-class` for a moment."""
    began, may_go_on = threading.Event(), threading.Event()
    iterdir = Path.iterdir

    def slow_once(directory: Path) -> Iterator[Path]:
        # The first has found that there is none.
        if not began.is_set() and list(tmp_path.glob(".spark-*/")):
            began.set()
            may_go_on.wait(2.0)
        return iter(list(iterdir(directory)))

    monkeypatch.setattr(Path, "iterdir", slow_once)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(quick_spark_home, tmp_path, {})
        assert began.wait(10.0)
        second = pool.submit(quick_spark_home, tmp_path, {})
        made = {wait([first, second], return_when=FIRST_COMPLETED).done.pop().result(20.0)}
        (home,) = made
        assert home is not None
        before = Path(home).stat().st_ino
        may_go_on.set()
        made |= {first.result(20.0), second.result(20.0)}
    assert made == {home}
    assert Path(home).stat().st_ino == before
