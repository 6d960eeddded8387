"""What a run says: tables for the terminal, and everything as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.kafka.broker import kafka_version
from benchmarks.kafka.nats_server import nats_versions
from benchmarks.kafka.row import KAFKA, MAINSTEM, NATS, Outcome, Row

#: Of a variant of a summary, where the row has them.
COSTS: Final = (
    "client_cpu_s_per_million",
    "server_cpu_s_per_million",
    "client_peak_mb",
    "server_peak_mb",
)

_MB: Final = 1e6


def summary(row: Row, turns: dict[str, list[Outcome]]) -> dict[str, Any]:
    """A row's medians, its ratio and how the ratios of single turns spread.

    The ratio is of our first variant to the best of Kafka's. `below` says that it misses the goal.
    """
    variants = [
        {"name": one.name, "system": one.system, **_figures(turns[one.name])}
        for one in row.variants
    ]
    ours = variants[0]
    choose = min if row.lower_is_better else max
    others = [one for one in variants if one["system"] == KAFKA]
    best = choose(others, key=lambda one: one["median"])
    found = row.ratio(ours["median"], best["median"])
    pairs = zip(turns[ours["name"]], turns[best["name"]], strict=True)
    ratios = [row.ratio(mine.value, theirs.value) for mine, theirs in pairs]
    ratio = None if found is None else round(found, 2)
    return {
        "row": row.name,
        "unit": row.unit,
        "lower_is_better": row.lower_is_better,
        "goal": row.goal,
        "ratio": ratio,
        "ratios": sorted(round(one, 2) for one in ratios if one is not None),
        "below": ratio is not None and row.goal is not None and ratio < row.goal,
        "best of kafka": best["name"],
        "variants": variants,
    }


def _figures(turns: list[Outcome]) -> dict[str, Any]:
    """Of a variant: the medians of all turns; processor seconds are of a million records."""
    values = [one.value for one in turns]
    found: dict[str, Any] = {
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
    }
    if all(one.records for one in turns):
        cpu: dict[str, Callable[[Outcome], float]] = {
            "client": lambda one: one.client_cpu_s,
            "server": lambda one: one.server_cpu_s,
        }
        for who, seconds in cpu.items():
            spent = statistics.median(seconds(one) / one.records for one in turns)
            found[f"{who}_cpu_s_per_million"] = round(spent * 1e6, 2)
    if all(one.server_peak_bytes for one in turns):
        client = statistics.median(one.client_peak_bytes for one in turns)
        server = statistics.median(one.server_peak_bytes for one in turns)
        found["client_peak_mb"], found["server_peak_mb"] = round(client / _MB), round(server / _MB)
    names = turns[0].more
    found["more"] = {name: statistics.median(one.more[name] for one in turns) for name in names}
    found["turns"] = [asdict(one) for one in turns]
    return found


def variant(one: dict[str, Any], system: str) -> dict[str, Any] | None:
    """The variant of a summary that stands for a system in the table of ratios."""
    if system == MAINSTEM:
        return dict(one["variants"][0])
    if system == KAFKA:
        return next(dict(v) for v in one["variants"] if v["name"] == one["best of kafka"])
    choose = min if one["lower_is_better"] else max
    found = [v for v in one["variants"] if v["system"].startswith(system)]
    return dict(choose(found, key=lambda v: v["median"])) if found else None


def number(value: float | None) -> str:
    """For people: three digits, or all before the point; nothing for what was not measured."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(one: dict[str, Any]) -> str:
    """The lowest and the highest ratio of a turn."""
    return f"{one['ratios'][0]:.2f}-{one['ratios'][-1]:.2f}" if one["ratios"] else ""


def ratios_table(summaries: list[dict[str, Any]]) -> str:
    """For people: a line a row. A ratio that misses its goal has `<` before the goal."""
    width = max(len(one["row"]) for one in summaries)
    systems = f"{'mainstem':>9} {'Kafka':>9} {'NATS':>9}"
    head = f"{'row':{width}} {systems} {'unit':10} {'ratio':>6}   {'goal':>4} {'spread':11}"
    lines = [f"{head} best of Kafka"]
    for one in summaries:
        values = " ".join(
            f"{number(found['median'] if found else None):>9}"
            for found in (variant(one, system) for system in (MAINSTEM, KAFKA, NATS))
        )
        ratio = "" if one["ratio"] is None else f"{one['ratio']:.2f}"
        goal = "" if one["goal"] is None else f"{one['goal']:.3g}"
        mark = "<" if one["below"] else " "
        best = one["best of kafka"].removeprefix("Kafka, ")
        lines.append(
            f"{one['row']:{width}} {values} {one['unit']:10} {ratio:>6} {mark} {goal:>4} "
            f"{spread(one):11} {best}".rstrip()
        )
    return "\n".join(lines)


def costs_table(summaries: list[dict[str, Any]]) -> str:
    """For people: a line a variant, with processor time and memory of client and server."""
    variants = [(one["row"], found) for one in summaries for found in one["variants"]]
    width = max(len(row) for row, _ in variants)
    name_width = max(len(found["name"]) for _, found in variants)
    heads = " ".join(f"{who:>8}" for who in ("client", "server", "client", "server"))
    lines = [
        f"{'':{width + name_width + 1}} {'CPU s/million':>17} {'peak MB':>17}",
        f"{'row':{width}} {'variant':{name_width}} {heads}  more",
    ]
    for row, found in variants:
        more = ", ".join(f"{name} {number(value)}" for name, value in found["more"].items())
        costs = " ".join(f"{number(found.get(name)):>8}" for name in COSTS)
        lines.append(f"{row:{width}} {found['name']:{name_width}} {costs}  {more}".rstrip())
    return "\n".join(lines)


def facts(pairs: int, scale: float) -> dict[str, Any]:
    """Versions, machine and time of a run."""
    return {
        "mainstem": version("mainstem"),
        "kafka": kafka_version(),
        "confluent-kafka": version("confluent-kafka"),
        **nats_versions(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "pairs": pairs,
        "scale": scale,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def read(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of results; none where there is no such file.

    Raises:
        ValueError: It is torn, or not a file of results.
    """
    if not file.exists():
        return []
    try:
        rows = list(json.loads(file.read_text())["rows"])
        if all(isinstance(one["row"], str) for one in rows):
            return rows
    except (ValueError, TypeError, KeyError):
        pass
    raise ValueError(f"{file} is not a file of results; remove it, or name another one")


def check(file: Path) -> None:
    """Finds out whether `keep` would do, before hours are measured; changes nothing.

    Raises:
        ValueError: The file is there, and is not one of results.
        OSError: It cannot be made, or written.
    """
    read(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    written = _beside(file)
    written.write_text("")
    written.unlink()


def keep(file: Path, new: dict[str, Any], order: list[str]) -> None:
    """Puts a row into a file of results, in the place of an older one of its name.

    Each row has the facts of its own run, so rows of several runs may stand side by side.

    Args:
        order: The names of all rows; what has another name is of no row any more, and dropped.

    Raises:
        ValueError: The file is not one of results.
        OSError: It cannot be written, and is as it was.
    """
    rows = {one["row"]: one for one in read(file)} | {new["row"]: new}
    kept = {"rows": [rows[name] for name in order if name in rows]}
    file.parent.mkdir(parents=True, exist_ok=True)
    written = _beside(file)
    try:
        written.write_text(json.dumps(kept, indent=1) + "\n")
        written.replace(file)
    finally:
        written.unlink(missing_ok=True)  # it is there after a failure only


def _beside(file: Path) -> Path:
    return file.with_name(f"{file.name}.new")
