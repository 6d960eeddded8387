"""Draws the plots of docs/performance.md, as SVG, from the figures in its tables.

A test fails when they are not current.

Usage: python -m benchmarks.plots [OUTPUT_DIRECTORY]   (default: docs/images)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.drawing import Bar, draw

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"


@dataclass(frozen=True, slots=True)
class Plot:
    """Bars below each other, from zero."""

    file: str
    title: str
    subtitle: str
    unit: str
    bars: Callable[[str], list[Bar]]


def table(page: str, heading: str, number: int = 0) -> list[list[str]]:
    """The rows of a table below a heading, without its head; `number` counts from 0."""
    _, found, section = page.partition(f"\n## {heading}\n")
    if not found:
        raise ValueError(f"there is no heading {heading!r}")
    section = section.partition("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    rows = [line.strip("|").split("|") for line in tables[number].splitlines()[2:]]
    return [[cell.strip() for cell in row] for row in rows]


def figures(cell: str) -> tuple[float, float]:
    """The lowest and the highest number of a cell such as `1.03, 1.06, 1.13 million`."""
    numbers = [float(one.replace(",", "")) for one in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", cell)]
    if not numbers:
        raise ValueError(f"there is no number in {cell!r}")
    return min(numbers), max(numbers)


def _bars(
    rows: Sequence[Sequence[str]], names: Sequence[str], column: int, factor: float = 1
) -> list[Bar]:
    found = []
    for name, row in zip(names, rows, strict=True):
        low, high = figures(row[column])
        found.append(Bar(name, low * factor, high * factor))
    return found


def _producing(page: str) -> list[Bar]:
    names = (
        "produce(), 3 million records",
        "produce(), 10 million records",
        "produce_batch(), 6 million",
        "produce_batch(), 10 million",
    )
    return _bars(table(page, "Producing"), names, 1)


def _waiting(page: str) -> list[Bar]:
    names = ("acks=all, commit at once", "acks=all, a commit every 100 ms", "acks=1, in the log")
    return _bars(table(page, "Producing", 1), names, 1)


def _commits(page: str) -> list[Bar]:
    rows = table(page, "The cost of a commit does not grow")[:3]
    return _bars(rows, [f"around commit {row[0]}" for row in rows], 1)


def _consuming(page: str) -> list[Bar]:
    rows = table(page, "Consuming")
    found = []
    for row in rows:
        name = re.sub(r"[`]|\(Arrow\)", "", row[0]).strip()
        for column, place in ((1, "new records"), (2, "history")):
            found.append(Bar(f"{name}, {place}", *figures(row[column])))
    return found


def _spark(page: str) -> list[Bar]:
    rows = [row for row in table(page, "Spark") if not row[0].startswith("the same")]
    names = [
        row[0].replace("`", "").replace('"', "").replace("format(", "").rstrip(")") for row in rows
    ]
    return _bars(rows, names, 1)


PLOTS: Final = (
    Plot(
        "producing.svg",
        "Producing",
        "million records a second, key 16 B and value 100 B, acks=all; all of it on 2 cores",
        "million/s",
        _producing,
    ),
    Plot(
        "waiting.svg",
        "Waiting for each acknowledgement",
        "ms from produce() to the answer, p50, one record at a time",
        "ms",
        _waiting,
    ),
    Plot(
        "commits.svg",
        "The cost of a commit does not grow",
        "ms for an append of one record, p50",
        "ms",
        _commits,
    ),
    Plot(
        "consuming.svg",
        "Consuming",
        "million records of 100 B a second, one consumer; gateway on the same 2 cores",
        "million/s",
        _consuming,
    ),
    Plot(
        "spark.svg",
        "Reading with Spark",
        "million rows a second, local mode on 2 cores",
        "million/s",
        _spark,
    ),
)


def generate(directory: Path) -> list[Path]:
    """Writes every plot into `directory`."""
    page = (DOCS / "performance.md").read_text()
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for plot in PLOTS:
        path = directory / plot.file
        path.write_text(draw(plot.title, plot.subtitle, plot.unit, plot.bars(page)))
        written.append(path)
    return written


if __name__ == "__main__":
    for path in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "images"):
        print(path)
