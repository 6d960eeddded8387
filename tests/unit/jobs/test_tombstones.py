"""When tombstones may go: never too early, and in a bounded number of registers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.topic_tables import NOW_MS

from mainstem.delta_log import TableState
from mainstem.delta_log.format import Metadata, Protocol
from mainstem.jobs.tombstones import SLOTS, TombstoneRun, added, freed, tombstone_runs

DAY_MS = 86_400_000
NEVER = 2**63 - 1


class Partition:
    """A partition whose every compaction sees new tombstones."""

    def __init__(self) -> None:
        self.state = TableState("table")
        self.state.apply(0, [Protocol(), Metadata("id", 0, {"mainstem.partitions": "1"})])
        self.end = 0
        #: First and last promised time of the tombstone at each offset that is there.
        self.due_ms: dict[int, tuple[int, int]] = {}

    def compact(self, now_ms: int, retention_ms: int) -> None:
        """Drops what may go, and sees one tombstone more."""
        runs = tombstone_runs(self.state, 0)
        gone = [run for run in runs if run.expiry_ms <= now_ms]
        dropped = [one for one in self.due_ms if any(one in range(*run[1:3]) for run in gone)]
        for offset in dropped:
            assert self.due_ms.pop(offset)[0] <= now_ms, "too early"
        self.end += 1
        self.due_ms[self.end - 1] = now_ms + retention_ms, now_ms + retention_ms * 9 // 8 + 1
        kept = [run for run in runs if run not in gone]
        actions = [
            *freed(0, gone),
            *added(0, kept, self.end, now_ms=now_ms, retention_ms=retention_ms),
        ]
        last = {register.name: register for register in actions}
        self.state.apply(self.state.version + 1, last.values())
        assert len(tombstone_runs(self.state, 0)) <= SLOTS

    def run_of(self, offset: int) -> TombstoneRun:
        """The run that has the offset."""
        (found,) = [
            run
            for run in tombstone_runs(self.state, 0)
            if run.start_offset <= offset < run.end_offset
        ]
        return found


def test_days_of_compactions_every_ten_minutes_keep_to_the_registers_and_to_the_times() -> None:
    partition = Partition()
    for number in range(2 * 24 * 6):
        now_ms = NOW_MS + number * 600_000
        partition.compact(now_ms, DAY_MS)
        late = [one for one, (_, last_ms) in partition.due_ms.items() if last_ms <= now_ms]
        assert not late, "a tombstone stays an eighth of its retention longer at most"


def test_few_compactions_have_exact_times() -> None:
    partition = Partition()
    for number in range(SLOTS // 2):
        partition.compact(NOW_MS + number, DAY_MS + 1)
        assert partition.run_of(number).expiry_ms == NOW_MS + number + DAY_MS + 1


def test_with_all_registers_in_use_what_is_new_shares_the_newest_and_shortens_nothing() -> None:
    partition = Partition()
    for number in range(SLOTS):
        partition.compact(NOW_MS, (number + 1) * DAY_MS)
    assert len(tombstone_runs(partition.state, 0)) == SLOTS
    newest = partition.run_of(SLOTS - 1)
    partition.compact(NOW_MS + 1, 10)
    assert partition.run_of(SLOTS - 1).expiry_ms == newest.expiry_ms
    assert partition.run_of(SLOTS) == newest._replace(end_offset=SLOTS + 1)


def test_a_retention_for_ever_is_for_ever() -> None:
    partition = Partition()
    for number in range(SLOTS * 2):
        partition.compact(NOW_MS + number, NEVER)
    assert {run.expiry_ms for run in tombstone_runs(partition.state, 0)} == {NEVER}


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from([0, 1, 10, 1_000, DAY_MS])), max_size=150
    )
)
def test_no_tombstone_goes_before_its_time_however_the_retention_changes(
    steps: list[tuple[int, int]],
) -> None:
    partition = Partition()
    now_ms = NOW_MS
    for passed_ms, retention_ms in steps:
        now_ms += passed_ms
        partition.compact(now_ms, retention_ms)
        for offset, (due_ms, _) in partition.due_ms.items():
            assert partition.run_of(offset).expiry_ms >= due_ms
