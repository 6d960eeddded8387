"""`PackedFiles`: rows in leaves, against a list; and copies that do not change."""

from __future__ import annotations

import random
import sys

import pytest

from mainstem.delta_log.format import DataFile, packed_files
from mainstem.delta_log.format.packed_files import PackedFiles, PackedPath, pack


def _file(base_offset: int, name: int, *, partition: int = 7, size_bytes: int = 1) -> DataFile:
    return DataFile(
        path=f"partition={partition}/{base_offset:020d}-{name:032x}.parquet",
        partition=partition,
        base_offset=base_offset,
        last_offset=base_offset + 2,
        record_count=3,
        size_bytes=size_bytes,
        timestamp_ms_min=-5,
        timestamp_ms_max=6,
        modified_ms=7,
        tail_crc32c=None if name % 2 else name,
    )


def _add(files: PackedFiles, file: DataFile) -> None:
    row = pack(file)
    assert row is not None
    files.add(file.base_offset, row)


def _path(file: DataFile) -> PackedPath:
    path = PackedPath.parse(file.path)
    assert path is not None
    return path


def test_rows_are_kept_in_order_through_any_additions_removals_and_copies(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_files, "_LEAF_ROWS", 16)
    files, model = PackedFiles(7), list[DataFile]()
    copies: list[tuple[PackedFiles, list[DataFile]]] = []
    gone = _file(1, 2**100)
    for number in range(4000):
        growing = number // 500 % 2 == 0
        if not model or rng.random() < (0.8 if growing else 0.2):
            file = _file(rng.randrange(150), number, size_bytes=rng.randrange(99))
            _add(files, file)
            at = sum(one.base_offset <= file.base_offset for one in model)
            model.insert(at, file)
        else:
            gone = model.pop(rng.randrange(len(model)))
            assert files.remove(_path(gone)) == (gone.size_bytes, gone.record_count)
        if number % 10 == 0:
            start, end = sorted(rng.choices(range(-1, 160), k=2))
            first = max(sum(one.base_offset <= start for one in model) - 1, 0)
            expected = [one for one in model[first:] if one.base_offset < end]
            assert files.between(start, end, 5, None) == expected[:5]
            assert files.between(start, end, sys.maxsize, 6) == expected
            assert files.between(start, end, sys.maxsize, 7) == []
            assert (files.count, files.last()) == (len(model), model[-1:])
            assert (files.find(_path(gone)), files.has(_path(gone))) == (None, False)
            assert files.remove(_path(gone)) is None
            if model:
                present = rng.choice(model)
                assert files.find(_path(present)) == present
                assert files.has(_path(present))
        if number % 100 == 0:
            assert list(files) == model
        if number % 300 == 0:
            copies.append((files.copy(), model.copy()))
    for copied, expected in copies:
        assert list(copied) == expected
    # A copy can be changed as well, and what it is of does not change with it.
    copied, _ = copies[-1]
    for file in list(copied):
        copied.remove(_path(file))
    _add(copied, gone)
    assert list(copied) == [gone]
    assert list(files) == model


@pytest.mark.parametrize(
    "file",
    [
        _file(2**63, 1),
        _file(5, 1, size_bytes=2**63),
        DataFile("partition=0/5-x.parquet", 0, 5, 6, 2, 1, 0, 0, 0),
        DataFile(_file(5, 1).path, 0, 5, 6, 2, 1, 0, 0, 0),
        DataFile(_file(5, 1).path, 7, 6, 6, 1, 1, 0, 0, 0),
        DataFile(_file(5, 1).path.replace("=7", "=07"), 7, 5, 6, 2, 1, 0, 0, 0),
        DataFile(_file(5, 171).path.replace("ab.", "AB."), 7, 5, 6, 2, 1, 0, 0, 0),
        DataFile(_file(5, 1).path.replace("0000005-", "000000\u0665-"), 7, 5, 6, 2, 1, 0, 0, 0),
        DataFile(_file(5, 1).path + "\n", 7, 5, 6, 2, 1, 0, 0, 0),
    ],
)
def test_a_file_whose_path_or_numbers_would_not_come_back_is_not_packed(file: DataFile) -> None:
    assert pack(file) is None


def test_a_file_takes_less_than_a_hundred_bytes() -> None:
    row = pack(_file(5, 1))
    assert row is not None
    assert len(row) + 8 < 100
