"""What is settled before Spark starts: Java, jars, settings. None of these tests starts it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.jobs import SparkUnavailableError, session_settings
from mainstem.jobs import _delta_jars as jars
from mainstem.jobs._java import check_user, java_command
from mainstem.jobs.sql import bytes_as_text
from mainstem.jobs.tables import quote, sql_name


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def _java(path: Path, version: str) -> Path:
    return _script(path / "bin" / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_new_enough_java_is_taken_from_java_home_or_the_path(
    tmp_path: Path, version: str
) -> None:
    java = _java(tmp_path, version)
    assert java_command({"JAVA_HOME": str(tmp_path), "PATH": ""}) == str(java)
    assert java_command({"PATH": str(java.parent)}) == str(java)


@pytest.mark.parametrize(("version", "major"), [("1.8.0_402", "8"), ("11.0.2", "11")])
def test_an_old_java_is_one_sentence_that_says_what_to_install(
    tmp_path: Path, version: str, major: str
) -> None:
    java = _java(tmp_path, version)
    with pytest.raises(SparkUnavailableError) as caught:
        java_command({"PATH": str(java.parent)})
    assert f"{java} is Java {major}: install it" in caught.value.message
    assert "\n" not in caught.value.message


def test_no_java_is_one_sentence_that_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailableError, match="there is none in PATH: install it"):
        java_command({"PATH": str(tmp_path)})
    with pytest.raises(SparkUnavailableError, match="has no bin/java: install it"):
        java_command({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})


def test_a_java_that_cannot_run_is_told_apart(tmp_path: Path) -> None:
    _script(tmp_path / "java", "exit 1")
    with pytest.raises(SparkUnavailableError, match="cannot say its version"):
        java_command({"PATH": str(tmp_path)})


def test_a_user_without_a_name_is_told_before_java_is_blamed() -> None:
    check_user()
    with pytest.raises(SparkUnavailableError, match=r"user 2000000011, which has no name .*passwd"):
        check_user(2_000_000_011)


#: A process of its own: where Spark runs already, no second one is started.
_STARTING = """
import os
forks = []
os.register_at_fork(before=lambda: forks.append(1))
from mainstem.jobs import SparkUnavailableError, spark_session
try:
    spark_session(**{"spark.jars": "delta-spark.jar"})
except SparkUnavailableError as error:
    print(error.message)
    print("forks that gRPC's handlers would see:", len(forks))
