"""What the records of an answer unpack to is known before they are unpacked."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mainstem.client.consumer import records as records_module
from mainstem.client.consumer.records import batches_from_ipc
from mainstem.errors import InternalError


def _answer(columns: dict[str, pa.Array], compression: str | None = None) -> bytes:
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def test_an_answer_that_unpacks_to_too_much_is_an_error_and_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records_module, "ANSWER_UNPACKED_BYTES_MAX", 1 << 20)
    columns = {"offset": pa.array(range(4_000)), "value": pa.array([bytes(1_000)] * 4_000)}
    packed = _answer(columns, "zstd")
    assert len(packed) < 100_000
    pool = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(counting)
    try:
        with pytest.raises(InternalError, match="unpacks to"):
            batches_from_ipc(packed, 0)
    finally:
        pa.set_memory_pool(pool)
    assert (counting.max_memory() or 0) < 1 << 20


def test_a_compressed_answer_within_bounds_is_read() -> None:
    columns = {"offset": pa.array([4, 5]), "value": pa.array([bytes(1_000)] * 2)}
    (batch,) = batches_from_ipc(_answer(columns, "lz4"), 5)
    assert batch.to_pydict() == {"offset": [5], "value": [bytes(1_000)]}


@pytest.mark.parametrize("name", ["value", "other"])
def test_an_answer_with_a_column_that_no_topic_has_is_an_error(name: str) -> None:
    data = _answer({"offset": pa.array([1]), name: pa.array([[1]])})
    with pytest.raises(InternalError, match="no readable records"):
        batches_from_ipc(data, 0)
