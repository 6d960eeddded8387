"""mainstem beside Kafka: both on this machine, in turns, with the same data; NATS where it fits.

Measures each row in processes of their own, each warmed up, A B A B, and prints medians, ratios,
their spread, and what each variant takes of the processor and of memory. `--json` keeps all of it:
the file is written after each row, and keeps the rows that this run does not measure.

A row that fails is named with the end of its error; the others are measured, and the run exits
with 1. So is a row whose result cannot be written: it is printed all the same.

Usage: python -m benchmarks.kafka.run [--pairs 5] [--rows produce,consume] [--json FILE]
Needs Java 17 and, the first time, Maven.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.kafka import (
    client_rows,
    disk_rows,
    group_rows,
    idle_rows,
    spark_rows,
    transaction_rows,
)
from benchmarks.kafka.arguments import add_arguments, chosen, end_when_told
from benchmarks.kafka.report import check, costs_table, facts, keep, ratios_table, summary
from benchmarks.kafka.row import Outcome, Row
from benchmarks.kafka.systems import Systems

#: In the order of the table.
ROWS: Final[tuple[Row, ...]] = (
    *client_rows.ROWS,
    *transaction_rows.ROWS,
    *group_rows.ROWS,
    *idle_rows.ROWS,
    *disk_rows.ROWS,
    *spark_rows.ROWS,
)

#: Of an error, as much as says what happened.
_ERROR_LINES: Final = 3


def compare(systems: Systems, row: Row, pairs: int, scale: float) -> dict[str, list[Outcome]]:
    """Measures a row in turns."""
    turns: dict[str, list[Outcome]] = {one.name: [] for one in row.variants}
    for number in range(pairs):
        for variant in row.variants:
            turns[variant.name].append(row.measure(systems, variant, scale))
        values = ", ".join(f"{name} {found[-1].value:,g}" for name, found in turns.items())
        print(f"{row.name} {number + 1}/{pairs}: {values}", file=sys.stderr, flush=True)
    return turns


def run(systems: Systems, rows: list[Row], options: argparse.Namespace) -> bool:
    """Measures the rows, keeps and prints them; whether none failed."""
    summaries: list[dict[str, Any]] = []
    failed: list[str] = []
    for row in rows:
        try:
            turns = compare(systems, row, options.pairs, options.scale)
        except Exception as error:  # whatever it is, the other rows can be measured
            failed.append(f"{row.name} failed: {_end_of(error)}")
            print(failed[-1], file=sys.stderr, flush=True)
            continue
        one = {**summary(row, turns), "facts": facts(options.pairs, options.scale)}
        summaries.append(one)
        if options.json:
            try:
                keep(options.json, one, [known.name for known in ROWS])
            except (OSError, ValueError) as error:
                failed.append(f"{row.name} is not in {options.json}: {_end_of(error)}")
                print(failed[-1], file=sys.stderr, flush=True)
    if summaries:
        print(ratios_table(summaries), costs_table(summaries), sep="\n\n")
    for line in failed:
        print(f"\n{line}")
    return not failed


def _end_of(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' | '.join(lines[-_ERROR_LINES:])}"


def main() -> int:
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_arguments(parser)
    parser.add_argument("--json", type=Path, help="a file that keeps the results")
    options = parser.parse_args()
    rows = chosen(parser, ROWS, options.rows)
    if options.json:
        try:
            check(options.json)
        except ValueError as error:
            parser.error(str(error))
        except OSError as error:
            parser.error(f"{options.json} cannot be written: {error}")
    end_when_told(also_by_ctrl_c=False)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="mainstem-bench-") as folder,
            Systems(Path(folder)) as systems,
        ):
            return 0 if run(systems, rows, options) else 1
    except KeyboardInterrupt:
        kept = f"; rows that were measured are in {options.json}" if options.json else ""
        print(f"interrupted{kept}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
