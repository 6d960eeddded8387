"""The names of the log's registers: Delta `txn` actions, which change atomically with the data.

What each of them means is specified in `docs/concepts/table-format.md`; a test compares the names.
"""

from __future__ import annotations

from typing import Final

EPOCH: Final = "mainstem/epoch"
LEADER: Final = "mainstem/leader"
DELETED: Final = "mainstem/deleted"
VACUUMED: Final = "mainstem/vacuumed"
ORPHANED: Final = "mainstem/orphaned"
_PARTITION_EPOCH: Final = "mainstem/epoch/"
_EPOCHS: Final = "mainstem/epochs/"
_LEO: Final = "mainstem/leo/"
_LSO: Final = "mainstem/lso/"
_CLEANED: Final = "mainstem/cleaned/"
TOMBSTONES: Final = "mainstem/tombstones/"
RESTORED: Final = "mainstem/restored/"
SETTLED: Final = "mainstem/settled"
_LED: Final = "mainstem/led/"
_PRODUCER: Final = "mainstem/producer/"
_TRANSACTION: Final = "mainstem/transaction/"

#: The time of a register that is not kept any more: Delta knows no other way to remove one than to
#: let it expire. The next checkpoint leaves it out.
FORGOTTEN_MS: Final = 1
_PRODUCER_EPOCH: Final = "/epoch"
_WAL: Final = "mainstem/wal/"

#: The newest leader epochs of a partition of which it is kept where they began.
EPOCH_SLOTS: Final = 4


def leo(partition: int) -> str:
    """The register of a partition's log end offset."""
    return f"{_LEO}{partition}"


def lso(partition: int) -> str:
    """The register of a partition's log start offset."""
    return f"{_LSO}{partition}"


def partition_epoch(partition: int) -> str:
    """The register of the leader epoch in which a partition's last record was accepted."""
    return f"{_PARTITION_EPOCH}{partition}"


def epoch_number(partition: int, slot: int) -> str:
    """The register of one of the leader epochs that a partition had records in."""
    return f"{_EPOCHS}{partition}/{slot}/epoch"


def epoch_start(partition: int, slot: int) -> str:
    """The register of the offset at which that epoch began in the partition."""
    return f"{_EPOCHS}{partition}/{slot}/start"


def cleaned(partition: int) -> str:
    """The register of the end of what keyed compaction has seen of a partition."""
    return f"{_CLEANED}{partition}"


def restored(partition: int) -> str:
    """The register of where a partition ended in the backup that its topic was made of."""
    return f"{RESTORED}{partition}"


def tombstones_end(partition: int, slot: int) -> str:
    """The register of the end of a run of tombstones that one compaction saw first."""
    return f"{TOMBSTONES}{partition}/{slot}/end"


def tombstones_expiry(partition: int, slot: int) -> str:
    """The register of the time from which on those tombstones may go."""
    return f"{TOMBSTONES}{partition}/{slot}/expiry"


def producer(producer_id: int, partition: int) -> str:
    """The register of an idempotent producer's last sequence in a partition."""
    return f"{_PRODUCER}{producer_id}/{partition}"


def producer_epoch(producer_id: int, partition: int) -> str:
    """The register of the epoch in which that sequence was sent; without one it is 0."""
    return f"{producer(producer_id, partition)}{_PRODUCER_EPOCH}"


def belongs_to_appends(name: str) -> bool:
    """Whether appends set the register: it says nothing about what was there before."""
    prefixes = (_LEO, _PARTITION_EPOCH, _EPOCHS, _PRODUCER, _TRANSACTION, _WAL)
    return name == SETTLED or name.startswith(prefixes)


def is_producer(name: str) -> bool:
    """Whether `name` is one of a producer's registers."""
    return name.startswith(_PRODUCER)


def parse_producer(name: str) -> tuple[int, int] | None:
    """(producer id, partition) if `name` is one of a producer's registers, else None."""
    if not is_producer(name):
        return None
    rest = name.removeprefix(_PRODUCER).removesuffix(_PRODUCER_EPOCH)
    producer_id, _, partition = rest.partition("/")
    return int(producer_id), int(partition)


def transaction(transactional_id: str) -> str:
    """The register of the last transaction of a transactional id that the table has, or may not get
    any more."""
    return f"{_TRANSACTION}{transactional_id}"


def is_transaction(name: str) -> bool:
    """Whether `name` is the register of a transactional id."""
    return name.startswith(_TRANSACTION)


def parse_transaction(name: str) -> str:
    """The transactional id of its register."""
    assert is_transaction(name)
    return name.removeprefix(_TRANSACTION)


def wal(gateway_id: str, log_id: str = "") -> str:
    """The register of a gateway's write-ahead log."""
    return f"{_WAL}{gateway_id}/{log_id}" if log_id else f"{_WAL}{gateway_id}"


def led(gateway_id: str) -> str:
    """The register of the leader epoch in which a gateway has led the topic last."""
    return f"{_LED}{gateway_id}"


def gateway_of(name: str) -> str:
    """The gateway that a register of `led` or `wal` is about; empty: it is another register."""
    for prefix in (_LED, _WAL):
        if name.startswith(prefix):
            return name.removeprefix(prefix).partition("/")[0]
    return ""
