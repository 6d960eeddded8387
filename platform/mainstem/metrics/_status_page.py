"""A page for people, without a script: facts and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import Final

from mainstem.metrics._http import HTML, Answer

#: Rows of a table that are shown; a browser chokes on more, and nobody reads them.
ROWS_MAX: Final = 1_000

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --dim: #8889; --ok: #2a7a3b; --bad: #b3261e; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.ok, .bad { border-radius: 1em; color: #fff; font-size: .85rem; padding: .15em .8em; }
.ok { background: var(--ok); } .bad { background: var(--bad); }
dl { display: grid; grid-template-columns: max-content auto; gap: .1rem 1.5rem; margin: 1rem 0; }
dt { opacity: .7; } dd { margin: 0; overflow-wrap: anywhere; }
.table { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .8rem .3rem 0; text-align: left; }
th { font-weight: 600; } td { overflow-wrap: anywhere; }
th.n, td.n { font-variant-numeric: tabular-nums; padding-right: 1.2rem; text-align: right; }
p.none, footer { opacity: .7; } footer { border-top: 1px solid var(--line); margin-top: 2.5rem; }
"""

_FOOT: Final = (
    '<footer><p><a href="metrics">metrics</a> · <a href="healthz">healthz</a> · '
    '<a href="readyz">readyz</a> · reload for newer figures</p></footer></body></html>'
)


@dataclass(frozen=True, slots=True)
class StatusTable:
    """A table of the page; a column is set right when its values are numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    #: Said in place of a table without rows.
    empty: str = "none"


def status_page(
    title: str, reason: str, facts: Sequence[tuple[str, object]], tables: Sequence[StatusTable]
) -> Answer:
    """The page `/`.

    Args:
        reason: Why the process is not ready; empty: it is.
        facts: Names and values, shown on top.
    """
    kind, state = ("bad", reason) if reason else ("ok", "ready")
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
        f'<p><span class="{kind}">{escape(state)}</span></p><dl>',
        *(f"<dt>{escape(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts),
        "</dl>",
        *map(_table, tables),
        _FOOT,
    ]
    return Answer("\n".join(parts).encode(), content_type=HTML)


def readiness_page(reason: str) -> Answer:
    """The answer of `/readyz` and `/healthz`: 200 `ok`, or 503 and why not."""
    if reason:
        return Answer(f"{reason}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)
    return Answer(b"ok\n")


def _table(table: StatusTable) -> str:
    parts = [f"<h2>{escape(table.title)}</h2>"]
    if not table.rows:
        return f'{parts[0]}<p class="none">{escape(table.empty)}</p>'
    shown = table.rows[:ROWS_MAX]
    right = [
        all(isinstance(row[index], (int, float)) for row in shown)
        for index in range(len(table.columns))
    ]
    marks = [' class="n"' if flag else "" for flag in right]
    parts.append('<div class="table"><table><thead><tr>')
    parts += [f"<th{m}>{escape(c)}</th>" for c, m in zip(table.columns, marks, strict=True)]
    parts.append("</tr></thead><tbody>")
    for row in shown:
        cells = "".join(f"<td{m}>{_text(v)}</td>" for v, m in zip(row, marks, strict=True))
        parts.append(f"<tr>{cells}</tr>")
    parts.append("</tbody></table></div>")
    if len(table.rows) > len(shown):
        parts.append(f'<p class="none">and {len(table.rows) - len(shown):,} more: see metrics</p>')
    return "".join(parts)


def _text(value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    return escape(str(value))
