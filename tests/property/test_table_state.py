"""`TableState` against a model that keeps plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from mainstem.delta_log import TableState
from mainstem.delta_log.table import Action, DataFile, Metadata, Protocol, Register, Remove

PARTITIONS = 3


@dataclass
class _Model:
    """Files in no order, registers by name, and the next offset of each partition."""

    files: list[DataFile] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)
    next_offset: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    names: int = 0

    def file(self, partition: int, first: int, last: int) -> DataFile:
        self.names += 1
        return DataFile(
            path=f"partition={partition}/{first:020d}-{self.names}.parquet",
            partition=partition,
            base_offset=first,
            last_offset=last,
            record_count=last - first + 1,
            size_bytes=self.names,
            timestamp_ms_min=0,
            timestamp_ms_max=0,
            modified_ms=0,
        )


def _remove(file: DataFile) -> Remove:
    return Remove(file.path, file.partition, file.size_bytes, 0, data_change=False)


@st.composite
def _histories(draw: st.DrawFn) -> tuple[_Model, list[list[Action]]]:
    """Commits that append, drop files, merge neighbours (actions in any order), set registers."""
    model = _Model()
    commits: list[list[Action]] = [
        [Protocol(), Metadata("id", 0, {"mainstem.partitions": str(PARTITIONS)})]
    ]
    for _ in range(draw(st.integers(0, 25))):
        actions: list[Action] = []
        for what in draw(
            st.lists(
                st.sampled_from(["append", "append", "drop", "merge", "register"]),
                min_size=1,
                max_size=4,
                unique=True,
            )
        ):
            partition = draw(st.integers(0, PARTITIONS - 1))
            mine = sorted(
                (file for file in model.files if file.partition == partition),
                key=lambda file: file.base_offset,
            )
            if what == "append":
                gap = draw(st.sampled_from([0, 0, 0, 2]))
                first = model.next_offset[partition] + gap
                last = first + draw(st.integers(0, 5))
                model.next_offset[partition] = last + 1
                added = model.file(partition, first, last)
                model.files.append(added)
                actions.append(added)
            elif what == "drop" and mine:
                dropped = draw(st.sampled_from(mine))
                if any(action is dropped for action in actions):
                    continue  # no commit adds and removes the same file
                model.files.remove(dropped)
                actions.append(_remove(dropped))
            elif what == "merge" and len(mine) > 1:
                at = draw(st.integers(0, len(mine) - 2))
                run = mine[at : at + draw(st.integers(2, 4))]
                if any(file in actions for file in run):
                    continue
                merged = model.file(partition, run[0].base_offset, run[-1].last_offset)
                model.files = [file for file in model.files if file not in run] + [merged]
                swap: list[Action] = [merged, *map(_remove, run)]
                actions += draw(st.permutations(swap))
            elif what == "register":
                name = draw(st.sampled_from(["a", "b"]))
                model.registers[name] = draw(st.integers(0, 9))
                actions.append(Register(name, model.registers[name]))
        commits.append(actions)
    return model, commits


@given(_histories(), st.randoms(use_true_random=False), st.booleans())
def test_a_state_after_any_commits_says_what_the_model_says(
    history: tuple[_Model, list[list[Action]]], random: object, from_checkpoint: bool
) -> None:
    model, commits = history
    state = TableState("t")
    for version, actions in enumerate(commits):
        state.apply(version, actions)
    if from_checkpoint:  # one set of actions, in no order
        content: list[Action] = [
            Protocol(),
            Metadata("id", 0, {"mainstem.partitions": str(PARTITIONS)}),
            *model.files,
            *(Register(name, value) for name, value in model.registers.items()),
        ]
        random.shuffle(content)  # type: ignore[attr-defined]
        state = TableState("t")
        state.begin(len(commits) - 1, content)
    state.check_complete()
    assert state.version == len(commits) - 1
    assert {name: register.value for name, register in state.registers.items()} == model.registers
    assert state.file_count == len(model.files)
    assert sorted(file.path for file in state) == sorted(file.path for file in model.files)
    assert all(state.is_active(file.path) for file in model.files)
    assert not state.is_active("partition=0/none")
    for partition in range(PARTITIONS):
        mine = sorted(
            (file for file in model.files if file.partition == partition),
            key=lambda file: file.base_offset,
        )
        files = state.files(partition)
        assert files.sorted() == mine
        assert files.size_bytes == sum(file.size_bytes for file in mine)
        end = model.next_offset[partition] + 2
        for start_offset in range(end):
            for end_offset in range(start_offset, end):
                assert files.between(start_offset, end_offset) == [
                    file
                    for file in mine
                    if file.base_offset < end_offset and file.last_offset >= start_offset
                    if start_offset < end_offset
                ]
