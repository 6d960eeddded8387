"""Bars as SVG: what the plots of the documentation are drawn with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

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
#: Of plots that have them only.
_MARK_STYLE: Final = ".goal{stroke:#c0392b;stroke-width:2.5}.line{stroke:#e0a030;stroke-width:2}"


@dataclass(frozen=True, slots=True)
class Bar:
    """One measurement: what was measured, and the lowest and highest figure that was seen.

    Attributes:
        goal: Is marked.
        text: In place of the two figures with the unit.
    """

    name: str
    low: float
    high: float
    goal: float | None = None
    text: str | None = None


def draw(
    title: str, subtitle: str, unit: str, bars: Sequence[Bar], line_at: float | None = None
) -> str:
    """The plot as SVG. A bar is as long as the lowest figure; the highest is a lighter end.

    Args:
        line_at: A figure at which a line goes through all bars.
    """
    height = _TOP + _ROW * len(bars) + 14
    most = max(max(bar.high, bar.goal or 0) for bar in bars)
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    marked = line_at is not None or any(bar.goal is not None for bar in bars)
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    font = "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="t" {font}>',
        f'<title id="t">{escape(title)}: {escape(subtitle)}</title>',
        f"<style>{_STYLE}{_MARK_STYLE if marked else ''}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="16" y="26">{escape(title)}</text>',
        f'<text class="say" x="16" y="46">{escape(subtitle)}</text>',
    ]
    for index, bar in enumerate(bars):
        y = _TOP + _ROW * index
        low, high = bar.low * scale, bar.high * scale
        end = _LEFT + max(high, (bar.goal or 0) * scale, (line_at or 0) * scale) + 8
        figures = f"{bar.low:g}" if bar.low == bar.high else f"{bar.low:g} to {bar.high:g}"
        text = f"{figures} {unit}" if bar.text is None else escape(bar.text)
        lines += [
            f'<text class="name" x="{_LEFT - 10}" y="{y + 20}">{escape(bar.name)}</text>',
            f'<rect class="range" x="{_LEFT}" y="{y + 5}" width="{high:.1f}" height="{_BAR}"/>',
            f'<rect class="bar" x="{_LEFT}" y="{y + 5}" width="{low:.1f}" height="{_BAR}"/>',
            f'<text class="figure" x="{end:.1f}" y="{y + 20}">{text}</text>',
        ]
        if bar.goal is not None:
            lines.append(_vertical("goal", _LEFT + bar.goal * scale, y + 2, y + _BAR + 8))
    bottom = height - 10
    if line_at is not None:
        lines.append(_vertical("line", _LEFT + line_at * scale, _TOP, bottom))
    lines.append(f'<line class="axis" x1="{_LEFT}" y1="{_TOP}" x2="{_LEFT}" y2="{bottom}"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _vertical(kind: str, x: float, top: float, bottom: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
