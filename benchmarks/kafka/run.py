"""mainstem beside Kafka: both on this machine, in turns, with the same data.

Measures each row in processes of their own, each warmed up, A B A B, and prints medians, ratios and
their spread. `--json` keeps all of it.

Usage: python -m benchmarks.kafka.run [--pairs 5] [--rows produce,consume] [--json FILE]
Needs Java 17 and, the first time, Maven.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.kafka import client_rows, spark_rows
from benchmarks.kafka.report import facts, summary, table
from benchmarks.kafka.row import Outcome, Row
from benchmarks.kafka.systems import Systems

#: In the order of the table.
ROWS: Final[tuple[Row, ...]] = (*client_rows.ROWS, *spark_rows.ROWS)


def compare(systems: Systems, row: Row, pairs: int, scale: float) -> dict[str, list[Outcome]]:
    """Measures a row in turns."""
    turns: dict[str, list[Outcome]] = {one.name: [] for one in row.variants}
    for number in range(pairs):
        for variant in row.variants:
            turns[variant.name].append(row.measure(systems, variant, scale))
        values = ", ".join(f"{name} {found[-1].value:,g}" for name, found in turns.items())
        print(f"{row.name} {number + 1}/{pairs}: {values}", file=sys.stderr, flush=True)
    return turns


def main() -> None:
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rows", default="", help="parts of names, with commas between")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of records")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    wanted = [part for part in options.rows.split(",") if part]
    rows = [row for row in ROWS if not wanted or any(part in row.name for part in wanted)]
    summaries: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="mainstem-bench-") as folder,
        Systems(Path(folder)) as systems,
    ):
        for row in rows:
            turns = compare(systems, row, options.pairs, options.scale)
            summaries.append(summary(row, turns))
    print(table(summaries))
    if options.json:
        kept = {"facts": facts(), "rows": summaries}
        options.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
