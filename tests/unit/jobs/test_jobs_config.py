"""The settings of the scheduler and its jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.config import load_gateway_config
from mainstem.errors import InvalidConfigError
from mainstem.jobs.catalogue import JOBS
from mainstem.jobs.jobs_config import default_jobs, load_jobs_config


def load(tmp_path: Path, text: str) -> object:
    file = tmp_path / "jobs.toml"
    file.write_text(text)
    return load_jobs_config(file)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        load(tmp_path, text)
    return caught.value.message.replace(str(tmp_path), "")


def test_every_job_has_default_times() -> None:
    assert default_jobs().keys() == JOBS.keys()
    config = load_jobs_config(None)
    assert all(job.enabled and job.takes("orders") for job in config.jobs.values())
    assert config.number("max.running.jobs") == 4


def test_a_file_changes_what_it_names_and_leaves_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(
        """
        [scheduler]
        jitter.ms = 250
        "max.running.jobs" = 3
        metrics.listeners = "127.0.0.1:0"
        [spark]
        master = "spark://head:7077"
        "executor.memory" = "2g"
        [jobs.compaction]
        cron = "*/10 * * * * *"
        topics = ["orders-*", "payments"]
        enabled = false
        """
    )
    config = load_jobs_config(file)
    assert config.number("jitter.ms") == 250
    assert config.number("max.running.jobs") == 3
    assert config.text("metrics.listeners") == "127.0.0.1:0"
    assert config.number("session.timeout.ms") == 20_000
    assert config.spark == {"spark.master": "spark://head:7077", "spark.executor.memory": "2g"}
    compaction = config.jobs["compaction"]
    assert compaction.cron.text == "*/10 * * * * *"
    assert [compaction.takes(name) for name in ("orders-eu", "payments", "orders")] == [
        True,
        True,
        False,
    ]
    assert not compaction.enabled


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[jobs.compaction]\n\n[jobs.compation]\ncron = "* * * * *"',
            "3: jobs.compation: there is no job 'compation'; did you mean compaction?",
        ),
        (
            '# first\n[jobs.compaction]\ncron = "61 * * * *"',
            (
                "3: jobs.compaction.cron: '61 * * * *' is not a cron expression: bad minute; it "
                'has five fields, minute hour day month weekday, as "*/5 * * * *"'
            ),
        ),
        (
            "[jobs]\ncompaction = 3",
            "2: jobs.compaction: it must be a section, [jobs.compaction]",
        ),
        (
            "[jobs]\ncompaction.enable = true",
            ("2: jobs.compaction.enable: there is no setting 'enable'; did you mean enabled?"),
        ),
        (
            '[jobs.compaction]\nenabled = "yes"',
            "2: jobs.compaction.enabled: it is 'yes'; it must be true or false",
        ),
        (
            '[jobs.compaction]\ntopics = "orders"',
            (
                "2: jobs.compaction.topics: it is 'orders'; it must be a list of names or "
                'shell patterns, as ["orders-*", "payments"]'
            ),
        ),
        (
            "[jobs.compaction.options]\nno.such = 1",
            (
                "1: jobs.compaction.options: there is no setting 'no.such'; there are "
                "compaction.target.bytes, compaction.min.age.ms"
            ),
        ),
        (
            "[scheduler]\njitter.m = 1",
            ("2: scheduler.jitter.m: there is no setting 'jitter.m'; did you mean jitter.ms?"),
        ),
        (
            "[scheduler]\njitter.ms = -1",
            (
                "2: scheduler.jitter.ms: jitter.ms is -1 ms; it must be at least 0 and at "
                "most 86400000 ms"
            ),
        ),
        (
            "[scheduler]\nsession.timeout.ms = 9000",
            (
                "2: scheduler.session.timeout.ms: it is 9000 ms; it must be at least twice "
                "heartbeat.interval.ms, which is 5000 ms"
            ),
        ),
        (
            "[sheduler]\njitter.ms = 1",
            "1: sheduler: there is no section 'sheduler'; did you mean scheduler?",
        ),
        ("jobs = 1", "1: jobs: it must be a section, [jobs]"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_what_was_probably_meant(
    tmp_path: Path, text: str, message: str
) -> None:
    assert refusal(tmp_path, text) == f"/jobs.toml:{message}"


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    assert "/jobs.toml are not valid TOML: " in refusal(tmp_path, "[scheduler")
    with pytest.raises(InvalidConfigError, match=r"cannot read the jobs' settings .*/none\.toml"):
        load_jobs_config(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "value", ["9" * 5_000, "[" * 3_000 + "]" * 3_000], ids=["digits", "nested"]
)
def test_toml_that_its_parser_gives_up_on_is_refused_in_words(tmp_path: Path, value: str) -> None:
    text = f"[scheduler]\njitter.ms = {value}\n"
    assert "/jobs.toml are not valid TOML: " in refusal(tmp_path, text)
    with pytest.raises(InvalidConfigError, match="is not valid TOML: "):
        load_gateway_config(tmp_path / "jobs.toml")


def test_a_file_is_utf_8_whatever_the_locale_is(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text("# Zürich, nightly\n[jobs.compaction]\nenabled = false\n", encoding="utf-8")
    program = (
        "import sys; from mainstem.jobs.jobs_config import load_jobs_config; "
        "print(load_jobs_config(sys.argv[1]).jobs['compaction'].enabled)"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    answer = subprocess.run(
        [sys.executable, "-P", "-c", program, str(file)],
        env=os.environ | ascii_only,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout == "False\n", answer.stderr


def test_a_pipeline_has_a_directory_and_times_and_is_no_job(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(
        """
        [pipelines.flights]
        directory = "/srv/flights"
        [pipelines.orders]
        directory = "/srv/orders"
        cron = "7 * * * *"
        enabled = false
        """
    )
    config = load_jobs_config(file)
    flights, orders = config.jobs["pipeline.flights"], config.jobs["pipeline.orders"]
    assert (flights.pipeline, flights.enabled) == ("/srv/flights", True)
    assert (orders.pipeline, orders.enabled, orders.cron.text) == (
        "/srv/orders",
        False,
        "7 * * * *",
    )
    assert config.jobs.keys() == JOBS.keys() | {"pipeline.flights", "pipeline.orders"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[pipelines.a]", ":1: pipelines.a: it needs a directory"),
        ("[pipelines]\na = 1", ":2: pipelines.a: it must be a section"),
        ("[pipelines.'a b']\ndirectory = 'x'", "a name has letters"),
        ("[pipelines.a]\ndirectory = 'x'\ntopics = ['x']", ":3: pipelines.a.topics: there is no"),
        ("[pipelines.a]\ndirectory = 'x'\ncron = '5'", ":3: pipelines.a.cron: '5' is not a cron"),
        ("[pipelines.a]\ndirectory = 'x'\n[jobs.'pipeline.a']", "there is no job 'pipeline.a'"),
    ],
)
def test_what_is_wrong_with_a_pipeline_is_told_with_its_line(
    tmp_path: Path, text: str, words: str
) -> None:
    assert words in refusal(tmp_path, text)
