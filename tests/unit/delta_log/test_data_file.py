"""Data files: what they look like to others, and that no changed byte of them is ever read."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.delta_log.tables import NOW_MS, records

from mainstem.delta_log import LocalStore
from mainstem.delta_log.files import (
    CREATE_TIME,
    DataFileMissing,
    check_data_file,
    data_file_reader,
    encode_data_file,
    read_data_file,
    write_data_files,
)
from mainstem.delta_log.files.checksums import BLOCK_BYTES
from mainstem.delta_log.files.data_file_writer import DataFileWriter, merge_data_files
from mainstem.delta_log.format import DataFile, ProducerBatch
from mainstem.errors import LogDamagedError
from mainstem.records import FILE_SCHEMA, TABLE_SCHEMA, records_to_wire_batch

EVERYWHERE = (0, 2**62)


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in blocks, however small they are."""
    monkeypatch.setattr(data_file_reader, "_WHOLE_BYTES", 64 * 1024)


@pytest.fixture(params=["whole", "in_blocks"])
def either_way(request: pytest.FixtureRequest) -> None:
    """Files of more than a block are read whole, and in blocks."""
    if request.param == "in_blocks":
        request.getfixturevalue("in_blocks")


def _batch(rng: random.Random, count: int, value_bytes: int) -> pa.RecordBatch:
    return records_to_wire_batch(
        [b"k%d" % number for number in range(count)],
        [rng.randbytes(value_bytes) for _ in range(count)],
        [[("h", b"v"), ("n", None)] if number % 3 else None for number in range(count)],
        [NOW_MS + number for number in range(count)],
    )


def _encoded(
    batch: pa.RecordBatch, partition: int = 3, compression_type: str = "zstd"
) -> tuple[DataFile, bytes]:
    file, data = encode_data_file(
        partition,
        0,
        [batch],
        timestamp_type=CREATE_TIME,
        compression_type=compression_type,
        now_ms=NOW_MS,
        producers=[ProducerBatch(7, 0, 0)],
    )
    return file, data.to_pybytes()


def _large(rng: random.Random) -> tuple[DataFile, bytes]:
    """A file of three blocks and a tail, with two row groups."""
    writer = DataFileWriter(3, "none")
    for first in (0, 400):
        numbers = np.arange(first, first + 400)
        writer.write(
            pa.table(
                [
                    pa.array(numbers),
                    pa.array(numbers * 1000).view(TABLE_SCHEMA.field("timestamp").type),
                    pa.array(np.zeros(400, np.int32)),
                    pa.array([b"key"] * 400),
                    pa.array([rng.randbytes(1000) for _ in numbers]),
                    pa.nulls(400, TABLE_SCHEMA.field("headers").type),
                    pa.nulls(400, pa.int64()),
                    pa.nulls(400, pa.int64()),
                ],
                schema=TABLE_SCHEMA,
            )
        )
    file, data = writer.finish(NOW_MS)
    assert data.size > 3 * BLOCK_BYTES
    return file, data.to_pybytes()


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _read(
    store: LocalStore, file: DataFile, data: bytes, columns: Sequence[str] | None = None
) -> pa.Table:
    """What a reader gets of the file, which has these bytes now."""
    path = Path(store.uri, file.path)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return pa.Table.from_batches(list(read_data_file(store, file, *EVERYWHERE, columns)))


def _old(store: LocalStore, count: int = 5) -> tuple[DataFile, pa.Table]:
    """A file of before there were checksums, ids, and a column `partition`, in the store."""
    file, data = _encoded(records(count))
    table = pq.read_table(pa.BufferReader(data), columns=TABLE_SCHEMA.names).cast(TABLE_SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False)
    old = replace(file, size_bytes=sink.tell(), tail_crc32c=None)
    store.put(old.path, sink.getvalue())
    return old, table


