"""The page `docs/concepts/table-format.md` says what the code does: a stranger can go by it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.unit.delta_log.tables import append, commit, create_table

from mainstem.config import TOPIC_KEYS
from mainstem.delta_log import LocalStore, Topics
from mainstem.delta_log.files import CREATE_TIME, encode_data_file
from mainstem.delta_log.files.checksums import BLOCK_BYTES
from mainstem.delta_log.format import (
    WRITER_FEATURES,
    Action,
    Batch,
    CommitInfo,
    Protocol,
    Register,
    checkpoint_path,
    decode_commit,
    encode_commit,
    registers,
)
from mainstem.delta_log.table import FORMAT
from mainstem.delta_log.upkeep import write_checkpoint
from mainstem.limits import ROW_GROUP_BYTES_MAX, ROW_GROUP_ROWS_MAX
from mainstem.records import FILE_SCHEMA, records_to_wire_batch

Read = Callable[[Path], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def page() -> str:
    path = Path(__file__).resolve().parents[3] / "docs" / "concepts" / "table-format.md"
    return path.read_text()


@pytest.fixture(scope="module")
def read(page: str) -> Read:
    """The reader on the page."""
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "table-format.md", "exec"), names)
    found: Read = names["read"]
    return found


def _json_blocks(page: str) -> list[str]:
    return re.findall(r"```json\n(.*?)```", page, re.DOTALL)


def _rows_below(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    lines = page.split(f"## {heading}\n", 1)[1].splitlines()
    rows = [line for line in lines if line.startswith("|")]
    first = lines.index(rows[0])
    table = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


def test_the_commit_on_the_page_is_one_and_has_the_checksum_that_it_says(page: str) -> None:
    data = _json_blocks(page)[1].encode()
    actions = decode_commit(data, "the page")
    assert encode_commit(actions) == data
    info = actions[0]
    assert isinstance(info, CommitInfo)
    assert info.has_checksum
    assert (
        f"has {len(data):,} bytes and the checksum {data.split(b'crc32c')[1][3:11].decode()}"
        in page
    )


def test_the_protocol_on_the_page_is_ours(page: str) -> None:
    assert json.loads(_json_blocks(page)[0]) == Protocol().to_json()
    assert "three" in page.split("beside these")[1][:10]
    assert len(WRITER_FEATURES) == 3


def test_the_page_has_every_register_and_no_other(page: str) -> None:
    names = [re.findall(r"`([^`]+)`", row[0])[0] for row in _rows_below(page, "Registers")]
    ours = {value for value in vars(registers).values() if _is_constant(value)}
    for function in (one for one in vars(registers).values() if inspect.isfunction(one)):
        parameters = inspect.signature(function).parameters
        known = {"partition", "slot", "producer_id", "transactional_id", "gateway_id", "log_id"}
        if set(parameters) <= known:
            named = {name: f"<{name.replace('_', ' ')}>" for name in parameters}
            ours.add(function(**named))
    assert sorted(names) == sorted(ours)


def _is_constant(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"mainstem/\w+", value) is not None


def test_the_page_has_every_column_with_its_field_id(page: str) -> None:
    rows = _rows_below(page, "Protocol, metadata, schema")
    assert rows[0][0] == "`mainstem.format`"
    table = page.split("| id | column |")[1].split("\n\n")[0].splitlines()[2:]
    columns = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table]
    found = {(int(row[0]), row[1]) for row in columns}
    parquet = _one_file()
    wanted = set()
    for index in range(len(parquet.schema)):
        path = parquet.schema.column(index).path.replace(".list.element", ".element")
        wanted.add(path)
    ids = re.findall(r"field_id=(\d+) (\w+)", str(parquet.schema))
    assert {number for number, _ in found} == {int(number) for number, _ in ids}
    assert {name for _, name in found} == wanted | {"headers", "headers.element"}
    assert [row[1] for row in columns if "." not in row[1]] == FILE_SCHEMA.names
    for number, name in found:
        assert (str(number), name.split(".")[-1]) in ids


def _one_file() -> pq.ParquetFile:
    batch = records_to_wire_batch([b"k"], [b"v"], [[("h", b"1")]], [5])
    _, data = encode_data_file(
        0, 0, [batch], timestamp_type=CREATE_TIME, compression_type="none", now_ms=5
    )
    return pq.ParquetFile(data)


def test_the_numbers_on_the_page_are_ours(page: str) -> None:
    assert f"at most {ROW_GROUP_BYTES_MAX // 2**20} MiB of records" in page
    assert f"{ROW_GROUP_ROWS_MAX:,} rows" in page
    assert f"blocks of {BLOCK_BYTES:,} bytes" in page
    assert f"This is\n**format {FORMAT}**" in page.replace(" **format", "\n**format")


def test_a_new_topic_has_the_properties_of_the_page_and_no_other(topics: Topics, page: str) -> None:
    metadata = topics.create("t", 3, {"retention.ms": 5})
    assert metadata.configuration["mainstem.format"] == str(FORMAT)
    for name in metadata.configuration:
        documented = name in ("mainstem.format", "mainstem.partitions")
        setting = name.removeprefix("mainstem.") in TOPIC_KEYS
        assert documented or setting or name.startswith("delta."), name
    assert "`mainstem.partitions`" in page


def test_a_checkpoint_has_the_checksums_that_the_page_names(store: LocalStore, page: str) -> None:
    state = create_table(store)
    append(store, state, 0)
    version = write_checkpoint(store)
    metadata = pq.read_metadata(Path(store.uri, checkpoint_path(version))).metadata
    for name, value in metadata.items():
        assert f"`{name.decode()}`" in page
        assert value.startswith(b"mainstem-crc32c:")
    assert len(metadata) == 2


def test_the_reader_on_the_page_reads_a_topic(store: LocalStore, read: Read) -> None:
    state = create_table(store)
    for partition in (0, 2, 0):
        append(store, state, partition, 3)
    large = records_to_wire_batch([None], [bytes(3 * BLOCK_BYTES)], None, [5])
    file, data = encode_data_file(
        1, 0, [large], timestamp_type=CREATE_TIME, compression_type="none", now_ms=5
    )
    store.put(file.path, data)
    actions: list[Action] = [file, Register("mainstem/leo/1", 1), Register("mainstem/lso/0", 2)]
    commit(store, state.version + 1, actions, batches=[Batch(1, 0, 1)])
    found = read(Path(store.uri))
    assert [(row["partition"], row["offset"]) for row in found] == [
        *((0, offset) for offset in range(2, 6)),
        (1, 0),
        *((2, offset) for offset in range(3)),
    ]
    assert found[0]["value"] == b"2"


def test_the_reader_on_the_page_reads_no_changed_byte(store: LocalStore, read: Read) -> None:
    state = create_table(store)
    append(store, state, 0, 2)
    right = read(Path(store.uri))
    assert len(right) == 2
    for path in Path(store.uri).rglob("*.*"):
        whole = path.read_bytes()
        for byte in range(0, len(whole), 29):
            path.write_bytes(whole[:byte] + bytes([whole[byte] ^ 1]) + whole[byte + 1 :])
            with pytest.raises(ValueError, match="is damaged"):
                read(Path(store.uri))
        path.write_bytes(whole)
    assert read(Path(store.uri)) == right
