"""The pictures of the documentation are there, can be read, and show today's figures."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest


@pytest.fixture(scope="module")
def plots(repo_root: Path) -> Any:
    spec = importlib.util.spec_from_file_location("docs_plots", repo_root / "docs/plots.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["docs_plots"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_plots_show_the_figures_of_the_page(
    plots: Any, repo_root: Path, tmp_path: Path
) -> None:
    for written in plots.generate(tmp_path):
        committed = repo_root / "docs/images" / written.name
        assert committed.read_text() == written.read_text(), "run: python docs/plots.py"


@pytest.mark.parametrize(
    ("cell", "figures"),
    [
        ("1.03, 1.06, 1.13 million", (1.03, 1.13)),
        ("10,000", (10_000, 10_000)),
        ("135-144", (135, 144)),
    ],
)
def test_a_cell_gives_its_lowest_and_highest_figure(
    plots: Any, cell: str, figures: tuple[float, float]
) -> None:
    assert plots.figures(cell) == figures


def test_every_picture_that_a_page_shows_is_there_and_every_drawing_is_xml(repo_root: Path) -> None:
    shown = set()
    for page in [repo_root / "README.md", *(repo_root / "docs").rglob("*.md")]:
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text()):
            picture = (page.parent / target).resolve()
            assert picture.is_file(), f"{page}: {target}"
            assert words, f"{page}: {target} has no words for those who do not see it"
            shown.add(picture)
    for picture in (repo_root / "docs/images").iterdir():
        assert picture in shown, f"no page shows {picture.name}"
        if picture.suffix == ".svg":
            assert ElementTree.parse(picture).getroot().tag.endswith("svg")
