"""What we ship is whole, and the client in it needs nothing but the base dependencies."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """Run a command without the environment that could lead it back to the checkout.

    Args:
        more: Variables of the environment.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | more
    answer = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, f"{command}\n{answer.stdout}\n{answer.stderr}"
    return answer.stdout


def distributions(wheel: Path, extra: str = "") -> dict[str, Distribution]:
    """What `pip install mainstem[extra]` brings, without mainstem itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    found: dict[str, Distribution] = {}
    waiting: list[tuple[str, frozenset[str]]] = [
        (line, frozenset({extra})) for line in metadata.get_all("Requires-Dist", [])
    ]
    while waiting:
        line, extras = waiting.pop()
        needed = Requirement(line)
        if needed.marker and not any(needed.marker.evaluate({"extra": one}) for one in extras):
            continue
        wanted = frozenset(needed.extras or {""})
        if needed.name == "mainstem":
            lines = metadata.get_all("Requires-Dist", [])
            waiting += [(line, wanted) for line in lines if "extra ==" in line]
            continue
        key = canonicalize_name(needed.name)
        if key in found:
            continue
        found[key] = importlib.metadata.distribution(key)
        waiting += [(line, wanted) for line in found[key].requires or ()]
    return found


@pytest.fixture(scope="module")
def wheel(repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out))
    run(*command, ".", cwd=repo_root)
    (built,) = out.glob("*.whl")
    return built


def make_environment(wheel: Path, home: Path, extra: str = "") -> Path:
    """The interpreter of a new environment that holds the wheel and its dependencies only.

    The dependencies are links to the files of this environment, one distribution at a time: as good
    as installed, without the network, and nothing of the editable install comes along.
    """
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    site = Path(run(python, "-c", code, cwd=home).strip())
    for distribution in distributions(wheel, extra).values():
        tops = {Path(str(f)).parts[0] for f in distribution.files or ()} - {"..", "__pycache__"}
        for top in tops:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python))
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", "--no-compile", wheel, cwd=home)
    return python


@pytest.fixture(scope="module")
def empty_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the base dependencies."""
    return make_environment(wheel, tmp_path_factory.mktemp("environment"))


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
    tree |= {f"mainstem/conf/{file.name}" for file in (repo_root / "conf").iterdir()}
    protos = repo_root / "ingest_gateway" / "proto"
    tree |= {f"mainstem/proto/{file.relative_to(protos)}" for file in protos.rglob("*.proto")}
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert shipped == tree


def test_a_wheel_is_built_without_a_compiler_and_has_all_but_what_is_compiled(
    wheel: Path, repo_root: Path, tmp_path: Path
) -> None:
    command = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path)
    run(*command, ".", cwd=repo_root, CC="/bin/false", CXX="/bin/false")
    (built,) = tmp_path.glob("*.whl")
    assert built.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(built) as plain:
        left_out = set(archive.namelist()) - set(plain.namelist())
    assert all(Path(name).name.startswith("_compiled.") for name in left_out)


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
    wheel: Path, repo_root: Path, tmp_path: Path
) -> None:
    base = {d.metadata["Name"] for d in distributions(wheel).values()} | {"mainstem"}
    blocked = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not base & set(owners)
    }
    assert {"deltalake", "pyspark", "click", "rich", "structlog"} <= blocked
    code = IMPORT_CLIENT.format(roots=[str(repo_root / root) for root in ROOTS], blocked=blocked)
    run(sys.executable, "-c", code, cwd=tmp_path)


#: For each extra: modules that it alone makes work, and a command that needs another one.
EXTRAS = {
    "gateway": (
        "mainstem.ingest_gateway.server mainstem.cli.topic.commands mainstem.cli.gateway.commands",
        ("sql", "SELECT 1"),
        "pip install 'mainstem[spark]'",
    ),
    "spark": (
        "mainstem.jobs mainstem.jobs.scheduler_process pyspark_mainstem mainstem.cli.job.commands",
        ("gateway", "run"),
        "pip install 'mainstem[gateway]'",
    ),
    "demo": ("mainstem.jobs mainstem.cli.demo.commands mainstem.ingest_gateway.server", (), ""),
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_works_alone_and_a_command_names_the_one_that_it_lacks(
    extra: str, wheel: Path, tmp_path: Path
) -> None:
    modules, command, sentence = EXTRAS[extra]
    python = make_environment(wheel, tmp_path, extra)
    run(python, "-c", f"import {', '.join(modules.split())}", cwd=tmp_path)
    assert "mainstem" in run(python, "-m", "mainstem.cli", "--help", cwd=tmp_path)
    (tmp_path / "warehouse").mkdir()
    if command:
        answer = subprocess.run(
            [python, "-m", "mainstem.cli", *command],
            cwd=tmp_path,
            env={k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MAINSTEM"))},
            capture_output=True,
            text=True,
        )
        assert answer.returncode == 1
        assert answer.stdout == ""
        assert answer.stderr.startswith("error: this needs the package ")
        assert answer.stderr.count("\n") == 1
        assert sentence in answer.stderr


def test_without_any_extra_a_command_and_an_import_say_which_one_is_missing(
    empty_environment: Path, tmp_path: Path
) -> None:
    code = """
try:
    import mainstem.jobs
except ModuleNotFoundError as error:
    print(error)
from mainstem.cli import main
main()
"""
    answer = subprocess.run(
        [empty_environment, "-c", code],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
        capture_output=True,
        text=True,
    )
    assert "mainstem.jobs: this needs the package" in answer.stdout
    assert answer.stderr.startswith("error: this needs the package click")
    assert answer.returncode == 1
