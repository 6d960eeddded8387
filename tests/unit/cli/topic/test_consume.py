"""`mainstem topic consume` against an in-memory gateway."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from mainstem.cli.errors import FormatError
from mainstem.cli.root import cli
from mainstem.cli.topic.record_printer import RecordPrinter, json_line, json_object
from mainstem.client import ConsumerRecord
from mainstem.testing._fake_fetch import FakeLogGateway

Run = Callable[..., Result]


@pytest.fixture
def gateway(no_leaks: None) -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t": 2}) as running:
        for partition in range(2):
            for number in range(5):
                running.append(
                    "t", partition, [b"%d-%d" % (partition, number)], timestamp_ms=1000 * number
                )
        yield running


@pytest.fixture
def run(gateway: FakeLogGateway) -> Run:
    def call(*arguments: str, before: tuple[str, ...] = ()) -> Result:
        return CliRunner().invoke(
            cli, [*before, "topic", "consume", *arguments, "-b", gateway.address]
        )

    return call


def test_everything_is_printed_from_the_start_to_the_end(run: Run) -> None:
    result = run("t", "-e")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert sorted(lines) == [f"{p}-{n}" for p in range(2) for n in range(5)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("start", [0, 1, 2, 3, 4]),
        ("3", [3, 4]),
        ("-2", [3, 4]),
        ("-99", [0, 1, 2, 3, 4]),
        ("@2000", [2, 3, 4]),
        ("@1970-01-01T00:00:03Z", [3, 4]),
        ("@99999", []),
        ("1:3", [1, 2]),
        ("3:", [3, 4]),
        (":2", [0, 1]),
        ("-3:-1", [2, 3]),
        ("@1970-01-01T00:00:01:1970-01-01T00:00:03", [1, 2]),
        ("@1000:end", [1, 2, 3, 4]),
        ("end", []),
    ],
)
def test_the_beginning_is_where_o_says(run: Run, where: str, expected: list[int]) -> None:
    result = run("t", "-p", "1", "-e", "-o", where, "-f", "%o")
    assert result.exit_code == 0, result.output
    assert [int(line) for line in result.stdout.split()] == expected


def test_n_ends_it(run: Run) -> None:
    assert run("t", "-p", "0", "-n", "3").stdout == "0-0\n0-1\n0-2\n"


def test_records_that_come_while_it_runs_are_not_part_of_the_end(
    run: Run, gateway: FakeLogGateway
) -> None:
    ended = threading.Event()

    def produce() -> None:
        while not ended.is_set():
            gateway.append("t", 0, [b"more"])
            time.sleep(0.001)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        result = run("t", "-e", "-p", "0")
    finally:
        ended.set()
        thread.join()
    assert result.exit_code == 0
    assert result.stdout.startswith("0-0\n")


def test_a_group_goes_on_where_it_was(run: Run, gateway: FakeLogGateway) -> None:
    first = run("t", "-g", "g", "-n", "4")
    second = run("t", "-g", "g", "-e")
    assert second.exit_code == 0, second.output
    lines = first.stdout.splitlines() + second.stdout.splitlines()
    assert sorted(lines) == [f"{p}-{n}" for p in range(2) for n in range(5)]
    assert gateway.groups.offsets == {("g", "t", 0): 5, ("g", "t", 1): 5}


def test_json_has_every_field_and_null_is_null(run: Run, gateway: FakeLogGateway) -> None:
    gateway.append("t", 0, [None], timestamp_ms=7, key=b"k", headers=(("h", b"v"), ("n", None)))
    result = run("t", "-p", "0", "-o", "5", "-n", "1", before=("--format", "json"))
    assert json.loads(result.stdout) == {
        "topic": "t",
        "partition": 0,
        "offset": 5,
        "timestamp": 7,
        "key": "k",
        "value": None,
        "headers": [["h", "v"], ["n", None]],
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["t", "-o", "sometimes"],
        ["t", "-f", "%z"],
        ["t", "-g", "g", "-p", "0"],
        ["t", "-g", "g", "-o", "5"],
        ["^t"],
    ],
)
def test_what_means_nothing_is_wrong_usage(run: Run, arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_a_topic_or_a_partition_that_is_not_there_is_told(run: Run) -> None:
    result = run("nowhere", "-e")
    assert result.exit_code == 1
    assert "UNKNOWN_TOPIC" in result.stderr
    result = run("t", "-p", "9")
    assert result.exit_code == 1
    assert "partitions 0 to 1" in result.stderr


def test_a_format_prints_its_fields() -> None:
    record = ConsumerRecord("t", 1, 2, 3, 0, b"k", None, (("a", b"b"), ("c", None)))
    assert RecordPrinter("%t %p %o %T %k=%v %h %%")(record) == b"t 1 2 3 k= a:b,c %\n"
    assert RecordPrinter(r"%k\0")(record) == b"k\0"
    binary = ConsumerRecord("t", 1, 2, 3, 0, b"\xff\0", b"v", ())
    assert RecordPrinter("%k{hex} %v{base64}")(binary) == b"ff00 dg==\n"
    for text in ("%", "%s", "%v{json}", "%v{hex", "%p{hex}x%"):
        with pytest.raises(FormatError):
            RecordPrinter(text)


def test_an_object_is_printed_over_lines_or_without_its_value() -> None:
    record = ConsumerRecord("t", 0, 7, 1_000, 0, b"k", b"v", (("h", b"x"),))
    pretty = json_object(record, pretty=True)
    assert pretty.count(b"\n") > 5
    assert json.loads(pretty) == json.loads(json_line(record))
    assert "value" not in json.loads(json_object(record, meta_only=True))


@pytest.mark.parametrize("option", ["--pretty-print", "--meta-only"])
def test_what_is_for_objects_does_not_go_with_a_text_format(option: str) -> None:
    answer = CliRunner().invoke(cli, ["topic", "consume", "t", option, "-f", "%v"])
    assert answer.exit_code == 2
    assert "are for -f json" in answer.stderr