"""


def _start_with(script: str, tmp_path: Path) -> str:
    """What a session says whose `spark-submit` does as the script says."""
    _script(tmp_path / "bin" / "spark-submit", script)
    java = _java(tmp_path / "jdk", "17")
    started = subprocess.run(
        [sys.executable, "-c", _STARTING],
        env=os.environ | {"SPARK_HOME": str(tmp_path), "JAVA_HOME": str(java.parents[1])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    return started.stdout


def test_a_spark_that_does_not_start_is_told_by_what_its_jvm_said(tmp_path: Path) -> None:
    cut_down = "echo 'java.lang.module.FindException: Module jdk.incubator.vector not found' >&2"
    assert "cut down" in _start_with(f"{cut_down}\nexit 1", tmp_path)
    other = "echo 'Exception in thread \"main\" java.net.BindException' >&2; exit 1"
    told = _start_with(other, tmp_path)
    assert "what its JVM said is above" in told
    assert "Java" not in told.replace("[JAVA_GATEWAY_EXITED] Java gateway", "")
    assert "ended without a word" in _start_with("kill -ABRT $$", tmp_path)


def test_spark_starts_without_python_between_fork_and_exec_and_beyond_the_reach_of_ctrl_c(
    tmp_path: Path,
) -> None:
    groups = tmp_path / "groups"
    said = _start_with(f"ps -o pid=,pgid= -p $$ > {groups}; exit 1", tmp_path)
    assert "forks that gRPC's handlers would see: 0" in said
    pid, group = groups.read_text().split()
    assert pid == group


def test_the_callers_settings_win() -> None:
    assert session_settings({})["spark.sql.session.timeZone"] == "UTC"
    chosen = session_settings({"spark.sql.session.timeZone": "Europe/Berlin", "x": "y"})
    assert chosen["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert chosen["x"] == "y"


def test_settings_for_small_machines_are_for_local_sessions_only() -> None:
    local = session_settings({}, master="local[2]", core_count=2)
    assert local["spark.sql.shuffle.partitions"] == "2"
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    cluster = session_settings({}, master="spark://host:7077", core_count=2)
    assert "spark.sql.shuffle.partitions" not in cluster
    assert "spark.driver.bindAddress" not in cluster


def test_what_spark_submit_has_settled_is_left_alone() -> None:
    submitted = session_settings({}, submitted=True)
    assert "spark.master" not in submitted
    assert "spark.driver.extraJavaOptions" not in submitted
    assert "spark.driver.host" not in submitted
    assert submitted["spark.sql.extensions"]


def test_java_options_of_the_caller_are_kept_beside_the_logging() -> None:
    name = "spark.driver.extraJavaOptions"
    assert session_settings({name: "-Xss4m"})[name].startswith("-Xss4m -Dlog4j2.configurationFile=")
    own = "-Dlog4j2.configurationFile=file:/mine"
    assert session_settings({name: own})[name] == own


def test_jars_that_are_here_are_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "_spark_home", lambda: tmp_path / "no spark")
    (tmp_path / "jars").mkdir()
    for name in jars.DELTA_JARS:
        (tmp_path / "jars" / name).touch()
    found = jars.delta_jars({"spark.jars.ivy": str(tmp_path)})
    assert found == [str(tmp_path / "jars" / name) for name in jars.DELTA_JARS]


def test_jars_that_are_missing_are_fetched_with_sparks_resolver_and_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ivy = tmp_path / "spark", tmp_path / "ivy"
    touch = "; ".join(f"touch '{ivy / 'jars' / name}'" for name in jars.DELTA_JARS)
    _script(
        home / "bin" / "spark-submit", f"echo $* > {tmp_path}/args; mkdir -p {ivy}/jars; {touch}"
    )
    monkeypatch.setattr(jars, "_spark_home", lambda: home)
    settings = {"spark.jars.ivy": str(ivy), "spark.jars.repositories": "https://mirror", "x": "y"}
    assert len(jars.delta_jars(settings)) == 6
    arguments = (tmp_path / "args").read_text()
    assert f"--packages {jars.DELTA_PACKAGE} " in arguments
    assert "org.apache.hadoop:hadoop-client-api," in arguments
    assert "spark.jars.repositories=https://mirror" in arguments
    assert "x=y" not in arguments


def test_jars_that_cannot_be_fetched_are_one_error_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "spark"
    why = "unresolved dependency: io.delta#delta-spark_4.2_2.13;4.4.0: not found"
    _script(home / "bin" / "spark-submit", f"echo ':: {why}' >&2; exit 1")
    monkeypatch.setattr(jars, "_spark_home", lambda: home)
    with pytest.raises(SparkUnavailableError, match=why) as caught:
        jars.delta_jars({"spark.jars.ivy": str(tmp_path / "ivy")})
    assert "name a mirror in spark.jars.ivySettings" in caught.value.message


def test_a_home_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SparkUnavailableError, match=r"cannot be kept in .*spark\.jars\.ivy"):
        jars.delta_jars({"spark.jars.ivy": str(file / "ivy")})


def test_names_are_quoted_where_sql_needs_it() -> None:
    assert [sql_name(name) for name in ("orders", "a_1", "a.b", "a-b", "1a")] == [
        "orders",
        "a_1",
        "`a.b`",
        "`a-b`",
        "`1a`",
    ]
    assert quote("a`b") == "`a``b`"


def test_bytes_are_text_where_they_are_utf_8() -> None:
    assert bytes_as_text("grün".encode()) == "grün"
    assert bytes_as_text(b"\xff\x00") == "0xff00"
    assert bytes_as_text(b"") == ""
