"""Writes the File Map of `architecture.md`: every module, with the first sentence of its docstring.

Usage: python docs/internals/generate.py [--check]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("architecture.md")
ROOTS = ("platform", "ingest_gateway", "delta_log", "consumers", "jobs")
BEGIN, END = "<!-- file map: generated -->", "<!-- end of the file map -->"


def modules() -> Iterator[Path]:
    """Every module that somebody wrote, by folder."""
    for root in ROOTS:
        for path in sorted((ROOT / root).rglob("*.py"), key=lambda path: (path.parent, path)):
            if "_pb2" not in path.name and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT)


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring; empty where it has none."""
    text = " ".join((ast.get_docstring(ast.parse((ROOT / path).read_text())) or "").split())
    end = next((at for at in range(len(text)) if text.startswith(". ", at)), len(text))
    return text[:end].rstrip(".")


def file_map() -> str:
    """The tables, a folder each."""
    lines: list[str] = []
    folder = Path()
    for path in modules():
        said = first_sentence(path)
        if path.name == "__init__.py" and not said:
            continue
        if path.parent != folder:
            folder = path.parent
            lines += ["", f"**`{folder}/`**", "", "| file | what it is |", "|---|---|"]
        lines.append(f"| `{path.name}` | {said} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """`architecture.md` with today's File Map."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{file_map()}\n{END}{after}"


if __name__ == "__main__":
    new = page()
    if "--check" in sys.argv[1:]:
        sys.exit(new != PAGE.read_text())
    PAGE.write_text(new)
