"""The topics of a warehouse: each is a Delta table below `topics/`, the only truth about it."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from mainstem.config import TopicConfig, interval_ms
from mainstem.delta_log.format import DataFile, ForeignTableError, Metadata, Register
from mainstem.delta_log.store import ObjectStore, StoreFolder, wall_clock_ms
from mainstem.delta_log.table import (
    CREATE,
    FORMAT,
    FORMAT_PROPERTY,
    PARTITIONS_PROPERTY,
    FileGone,
    LogOvertakenError,
    OpenTopic,
    TableCommit,
    TableState,
    commit_under,
    has_log,
    load_table,
)
from mainstem.delta_log.topics.deletion import (
    DeletedHint,
    bury,
    deleted_hint,
    end_unusable,
    first_actions,
    mark_deleted,
)
from mainstem.errors import (
    InvalidConfigError,
    InvalidTopicError,
    LogDamagedError,
    StoreUnavailableError,
    TopicExistsError,
    UnknownTopicError,
)
from mainstem.limits import (
    PARTITION_COUNT_MAX,
    PRODUCER_EXPIRATION_MS_MAX,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)
from mainstem.records import check_new_topic_name, check_topic_name

log = logging.getLogger(__name__)

TOPICS = "topics"
SYSTEM = "system"

#: Of the tables there, that of what groups have committed: a log, as a topic's is.
OFFSETS_TABLE: Final = "consumer_offsets"

#: And that of what was decided about transactions.
TRANSACTIONS_TABLE: Final = "transactions"

#: Attempts of a create: against a store that gives no answer, and against others that delete the
#: topic.
_ATTEMPTS_MAX = 5

_REGISTER_RETENTION = "delta.setTransactionRetentionDuration"

#: Properties that every topic table gets beside its settings.
_TABLE_PROPERTIES = {
    "delta.dataSkippingStatsColumns": "offset,timestamp",
    # Registers of idempotent producers and of transactional ids leave the checkpoints when their
    # leader has forgotten them, which it says with a time that lies before this. Not by their age:
    # the process that writes a checkpoint may have a clock that is wrong by a day or a year.
    _REGISTER_RETENTION: "interval 10000 days",
}

assert interval_ms(_TABLE_PROPERTIES[_REGISTER_RETENTION]) >= max(
    PRODUCER_EXPIRATION_MS_MAX, TRANSACTIONAL_ID_EXPIRATION_MS
), "a checkpoint would forget a producer or a transaction before the gateway does"


T = TypeVar("T")

#: Directories that are looked into at a time: an object storage service takes a twentieth of a
#: second for each look.
_READS_AT_ONCE: Final = 16


class Topics:
    """Creates, opens, lists and deletes the topics of the warehouse in `store`. Calls block.

    Args:
        folder: Where the tables are in the warehouse: `TOPICS`, or `SYSTEM` for the platform's own.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock_ms: Callable[[], int] = wall_clock_ms,
        *,
        folder: str = TOPICS,
    ) -> None:
        self._store = store
        self._clock_ms = clock_ms
        self._folder = folder
        #: Directories that were told to be unreadable.
        self._unreadable: set[str] = set()

    @property
    def store(self) -> ObjectStore:
        return self._store

    def uri(self, topic: str) -> str:
        """Where the topic's table is, for Spark and others."""
        return f"{self._store.uri}/{self._folder}/{topic}"

    def names(self) -> list[str]:
        """The names of all topics, sorted. Directories that may not be read are left out.

        One that the store cannot read now is named: who opens it is told why.
        """
        return [name for name, is_topic in self._each(self._is_topic) if is_topic]

    def other_directories(self) -> list[str]:
        """The names of directories beside the topics that are not one, and never were: without a
        log that can be found, or with a name that no topic can have."""

        def is_other(name: str) -> bool:
            return not self._is_topic(name) and self._readable_hint(name) is None

        return [name for name, other in self._each(is_other) if other]

    def half_deleted(self) -> list[str]:
        """The names of topics whose deletion was interrupted, or goes on: see `finish_deletion`."""
        hints = self._each(self._readable_hint)
        return [name for name, hint in hints if hint is not None and not hint.is_buried]

    def exists(self, topic: str) -> bool:
        """Whether there is a topic of that name. Raises InvalidTopicError if none can have it."""
        check_topic_name(topic)
        return self._has_log(topic) and self._deleted_hint(topic) is None

    def create(
        self,
        topic: str,
        partition_count: int,
        config: Mapping[str, object] | None = None,
        *,
        validate_only: bool = False,
    ) -> Metadata:
        """Creates the table. Of several callers at once one succeeds.

        Args:
            topic: Kafka's rule for names.
            partition_count: 1 to 10,000.
            config: Topic settings by Kafka's names.
            validate_only: Check everything, write nothing.

        Raises:
            InvalidTopicError, InvalidConfigError: Bad or reserved name, bad count or setting.
            TopicExistsError: It is there.
        """
        settings = TopicConfig.parse(config or {})
        self._check_new(topic, partition_count)
        for _ in range(_ATTEMPTS_MAX):
            try:
                if validate_only:
                    self._deleted_last(topic)
                    return self._new_metadata(topic, partition_count, settings, FORMAT)
                return self.create_at(self.place_for(topic), partition_count, settings)
            except (UnknownTopicError, LogOvertakenError):
                continue  # it was deleted, or created and deleted, meanwhile
        raise StoreUnavailableError(
            f"topic {topic!r} is deleted again and again while it is created; nothing was done",
            topic=topic,
        )

    def place_for(self, topic: str) -> OpenTopic:
        """Where a topic of that name can begin: in a log of its own, or in that of the one that was
        deleted last, of which nothing else is left. Blocks.

        Raises:
            InvalidTopicError: A bad or reserved name.
            TopicExistsError: There is one.
            UnknownTopicError: Another was created and deleted meanwhile. Try again.
        """
        self._check_new(topic)
        is_buried = self._is_buried(topic)
        before = self._deleted_last(topic)
        if before is None:
            store = self._folder_of(topic)
            return OpenTopic(topic, store, TableState(store.uri))
        if before.state.file_count or not is_buried:
            bury(before, self._clock_ms())
        return before

    def create_at(
        self,
        place: OpenTopic,
        partition_count: int,
        settings: TopicConfig,
        contents: Sequence[DataFile | Register] = (),
        *,
        table_format: int = FORMAT,
    ) -> Metadata:
        """Creates the table in a place that `place_for` gave. Blocks.

        Args:
            contents: Data files that are in the place already, and the registers that go with them.
            table_format: The edition of the table's format that they follow.

        Raises:
            TopicExistsError: Another was first.
            StoreUnavailableError: The store failed, or with `contents` others used the place
                meanwhile, and may have taken the files for theirs. Nothing was done.
            OutcomeUnknownError: The store cannot say whether the topic was created.
        """
        self._check_new(place.topic, partition_count)
        # A new id each time: the last attempt may have been seen, and deleted.
        metadata = self._new_metadata(place.topic, partition_count, settings, table_format)
        version = place.state.version
        paths = [one.path for one in contents if isinstance(one, DataFile)]

        def build(state: TableState) -> TableCommit:
            if state.version >= 0 and not state.deleted:
                raise _exists(place.topic)
            if contents and state.version != version:
                raise _disturbed(place.topic)
            return TableCommit.of(
                "RESTORE TOPIC" if contents else "CREATE TOPIC",
                first_actions(state, metadata, contents),
                timestamp_ms=metadata.created_ms,
                needed_files=paths,
            )

        try:
            commit_under(place, build, CREATE)
        except FileGone as error:
            raise _disturbed(place.topic) from error
        return metadata

    def _check_new(self, topic: str, partition_count: int = 1) -> None:
        check_name = check_new_topic_name if self._folder == TOPICS else check_topic_name
        check_name(topic)
        _check_partition_count(partition_count)

    def _new_metadata(
        self, topic: str, partition_count: int, settings: TopicConfig, table_format: int
    ) -> Metadata:
        configuration = {
            PARTITIONS_PROPERTY: str(partition_count),
            **_TABLE_PROPERTIES,
            **settings.to_properties(),
        }
        if table_format > 1:
            configuration = {FORMAT_PROPERTY: str(table_format), **configuration}
        return Metadata(str(uuid.uuid4()), self._clock_ms(), configuration, name=topic)

    def _deleted_last(self, topic: str) -> OpenTopic | None:
        """The topic of that name that was deleted last; None: there was none.

        Raises:
            TopicExistsError: There is one.
        """
        try:
            opened = self._load(topic)
        except UnknownTopicError:
            return None
        if not opened.state.deleted:
            raise _exists(topic)
        return opened

    def open_or_create(
        self, topic: str, partition_count: int, config: Mapping[str, object] | None = None
    ) -> OpenTopic:
        """Opens a topic; makes it if it is not there, whoever else does so at the same moment.

        Raises: As `create` and `open`.
        """
        try:
            return self.open(topic)
        except UnknownTopicError:
            with contextlib.suppress(TopicExistsError):
                self.create(topic, partition_count, config)
            return self.open(topic)

    def open(self, topic: str) -> OpenTopic:
        """Opens a topic for reading or writing.

        Raises:
            UnknownTopicError: There is none.
            UnsupportedTableError, LogDamagedError: The table cannot be used; the message says why.
        """
        opened = self._load(check_topic_name(topic))
        if opened.state.deleted:
            raise _unknown(topic)
        return opened

    def _load(self, topic: str) -> OpenTopic:
        store = self._folder_of(topic)
        try:
            return OpenTopic(topic, store, load_table(store))
        except UnknownTopicError:
            raise _unknown(topic) from None

    def is_ended(self, topic: str, topic_id: str) -> bool:
        """Whether the topic of that name with that id is proven to be deleted: its log says so, or
        is another topic's by now. A log that is not there proves nothing.

        Raises:
            MainstemError: The log cannot be read.
        """
        try:
            state = self._load(check_topic_name(topic)).state
        except UnknownTopicError:
            return False
        return state.deleted or state.topic_id != topic_id

    def delete(self, topic: str) -> str:
        """Deletes the topic with all its records; returns its id. The name is free afterwards.

        First a commit marks the table as deleted, so that every writer that still has it open loses
        its next commit and stops; then its records go. Of several that delete a topic at the same
        time each may succeed; none touches a topic that was created under the name in between. One
        that was interrupted is done again by this, or by who creates a topic of that name.

        A topic that cannot be opened, because it is damaged or of a newer version, is deleted all
        the same. Its id is empty if it cannot be read.

        Raises:
            UnknownTopicError: There is none.
            ForeignTableError: Another writer's table is in its place. Nothing was done.
        """
        if self._is_buried(check_topic_name(topic)):
            raise _unknown(topic)
        try:
            opened = self._load(topic)
        except ForeignTableError:
            raise
        except LogDamagedError:
            topic_id = end_unusable(self._folder_of(topic), topic, self._clock_ms())
            if topic_id is not None:
                return topic_id
            # Another has mended it, or ended it, and perhaps made one of that name since.
            opened = self._load(topic)
            if not opened.state.deleted:
                raise StoreUnavailableError(
                    f"topic {topic!r} could not be read, and then others changed it; if it is the "
                    "one that you mean, delete it again",
                    topic=topic,
                ) from None
        topic_id = opened.state.topic_id
        try:
            if not opened.state.deleted:
                mark_deleted(opened, self._clock_ms())
        except UnknownTopicError:  # another was first
            opened = self._load(topic)
            if opened.state.topic_id != topic_id:
                return topic_id
        self._bury(opened)
        return topic_id

    def finish_deletion(self, topic: str) -> None:
        """Removes what a deletion that was interrupted has left. A topic that was created under the
        name since then is left alone.

        Raises:
            UnknownTopicError: There is none, and never was.
        """
        self._bury(self._load(topic))

    def _bury(self, opened: OpenTopic) -> None:
        if opened.state.deleted:
            with contextlib.suppress(UnknownTopicError):  # done, and another has the name now
                bury(opened, self._clock_ms())

    def _folder_of(self, topic: str) -> StoreFolder:
        return StoreFolder(self._store, f"{self._folder}/{topic}")

    def _each(self, look: Callable[[str], T]) -> list[tuple[str, T]]:
        """What is found in each directory, by name."""
        names = self._store.list_directories(self._folder)
        with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="topics") as threads:
            return list(zip(names, threads.map(look, names), strict=True))

    def _has_log(self, topic: str) -> bool:
        return has_log(self._store, f"{self._folder}/{topic}")

    def _deleted_hint(self, topic: str) -> DeletedHint | None:
        return deleted_hint(self._store, f"{self._folder}/{topic}")

    def _is_buried(self, topic: str) -> bool:
        hint = self._deleted_hint(topic)
        return hint is not None and hint.is_buried

    def _readable_hint(self, directory: str) -> DeletedHint | None:
        """As `_deleted_hint`; None also of a directory that cannot be read."""
        with contextlib.suppress(StoreUnavailableError):
            return self._deleted_hint(directory)
        return None

    def _is_topic(self, directory: str) -> bool:
        try:
            return self.exists(directory)
        except InvalidTopicError:
            return False
        except StoreUnavailableError as error:
            if not isinstance(error.__cause__, PermissionError):
                return True
            if directory not in self._unreadable:
                self._unreadable.add(directory)
                log.warning("no topic: %s/%s: %s", self._folder, directory, error.__cause__)
            return False


