"""Feeds `read_payload` any bytes. A process of its own: a fault in native code would end it.

python fuzz_payload.py SEED
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[3]))

from tests.length import FULL as IS_FULL
from tests.unit.ingest_gateway.payloads import batch_of, ipc, stream_request

from mainstem.config import TopicConfig
from mainstem.delta_log.files import encode_data_file
from mainstem.errors import InvalidRecordError
from mainstem.ingest_gateway.payloads.payload import Payload, PayloadRules, read_payload
from mainstem.ingest_gateway.payloads.placement import StickyPlacement
from mainstem.records import WIRE_SCHEMA

NOW_MS = 1_700_000_000_000
RULES = PayloadRules("t", 3, TopicConfig({}), 1024 * 1024, 1024 * 1024)

FULL = batch_of(
    key=[b"a", None, b"", b"long key" * 20],
    value=[b"", b"v" * 300, None, b"w"],
    headers=pa.array(
        [None, [{"key": "h", "value": b"1"}, {"key": "h", "value": None}], [], None],
        WIRE_SCHEMA.field("headers").type,
    ),
    timestamp=pa.array([1, 2, None, 4], pa.timestamp("ms", tz="UTC")),
)
TEXT = batch_of(
    key=pa.array(["a", None, "ä", "x" * 40], pa.large_string()),
    value=pa.array(["a", None, "ä", "x" * 40]),
    headers=pa.array(
        [None, [{"key": "h", "value": b"1"}], [], None],
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
    ),
    timestamp=pa.array([1, None, 3, 4], pa.timestamp("ns", tz="UTC")),
)
STREAMS = [
    ipc([FULL]),
    ipc([FULL, FULL.slice(1, 2)]),
    ipc([FULL], "zstd"),
    ipc([FULL], "lz4"),
    ipc([TEXT]),
    ipc([batch_of(value=pa.nulls(4), key=pa.nulls(4))]),
    # Once ended the process: what lies in the views of nulls is not validated, but read.
    ipc([batch_of(value=pa.array(["a", None, "ä", "x" * 40], pa.string_view()))]),
]


def use(stream: bytes, with_ranges: bool) -> None:
    request = stream_request(stream, [(0, 0, 1), (2, 1, 3)] if with_ranges else [])
    try:
        payload = read_payload(request, RULES, StickyPlacement(random.Random(0)), NOW_MS)
    except InvalidRecordError:
        return
    check(payload)


def check(payload: Payload) -> None:
    """What was accepted must be fit for a data file."""
    assert sum(slice_.records.num_rows for slice_ in payload.slices) == payload.record_count > 0
    for slice_ in payload.slices:
        slice_.records.validate(full=True)
        encode_data_file(
            slice_.partition,
            0,
            [slice_.records],
            timestamp_type=0,
            compression_type="zstd",
            now_ms=NOW_MS,
        )


flips = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=6)
settings.register_profile(
    "fuzz", deadline=None, suppress_health_check=list(HealthCheck), database=None, print_blob=True
)
settings.load_profile("fuzz")


@settings(max_examples=1500 if IS_FULL else 500)
@given(st.sampled_from(STREAMS), flips, st.booleans())
def changed_bytes(stream: bytes, changes: list[tuple[int, int]], with_ranges: bool) -> None:
    damaged = bytearray(stream)
    for at, value in changes:
        damaged[at % len(damaged)] = value
    use(bytes(damaged), with_ranges)


@settings(max_examples=300 if IS_FULL else 100)
@given(st.sampled_from(STREAMS), st.integers(0, 1 << 16), st.binary(max_size=64))
def cut_and_filled(stream: bytes, at: int, filling: bytes) -> None:
    at %= len(stream)
    use(stream[:at] + filling + stream[at + len(filling) // 2 :], False)


@settings(max_examples=200 if IS_FULL else 100)
@given(st.binary(max_size=512))
@example(b"")
def any_bytes(stream: bytes) -> None:
    use(stream, False)


if __name__ == "__main__":
    number = int(sys.argv[1])
    for fuzz in (any_bytes, cut_and_filled, changed_bytes):
        seeded(number)(fuzz)()
