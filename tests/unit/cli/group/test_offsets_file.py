"""The files of offsets that `group seek` understands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mainstem.cli.errors import FormatError
from mainstem.cli.group.offsets_file import read_offsets_file
from mainstem.client import TopicPartition

SAVED = [
    {"topic": "t", "partition": number, "committed_offset": offset}
    for number, offset in enumerate([5, 6, None])
]


def offsets(tmp_path: Path, text: str) -> dict[tuple[str, int], int]:
    path = tmp_path / "offsets"
    path.write_text(text)
    return {(tp.topic, tp.partition): at for tp, at in read_offsets_file(path).items()}


@pytest.mark.parametrize(
    "text",
    [
        "t,0,5\nt,1,6\n",
        "topic,partition,offset\nt,0,5\nt,1,6",
        "# saved yesterday\n\nt\t0\t5\r\nt\t1\t6\r\n",
        "TOPIC  PARTITION  OFFSET\nt      0          5\nt      1          6",
        '"t", 0, 5\n"t", 1, 6\n',
        json.dumps({"partitions": SAVED}) + "\n",
    ],
)
def test_a_file_of_offsets_is_read_however_it_is_written(tmp_path: Path, text: str) -> None:
    assert offsets(tmp_path, text) == {("t", 0): 5, ("t", 1): 6}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("t,0\n", "line 1: .* is not topic, partition and offset"),
        ("t,0,5\nt,x,6\n", "line 2"),
        ("t,0,-1\n", "line 1"),
        ("t,0,5\nt 0 6\n", "t-0 comes a second time"),
        ("", "has no offsets"),
        ('{"group": "g", "status": "UNKNOWN_GROUP"}\n', "group describe"),
        ('{"partitions": [{"topic": "t"}]}\n', "group describe"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_line(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(FormatError, match=reason):
        offsets(tmp_path, text)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(FormatError, match="cannot be read"):
        read_offsets_file(path)
    with pytest.raises(FormatError, match="cannot be read"):
        read_offsets_file(tmp_path / "nowhere")


def test_offsets_are_keyed_by_partition(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    path.write_text("t 3 9")
    assert read_offsets_file(path) == {TopicPartition("t", 3): 9}
