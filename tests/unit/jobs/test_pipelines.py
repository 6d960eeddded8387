"""A pipeline's directory, its runs and what is known of them; Spark's part is a script here."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mainstem.jobs.job import OutcomeKind
from mainstem.jobs.jobs_config import JobSettings
from mainstem.jobs.pipelines import (
    COMPLETED,
    FAILED,
    KILLED,
    RUNNING,
    STOPPED,
    PipelineError,
    PipelineRun,
    PipelineRuns,
    Project,
    init_project,
    pipeline_project,
    pipeline_runs,
)
from mainstem.jobs.pipelines import run_pipeline as run
from mainstem.jobs.schedule import Cron
from mainstem.jobs.spark_runs import RunEnd, SparkRuns

pytestmark = pytest.mark.usefixtures("no_leaks")

WAIT_S = 30.0


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jars of this machine."""
    found = [tmp_path / "ivy" / name for name in ("io.delta_delta-spark.jar", "io.delta_x.jar")]
    found[0].parent.mkdir()
    for jar in found:
        jar.touch()
    monkeypatch.setattr(pipeline_project, "delta_jars", lambda _: list(map(str, found)))
    return list(map(str, found))


@pytest.fixture
def project(tmp_path: Path, jars: list[str]) -> Project:
    return init_project(
        tmp_path / "my-flights", warehouse="/data/it's", servers="127.0.0.1:1", topic="flights"
    )


@pytest.fixture
def spark_says(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A shell script in place of Spark's command; what it would have been given is kept."""
    given: list[list[str]] = []
    module = sys.modules["mainstem.jobs.pipelines.run_pipeline"]
    real = module._command

    def command(project: Project, dry: bool, full: Sequence[str], some: Sequence[str]) -> list[str]:
        given.append(real(project, dry, full, some))
        return ["/bin/sh", str(project.directory / "script")]

    monkeypatch.setattr(module, "_command", command)
    monkeypatch.setattr(module, "java_command", lambda: "java")
    return given


def script(project: Project, text: str) -> None:
    (project.directory / "script").write_text(text)


def test_a_new_project_is_a_pipeline_of_sparks_whose_python_is_right(
    project: Project, jars: list[str]
) -> None:
    from pyspark.pipelines.cli import load_pipeline_spec

    spec = load_pipeline_spec(project.spec)
    assert (spec.name, spec.storage) == ("my-flights", f"file://{project.directory}/storage")
    assert [one.include for one in spec.libraries] == ["transformations/**/*"]
    (example,) = (project.directory / "transformations").iterdir()
    assert example.name == "my_flights.py"
    compile(example.read_text(), example, "exec")
    assert 'WAREHOUSE = "/data/it\'s"' in example.read_text()
    conf = (project.conf / "spark-defaults.conf").read_text()
    assert f"spark.jars {','.join(jars)}\n" in conf
    assert "spark.master" not in conf
    assert (project.conf / "log4j2.properties").is_file()


@pytest.mark.parametrize("failure", [BrokenPipeError, SystemExit])
def test_a_terminal_that_is_gone_does_not_hold_the_pipeline_up(
    project: Project, spark_says: list[list[str]], failure: type[BaseException]
) -> None:
    # More than fits into a pipe that nobody reads.
    script(project, "echo 2026-01-01 00:00:00: begun; head -c 300000 /dev/zero | tr '\\0' '\\n'")
    ends_at = time.monotonic() + 3.0

    def gone(_: str) -> None:
        raise failure

    ended = run(project.directory, on_progress=gone, should_stop=lambda: time.monotonic() > ends_at)
    assert ended.state == COMPLETED


def test_a_directory_that_is_there_or_cannot_name_a_pipeline_is_refused(
    project: Project, tmp_path: Path
) -> None:
    for directory, words in (
        (project.directory, "is there already"),
        (tmp_path / "a b", "cannot name a pipeline"),
        (tmp_path / "ivy" / "io.delta_x.jar" / "below", "cannot be made"),
    ):
        with pytest.raises(PipelineError, match=words):
            init_project(directory, warehouse="w", servers="s", topic="t")
    with pytest.raises(PipelineError, match="there is no pipeline"):
        Project.open(tmp_path)


def test_jars_of_another_machine_are_replaced_and_those_of_the_user_stay(
    project: Project, jars: list[str]
) -> None:
    conf = project.conf / "spark-defaults.conf"
    assert not project.refresh_jars()
    conf.write_text("spark.x 1\nspark.jars = /gone/io.delta_delta-spark.jar,/mine/udf.jar\n")
    assert project.refresh_jars()
    assert conf.read_text() == f"spark.x 1\nspark.jars /mine/udf.jar,{','.join(jars)}\n"
    conf.write_text("spark.jars hdfs:///jars/delta-spark_2.13.jar\n")
    assert not project.refresh_jars()
    conf.unlink()
    assert project.refresh_jars()


def test_a_run_says_its_steps_keeps_a_log_and_is_remembered(
    project: Project, spark_says: list[list[str]]
) -> None:
    script(project, "echo '2026-01-01 00:00:00: Flow late is RUNNING.'; echo noise >&2; pwd")
    steps: list[str] = []
    ended = run(project.directory, refresh=["a", "b"], full_refresh=["c"], on_progress=steps.append)
    assert (ended.state, ended.error, steps) == (COMPLETED, "", ["Flow late is RUNNING."])
    assert Path(ended.log).read_text().splitlines()[1:] == ["noise", str(project.directory)]
    assert run(project.directory, dry_run=True, full_refresh=["*"]).dry_run
    run(project.directory, full_refresh=["*"])
    assert [command[1:] for command in spark_says] == [
        ["run", "--spec", str(project.spec), *_REMOTE, "--full-refresh", "c", "--refresh", "a,b"],
        ["dry-run", "--spec", str(project.spec), *_REMOTE],
        ["run", "--spec", str(project.spec), *_REMOTE, "--full-refresh-all"],
    ]
    assert os.access(spark_says[0][0], os.X_OK)
    runs = PipelineRuns(project).last(0)
    assert [(one.state, one.dry_run) for one in runs] == [
        (COMPLETED, False),
        (COMPLETED, True),
        (COMPLETED, False),
    ]
    assert PipelineRuns(project).last(1) == runs[:1]


_REMOTE = ["--remote", "local[*,4]"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "echo 'Traceback:\n  File x\npyspark.errors.X.PySparkException: [NO] it\n'; exit 1",
            "[NO] it",
        ),
        ("echo Picked up JAVA_TOOL_OPTIONS: -X; exit 3", "ended with the code 3"),
        ("echo out of luck; exit 3", "out of luck"),
        ("kill -9 $$", "ended with the code -9"),
    ],
)
def test_a_run_that_fails_says_why(
    project: Project, spark_says: list[list[str]], text: str, error: str
) -> None:
    script(project, text)
    ended = run(project.directory)
    assert ended.state == FAILED
    assert error in ended.error
    assert PipelineRuns(project).last(1) == [ended]


