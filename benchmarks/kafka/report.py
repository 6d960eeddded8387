"""What a run says: a table for the terminal, and everything as JSON."""

from __future__ import annotations

import os
import platform
import statistics
import time
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from benchmarks.kafka.broker import kafka_version
from benchmarks.kafka.row import KAFKA, Outcome, Row


def summary(row: Row, turns: dict[str, list[Outcome]]) -> dict[str, Any]:
    """A row's medians, its ratio and how the ratios of single turns spread."""
    medians = {name: statistics.median(t.value for t in found) for name, found in turns.items()}
    ours = row.variants[0].name
    others = [one.name for one in row.variants if one.system == KAFKA]
    choose = min if row.lower_is_better else max
    best = choose(others, key=medians.__getitem__)
    ratios = sorted(
        row.ratio(mine.value, theirs.value)
        for mine, theirs in zip(turns[ours], turns[best], strict=True)
    )
    return {
        "row": row.name,
        "unit": row.unit,
        "goal": row.goal,
        "medians": medians,
        "best other": best,
        "ratio": round(row.ratio(medians[ours], medians[best]), 2),
        "ratios": [round(one, 2) for one in ratios],
        "turns": {name: [asdict(one) for one in found] for name, found in turns.items()},
    }


def table(summaries: list[dict[str, Any]]) -> str:
    """For people: a line a row."""
    head = f"{'row':24} {'mainstem':>12} {'Kafka':>12} {'unit':10} {'ratio':>6} {'goal':>5}  "
    lines = [f"{head}{'spread':12} best of Kafka"]
    for one in summaries:
        ours = next(iter(one["medians"].values()))
        theirs = one["medians"][one["best other"]]
        spread = f"{one['ratios'][0]:.2f}-{one['ratios'][-1]:.2f}"
        goal = "" if one["goal"] is None else f"{one['goal']:g}"
        lines.append(
            f"{one['row']:24} {ours:12,.6g} {theirs:12,.6g} {one['unit']:10} {one['ratio']:6.2f} "
            f"{goal:>5}  {spread:12} {one['best other']}"
        )
    return "\n".join(lines)


def facts() -> dict[str, Any]:
    """Versions, machine and time of a run."""
    return {
        "mainstem": version("mainstem"),
        "kafka": kafka_version(),
        "confluent-kafka": version("confluent-kafka"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
