"""The check of the schemas of Arrow streams: each is checked until it was found good once."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from mainstem.records import _ipc_bounds, packed_batches


def _stream(*columns: str) -> pa.Buffer:
    batch = pa.record_batch({name: pa.array([b"x"]) for name in columns})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _checker(seen: list[list[str]]) -> Callable[[pa.Schema], None]:
    def check(schema: pa.Schema) -> None:
        seen.append(schema.names)
        if "bad" in schema.names:
            raise ValueError("bad")

    return check


def test_a_good_schema_is_checked_once_and_a_bad_one_each_time() -> None:
    seen: list[list[str]] = []
    check = _checker(seen)
    for _ in range(2):
        assert [one.row_count for one in packed_batches(_stream("good"), check)] == [1]
        with pytest.raises(ValueError, match="bad"):
            list(packed_batches(_stream("bad"), check))
    assert seen == [["good"], ["bad"], ["bad"]]


def test_what_one_has_let_pass_another_checks_for_itself() -> None:
    mine: list[list[str]] = []
    others: list[list[str]] = []
    list(packed_batches(_stream("good"), _checker(mine)))
    list(packed_batches(_stream("good"), _checker(others)))
    assert mine == others == [["good"]]


def test_no_more_than_some_schemas_are_kept() -> None:
    check = _checker([])
    for number in range(3 * _ipc_bounds._ACCEPTED_MAX):
        list(packed_batches(_stream(f"column {number}"), check))
        assert len(_ipc_bounds._accepted) <= _ipc_bounds._ACCEPTED_MAX


def test_a_stream_of_a_big_endian_machine_is_refused() -> None:
    """Its numbers would be read as if they were little-endian."""
    stream = _stream("good").to_pybytes()
    # The schema's table without and with its first field, the endianness.
    without, with_it = b"\x08\0\x08\0\0\0\x04\0", b"\x08\0\x08\0\x04\0\x04\0"
    assert stream.count(without) == 1
    with pytest.raises(ValueError, match="big-endian"):
        list(packed_batches(pa.py_buffer(stream.replace(without, with_it)), _checker([])))
