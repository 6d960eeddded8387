"""What is read of a flame graph: the time of functions themselves, without what they call."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.kafka.worker import call_tree
from benchmarks.profile import own_times, top


def box(name: str, y: int, start: int, width: int) -> str:
    return (
        f"<g><title>{name} ({width} samples, 12.34%)</title>"
        f'<rect x="0%" y="{y}" width="1%" height="15" fg:x="{start}" fg:w="{width}"/></g>'
    )


GRAPH = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:fg="http://github.com/jonhoo/inferno">'
    '<g><rect x="1" y="2" width="3" height="4"/></g>'
    + box("all", 50, 0, 100)
    + box("thread (7): MainThread", 66, 0, 60)
    + box("thread (8): pool", 66, 60, 40)
    + box("main (a.py:1)", 82, 0, 60)
    + box("_worker (concurrent/futures/thread.py:69)", 82, 60, 40)
    + box("parse (b.py:2)", 98, 10, 20)
    + box("main (a.py:1)", 98, 30, 20)
    + box("parse (b.py:2)", 98, 60, 10)
    + "</svg>"
)


def test_a_function_has_its_boxes_without_those_below_them() -> None:
    own, total = own_times(GRAPH)
    assert total == 100
    assert +own == {
        "main (a.py:1)": 20 + 20,
        "parse (b.py:2)": 20 + 10,
        "_worker (concurrent/futures/thread.py:69)": 30,
    }


def test_the_text_leaves_out_what_waits_and_names_the_largest_first() -> None:
    assert top(GRAPH, 5).splitlines() == ["   57.1%  main (a.py:1)", "   42.9%  parse (b.py:2)"]
    assert top(GRAPH, 1).splitlines() == ["   57.1%  main (a.py:1)"]


def test_a_graph_without_samples_has_no_lines() -> None:
    assert top('<svg xmlns="http://www.w3.org/2000/svg"/>', 5) == ""


def busy_function_of_a_client() -> None:
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        pass


def test_a_call_tree_names_what_the_thread_called(tmp_path: Path) -> None:
    page = tmp_path / "calls.html"
    with call_tree(str(page)):
        busy_function_of_a_client()
    assert "busy_function_of_a_client" in page.read_text()


def test_nothing_is_sampled_without_a_place_for_it(tmp_path: Path) -> None:
    with call_tree(""):
        busy_function_of_a_client()
    assert list(tmp_path.iterdir()) == []
