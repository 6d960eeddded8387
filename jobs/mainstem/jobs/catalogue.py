"""Every job by its name, with its options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mainstem.config import (
    ConfigKey,
    ConfigValue,
    keys_by_name,
    nearest_name,
    parse_value,
)
from mainstem.errors import InvalidConfigError
from mainstem.jobs.compaction import Compaction
from mainstem.jobs.job import Job
from mainstem.jobs.keyed_compaction import KeyedCompaction
from mainstem.jobs.log_cleanup import LogCleanup
from mainstem.jobs.retention import Retention
from mainstem.jobs.vacuum import Vacuum
from mainstem.jobs.vacuum_orphans import VacuumOrphans


@dataclass(frozen=True, slots=True)
class JobKind:
    """A job that can be run.

    Attributes:
        summary: What it does, in one sentence.
        options: By name; what is not given is as its default says.
        make: From the options that were given to the job.
    """

    name: str
    summary: str
    options: Mapping[str, ConfigKey]
    make: Callable[[Mapping[str, ConfigValue]], Job[Any, Any]]


def _kind(job: type[Any], summary: str, *options: ConfigKey) -> JobKind:
    return JobKind(job.name, summary, keys_by_name(options), job.of)


JOBS: Final[dict[str, JobKind]] = {
    kind.name: kind
    for kind in (
        _kind(
            Compaction,
            "Merges small data files of a partition into larger ones; every record stays as it is.",
            *Compaction.OPTIONS,
        ),
        _kind(
            KeyedCompaction,
            "Keeps the last record of each key, where cleanup.policy has compact.",
            *KeyedCompaction.OPTIONS,
        ),
        _kind(
            Retention,
            "Removes records past retention.ms and retention.bytes from the front of partitions.",
            *Retention.OPTIONS,
        ),
        _kind(
            Vacuum,
            "Deletes data files that were removed from the table vacuum.min.age.ms ago or earlier.",
            *Vacuum.OPTIONS,
        ),
        _kind(
            VacuumOrphans,
            "Lists the data files and deletes old ones that no version of the table knows; rarely.",
            *VacuumOrphans.OPTIONS,
        ),
        _kind(
            LogCleanup,
            "Writes checkpoints and removes old log files, where no gateway does.",
            *LogCleanup.OPTIONS,
        ),
    )
}


def job_kind(name: str) -> JobKind:
    """The job of that name.

    Raises:
        InvalidConfigError: There is none; the message has the nearest.
    """
    kind = JOBS.get(name)
    if kind is None:
        raise unknown("job", name, JOBS)
    return kind


def make_job(name: str, options: Mapping[str, object] | None = None) -> Job[Any, Any]:
    """The job of that name, with options.

    Raises:
        InvalidConfigError: There is no such job or option, or a value is out of range.
    """
    kind = job_kind(name)
    given: dict[str, ConfigValue] = {}
    for option, value in (options or {}).items():
        key = kind.options.get(option)
        if key is None:
            raise unknown("setting", option, kind.options)
        given[option] = parse_value(key, value)
    return kind.make(given)


def unknown(what: str, name: str, known: Iterable[str]) -> InvalidConfigError:
    """The error for a name that is not known: the nearest, or all that there are."""
    names = list(known)
    close = nearest_name(name, names)
    hint = f"did you mean {close}?" if close else f"there are {', '.join(names) or 'none'}"
    return InvalidConfigError(
        f"there is no {what} {name!r}; {hint}", name=name, nearest=close or ""
    )
