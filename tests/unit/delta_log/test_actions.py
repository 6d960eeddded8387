"""Actions: their JSON, torn commit files, and tables that this version must not touch."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import google_crc32c
import pytest

from mainstem.delta_log.files import encode_data_file
from mainstem.delta_log.format import (
    WRITER_FEATURES,
    Action,
    Batch,
    CommitInfo,
    DataFile,
    Metadata,
    Protocol,
    Register,
    Remove,
    decode_commit,
    encode_commit,
    register_value,
    same_table,
)
from mainstem.delta_log.table import TableCommit
from mainstem.errors import LogDamagedError, UnsupportedTableError
from mainstem.limits import TIMESTAMP_MS_MAX
from mainstem.records import records_to_wire_batch

FILE = DataFile(
    path="partition=3/00000000000000000042-ab c%d.parquet",
    partition=3,
    base_offset=42,
    last_offset=2**63 - 2,
    record_count=7,
    size_bytes=1234,
    timestamp_ms_min=0,
    timestamp_ms_max=TIMESTAMP_MS_MAX,
    modified_ms=1_700_000_000_000,
)
ACTIONS: list[Action] = [
    CommitInfo("id-1", "APPEND", 5, (Batch(3, 42, 7), Batch(4, 0, 1)), {"mode": "x"}),
    Protocol(),
    Metadata("table-id", 9, {"mainstem.partitions": "6", "k": 'ü"\n'}, name="t\u2028opic"),
    FILE,
    Remove("partition=1/a b.parquet", 1, 99, 77, data_change=False),
    Register("mainstem/leo/3", 49),
    Register("mainstem/producer/5/0", 4, updated_ms=123),
]


def test_a_commit_is_read_as_it_was_written() -> None:
    data = encode_commit(ACTIONS)
    assert data.count(b"\n") == len(ACTIONS)
    assert decode_commit(data, "path") == ACTIONS


def test_the_statistics_of_a_file_are_exact() -> None:
    stats = json.loads(FILE.to_json()["add"]["stats"])
    assert stats == {
        "numRecords": 7,
        "minValues": {"offset": 42, "timestamp": "1970-01-01T00:00:00.000Z"},
        "maxValues": {"offset": 2**63 - 2, "timestamp": "9999-12-31T23:59:59.999Z"},
        "nullCount": {"offset": 0, "timestamp": 0},
    }


def test_a_path_is_encoded_as_a_url_once() -> None:
    path = FILE.to_json()["add"]["path"]
    assert path == "partition=3/00000000000000000042-ab%20c%25d.parquet"


def test_kinds_of_actions_that_we_do_not_use_are_passed_over() -> None:
    data = b'{"cdc":{"path":"x"}}\n' + encode_commit([Register("r", 1)]) + b"\n"
    assert decode_commit(data, "p") == [Register("r", 1)]


COMMIT = encode_commit(
    TableCommit.of("APPEND", [FILE, Register("mainstem/leo/3", 49)], timestamp_ms=1).actions
)


def test_a_commit_in_which_any_bit_flipped_is_damaged_or_lacks_its_checksum() -> None:
    """What hides that there is a checksum is told by the table, whose format demands one."""
    unchecked = []
    for bit in range(8 * len(COMMIT)):
        flipped = bytearray(COMMIT)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            actions = decode_commit(bytes(flipped), "p")
        except LogDamagedError:
            continue
        info = next((one for one in actions if isinstance(one, CommitInfo)), None)
        assert info is None or not info.has_checksum
        unchecked.append(bit // 8)
    mark = COMMIT.index(b'"crc32c":"')
    assert set(unchecked) <= set(range(mark, mark + 10))


def test_a_checksum_is_of_the_file_with_its_digits_as_zeros() -> None:
    at = COMMIT.index(b'"crc32c":"') + 10
    zeroed = COMMIT[:at] + b"00000000" + COMMIT[at + 8 :]
    assert COMMIT[at : at + 8] == b"%08x" % google_crc32c.value(zeroed)


def test_a_checksum_in_other_letters_is_damaged() -> None:
    at = COMMIT.index(b'"crc32c":"') + 10
    digits = COMMIT[at : at + 8]
    for other in (digits.upper(), b"+" + digits[1:], b" " + digits[1:]):
        if other != digits:
            with pytest.raises(LogDamagedError, match="instead of"):
                decode_commit(COMMIT[:at] + other + COMMIT[at + 8 :], "p")


def test_text_in_a_commit_is_never_taken_for_its_checksum() -> None:
    info = CommitInfo("id", "X", 5, parameters={"note": '"crc32c":"12345678"'})
    data = encode_commit([Metadata("t", 1, {"k": '"crc32c":"12345678"'}), info])
    assert decode_commit(data, "p")[1:] == [info]


def test_a_commit_that_another_program_formatted_again_is_damaged() -> None:
    lines = [json.dumps(json.loads(line)).encode() + b"\n" for line in COMMIT.splitlines()]
    with pytest.raises(LogDamagedError, match="its checksum cannot be read"):
        decode_commit(b"".join(lines), "p")


def test_a_commit_of_before_there_were_checksums_is_read() -> None:
    old = COMMIT.replace(b'"crc32c":"' + COMMIT.split(b'"crc32c":"')[1][:8] + b'",', b"")
    info, *rest = decode_commit(old, "p")
    assert isinstance(info, CommitInfo)
    assert not info.has_checksum
    assert rest == decode_commit(COMMIT, "p")[1:]


def test_the_checksum_of_a_files_footer_is_a_tag_of_its_add_action() -> None:
    file = replace(FILE, tail_crc32c=0xBADC0DE)
    body = file.to_json()["add"]
    assert body["tags"] == {"mainstem.tail.crc32c": "0badc0de"}
    assert DataFile.from_add(body) == file
    assert DataFile.from_add({**body, "tags": list(body["tags"].items())}) == file
    others: list[object] = [None, {}, [], {"INSERTION_TIME": "5"}]
    for other in others:
        assert DataFile.from_add({**body, "tags": other}) == FILE
    assert "tags" not in FILE.to_json()["add"]


def test_a_commit_file_that_was_cut_anywhere_is_damaged() -> None:
    """Also between two lines, where nothing but the number of actions tells."""
    for length in range(len(COMMIT)):
        with pytest.raises(LogDamagedError, match=r"/log/7\.json is damaged") as caught:
            decode_commit(COMMIT[:length], "/log/7.json")
        assert caught.value.facts == {"file": "/log/7.json"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"\n\n",
        b"\0" * 512,
        b"\0" * 511 + b"\n",
        b"nonsense\n",
        b"[]\n",
        b"3\n",
        b'{"add":{}}\n',
        b'{"add":3}\n',
        b'{"txn":{"appId":"x"}}\n',
        b'{"metaData":{"id":"x"}}\n',
        b'{"add":{"path":"p","partitionValues":{"partition":"0"},"stats":null}}\n',
        COMMIT.replace(b'"actionCount":3', b'"actionCount":4'),
    ],
    ids=range(14),
)
def test_a_commit_file_with_other_content_is_damaged(data: bytes) -> None:
    with pytest.raises(LogDamagedError, match="p is damaged"):
        decode_commit(data, "p")


def test_a_foreign_commit_without_a_number_of_actions_is_read() -> None:
    data = b'{"commitInfo":{"operation":"WRITE"}}\n{"txn":{"appId":"x","version":1}}\n'
    info, register = decode_commit(data, "p")
    assert isinstance(info, CommitInfo)
    assert (info.commit_id, info.batches, info.has_checksum) == ("", (), False)
    assert register == Register("x", 1)


def test_a_commit_of_large_random_values_has_little_json() -> None:
    """No value reaches the log: statistics on values would fill it."""
    values = [os.urandom(1024 * 1024) for _ in range(100)]
    file, data = encode_data_file(
        0,
        0,
        [
            records_to_wire_batch(
                [None] * 100, values, [[("h", values[0])]] + [None] * 99, [5] * 100
            )
        ],
        timestamp_type=0,
        compression_type="none",
        now_ms=5,
    )
    commit = TableCommit.of(
        "APPEND",
        [file, Register("mainstem/leo/0", 100)],
        timestamp_ms=5,
        batches=[Batch(0, 0, 100)],
    )
    assert data.size > 100 * 1024 * 1024
    assert len(encode_commit(commit.actions)) < 64 * 1024


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        (Protocol(writer_features=(*WRITER_FEATURES, "rowTracking")), "the feature rowTracking,"),
        (
            Protocol(3, 7, ("deletionVectors",), (*WRITER_FEATURES, "deletionVectors", "b")),
            "the feature b, deletionVectors,",
        ),
        (Protocol(3, 7, ("mainstemLog2",)), "the feature mainstemLog2,"),
        (Protocol(1, 7, (), ("appendOnly",)), "lacks the writer feature mainstemLog"),
        (Protocol(1, 2, (), ()), "not a mainstem topic"),
        (Protocol(2, 7), "asks for reader version 2 and writer version 7"),
        (Protocol(1, 8), "asks for reader version 1 and writer version 8"),
    ],
)
def test_a_table_with_something_that_we_do_not_know_is_refused_by_its_name(
    protocol: Protocol, message: str
) -> None:
    with pytest.raises(UnsupportedTableError, match=message):
        protocol.check_supported("/w/topics/t")


def test_our_own_protocol_is_supported_and_says_so_in_json() -> None:
    Protocol().check_supported("t")
    assert Protocol().to_json() == {
        "protocol": {
            "minReaderVersion": 1,
            "minWriterVersion": 7,
            "writerFeatures": ["appendOnly", "invariants", "mainstemLog"],
        }
    }


def test_two_metadata_actions_are_of_one_table_when_only_settings_differ() -> None:
    one = Metadata("a", 1, {"x": "1"})
    assert same_table(one, Metadata("a", 1, {"x": "2"}, name="other"))
    assert not same_table(one, Metadata("b", 1, {"x": "1"}))
    assert not same_table(one, Metadata("a", 1, {"x": "1"}, schema_string="{}"))
    assert not same_table(one, Metadata("a", 1, {"x": "1"}, partition_columns=()))


def test_the_value_of_a_register_is_found_among_actions() -> None:
    actions: list[Any] = [FILE, Register("a", 1), Register("b", 2)]
    assert register_value(actions, "b") == 2
    assert register_value(actions, "c") is None
