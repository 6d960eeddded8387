"""Draws the plots of docs/performance.md, as SVG, from the figures in its tables.

A test fails when they are not current.

Usage: python docs/plots.py [OUTPUT_DIRECTORY]   (default: docs/images)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

HERE: Final = Path(__file__).resolve().parent

_WIDTH: Final = 760
_LEFT: Final = 250
_RIGHT: Final = 190
_BAR: Final = 22
_ROW: Final = 34
_TOP: Final = 58
_STYLE: Final = (
    ".page{fill:#fff}.title{font-size:16px;font-weight:600;fill:#14202c}.say{font-size:12.5px;"
    "fill:#45525f}.name{font-size:13px;fill:#14202c;text-anchor:end}.bar{fill:#35506e}"
    ".range{fill:#8fb0d1}.figure{font-size:13px;fill:#14202c}.axis{stroke:#b9c4d0}"
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One measurement: what was measured, and the lowest and highest figure that was seen."""

    name: str
    low: float
    high: float


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


def draw(plot: Plot, bars: Sequence[Bar]) -> str:
    """The plot as SVG. A bar is as long as the lowest figure; the highest is a lighter end."""
    height = _TOP + _ROW * len(bars) + 14
    most = max(bar.high for bar in bars)
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    font = "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="t" {font}>',
        f'<title id="t">{escape(plot.title)}: {escape(plot.subtitle)}</title>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="16" y="26">{escape(plot.title)}</text>',
        f'<text class="say" x="16" y="46">{escape(plot.subtitle)}</text>',
    ]
    for index, bar in enumerate(bars):
        y = _TOP + _ROW * index
        low, high = bar.low * scale, bar.high * scale
        end = _LEFT + high + 8
        text = f"{bar.low:g}" if bar.low == bar.high else f"{bar.low:g} to {bar.high:g}"
        lines += [
            f'<text class="name" x="{_LEFT - 10}" y="{y + 20}">{escape(bar.name)}</text>',
            f'<rect class="range" x="{_LEFT}" y="{y + 5}" width="{high:.1f}" height="{_BAR}"/>',
            f'<rect class="bar" x="{_LEFT}" y="{y + 5}" width="{low:.1f}" height="{_BAR}"/>',
            f'<text class="figure" x="{end:.1f}" y="{y + 20}">{text} {plot.unit}</text>',
        ]
    bottom = height - 10
    lines.append(f'<line class="axis" x1="{_LEFT}" y1="{_TOP}" x2="{_LEFT}" y2="{bottom}"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def generate(directory: Path) -> list[Path]:
    """Writes every plot into `directory`."""
    page = (HERE / "performance.md").read_text()
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for plot in PLOTS:
        path = directory / plot.file
        path.write_text(draw(plot, plot.bars(page)))
        written.append(path)
    return written


if __name__ == "__main__":
    for path in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "images"):
        print(path)