def altered_config(
    state: TableState, set_to: Mapping[str, object], reset: Iterable[str]
) -> Metadata:
    """The metadata action that changes a topic's settings.

    Raises:
        InvalidConfigError: A setting is unknown or out of range.
    """
    assert state.metadata is not None
    settings = state.config.altered(set_to, reset)
    kept = {
        name: value
        for name, value in state.metadata.configuration.items()
        if name not in state.config.to_properties()
    }
    return _with_configuration(state.metadata, {**kept, **settings.to_properties()})


def added_partitions(state: TableState, partition_count: int) -> Metadata:
    """The metadata action that raises a topic's number of partitions to `partition_count`.

    Raises:
        InvalidConfigError: It is not larger than today's.
    """
    assert state.metadata is not None
    _check_partition_count(partition_count)
    if partition_count <= state.partition_count:
        raise InvalidConfigError(
            f"the topic has {state.partition_count} partitions; "
            f"the new number must be larger, not {partition_count}",
            partition_count=state.partition_count,
        )
    return _with_configuration(
        state.metadata, {**state.metadata.configuration, PARTITIONS_PROPERTY: str(partition_count)}
    )


def _with_configuration(metadata: Metadata, configuration: Mapping[str, str]) -> Metadata:
    return Metadata(
        metadata.id,
        metadata.created_ms,
        configuration,
        metadata.schema_string,
        metadata.partition_columns,
        metadata.name,
    )


def _check_partition_count(partition_count: int) -> None:
    if not 1 <= partition_count <= PARTITION_COUNT_MAX:
        raise InvalidConfigError(
            f"a topic has 1 to {PARTITION_COUNT_MAX} partitions, not {partition_count}",
            partition_count=partition_count,
        )


def _disturbed(topic: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"another process created or deleted topic {topic!r} meanwhile; nothing was done, try "
        "again",
        topic=topic,
    )


def _exists(topic: str) -> TopicExistsError:
    return TopicExistsError(f"topic {topic!r} exists already", topic=topic)


def _unknown(topic: str) -> UnknownTopicError:
    return UnknownTopicError(f"there is no topic {topic!r}", topic=topic)
