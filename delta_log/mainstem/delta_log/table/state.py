"""The state of a topic table at one version, as a pure function of its actions. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from mainstem.config import TopicConfig
from mainstem.delta_log.format import (
    Action,
    AddedFiles,
    CommitInfo,
    DataFile,
    Metadata,
    Protocol,
    Register,
    Remove,
    registers,
)
from mainstem.delta_log.table.file_index import FileIndex, PartitionFiles
from mainstem.errors import InvalidConfigError, LogDamagedError, UnsupportedTableError

PARTITIONS_PROPERTY = "mainstem.partitions"

#: Which edition of `docs/concepts/table-format.md` a table follows. It is set when the table is
#: created and never changed; a table without it is of the first edition.
FORMAT_PROPERTY = "mainstem.format"

#: The newest that this version knows. In a table of format 2 every commit file has a checksum, and
#: so has every checkpoint and every data file.
FORMAT = 2


class TableState:
    """A topic table after applying the actions of versions 0 to `version`.

    Feed it with `apply`, one commit at a time, or once with the content of a checkpoint.
    """

    __slots__ = (
        "_files",
        "_has_producers",
        "checkpoint_version",
        "commit_id",
        "config",
        "metadata",
        "protocol",
        "registers",
        "table",
        "version",
    )

    def __init__(self, table: str) -> None:
        self.table = table
        self.version = -1
        #: Of the commit that is `version`; empty: it is not known, as after a checkpoint.
        self.commit_id = ""
        #: The newest checkpoint known; -1 without one.
        self.checkpoint_version = -1
        self.protocol: Protocol | None = None
        self.metadata: Metadata | None = None
        self.config = TopicConfig({})
        self.registers: dict[str, Register] = {}
        self._has_producers = True
        self._files = FileIndex()

    def begin(
        self, version: int, actions: Iterable[Action], files: AddedFiles | None = None
    ) -> None:
        """Takes the content of the checkpoint of `version`, before anything else.

        Args:
            files: Its data files, as far as they are not among the actions.

        Raises: As `apply`.
        """
        assert self.version == -1
        if files is not None:
            self._files.load(files)
        self._take(version, actions)
        self.checkpoint_version = version

    def note_checkpoint(self, version: int) -> None:
        """A checkpoint of that version is there; an older one than is known changes nothing."""
        self.checkpoint_version = max(version, self.checkpoint_version)

    def apply(self, version: int, actions: Collection[Action]) -> None:
        """Takes the actions of the commit `version`, the next one; in a new state, of any version.

        Raises:
            UnsupportedTableError: The protocol or a setting has become one that we do not know.
            LogDamagedError: The commit lacks its checksum. The state is as it was.
        """
        assert self.version in (-1, version - 1), (
            f"version {version} does not follow {self.version}"
        )
        self._check_checksum(version, actions)
        self._take(version, actions)

    def _take(self, version: int, actions: Iterable[Action]) -> None:
        commit_id = ""
        for action in actions:
            match action:
                case DataFile():
                    self._files.add(action)
                case Register():
                    self._set(action)
                case Remove():
                    self._files.remove(action.path)
                case Metadata():
                    self.config = self._config_of(action)
                    self.metadata = action
                case Protocol():
                    action.check_supported(self.table)
                    self.protocol = action
                case CommitInfo():
                    commit_id = action.commit_id
        self.version = version
        self.commit_id = commit_id

    def check_complete(self) -> None:
        """Raises LogDamagedError unless there is a protocol and a metadata action of a topic."""
        if self.protocol is None or self.metadata is None:
            missing = "protocol" if self.protocol is None else "metaData"
            raise LogDamagedError(
                f"the log of {self.table} has no {missing} action up to version {self.version}",
                file=self.table,
            )

    @property
    def format(self) -> int:
        """Which edition of the table's format it follows."""
        return 1 if self.metadata is None else _format_of(self.metadata)

    @property
    def topic_id(self) -> str:
        """The table's metadata id: a new one after delete and create."""
        assert self.metadata is not None
        return self.metadata.id

    @property
    def partition_count(self) -> int:
        assert self.metadata is not None
        return int(self.metadata.configuration[PARTITIONS_PROPERTY])

    @property
    def epoch(self) -> int:
        """The highest leader epoch that was committed; 0 before the first leader."""
        return self.register_value(registers.EPOCH)

    @property
    def leader(self) -> int:
        """The incarnation of the gateway that leads the topic, or that it was handed over to; 0:
        its leader let go of it, or is not known."""
        return self.register_value(registers.LEADER)

    @property
    def settled(self) -> int:
        """The leader epoch before which nobody has left anything in a write-ahead log; 0: nobody
        has said so."""
        return self.register_value(registers.SETTLED)

    def partition_epoch(self, partition: int) -> int:
        """The leader epoch in which the partition's last record was accepted; 0 before the
        first."""
        return self.register_value(registers.partition_epoch(partition))

    def truncated_to(self, partition: int, offset: int, epoch: int) -> int | None:
        """Where the records that a reader has read up to `offset` end in this log, or None if it
        has them all.

        A log that was put back from an older copy lacks the last of them, and goes on with others
        in a later leader epoch. Kafka: OffsetForLeaderEpoch, KIP-320.

        Args:
            offset: The next one that it wants.
            epoch: `partition_epoch` when it had read up to there, or later; 0 or less: not known.

        Of the epochs of a partition the newest `registers.EPOCH_SLOTS` are known: of one before
        them the log may lack more than is told. The log is not told from its copy if the clock was
        turned back behind what it was when the last of the lost leaders began.
        """
        if epoch <= 0:
            return None
        end_offset = self.log_end_offset(partition)
        if epoch < self.partition_epoch(partition):
            starts = [
                self.register_value(registers.epoch_start(partition, slot))
                for slot in range(registers.EPOCH_SLOTS)
                if self.register_value(registers.epoch_number(partition, slot)) > epoch
            ]
            end_offset = min([*starts, end_offset])
        return end_offset if end_offset < offset else None

    @property
    def deleted(self) -> bool:
        return self.register_value(registers.DELETED) > 0

    def log_end_offset(self, partition: int) -> int:
        """One past the last committed offset of the partition."""
        return self.register_value(registers.leo(partition))

    def log_start_offset(self, partition: int) -> int:
        """The first offset that can be read."""
        return self.register_value(registers.lso(partition))

    def cleaned_offset(self, partition: int) -> int:
        """The end of what keyed compaction has seen: only before it may offsets be missing."""
        return self.register_value(registers.cleaned(partition))

    def restored_offset(self, partition: int) -> int:
        """The end of the records that the topic was made of; 0 where it began without any. What
        producers sent before it, no leader of this topic has seen."""
        return self.register_value(registers.restored(partition))

    def files(self, partition: int) -> PartitionFiles:
        """The active files of a partition."""
        return self._files.partition(partition)

    @property
    def has_producers(self) -> bool:
        """Whether the registers of producers are here, as `give_up_producers` was not called."""
        return self._has_producers

    def give_up_producers(self) -> None:
        """Drops the registers of producers, and takes none from now on: the gateway that leads the
        topic keeps the same by itself, in less memory. Takes a fraction of a second where there are
        many.
        """
        self._has_producers = False
        self.registers = {
            name: register
            for name, register in self.registers.items()
            if not registers.is_producer(name)
        }

    def is_active(self, path: str) -> bool:
        return path in self._files

    def file(self, path: str) -> DataFile | None:
        """The active file of a path."""
        return self._files.get(path)

    def active_files(self) -> FileIndex:
        """Every active file by its path: a copy, which does not change with the state."""
        return self._files.copy()

    def __iter__(self) -> Iterator[DataFile]:
        """Every active file; those of a partition together. A microsecond for each."""
        return self._files.files()

    @property
    def file_count(self) -> int:
        return len(self._files)

    @property
    def size_bytes(self) -> int:
        """Of all active files together."""
        return sum(files.size_bytes for files in self._files.partitions())

    def _check_checksum(self, version: int, actions: Collection[Action]) -> None:
        """One bit of a commit file could hide that it has a checksum: here it must have one."""
        metadata = self.metadata or next(
            (one for one in actions if isinstance(one, Metadata)), None
        )
        if metadata is None or _format_of(metadata) < 2:
            return
        info = next((one for one in actions if isinstance(one, CommitInfo)), None)
        if info is None or not info.has_checksum:
            raise LogDamagedError(
                f"version {version} of {self.table} has no checksum, which every commit of a table "
                f"with {FORMAT_PROPERTY} {_format_of(metadata)} has: its file was changed; restore "
                "it from a copy of the store",
                file=self.table,
                table_version=version,
            )

    def _config_of(self, metadata: Metadata) -> TopicConfig:
        self._check_format(metadata)
        partitions = metadata.configuration.get(PARTITIONS_PROPERTY, "")
        if not partitions.isdecimal() or int(partitions) < 1:
            raise UnsupportedTableError(
                f"the table {self.table} is not a topic: its property {PARTITIONS_PROPERTY} "
                f"is {partitions!r}",
                table=self.table,
            )
        try:
            return TopicConfig.from_properties(metadata.configuration)
        except InvalidConfigError as error:
            raise UnsupportedTableError(
                f"the table {self.table} has a setting that this version of mainstem does not "
                f"know: {error.message}; open it with a newer version",
                table=self.table,
            ) from error

    def _check_format(self, metadata: Metadata) -> None:
        text = metadata.configuration.get(FORMAT_PROPERTY, "1")
        if not text.isdecimal() or int(text) < 1:
            raise UnsupportedTableError(
                f"the table {self.table} is not a topic: its property {FORMAT_PROPERTY} is "
                f"{text!r}",
                table=self.table,
            )
        if int(text) > FORMAT:
            raise UnsupportedTableError(
                f"the table {self.table} has format {text}, and this version of mainstem knows "
                f"formats up to {FORMAT}; open it with a newer version",
                table=self.table,
                format=int(text),
            )

    def register_value(self, name: str) -> int:
        """The value of a register; 0 where it was never set."""
        register = self.registers.get(name)
        return 0 if register is None else register.value

    def _set(self, register: Register) -> None:
        if register.updated_ms == registers.FORGOTTEN_MS:
            self.registers.pop(register.name, None)
        elif self._has_producers or not registers.is_producer(register.name):
            self.registers[register.name] = register


def _format_of(metadata: Metadata) -> int:
    text = metadata.configuration.get(FORMAT_PROPERTY, "1")
    return int(text) if text.isdecimal() else 1
