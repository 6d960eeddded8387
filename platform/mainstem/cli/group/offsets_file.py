"""Files of offsets, for `mainstem group seek --to-file`."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.cli.errors import FormatError

if TYPE_CHECKING:
    from mainstem.client import TopicPartition


def read_offsets_file(path: Path) -> dict[TopicPartition, int]:
    """Offsets by partition, from lines `topic partition offset` or JSON of `group describe`.

    Commas, tabs or spaces stand between; empty lines, lines that begin with #, and a first line of
    titles do not count. From JSON, each `committed_offset` that is not null is taken.

    Raises:
        FormatError: A line means nothing, or a partition comes twice.
    """
    from mainstem.client import TopicPartition

    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} cannot be read: {error}") from None
    rows = _json_rows(text) if text.lstrip().startswith("{") else _csv_rows(text)
    found: dict[TopicPartition, int] = {}
    for where, fields in rows:
        try:
            topic, partition, offset = fields
            tp, number = TopicPartition(str(topic), int(partition)), int(offset)
            if tp.partition < 0 or number < 0:
                raise ValueError
        except (TypeError, ValueError):
            raise FormatError(
                f"{path}, {where}: {fields!r} is not topic, partition and offset"
            ) from None
        if tp in found:
            raise FormatError(f"{path}, {where}: {tp.topic}-{tp.partition} comes a second time")
        found[tp] = number
    if not found:
        raise FormatError(f"{path} has no offsets; a line is: topic partition offset")
    return found


def _csv_rows(text: str) -> Iterable[tuple[str, list[Any]]]:
    seen = False
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        fields = next(csv.reader([line])) if "," in line else re.split(r"\s+", line)
        fields = [field.strip() for field in fields]
        is_title = not seen and fields[0].lower() == "topic" and not fields[-1].isdigit()
        seen = True
        if not is_title:
            yield f"line {number}", fields


def _json_rows(text: str) -> Iterable[tuple[str, list[Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            partitions = json.loads(line)["partitions"]
            rows = [[one["topic"], one["partition"], one["committed_offset"]] for one in partitions]
        except (ValueError, KeyError, TypeError):
            raise FormatError(
                f"line {number} is not what `mainstem --format json group describe` prints"
            ) from None
        for row in rows:
            if row[-1] is not None:
                yield f"line {number}", row