def test_every_column_has_its_field_id_and_the_partition_is_one() -> None:
    _, data = _encoded(records(3))
    parquet = pq.ParquetFile(pa.BufferReader(data))
    found = re.findall(r"field_id=(\d+) (\w+)", str(parquet.schema))
    assert found == [
        ("1", "partition"),
        ("2", "offset"),
        ("3", "timestamp"),
        ("4", "timestamp_type"),
        ("5", "key"),
        ("6", "value"),
        ("7", "headers"),
        ("10", "element"),
        ("11", "key"),
        ("12", "value"),
        ("8", "producer_id"),
        ("9", "sequence"),
    ]
    assert parquet.read().column("partition").to_pylist() == [3, 3, 3]
    assert parquet.schema_arrow.equals(FILE_SCHEMA)


def test_a_plain_parquet_reader_is_told_of_a_changed_page(rng: random.Random) -> None:
    _, data = _encoded(_batch(rng, 10, 50), compression_type="none")
    value = pq.read_table(pa.BufferReader(data)).column("value")[4].as_py()
    changed = _flipped(data, 8 * (data.index(value) + 7))
    with pytest.raises(OSError, match=r"could not verify page integrity"):
        pq.read_table(pa.BufferReader(changed), page_checksum_verification=True)


@pytest.mark.parametrize("compression_type", ["zstd", "none"])
def test_no_bit_of_a_small_file_flips_unseen(
    store: LocalStore, rng: random.Random, compression_type: str
) -> None:
    file, data = _encoded(_batch(rng, 5, 40), compression_type=compression_type)
    assert _read(store, file, data).num_rows == 5
    for byte in range(len(data)):
        with pytest.raises(LogDamagedError, match=r"data file \S+ is damaged: ") as caught:
            _read(store, file, _flipped(data, 8 * byte + rng.randrange(8)))
        assert caught.value.facts == {"file": file.path}


@pytest.mark.usefixtures("either_way")
def test_no_bit_of_a_large_file_flips_unseen(store: LocalStore, rng: random.Random) -> None:
    file, data = _large(rng)
    assert _read(store, file, data).num_rows == 800
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    groups = [metadata.row_group(number) for number in range(2)]
    headers = [
        group.column(column).data_page_offset + byte
        for group in groups
        for column in range(group.num_columns)
        for byte in range(4)
    ]
    places = [*headers, 0, len(data) - 1, *(rng.randrange(len(data)) for _ in range(200))]
    for byte in places:
        with pytest.raises(LogDamagedError, match=r"data file \S+ is damaged: "):
            _read(store, file, _flipped(data, 8 * byte + rng.randrange(8)))


@pytest.mark.usefixtures("in_blocks")
def test_a_reader_of_some_columns_gets_them_as_they_were_or_none(
    store: LocalStore, rng: random.Random
) -> None:
    """It reads a part of a large file only, and so does not see every change."""
    file, data = _large(rng)
    right = _read(store, file, data, ["key"])
    unseen = 0
    for byte in range(0, len(data), 4099):
        try:
            assert _read(store, file, _flipped(data, 8 * byte), ["key"]).equals(right)
            unseen += 1
        except LogDamagedError:
            pass
    assert unseen, "nothing but the blocks that have the column is read"


@pytest.mark.usefixtures("either_way")
def test_a_check_of_a_file_reads_all_of_it(store: LocalStore, rng: random.Random) -> None:
    file, data = _large(rng)
    path = Path(store.uri, file.path)
    store.put(file.path, data)
    check_data_file(store, file)
    for byte in range(0, len(data), 4099):
        path.write_bytes(_flipped(data, 8 * byte))
        with pytest.raises(LogDamagedError, match="is damaged"):
            check_data_file(store, file)


def test_a_file_that_is_of_another_partition_than_the_log_says_is_damaged(
    store: LocalStore,
) -> None:
    file, data = _encoded(records(3), partition=3)
    store.put(file.path, data)
    with pytest.raises(LogDamagedError, match="records of partition 3; the log says 4"):
        check_data_file(store, replace(file, partition=4))


