"""What a maintenance job is: a pure plan, tasks that write data files, and table commits.

Spark never commits to a topic table. A task reads data files and writes new ones through an
`ObjectStore`, in whatever process; the driver makes them part of the log, with the same committer
as a gateway. Everything here is pickled on its way to a task and back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Generic, Self, TypeVar

from mainstem.delta_log.format import DataFile
from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table import OpenTopic, TableState
from mainstem.delta_log.topics import OFFSETS_TABLE, TOPICS, TRANSACTIONS_TABLE


@dataclass(frozen=True, slots=True)
class TableView:
    """A table at the version that a job plans on. Nothing else is looked at.

    Attributes:
        folder: Below the warehouse: `topics` or `system`.
        seen: What the job's `look` found beside the state.
    """

    topic: str
    folder: str
    state: TableState
    seen: object = None


@dataclass(frozen=True, slots=True)
class Counts:
    """How much something is.

    Attributes:
        bytes: Of data files, as they are stored.
    """

    files: int = 0
    records: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, files: Iterable[DataFile]) -> Self:
        """What the files hold."""
        found = list(files)
        return cls(
            len(found),
            sum(file.record_count for file in found),
            sum(file.size_bytes for file in found),
        )

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.files + other.files, self.records + other.records, self.bytes + other.bytes
        )


@dataclass(frozen=True)
class Task:
    """A piece of work for one Spark task. A job has its own subclass; it is pickled.

    Attributes:
        weight_bytes: What it reads, so that tasks are spread evenly and progress can be told.
    """

    weight_bytes: int


@dataclass(frozen=True)
class TaskResult:
    """What a task did. A job has its own subclass; it is pickled."""


def table_name(folder: str, topic: str) -> str:
    """How a table is called in commands and in the history: a topic by its name alone."""
    return topic if folder == TOPICS else f"{folder}/{topic}"


T = TypeVar("T", bound=Task)
R = TypeVar("R", bound=TaskResult)


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One line of a plan for people.

    Attributes:
        partition: None: the change is not about one.
        what: In a few words, what happens to it.
        counts: What is touched.
    """

    partition: int | None
    what: str
    counts: Counts = Counts()

    def to_json(self) -> dict[str, object]:
        """The line, flat, without its table."""
        return {
            "partition": self.partition,
            "what": self.what,
            "files": self.counts.files,
            "records": self.counts.records,
            "bytes": self.counts.bytes,
        }


#: A time that does not come.
NEVER_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Plan(Generic[T]):
    """What a job would do to one table.

    Attributes:
        read_version: The table version that it was made from.
        tasks: May be empty: then everything is in the commit.
        lines: The same for `--dry-run`. Without a line there is nothing to do, and no commit.
        due_ms: Where there is nothing to do: the first time, by the wall clock, at which there may
            be something although nobody has committed since. Never too late; what is too early
            costs a look. 0: nobody can say. See `quiet_tables`.
    """

    topic: str
    folder: str
    read_version: int
    tasks: tuple[T, ...] = ()
    lines: tuple[PlanLine, ...] = ()
    due_ms: int = 0

    def __post_init__(self) -> None:
        assert self.lines or not self.tasks, "a task without a line: --dry-run would hide it"

    @property
    def name(self) -> str:
        """The table's name for people."""
        return table_name(self.folder, self.topic)

    @property
    def nothing(self) -> bool:
        """Whether the table is as the job wants it."""
        return not self.lines


class OutcomeKind(StrEnum):
    """How a run on one table ended.

    `SUPERSEDED`: another writer removed the files first; the table is as good as before.
    """

    OK = "ok"
    NOTHING = "nothing"
    SUPERSEDED = "superseded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What a job did to one table.

    Attributes:
        before, after: What it replaced or removed, and what is there instead.
        attempts: Of the table commit that took most, those included that others were ahead of.
        version: The last table version that it made; None: none.
        error: Why it failed, or what was left out; empty: nothing of the kind.
    """

    kind: OutcomeKind
    before: Counts = Counts()
    after: Counts = Counts()
    attempts: int = 0
    version: int | None = None
    error: str = ""


NOTHING: Final = JobOutcome(OutcomeKind.NOTHING)

#: Every table of the platform itself: jobs that look after files and logs are for all of them.
SYSTEM_TABLES: Final = (
    "acls",
    "audit",
    "cluster",
    OFFSETS_TABLE,
    "job_history",
    "job_scheduler",
    "producer_ids",
    "quotas",
    TRANSACTIONS_TABLE,
)


class Job(ABC, Generic[T, R]):
    """A maintenance job with its options; pickled to run its tasks.

    Attributes:
        name: In commands, in the history, and as a metric's label.
        on_topics: Whether it is for topics.
        system_tables: Tables of the platform itself, below `system/`, that it takes care of.
        tasks_stand_alone: What a task did is right whatever became of others: a table's tasks that
            went well are committed where one has failed, as by a damaged file.
    """

    name: ClassVar[str]
    on_topics: ClassVar[bool] = True
    system_tables: ClassVar[tuple[str, ...]] = ()
    tasks_stand_alone: ClassVar[bool] = False

    def begin(self, warehouse: ObjectStore) -> None:
        """Looks at the warehouse, once, before any table is planned. Reads only; blocks.

        Raises:
            MainstemError: Nothing can be planned.
        """

    def examine(self, opened: OpenTopic, now_ms: int) -> object:
        """What `plan` has to know beside the table's state, for example files that it does not
        name. Reads only; blocks.

        Raises:
            MainstemError: The table cannot be planned.
        """
        return None

    @abstractmethod
    def plan(self, table: TableView, now_ms: int) -> Plan[T]:
        """What is to be done. Pure: no I/O, and the same answer for the same state and time."""

    def prepare(self, opened: OpenTopic, plan: Plan[T], now_ms: int) -> Plan[T]:
        """What must be in the log before the first task of the plan begins. On the driver.

        Args:
            opened: As for `commit`.

        Returns:
            The plan, without what has become wrong since it was made.

        Raises:
            MainstemError: The table's run has failed; none of its tasks begins.
        """
        return plan

    def run_task(self, store: ObjectStore, task: T) -> R:
        """Does a task of the plan: reads and writes data files, commits nothing. Blocks.

        Runs in a Spark task, perhaps on another machine and perhaps more than once.

        Args:
            store: The table's root.

        Raises:
            MainstemError: The table's run has failed; those of others go on, and where
                `tasks_stand_alone` the other tasks of the table are committed.
        """
        raise NotImplementedError(f"{self.name} plans no tasks")

    @abstractmethod
    def commit(
        self, opened: OpenTopic, plan: Plan[T], results: Sequence[R], now_ms: int
    ) -> JobOutcome:
        """Makes the results part of the table, through `commit_beside_leader`. On the driver.

        Args:
            opened: Nobody else uses its state.
            results: One for each task of the plan, in the same order.

        Raises:
            MainstemError: The table's run has failed.
        """
