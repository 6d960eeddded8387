"""The source tree keeps the shape that the implicit namespace and the wheel depend on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOTS = ("platform", "ingest_gateway", "delta_log", "consumers", "jobs")


@pytest.fixture(scope="module")
def pyproject(repo_root: Path) -> dict[str, Any]:
    return tomllib.loads((repo_root / "pyproject.toml").read_text())


def packages(repo_root: Path) -> list[Path]:
    """The folders of all packages: each `mainstem/<name>` of each root, and `pyspark_mainstem`."""
    found = [
        folder
        for root in ROOTS
        for folder in sorted((repo_root / root / "mainstem").iterdir())
        if folder.is_dir() and folder.name != "__pycache__"
    ]
    return [*found, repo_root / "consumers" / "pyspark_mainstem"]


def test_no_top_level_folder_is_a_package(repo_root: Path) -> None:
    found = [f.parent.name for f in repo_root.glob("*/__init__.py")]
    assert found == [], "a package named like a root shadows other modules: platform, for one"


def test_no_mainstem_folder_is_a_package_since_the_namespace_spans_five_roots(
    repo_root: Path,
) -> None:
    assert [
        str(f) for root in ROOTS for f in (repo_root / root).rglob("mainstem/__init__.py")
    ] == []


def test_a_mainstem_folder_holds_packages_only(repo_root: Path) -> None:
    loose = [
        str(f.relative_to(repo_root))
        for root in ROOTS
        for f in (repo_root / root / "mainstem").iterdir()
        if not f.is_dir()
    ]
    assert loose == []


def test_every_package_has_an_init_file_and_a_type_marker(repo_root: Path) -> None:
    missing = [
        str((folder / name).relative_to(repo_root))
        for folder in packages(repo_root)
        for name in ("__init__.py", "py.typed")
        if not (folder / name).is_file()
    ]
    assert missing == []


def test_a_package_name_is_used_by_one_root_only(repo_root: Path) -> None:
    names = [folder.name for folder in packages(repo_root)]
    assert sorted(names) == sorted(set(names))


def test_every_tool_is_told_the_same_five_roots(pyproject: dict[str, Any]) -> None:
    tool = pyproject["tool"]
    assert tuple(tool["hatch"]["build"]["dev-mode-dirs"]) == ROOTS
    assert tuple(tool["hatch"]["build"]["targets"]["wheel"]["sources"]) == ROOTS
    assert tuple(tool["pytest"]["ini_options"]["pythonpath"]) == ROOTS
    assert tuple(tool["ruff"]["src"]) == ROOTS
    assert tool["mypy"]["mypy_path"] == ":".join(ROOTS)
    assert set(ROOTS) < set(tool["mypy"]["files"])
    assert set(ROOTS) < set(tool["pyright"]["include"])


def test_every_package_has_a_place_in_the_import_layers(
    repo_root: Path, pyproject: dict[str, Any]
) -> None:
    layers = next(
        contract["layers"]
        for contract in pyproject["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )
    placed = {
        name.strip().removeprefix("mainstem.")
        for layer in layers
        for name in layer.replace("|", ":").split(":")
    }
    assert placed == {folder.name for folder in packages(repo_root)}


@pytest.mark.parametrize(
    "package",
    ["delta_log", "ingest_gateway"],
)
def test_a_room_is_entered_by_its_door_only(repo_root: Path, package: str) -> None:
    folder = repo_root / package / "mainstem" / package
    rooms = {f.parent.name for f in folder.glob("*/__init__.py")}
    through_the_wall = [
        f"{file.relative_to(repo_root)}: {module}"
        for root in ROOTS
        for file in (repo_root / root).rglob("*.py")
        for module in re.findall(
            rf"^\s*from mainstem\.{package}\.(\w+\.\w+) import", file.read_text(), re.MULTILINE
        )
        if module.split(".")[0] in rooms and folder / module.split(".")[0] not in file.parents
    ]
    assert through_the_wall == [], "import what the room's __init__ offers"


def test_the_standard_library_keeps_its_platform_module_in_the_root_of_the_checkout(
    repo_root: Path,
) -> None:
    code = "import platform, uuid; print(platform.python_implementation(), platform.__file__)"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=repo_root, capture_output=True, text=True, check=True
    )
    implementation, file = answer.stdout.split(maxsplit=1)
    assert implementation == sys.implementation.name.replace("cpython", "CPython")
    assert not Path(file.strip()).is_relative_to(repo_root / "platform")


@pytest.mark.spark
def test_a_spark_worker_in_the_root_of_the_checkout_sees_the_platform_of_the_standard_library(
    spark: SparkSession, repo_root: Path
) -> None:
    def look(_: int) -> tuple[str, str, str]:
        import platform

        return os.getcwd(), str(platform.__file__), platform.python_implementation()

    rows = spark.sparkContext.parallelize([0], 1).map(look).collect()
    directory, file, implementation = rows[0]
    assert Path(directory) == repo_root, "the worker has to run where the trap is"
    assert not Path(file).is_relative_to(repo_root / "platform")
    assert implementation != ""


@pytest.mark.parametrize("module", ["mainstem.cli", "mainstem.ingest_gateway"])
def test_a_process_that_is_not_a_job_starts_without_loading_spark(
    module: str, repo_root: Path, tmp_path: Path
) -> None:
    roots = [str(repo_root / root) for root in ROOTS]
    code = (
        f"import sys; sys.path[:0] = {roots!r}; import {module}; sys.exit('pyspark' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
