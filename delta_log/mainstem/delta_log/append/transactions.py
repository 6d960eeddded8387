"""What one led topic knows of transactions: which of each transactional id is in the table. Pure.

A transaction comes to a topic as records that are appended in one commit, together with the
register of its transactional id: who asks for it again finds it there. A transaction that is not in
the table can be fenced: the register is raised beyond it, and from then on it cannot get in.

Source: KIP-98 (transactions); the register in the commit takes the place of Kafka's markers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from mainstem.delta_log.files import Slice
from mainstem.delta_log.format import Register, registers
from mainstem.errors import TransactionAbortedError

Token = TypeVar("Token")

#: Registers that are forgotten with one commit.
_FORGET_STEP_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class TransactionMark:
    """Which transaction it is.

    Attributes:
        ordinal: Orders all transactions of the id; even. The odd number after it is the fence:
            nothing up to there may be appended any more.
    """

    transactional_id: str
    ordinal: int

    def __post_init__(self) -> None:
        assert self.transactional_id
        assert self.ordinal > 0
        assert self.ordinal % 2 == 0, f"{self.ordinal} is a fence"

    @property
    def register(self) -> str:
        """The name of the register that says it."""
        return registers.transaction(self.transactional_id)

    @property
    def fence(self) -> int:
        """The register's value when the transaction cannot get in any more."""
        return self.ordinal | 1


class StagedRecords(Protocol):
    """What a transaction brings to one topic; may be larger than memory.

    Attributes:
        counts: Records by partition, each more than 0.
        size_bytes: Of all of them, about.
    """

    @property
    def counts(self) -> Mapping[int, int]: ...

    @property
    def size_bytes(self) -> int: ...

    def slices(self, partition: int) -> Iterator[list[Slice]]:
        """The records of a partition in order, some MiB at a time: each part becomes a data file.
        From the start each time that it is called. Blocks; called in threads of the pool.

        Raises:
            StoreUnavailableError: The store failed; it is asked again.
            LogDamagedError: They are not what they were.
        """
        ...


class Transactions(Generic[Token]):
    """The transactions of one led topic. Times are of a clock that nobody sets. On the event loop.

    Args:
        topic: For messages.
        value: The value of a register of the table; 0: it was never set.
        expiration_ms: A register that did not change for so long is forgotten.
        known: The registers of the table, all of them.
        now_ms: All of them have their whole time again: how long they did not change, no clock can
            tell for certain.
    """

    def __init__(
        self,
        topic: str,
        value: Callable[[str], int],
        expiration_ms: int,
        known: Mapping[str, Register],
        now_ms: int,
    ) -> None:
        self._topic = topic
        self._value = value
        self._expiration_ms = expiration_ms
        #: Accepted and not committed: who waits, by transactional id and ordinal.
        self._pending: dict[str, dict[int, Token]] = {}
        #: The highest fence of each id that was asked for, and may not be in the table yet.
        self._fences: dict[str, int] = {}
        ours = [one for one in known.values() if registers.is_transaction(one.name)]
        ours.sort(key=lambda one: one.updated_ms or 0)
        #: When each register was set, in that order.
        self._set_ms: dict[str, int] = {one.name: now_ms for one in ours}

    @property
    def is_waiting(self) -> bool:
        """Whether any waits for its commit."""
        return bool(self._pending)

    def find(self, mark: TransactionMark) -> Token | None:
        """Who waits for the commit of the transaction, if it was accepted and is not committed.

        Raises:
            TransactionAbortedError: It is not in the table, and may not get there.
        """
        pending = self._pending.get(mark.transactional_id, {})
        if mark.ordinal in pending:
            return pending[mark.ordinal]
        value = self._value(mark.register)
        highest = max(value, self._fences.get(mark.transactional_id, 0), *pending, 0)
        if value != mark.ordinal and highest > mark.ordinal:
            raise TransactionAbortedError(
                f"transaction {mark.ordinal} of {mark.transactional_id!r} was ended before topic "
                f"{self._topic!r} had it ({highest} is in force there): nothing of it is in the "
                "log; abort it, and go on with the next",
                topic=self._topic,
                transactional_id=mark.transactional_id,
            )
        return None

    def is_committed(self, mark: TransactionMark) -> bool:
        """Whether the table has it."""
        return self._value(mark.register) == mark.ordinal

    def accept(self, mark: TransactionMark, waiter: Token) -> None:
        """Notes a transaction that `find` has let pass, and that waits for its commit."""
        self._pending.setdefault(mark.transactional_id, {})[mark.ordinal] = waiter

    def waiting(self, transactional_id: str) -> list[Token]:
        """Who waits for commits of this id."""
        return list(self._pending.get(transactional_id, {}).values())

    def fence(self, mark: TransactionMark) -> None:
        """From now on nothing is accepted up to this transaction, unless it was before."""
        known = self._fences.get(mark.transactional_id, 0)
        self._fences[mark.transactional_id] = max(known, mark.fence)

    def settled(self, mark: TransactionMark) -> None:
        """The table says what became of the transaction: the fence is not needed any more."""
        if self._fences.get(mark.transactional_id) == mark.fence:
            del self._fences[mark.transactional_id]

    def registers(self, marks: Iterable[TransactionMark], now_ms: int) -> list[Register]:
        """What a commit with these transactions has to say.

        Args:
            now_ms: The time of day.
        """
        values: dict[str, int] = {}
        for mark in marks:
            before = values.get(mark.register, self._value(mark.register))
            assert mark.ordinal > before, f"{mark} after {before}"
            values[mark.register] = mark.ordinal
        return [Register(name, value, updated_ms=now_ms) for name, value in values.items()]

    def forgotten(self, now_ms: int) -> list[Register]:
        """What takes the registers out of the table that did not change for long; some at a time,
        each once."""
        names: list[str] = []
        for name, set_ms in self._set_ms.items():
            if now_ms - set_ms < self._expiration_ms or len(names) == _FORGET_STEP_MAX:
                break
            names.append(name)
        found: list[Register] = []
        for name in names:
            del self._set_ms[name]
            transactional_id = registers.parse_transaction(name)
            if transactional_id not in self._pending and transactional_id not in self._fences:
                found.append(Register(name, 0, updated_ms=registers.FORGOTTEN_MS))
        return found

    def committed(self, marks: Iterable[TransactionMark], now_ms: int) -> None:
        """Notes transactions that are in the table now."""
        for mark in marks:
            pending = self._pending[mark.transactional_id]
            del pending[mark.ordinal]
            if not pending:
                del self._pending[mark.transactional_id]
            self.note_set(mark.register, now_ms)

    def note_set(self, register: str, now_ms: int) -> None:
        """A register has been set in the table."""
        self._set_ms.pop(register, None)
        self._set_ms[register] = now_ms
