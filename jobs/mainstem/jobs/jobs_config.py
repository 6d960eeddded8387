"""What `mainstem job scheduler` runs, and when: `conf/jobs.toml` over the defaults here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from mainstem.config import (
    ConfigKey,
    ConfigValue,
    keys_by_name,
    parse_value,
    read_toml,
    unknown_setting,
)
from mainstem.errors import InvalidConfigError
from mainstem.jobs.catalogue import JOBS, make_job, unknown
from mainstem.jobs.schedule import Cron

#: The section `[scheduler]`.
SCHEDULER_KEYS: Final[dict[str, ConfigKey]] = keys_by_name(
    (
        ConfigKey(
            "jitter.ms",
            "int",
            5_000,
            "A job starts up to so much later than its time, at random, so that jobs and "
            "warehouses do not all start at once. Never as late as its next time.",
            unit="ms",
            minimum=0,
            maximum=86_400_000,
        ),
        ConfigKey(
            "max.running.jobs",
            "int",
            4,
            "Jobs that may run at a time, all on one Spark session, so that one that takes long "
            "does not hold up the others. A job never overlaps itself.",
            minimum=1,
            maximum=16,
        ),
        ConfigKey(
            "heartbeat.interval.ms",
            "int",
            5_000,
            "How often the scheduler renews its lease, and looks for jobs that were paused or "
            "resumed.",
            unit="ms",
            minimum=50,
            maximum=60_000,
        ),
        ConfigKey(
            "session.timeout.ms",
            "int",
            20_000,
            "A scheduler that waits takes over when the lease was not renewed for this long. At "
            "least twice the heartbeat interval.",
            unit="ms",
            minimum=100,
            maximum=600_000,
        ),
        ConfigKey(
            "shutdown.grace.ms",
            "int",
            20_000,
            "On SIGTERM, how long running jobs may take to end; then they are abandoned, which "
            "loses their work and nothing else.",
            unit="ms",
            minimum=0,
            maximum=3_600_000,
        ),
        ConfigKey(
            "metrics.listeners",
            "str",
            "",
            "host:port of the HTTP endpoint: /metrics, /healthz, /readyz, and / for people; empty: "
            "none.",
        ),
    )
)

_HEADER: Final = re.compile(r"\s*\[([^\[\]]+)\]")
_ASSIGNED: Final = re.compile(r"\s*([^=#\[]+?)\s*=")

_SECTIONS: Final = ("scheduler", "spark", "jobs", "pipelines")
_JOB_KEYS: Final = ("cron", "enabled", "topics", "options")
_PIPELINE_KEYS: Final = ("directory", "cron", "enabled")

#: In front of a pipeline's name, where names of jobs are.
PIPELINE_PREFIX: Final = "pipeline."
_PIPELINE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")

#: When jobs run unless the file says otherwise, in UTC; those that are not named here, hourly.
#: Apart from each other: what one removes under another is work for nothing, most of all what
#: retention removes, so that comes first.
_DEFAULT_TIMES: Final = {
    "compaction": "1-59/5 * * * *",
    "keyed-compaction": "3-59/10 * * * *",
    "log-cleanup": "7,37 * * * *",
    "retention": "*/5 * * * *",
    # The log forgets a removal an hour after vacuum may see it.
    "vacuum": "2,17,32,47 * * * *",
    "vacuum-orphans": "47 3 * * SUN",
}
_HOURLY: Final = "27 * * * *"
_PIPELINE_TIMES: Final = "*/5 * * * *"


@dataclass(frozen=True, slots=True)
class JobSettings:
    """When and how a job runs.

    Attributes:
        cron: In UTC.
        topics: Shell patterns of names; a topic takes part if it matches one of them.
        options: As for `mainstem job run -o NAME=VALUE`.
        pipeline: The directory of one of Spark's declared pipelines, which is run as
            `mainstem pipeline run` does; empty: a job of ours.
    """

    cron: Cron
    enabled: bool = True
    topics: tuple[str, ...] = ("*",)
    options: Mapping[str, str] = field(default_factory=dict)
    pipeline: str = ""

    @property
    def takes_all(self) -> bool:
        return "*" in self.topics

    def takes(self, topic: str) -> bool:
        """Whether the job looks at the topic."""
        return any(fnmatchcase(topic, pattern) for pattern in self.topics)


@dataclass(frozen=True, slots=True)
class JobsConfig:
    """A whole `jobs.toml`.

    Attributes:
        scheduler: Every name of `SCHEDULER_KEYS`.
        jobs: Every job that there is, those that are not enabled too; and the file's pipelines,
            with `pipeline.` in front of their names.
        spark: Settings of the Spark session.
    """

    scheduler: Mapping[str, ConfigValue]
    jobs: Mapping[str, JobSettings]
    spark: Mapping[str, str]

    def number(self, name: str) -> int:
        value = self.scheduler[name]
        assert isinstance(value, int), name
        return value

    def text(self, name: str) -> str:
        return str(self.scheduler[name])


def default_jobs() -> dict[str, JobSettings]:
    """Every job that there is, with its default times."""
    return {name: JobSettings(Cron(_DEFAULT_TIMES.get(name, _HOURLY))) for name in JOBS}


def load_jobs_config(file: str | os.PathLike[str] | None) -> JobsConfig:
    """Reads the settings: the defaults, and what the file has instead.

    Args:
        file: None: the defaults alone.

    Raises:
        InvalidConfigError: The file cannot be read, or a section, job, setting, cron text or option
            is wrong; the message names the file, the line and the nearest that exists.
    """
    source = _Source.read(file)
    scheduler = {name: key.default for name, key in SCHEDULER_KEYS.items()}
    jobs = default_jobs()
    spark: dict[str, str] = {}
    for name, section in source.content.items():
        with source.blamed(name):
            if name not in _SECTIONS:
                raise unknown("section", name, _SECTIONS)
            if not isinstance(section, dict):
                raise InvalidConfigError(f"it must be a section, [{name}]")
        if name == "scheduler":
            scheduler |= _read_scheduler(source, section)
        elif name == "spark":
            spark = {f"spark.{key}": _text(value) for key, value in _flatten(section)}
        elif name == "pipelines":
            jobs |= _read_pipelines(source, section)
        else:
            jobs |= _read_jobs(source, section, default_jobs())
    config = JobsConfig(scheduler, jobs, spark)
    interval, session = "heartbeat.interval.ms", "session.timeout.ms"
    if config.number(session) < 2 * config.number(interval):
        with source.blamed("scheduler", session):
            raise InvalidConfigError(
                f"it is {config.number(session)} ms; it must be at least twice {interval}, "
                f"which is {config.number(interval)} ms"
            )
    return config


@dataclass(frozen=True, slots=True)
class _Source:
    """The file: its text, for the numbers of lines, and what it says."""

    name: str
    text: str
    content: Mapping[str, Any]

    @classmethod
    def read(cls, file: str | os.PathLike[str] | None) -> _Source:
        if file is None:
            return cls("default", "", {})
        text, content = read_toml(file, "the jobs' settings", "are")
        return cls(os.fspath(file), text, content)

    @contextmanager
    def blamed(self, *keys: str) -> Iterator[None]:
        """Puts the place of a setting in front of what is wrong with it."""
        try:
            yield
        except InvalidConfigError as error:
            path = ".".join(keys)
            raise InvalidConfigError(
                f"{self.name}{self._line(path)}: {path}: {error.message}", name=path
            ) from None

    def _line(self, path: str) -> str:
        """`:12` for a setting or section of that dotted path; empty if it is in none."""
        section = ""
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := _HEADER.match(line):
                section = found = _plain(header[1])
            elif assigned := _ASSIGNED.match(line):
                found = f"{section}.{_plain(assigned[1])}".lstrip(".")
            else:
                continue
            if found == path or found.startswith(f"{path}."):
                return f":{number}"
        return ""


def _read_scheduler(source: _Source, section: Mapping[str, object]) -> dict[str, ConfigValue]:
    found: dict[str, ConfigValue] = {}
    for name, value in _flatten(section):
        with source.blamed("scheduler", name):
            key = SCHEDULER_KEYS.get(name)
            if key is None:
                raise unknown_setting(name, SCHEDULER_KEYS, {})
            found[name] = parse_value(key, value)
    return found


def _read_jobs(
    source: _Source, section: Mapping[str, Any], defaults: Mapping[str, JobSettings]
) -> dict[str, JobSettings]:
    found: dict[str, JobSettings] = {}
    for job, settings in section.items():
        with source.blamed("jobs", job):
            if job not in defaults:
                raise unknown("job", job, defaults)
            if not isinstance(settings, dict):
                raise InvalidConfigError(f"it must be a section, [jobs.{job}]")
        values: dict[str, Any] = {}
        for name, value in settings.items():
            with source.blamed("jobs", job, name):
                values[name] = _read_setting(job, name, value)
        found[job] = replace(defaults[job], **values)
    return found


def _read_pipelines(source: _Source, section: Mapping[str, Any]) -> dict[str, JobSettings]:
    found: dict[str, JobSettings] = {}
    for pipeline, settings in section.items():
        with source.blamed("pipelines", pipeline):
            if not _PIPELINE_NAME.fullmatch(pipeline):
                raise InvalidConfigError("a name has letters, digits, `_` and `-`")
            if not isinstance(settings, dict):
                raise InvalidConfigError(f"it must be a section, [pipelines.{pipeline}]")
            directory = settings.get("directory")
            if not isinstance(directory, str) or not directory.strip():
                raise InvalidConfigError(
                    "it needs a directory: that which `mainstem pipeline init` has made"
                )
        values: dict[str, Any] = {}
        for name, value in settings.items():
            with source.blamed("pipelines", pipeline, name):
                if name not in _PIPELINE_KEYS:
                    raise unknown("setting", name, _PIPELINE_KEYS)
                if name != "directory":
                    values[name] = _read_setting(pipeline, name, value)
        one = JobSettings(Cron(_PIPELINE_TIMES), pipeline=directory)
        found[PIPELINE_PREFIX + pipeline] = replace(one, **values)
    return found


def _read_setting(job: str, name: str, value: object) -> object:
    if name == "cron":
        try:
            return Cron(str(value))
        except ValueError as error:
            raise InvalidConfigError(
                f"{value!r} is not a cron expression: {error}; it has five fields, minute hour "
                'day month weekday, as "*/5 * * * *"'
            ) from None
    if name == "enabled":
        if not isinstance(value, bool):
            raise InvalidConfigError(f"it is {value!r}; it must be true or false")
        return value
    if name == "topics":
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise InvalidConfigError(
                f"it is {value!r}; it must be a list of names or shell patterns, as "
                '["orders-*", "payments"]'
            )
        return tuple(value)
    if name == "options":
        if not isinstance(value, dict):
            raise InvalidConfigError(f"it must be a section, [jobs.{job}.options]")
        options = {option: _text(given) for option, given in _flatten(value)}
        make_job(job, options)
        return options
    raise unknown("setting", name, _JOB_KEYS)


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _plain(path: str) -> str:
    """A dotted path without the quotes and blanks that TOML allows."""
    return ".".join(part.strip(" \t\"'") for part in path.split("."))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
