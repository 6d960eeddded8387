"""This checkout beside another revision of it: did a change make it faster or slower?

Makes a worktree of the revision in a temporary directory, starts a gateway of each, and measures
the rows of benchmarks/kafka with each one's client and gateway in turns, A B A B. What measures is
this checkout's worker, and the libraries are those of this environment, for both. A row that a
revision cannot do is named, and left out.

Usage: python -m benchmarks.compare REV [--pairs 5] [--rows produce,latency] [--scale 1.0]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from benchmarks.kafka import client_rows
from benchmarks.kafka.arguments import add_arguments, chosen, end_when_told
from benchmarks.kafka.row import MAINSTEM, Row
from benchmarks.kafka.systems import PARTITIONS, Systems

from mainstem.testing import GatewayProcess

_CHECKOUT: Final = Path(__file__).resolve().parents[1]
_ROOTS: Final = ("platform", "ingest_gateway", "delta_log", "consumers", "jobs")
_TIMEOUT_S: Final = 120.0

#: Rows of benchmarks/kafka that older revisions can do, too.
_NAMES: Final = (
    "produce",
    "produce with callbacks",
    "produce by batch",
    "produce 1 KB",
    "consume history",
    "consume history by batch",
    "latency, 200/s",
)
_BY_NAME: Final = {row.name: row for row in client_rows.ROWS}
ROWS: Final = tuple(_BY_NAME[name] for name in _NAMES)

_WHERE: Final = """
import mainstem.client, mainstem.cli
print(mainstem.client.__file__, mainstem.cli.__file__, sep="\\n")
"""

#: What a revision compiles, it compiles beside its sources, as for an editable installation.
_BUILD: Final = """
import os, sys
from hatchling.build import build_editable
os.chdir(sys.argv[1])
build_editable(sys.argv[2])
"""

_CREATE: Final = """
import sys
from mainstem.client import AdminClient
address, name, partitions = sys.argv[1:]
with AdminClient({"bootstrap.servers": address}) as admin:
    admin.create_topic(name, int(partitions))
"""


class Revision(Systems):
    """A checkout, with a gateway of its own code; clients are of its code, too.

    Args:
        name: As the table says it.
        tree: The checkout.
        directory: Where the gateway's warehouse is made.

    Raises:
        RuntimeError: Its code cannot be imported.
    """

    def __init__(self, name: str, tree: Path, directory: Path) -> None:
        super().__init__(directory)
        self.name = name
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(tree / root) for root in _ROOTS),
        }
        with tempfile.TemporaryDirectory() as wheel:
            self._python(_BUILD, str(tree), wheel)
        for file in self._python(_WHERE).splitlines():
            if not Path(file).is_relative_to(tree):
                raise RuntimeError(f"{name}: {file} is none of its files")

    @property
    def gateway(self) -> GatewayProcess:
        """Of the revision's code."""
        assert self.environment is not None
        with _environment(self.environment):
            return super().gateway

    def new_topic(
        self, system: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None
    ) -> str:
        """As of any system, by the revision's own client."""
        assert system == MAINSTEM
        assert not config
        self._names += 1
        name = f"bench-{self._names}"
        self._python(_CREATE, self.address(MAINSTEM), name, str(partitions))
        return name

    def _python(self, code: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=self.environment,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {_last_line(done.stderr)}")
        return done.stdout


@contextlib.contextmanager
def worktree(revision: str) -> Iterator[Path]:
    """A checkout of a revision while the block lasts.

    Raises:
        RuntimeError: There is no such revision.
    """
    with tempfile.TemporaryDirectory(prefix="mainstem-compare-") as folder:
        tree = Path(folder).resolve() / "tree"
        _git("worktree", "add", "--detach", str(tree), revision)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def measure(revisions: tuple[Revision, Revision], row: Row, pairs: int, scale: float) -> str:
    """Measures a row in turns; returns its line of the table."""
    turns: dict[str, list[float]] = {one.name: [] for one in revisions}
    for number in range(pairs):
        for one in revisions:
            try:
                outcome = row.measure(one, row.variants[0], scale)
            except RuntimeError as error:
                return f"{row.name:24} {one.name} cannot do it: {_last_line(str(error))}"
            turns[one.name].append(outcome.value)
        values = ", ".join(f"{name} {found[-1]:,g}" for name, found in turns.items())
        print(f"{row.name} {number + 1}/{pairs}: {values}", file=sys.stderr, flush=True)
    before, after = turns.values()
    return line(row, before, after)


def line(row: Row, before: list[float], after: list[float]) -> str:
    """The medians, how many times better the second is, and how that spreads over the pairs."""
    medians = statistics.median(before), statistics.median(after)
    pairs = [(medians[0], medians[1]), *zip(before, after, strict=True)]
    ratio, *ratios = (row.ratio(new, old) or float("nan") for old, new in pairs)
    return (
        f"{row.name:24} {medians[0]:12,.6g} {medians[1]:12,.6g} {row.unit:10} "
        f"{ratio:6.2f}  {min(ratios):.2f}-{max(ratios):.2f}"
    )


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        cwd=_CHECKOUT,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"git {arguments[0]}: {_last_line(done.stderr)}")
    return done.stdout.strip()


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"


@contextlib.contextmanager
def _environment(environment: Mapping[str, str]) -> Iterator[None]:
    """For processes that take this one's."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    """Compares what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("revision", help="a commit, branch or tag")
    add_arguments(parser)
    options = parser.parse_args()
    rows = chosen(parser, ROWS, options.rows)
    try:
        name = _git("rev-parse", "--verify", "--short", f"{options.revision}^{{commit}}")
    except RuntimeError:
        parser.error(f"{options.revision} is not a commit, branch or tag of this checkout")
    end_when_told()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mainstem-bench-")))
        tree = stack.enter_context(worktree(options.revision))
        revisions = (
            stack.enter_context(Revision(name, tree, folder / "before")),
            stack.enter_context(Revision("this", _CHECKOUT, folder / "after")),
        )
        print(f"{'row':24} {name:>12} {'this':>12} {'unit':10}  ratio  spread", flush=True)
        for row in rows:
            print(measure(revisions, row, options.pairs, options.scale), flush=True)


if __name__ == "__main__":
    main()