def test_a_run_that_is_stopped_ends_with_all_that_it_started_and_none_runs_beside_it(
    project: Project, spark_says: list[list[str]]
) -> None:
    # A child that does not listen.
    script(project, "sh -c 'trap \"\" TERM; echo $$ > child; exec sleep 60' & wait")
    child = project.directory / "child"
    stopping = threading.Event()

    def meanwhile() -> None:
        deadline = time.monotonic() + WAIT_S
        while not (child.exists() and child.read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        runs = PipelineRuns(project)
        seen.append((runs.is_running(), runs.last(1)[0].state))
        with pytest.raises(PipelineError, match="runs already"):
            run(project.directory)
        stopping.set()

    seen: list[tuple[bool, str]] = []
    thread = threading.Thread(target=meanwhile)
    thread.start()
    ended = run(project.directory, should_stop=stopping.is_set)
    thread.join(WAIT_S)
    assert seen == [(True, RUNNING)]
    assert ended.state == STOPPED
    stat = Path("/proc", child.read_text().strip(), "stat")
    assert not stat.exists() or ") Z " in stat.read_text()


def test_a_run_whose_process_is_gone_was_killed_unless_what_it_started_lives(
    project: Project,
) -> None:
    runs = PipelineRuns(project)
    with runs.locked() as lock:
        runs.write(PipelineRun(1))
        left = subprocess.Popen(["sleep", "60"], pass_fds=[lock])
    assert runs.last(1)[0].state == RUNNING
    left.kill()
    left.wait()
    assert runs.last(1)[0].state == KILLED


def test_old_runs_and_their_logs_go_and_damage_hides_no_other(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_runs, "RUNS_KEPT", 3)
    runs = PipelineRuns(project)
    with runs.locked():
        for number in range(1, 6):
            path, log = runs.new_log(number)
            log.close()
            runs.write(PipelineRun(number, state=COMPLETED, log=str(path)))
    root = project.directory / "runs"
    assert sorted(one.name for one in root.glob("*.log")) == ["3.log", "4.log", "5.log"]
    (root / "4.json").write_text("{")
    assert [one.started_ms for one in runs.last(0)] == [5, 3]
    (root / "5.json").write_text("[1]")
    assert [one.started_ms for one in runs.last(0)] == [3]


def test_a_clock_that_went_back_does_not_hide_a_run_behind_older_ones(
    project: Project, spark_says: list[list[str]]
) -> None:
    script(project, "exit 0")
    runs = PipelineRuns(project)
    later = replace(run(project.directory), started_ms=2**45)
    runs.write(later)
    assert run(project.directory).started_ms == later.started_ms + 1
    assert runs.last(1)[0].started_ms == later.started_ms + 1


def test_the_scheduler_runs_a_pipeline_and_says_what_became_of_it(
    project: Project, spark_says: list[list[str]], tmp_path: Path
) -> None:
    runs = SparkRuns(str(tmp_path), {})
    settings = JobSettings(Cron("0 * * * *"), pipeline=str(project.directory))
    script(project, "exit 0")
    assert runs.run("pipeline.flights", settings) == RunEnd(OutcomeKind.OK)
    script(project, "echo no luck; exit 1")
    assert runs.run("pipeline.flights", settings) == RunEnd(OutcomeKind.FAILED, "no luck")
