"""`TableState` against a model that keeps plain lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.length import FULL

from mainstem.delta_log import TableState
from mainstem.delta_log.format import (
    Action,
    DataFile,
    Metadata,
    Protocol,
    Register,
    Remove,
    checkpoint_adds,
    packed_files,
)
from mainstem.delta_log.format.checkpoint_adds import read_adds
from mainstem.delta_log.table import file_index

PARTITIONS = 3


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Bounds that a few files reach: what is packed, and how much lies in a leaf."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_index, "_RECENT_MAX", 6)
        patch.setattr(file_index, "_PACKED_AT_A_TIME", 3)
        patch.setattr(packed_files, "_LEAF_ROWS", 8)
        patch.setattr(checkpoint_adds, "_ROWS_AT_A_TIME", 5)
        yield


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
            # One in five has another path, as another writer might give it.
            path=f"partition={partition}/{first:020d}-{self.names}.parquet"
            if self.names % 5 == 0
            else f"partition={partition}/{first:020d}-{self.names:032x}.parquet",
            partition=partition,
            base_offset=first,
            last_offset=last,
            record_count=last - first + 1,
            size_bytes=self.names,
            timestamp_ms_min=0,
            timestamp_ms_max=0,
            modified_ms=0,
        )


_STRINGS = pa.map_(pa.string(), pa.string())
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _STRINGS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _STRINGS),
    ]
)


def _checkpoint(files: Sequence[DataFile]) -> pq.ParquetFile:
    """The `add` actions as a checkpoint has them, among rows of other kinds."""
    rows = [None, *(file.to_json()["add"] for file in files), None]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": pa.array(rows, _ADD)}), sink)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue()))


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
    history: tuple[_Model, list[list[Action]]], random: Random, from_checkpoint: bool
) -> None:
    model, commits = history
    state = TableState("t")
    for version, actions in enumerate(commits):
        state.apply(version, actions)
    if from_checkpoint:  # in no order
        shuffled = list(model.files)
        random.shuffle(shuffled)
        state = TableState("t")
        state.begin(
            len(commits) - 1,
            [
                Protocol(),
                Metadata("id", 0, {"mainstem.partitions": str(PARTITIONS)}),
                *(Register(name, value) for name, value in model.registers.items()),
            ],
            read_adds(_checkpoint(shuffled)),
        )
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


def _between(files: Sequence[DataFile], start_offset: int, end_offset: int) -> list[DataFile]:
    """What `between` says, of files by base offset that may overlap."""
    first = max((n for n, one in enumerate(files) if one.base_offset <= start_offset), default=0)
    found = [one for one in files[first:] if one.base_offset < end_offset]
    if start_offset >= end_offset:
        return []
    return found[1:] if found and found[0].last_offset < start_offset else found


_numbers = st.integers(-(2**63), 2**63 - 1)
_times = st.integers(-62_135_596_800_000 + 86_400_000 * 366 * 1000, 253_402_300_799_999)


@st.composite
def _any_file(draw: st.DrawFn) -> DataFile:
    """Any file, as damaged tables have them: overlapping, of odd paths, of any numbers."""
    partition = draw(st.sampled_from([0, 1, 12]))
    base_offset = draw(st.integers(0, 12))
    said = draw(st.sampled_from([base_offset] * 8 + [base_offset + 1]))
    directory = draw(st.sampled_from([f"partition={partition}"] * 8 + ["partition=07", "x y%20"]))
    name = draw(st.sampled_from([f"{one:032x}" for one in range(4)] + ["odd", "F" * 32]))
    usual_crc = st.integers(0, 2**32 - 1)
    return DataFile(
        path=f"{directory}/{said:020d}-{name}.parquet",
        partition=partition,
        base_offset=base_offset,
        last_offset=base_offset + draw(st.integers(0, 5)),
        record_count=draw(st.one_of(st.integers(0, 9), st.just(2**63))),
        size_bytes=draw(st.integers(0, 9)),
        timestamp_ms_min=draw(_times),
        timestamp_ms_max=draw(_times),
        modified_ms=draw(_numbers),
        data_change=draw(st.booleans()),
        tail_crc32c=draw(st.one_of(st.none(), usual_crc)),
    )


def _in_a_checkpoint(files: Sequence[DataFile]) -> list[DataFile]:
    """What a checkpoint can hold of these: each path once, and numbers of 64 bits."""
    last = {one.path: one for one in files}
    return [replace(one, record_count=min(one.record_count, 2**63 - 1)) for one in last.values()]


def test_a_path_that_a_checkpoint_has_twice_is_one_file() -> None:
    files = [_Model().file(partition, first, first) for partition in (2, 0) for first in (4, 3, 4)]
    files = [replace(one, size_bytes=number) for number, one in enumerate(files)]
    state = TableState("t")
    state.begin(0, [], read_adds(_checkpoint(files)))
    assert {file.path: file.size_bytes for file in state} == {
        file.path: file.size_bytes for file in files
    }
    assert (state.file_count, state.size_bytes) == (4, 1 + 2 + 4 + 5)


@settings(max_examples=60 if FULL else 25)
@given(st.lists(_any_file(), max_size=40), st.lists(st.integers(), max_size=60), st.randoms())
def test_files_of_any_kind_are_kept_found_and_removed_as_in_a_dictionary_of_paths(
    files: list[DataFile], choices: list[int], random: Random
) -> None:
    from_checkpoint = _in_a_checkpoint(files[: len(files) // 2])
    state = TableState("t")
    state.begin(0, [], read_adds(_checkpoint(from_checkpoint)))
    model = {file.path: file for file in from_checkpoint}
    copied, copied_model = state.active_files(), dict(model)
    steps: list[Action] = list(files[len(files) // 2 :])
    steps += [_remove(files[choice % len(files)]) for choice in choices if files]
    steps += [files[choice % len(files)] for choice in choices[::3] if files]
    random.shuffle(steps)
    for number, action in enumerate(steps):
        state.apply(number + 1, [action])
        if isinstance(action, DataFile):
            model[action.path] = action
        elif isinstance(action, Remove):
            model.pop(action.path, None)
        if number == len(steps) // 2:
            copied, copied_model = state.active_files(), dict(model)
    assert dict(copied) == copied_model, "a copy does not change with the state"
    assert {file.path: file for file in state} == model
    assert state.file_count == len(model) == len(list(state))
    assert state.size_bytes == sum(file.size_bytes for file in model.values())
    for file in files:
        assert state.is_active(file.path) == (file.path in model)
        assert state.file(file.path) == model.get(file.path)
        there = state.file(file.path)
        assert state.active_files().size_bytes(file.path) == (there and there.size_bytes)
    for partition in (0, 1, 12, 5):
        found = state.files(partition)
        mine = found.sorted()
        assert [file.base_offset for file in mine] == sorted(file.base_offset for file in mine)
        assert sorted(mine, key=repr) == sorted(
            (file for file in model.values() if file.partition == partition), key=repr
        )
        assert [file.base_offset for file in found] == [file.base_offset for file in mine]
        assert len(found) == len(mine)
        assert found.last() == (mine[-1] if mine else None)
        for start_offset in range(0, 15, 2):
            for end_offset in range(start_offset, 20, 3):
                expected = _between(mine, start_offset, end_offset)
                answer = found.between(start_offset, end_offset)
                assert answer == expected
                assert found.between(start_offset, end_offset, files_max=2) == expected[:2]
        late = found.between(-1, 20, timestamp_ms_min=0)
        assert late == [file for file in mine if file.timestamp_ms_max >= 0]


@given(st.lists(_any_file(), max_size=20), st.randoms())
def test_a_checkpoint_of_any_files_is_read_as_its_actions_say(
    files: list[DataFile], random: Random
) -> None:
    files = _in_a_checkpoint(files)
    state = TableState("t")
    state.begin(0, [], read_adds(_checkpoint(files)))
    model = {file.path: file for file in files}
    assert {file.path: file for file in state} == model