@pytest.mark.usefixtures("in_blocks")
def test_the_rows_before_a_damaged_block_are_read_and_the_others_never(
    store: LocalStore, rng: random.Random
) -> None:
    file, data = _large(rng)
    second = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(1).column(5)
    store.put(file.path, _flipped(data, 8 * (second.data_page_offset + BLOCK_BYTES)))
    batches = read_data_file(store, file, *EVERYWHERE)
    assert next(batches).column("offset").to_pylist() == list(range(400))
    with pytest.raises(LogDamagedError, match=r"the block at byte \d+ has another checksum"):
        next(batches)


@pytest.mark.usefixtures("either_way")
def test_a_file_of_another_length_is_damaged(store: LocalStore, rng: random.Random) -> None:
    for file, data in (_encoded(records(3)), _large(rng)):
        for wrong in (data[:-1], data + b"\0", data[: len(data) // 2], b"", b"PAR1"):
            with pytest.raises(LogDamagedError, match=f"has {len(wrong)} bytes; the log says"):
                _read(store, file, wrong)


def test_another_file_of_the_same_length_is_damaged(store: LocalStore, rng: random.Random) -> None:
    """As when a disk gives back an older block, or a copy went to the wrong name."""
    first, data = _encoded(records_to_wire_batch([b"k"], [b"a" * 9], None, [5]))
    other, others = _encoded(records_to_wire_batch([b"k"], [b"b" * 9], None, [5]))
    assert len(data) == len(others)
    with pytest.raises(LogDamagedError, match="checksum of its tail"):
        _read(store, first, others)
    assert _read(store, other, others).num_rows == 1


def test_a_file_that_is_not_there_is_missing(store: LocalStore) -> None:
    file, _ = _encoded(records(3))
    with pytest.raises(DataFileMissing, match="offsets 0 to 2 of partition 3, is missing"):
        list(read_data_file(store, file, *EVERYWHERE))


@pytest.mark.usefixtures("either_way")
def test_a_tail_that_is_longer_than_what_is_read_at_first_is_read_whole(
    store: LocalStore,
) -> None:
    writer = DataFileWriter(0, "zstd")
    _, data = _encoded(records(100))
    table = pq.read_table(pa.BufferReader(data), columns=TABLE_SCHEMA.names)
    for row in range(100):
        writer.write(table.slice(row, 1))
    file, written = writer.finish(NOW_MS)
    footer = int.from_bytes(written.to_pybytes()[-8:-4], "little")
    assert footer > 64 * 1024
    read = _read(store, file, written.to_pybytes())
    assert read.column("offset").to_pylist() == list(range(100))
    with pytest.raises(LogDamagedError, match="checksum of its tail"):
        _read(store, file, _flipped(written.to_pybytes(), 8 * (written.size - footer)))


@pytest.mark.usefixtures("either_way")
def test_the_checksums_are_as_they_are_specified(rng: random.Random) -> None:
    for file, data in (_encoded(records(1)), _large(rng)):
        body = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        tail = body // 262_144 * 262_144
        assert file.tail_crc32c == google_crc32c.value(data[tail:])
        found = pq.read_metadata(pa.BufferReader(data)).metadata or {}
        assert found.get(b"mainstem.blocks.crc32c", b"") == b"".join(
            b"%08x" % google_crc32c.value(data[start : start + 262_144])
            for start in range(0, tail, 262_144)
        )


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("rest", [-1, 0, 1, 1000])
def test_a_body_of_about_whole_blocks_is_read(store: LocalStore, rest: int) -> None:
    """Where the tail is the footer alone, or a byte more, and a column lies in both."""
    value_bytes = 2 * BLOCK_BYTES
    while True:
        batch = records_to_wire_batch([b"k"], [bytes(value_bytes)], None, [NOW_MS])
        file, data = _encoded(batch, compression_type="none")
        body = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        if body == 2 * BLOCK_BYTES + rest:
            break
        value_bytes += 2 * BLOCK_BYTES + rest - body
    assert body == 2 * BLOCK_BYTES + rest
    (value,) = _read(store, file, data).column("value").to_pylist()
    assert value == bytes(len(value))
    for byte in (100, BLOCK_BYTES, 2 * BLOCK_BYTES - 2, body - 1, body, len(data) - 1):
        with pytest.raises(LogDamagedError, match="is damaged"):
            _read(store, file, _flipped(data, 8 * byte))


@pytest.mark.parametrize("blocks", [5, 6, 7, 12, 90])
def test_checksums_are_filled_in_however_many_there_are(
    store: LocalStore, rng: random.Random, blocks: int
) -> None:
    """The length of the digits stands before them, and may look like one of them."""
    count = blocks * BLOCK_BYTES // 64_000
    file, data = _encoded(_batch(rng, count, 64_000), compression_type="none")
    assert _read(store, file, data, ["timestamp"]).num_rows == count


def test_a_file_of_before_there_were_checksums_is_read_as_it_is(store: LocalStore) -> None:
    old, table = _old(store)
    read = pa.Table.from_batches(list(read_data_file(store, old, *EVERYWHERE)))
    assert read.equals(table)


def test_a_page_of_an_old_file_that_has_a_checksum_is_compared(
    store: LocalStore, rng: random.Random
) -> None:
    file, data = _encoded(_batch(rng, 10, 50), compression_type="none")
    value = pq.read_table(pa.BufferReader(data)).column("value")[4].as_py()
    with pytest.raises(LogDamagedError, match="could not verify page integrity"):
        _read(
            store,
            replace(file, tail_crc32c=None),
            _flipped(data, 8 * (data.index(value) + 7)),
        )


def test_what_is_written_of_an_old_file_has_all_that_a_new_one_has(store: LocalStore) -> None:
    """As compaction does."""
    old, table = _old(store)
    (new,) = write_data_files(
        store,
        3,
        read_data_file(store, old, *EVERYWHERE),
        target_bytes=10**6,
        compression_type="zstd",
        now_ms=NOW_MS,
    )
    assert new.tail_crc32c is not None
    written = pq.ParquetFile(pa.BufferReader(store.read(new.path))).read()
    assert written.schema.equals(FILE_SCHEMA)
    assert written.drop_columns(["partition"]).equals(table)
    assert pa.Table.from_batches(list(read_data_file(store, new, *EVERYWHERE))).equals(table)


def test_old_and_new_files_become_one(store: LocalStore) -> None:
    old, _ = _old(store, 5)
    new, data = encode_data_file(
        3, 5, [records(5, 5)], timestamp_type=CREATE_TIME, compression_type="zstd", now_ms=NOW_MS
    )
    merged, content = merge_data_files(
        [(old, store.read(old.path)), (new, data.to_pybytes())],
        compression_type="zstd",
        now_ms=NOW_MS,
    )
    read = _read(store, merged, content.to_pybytes())
    assert read.column("offset").to_pylist() == list(range(10))
    assert read.column("value").to_pylist() == [b"%d" % number for number in range(10)]


def test_a_changed_file_is_not_merged_into_another(rng: random.Random) -> None:
    file, data = _encoded(_batch(rng, 10, 50), compression_type="none")
    for byte in range(0, len(data), 13):
        with pytest.raises(LogDamagedError, match="as it is in memory, is damaged"):
            merge_data_files(
                [(file, _flipped(data, 8 * byte))], compression_type="zstd", now_ms=NOW_MS
            )


def test_a_changed_file_is_not_copied_by_a_compaction(
    store: LocalStore, rng: random.Random
) -> None:
    file, data = _encoded(_batch(rng, 10, 50), compression_type="none")
    store.put(file.path, _flipped(data, 8 * 99))
    with pytest.raises(LogDamagedError, match="is damaged"):
        write_data_files(
            store,
            3,
            read_data_file(store, file, *EVERYWHERE),
            target_bytes=10**6,
            compression_type="zstd",
            now_ms=NOW_MS,
        )
    assert [info.name for info in store.list_files("partition=3")] == [file.path.split("/")[1]]
