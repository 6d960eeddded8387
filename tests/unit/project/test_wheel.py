"""What we ship is whole, and the client in it needs nothing but the base dependencies."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]

ROOTS = ("platform", "ingest_gateway", "delta_log", "consumers", "jobs")

# Imports the client of this checkout while each module that the base does not need is refused, as
# if it were not installed.
IMPORT_CLIENT = """
import sys
sys.path[:0] = {roots!r}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"refused: {{name}}", name=name)
sys.meta_path.insert(0, Refuse())
import mainstem.client
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command without the environment that could lead it back to the checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    answer = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, f"{command}\n{answer.stdout}\n{answer.stderr}"
    return answer.stdout


def base_distributions() -> dict[str, Distribution]:
    """The distributions that `pip install mainstem` brings, without mainstem itself."""
    found: dict[str, Distribution] = {}
    waiting = ["mainstem"]
    while waiting:
        name = waiting.pop()
        distribution = importlib.metadata.distribution(name)
        for requirement in distribution.requires or ():
            needed, _, marker = requirement.partition(";")
            # Base dependencies have no extra; other markers name systems and versions.
            match = re.match(r"[A-Za-z0-9._-]+", needed.strip())
            assert match is not None, requirement
            key = re.sub(r"[-_.]+", "-", match[0]).lower()
            if "extra" in marker or key in found:
                continue
            try:
                found[key] = importlib.metadata.distribution(key)
            except importlib.metadata.PackageNotFoundError:
                assert marker, f"{key} is not installed"
                continue
            waiting.append(key)
    return found


@pytest.fixture(scope="module")
def wheel(repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out))
    run(*command, ".", cwd=repo_root)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def empty_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment that holds the wheel and its base dependencies only.

    The dependencies are links to the files of this environment, one distribution at a time: as good
    as installed, without the network, and nothing of the editable install comes along.
    """
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    site = Path(run(python, "-c", code, cwd=home).strip())
    for distribution in base_distributions().values():
        tops = {Path(str(f)).parts[0] for f in distribution.files or ()} - {"..", "__pycache__"}
        for top in tops:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python))
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=home)
    return python


def test_the_wheel_holds_every_file_of_the_tree_and_nothing_else(
    wheel: Path, repo_root: Path
) -> None:
    tree = {
        str(file.relative_to(repo_root / root))
        for root in ROOTS
        for package in ("mainstem", "pyspark_mainstem")
        for file in (repo_root / root / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert shipped == tree


def test_the_wheel_carries_its_licence_and_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (n for n in names if n.endswith(".dist-info/entry_points.txt"))
        assert "mainstem = mainstem.cli:main" in archive.read(entry_points).decode()
    assert any(n.endswith(".dist-info/licenses/LICENSE") for n in names)


def test_the_wheel_works_in_an_empty_environment(empty_environment: Path, tmp_path: Path) -> None:
    code = "import mainstem.client as c; print(c.__file__); print(*c.__all__)"
    file, names = run(empty_environment, "-c", code, cwd=tmp_path).splitlines()
    assert Path(file).is_relative_to(empty_environment.parents[1])
    assert "Producer" in names.split()


def test_the_empty_environment_has_all_that_the_wheel_requires(
    empty_environment: Path, tmp_path: Path
) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "--python", str(empty_environment), "check", cwd=tmp_path)


def test_the_empty_environment_has_none_of_the_extras(
    empty_environment: Path, tmp_path: Path
) -> None:
    extras = ("deltalake", "pyspark", "click", "rich", "structlog", "uvloop")
    code = f"from importlib.util import find_spec; print([m for m in {extras!r} if find_spec(m)])"
    assert run(empty_environment, "-c", code, cwd=tmp_path).strip() == "[]"


def test_the_client_is_imported_while_everything_outside_the_base_dependencies_is_refused(
    repo_root: Path, tmp_path: Path
) -> None:
    base = {d.metadata["Name"] for d in base_distributions().values()} | {"mainstem"}
    blocked = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not base & set(owners)
    }
    assert {"deltalake", "pyspark", "click", "rich", "structlog"} <= blocked
    code = IMPORT_CLIENT.format(roots=[str(repo_root / root) for root in ROOTS], blocked=blocked)
    run(sys.executable, "-c", code, cwd=tmp_path)
