"""The check of the schemas of Arrow streams: each is checked until it was found good once."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from mainstem.records import _ipc_bounds, unpacked_sizes


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
        assert [rows for rows, _ in unpacked_sizes(_stream("good"), check)] == [1]
        with pytest.raises(ValueError, match="bad"):
            list(unpacked_sizes(_stream("bad"), check))
    assert seen == [["good"], ["bad"], ["bad"]]


def test_what_one_has_let_pass_another_checks_for_itself() -> None:
    mine: list[list[str]] = []
    others: list[list[str]] = []
    list(unpacked_sizes(_stream("good"), _checker(mine)))
    list(unpacked_sizes(_stream("good"), _checker(others)))
    assert mine == others == [["good"]]


def test_no_more_than_some_schemas_are_kept() -> None:
    check = _checker([])
    for number in range(3 * _ipc_bounds._ACCEPTED_MAX):
        list(unpacked_sizes(_stream(f"column {number}"), check))
        assert len(_ipc_bounds._accepted) <= _ipc_bounds._ACCEPTED_MAX
