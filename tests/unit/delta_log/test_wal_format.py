"""The write-ahead log byte by byte: what a crash can tear is the end, all else is damage."""

from __future__ import annotations

import pytest
from tests.unit.delta_log.tables import records

from mainstem.delta_log import Slice
from mainstem.delta_log.format import Batch, ProducerBatch
from mainstem.delta_log.wal import (
    WalRequest,
    decode_entry,
    decode_segment,
    encode_entry,
    encode_frame,
    entry_topic,
)
from mainstem.errors import LogDamagedError


def _request(first: int = 0) -> WalRequest:
    by = ProducerBatch(2**62, 3, 10)
    slices = (
        Slice(0, records(2, first), by, True),
        Slice(0, records(1, first + 2).slice(0), ProducerBatch(2**62, 3, 12), False),
        Slice(5, records(9, first).slice(4, 3), None, False),
    )
    batches = (
        Batch(0, 100, 2, by),
        Batch(0, 102, 1, slices[1].producer),
        Batch(5, 2**40, 3),
    )
    return WalRequest("t", "id", 7, slices, batches, 1234)


def _entries(data: bytes, *, is_last: bool = True) -> list[tuple[int, bytes]]:
    frames = decode_segment(data, "file", is_last=is_last)
    return [entry for frame in frames for entry in frame.entries]


FRAMES = [
    encode_frame([(number, b"entry %d" % number * size)])
    for number, size in ((3, 1), (9, 40), (4, 7))
]
WHOLE = [entry for frame in FRAMES for entry in _entries(frame)]


def test_a_request_is_read_back_as_it_was_accepted() -> None:
    request = _request()
    entry = encode_entry(request)
    assert entry_topic(entry) == ("t", "id")
    assert decode_entry(entry) == request


def test_entries_keep_their_numbers_in_any_order_and_number_of_frames() -> None:
    entries = [(7, b"a"), (2, b"bb"), (2**63, b"")]
    assert _entries(encode_frame(entries)) == entries
    assert [number for number, _ in _entries(b"".join(FRAMES), is_last=False)] == [3, 9, 4]


def test_frames_begin_where_a_header_cannot_be_cut_by_the_end_of_a_sector() -> None:
    assert [len(frame) % 16 for frame in FRAMES] == [0, 0, 0]


@pytest.mark.fault
def test_a_last_frame_that_is_torn_at_any_byte_is_the_end_of_the_log() -> None:
    data = b"".join(FRAMES)
    begin = len(data) - len(FRAMES[-1])
    padded = len(FRAMES[-1].rstrip(b"\0"))
    for end in range(begin, begin + padded):
        frames = list(decode_segment(data[:end], "file", is_last=True))
        assert [frame.entries[0] for frame in frames] == WHOLE[:2]
        assert frames[-1].end == begin
        if end % 16 == 0:  # as a file system leaves it that has the length and not the content
            assert _entries(data[:end] + b"\0" * (len(data) - end)) == WHOLE[:2]
    for end in range(begin + padded, len(data) + 1):  # only zeros are missing
        assert _entries(data[:end]) == WHOLE


@pytest.mark.fault
def test_a_last_frame_whose_first_part_did_not_reach_the_disk_is_the_end_of_the_log() -> None:
    data = b"".join(FRAMES)
    begin = len(data) - len(FRAMES[-1])
    for missing in range(16, len(FRAMES[-1]), 16):
        torn = data[:begin] + b"\0" * missing + data[begin + missing :]
        assert _entries(torn) == WHOLE[:2]


@pytest.mark.parametrize("zeros", [1, 11, 12, 13, 4096])
def test_zeros_at_the_end_are_the_end_of_the_log(zeros: int) -> None:
    assert _entries(b"".join(FRAMES) + b"\0" * zeros) == WHOLE


def test_an_empty_segment_has_no_frames_wherever_it_stands() -> None:
    """A file that was made and not written to before a crash."""
    assert _entries(b"", is_last=True) == _entries(b"", is_last=False) == []


@pytest.mark.fault
def test_any_flipped_bit_before_the_last_frame_is_damage_with_file_and_position() -> None:
    data = b"".join(FRAMES)
    begins = [0, len(FRAMES[0])]
    for at in range(len(data) - len(FRAMES[-1])):
        begin = begins[at >= begins[1]]
        frame = FRAMES[begins.index(begin)]
        if at - begin >= len(frame.rstrip(b"\0")):
            continue  # between frames
        for bit in (0x01, 0x80):
            damaged = bytearray(data)
            damaged[at] ^= bit
            with pytest.raises(
                LogDamagedError, match=f"file is damaged at byte {begin}:"
            ) as caught:
                _entries(bytes(damaged))
            assert caught.value.facts["position"] == str(begin)


@pytest.mark.fault
def test_a_torn_frame_in_a_segment_that_is_not_the_last_is_damage() -> None:
    data = b"".join(FRAMES)
    begin = len(data) - len(FRAMES[-1])
    for end in range(begin + 1, begin + len(FRAMES[-1].rstrip(b"\0"))):
        with pytest.raises(LogDamagedError, match=f"damaged at byte {begin}:"):
            _entries(data[:end], is_last=False)
    with pytest.raises(LogDamagedError, match=f"damaged at byte {len(data)}:"):
        _entries(data + b"\0" * 16, is_last=False)


def test_a_torn_frame_whose_records_look_like_a_header_is_still_torn() -> None:
    frame = encode_frame([(1, b"...." + b"MSW1\x20\0\0\0" * 20)])
    assert _entries(FRAMES[0] + b"\0" * 16 + frame[16:-1]) == WHOLE[:1]
