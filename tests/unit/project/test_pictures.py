"""The pictures of the documentation are there, can be read, and show today's figures."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks import plots
from benchmarks.kafka import plots as kafka_plots
from benchmarks.kafka.report import read


def test_the_plots_show_the_figures_of_the_page(repo_root: Path, tmp_path: Path) -> None:
    for written in plots.generate(tmp_path):
        committed = repo_root / "docs/images" / written.name
        assert committed.read_text() == written.read_text(), "run: python -m benchmarks.plots"


def test_the_comparison_with_kafka_is_the_last_run(repo_root: Path) -> None:
    rows = read(repo_root / "benchmarks/results/kafka.json")
    page = (repo_root / "docs/performance.md").read_text()
    assert kafka_plots.page(page, rows) == page, "run: python -m benchmarks.kafka.plots"
    for name, drawing in kafka_plots.pictures(rows).items():
        committed = repo_root / "docs/performance" / name
        assert committed.read_text() == drawing, "run: python -m benchmarks.kafka.plots"


@pytest.mark.parametrize(
    ("cell", "figures"),
    [
        ("1.03, 1.06, 1.13 million", (1.03, 1.13)),
        ("10,000", (10_000, 10_000)),
        ("135-144", (135, 144)),
    ],
)
def test_a_cell_gives_its_lowest_and_highest_figure(
    cell: str, figures: tuple[float, float]
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
    folders = [repo_root / "docs/images", repo_root / "docs/performance"]
    for picture in [one for folder in folders for one in folder.iterdir()]:
        assert picture in shown, f"no page shows {picture.name}"
        if picture.suffix == ".svg":
            assert ElementTree.parse(picture).getroot().tag.endswith("svg")
