"""The architecture page says what is there: every module, and every step of its walks."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

#: A step of a walk: a number, a file, and the function or method in it.
STEP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", re.MULTILINE)


def _defined(tree: ast.Module) -> set[str]:
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
            found |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


def test_the_file_map_names_every_module_with_what_it_says_of_itself(repo_root: Path) -> None:
    check = [sys.executable, "docs/internals/generate.py", "--check"]
    answer = subprocess.run(check, cwd=repo_root, capture_output=True, text=True)
    assert answer.returncode == 0, "run: python docs/internals/generate.py"


def test_every_step_of_a_walk_is_a_function_that_is_there(repo_root: Path) -> None:
    page = (repo_root / "docs/internals/architecture.md").read_text()
    steps = STEP.findall(page)
    assert len(steps) >= 20
    missing = [
        f"{file} {name}"
        for file, name in steps
        if not (repo_root / file).is_file()
        or name not in _defined(ast.parse((repo_root / file).read_text()))
    ]
    assert missing == []
