"""Output that does not get where it should: full disks, readers that go, streams that are closed.

Real processes, as what counts is what the kernel says of their standard streams.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainstem.testing._fake_fetch import FakeLogGateway
from mainstem.testing._fake_gateway import FakeGateway

# Each starts processes of the command line.
pytestmark = pytest.mark.slow

TIMEOUT_S = 60
MAINSTEM = [sys.executable, "-m", "mainstem.cli"]

JSON = ("--format", "json")

#: More than a pipe holds.
RECORDS = 3_000

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def gateway() -> Iterator[FakeLogGateway]:
    with FakeLogGateway({"t": 1, "quiet": 1}) as running:
        running.append("t", 0, [b"%d %s" % (number, b"x" * 50) for number in range(RECORDS)])
        yield running


@pytest.fixture
def start(gateway: FakeLogGateway) -> Iterator[Start]:
    processes: list[subprocess.Popen[bytes]] = []

    def call(*arguments: str, stdout: Any, shell: str = "") -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["bash", "-c", f'{shell} exec "$@"', "-", *MAINSTEM, *arguments, "-b", gateway.address],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        processes.append(process)
        return process

    yield call
    for process in processes:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Its exit code and its messages, of which none is a traceback."""
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert b"Traceback" not in errors, errors.decode()
    assert b"Exception ignored" not in errors, errors.decode()
    return process.returncode, errors.decode()


def read_bytes(number: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        assert select.select([number], [], [], TIMEOUT_S)[0], data
        data += os.read(number, count - len(data))
    return data


def committed(gateway: FakeLogGateway, group: str) -> int:
    return gateway.groups.offsets.get((group, "t", 0), 0)


def test_a_reader_that_takes_one_line_commits_nothing_that_it_left(
    gateway: FakeLogGateway, start: Start
) -> None:
    process = start("topic", "consume", "t", "-g", "g", stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert read_bytes(process.stdout.fileno(), 2) == b"0 "
    process.stdout.close()
    process.stdout = None
    assert end(process) == (0, "")
    assert committed(gateway, "g") == 0


def test_a_reader_that_goes_before_anything_is_written_commits_nothing(
    gateway: FakeLogGateway, start: Start
) -> None:
    read_end, write_end = os.pipe()
    process = start("topic", "consume", "t", "-g", "g", "-n", "5", stdout=write_end)
    os.close(write_end)
    os.close(read_end)
    assert end(process) == (0, "")
    assert committed(gateway, "g") == 0


def test_what_the_reader_took_is_committed_and_nothing_more(
    gateway: FakeLogGateway, start: Start
) -> None:
    process = start(
        *("topic", "consume", "t", "-g", "g", "-n", "1000", "--timeout", "1"),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    lines = read_bytes(process.stdout.fileno(), 5_000).count(b"\n")
    # The reader lives, and reads nothing more: the command does not wait for ever.
    assert process.wait(TIMEOUT_S) == 0
    assert committed(gateway, "g") == lines
    rest = process.stdout.read()
    assert rest.count(b"\n") == 1000 - lines, "it is in the pipe all the same"


def test_all_that_was_read_is_committed_at_the_end(gateway: FakeLogGateway, start: Start) -> None:
    process = start("topic", "consume", "t", "-g", "g", "-e", stdout=subprocess.PIPE)
    output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert output.count(b"\n") == RECORDS
    assert committed(gateway, "g") == RECORDS


def test_a_full_disk_commits_only_what_is_on_it(
    gateway: FakeLogGateway, start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        # Stands for a disk that is full after 50 KiB.
        process = start(
            "topic", "consume", "t", "-g", "g", "-e", stdout=file, shell="ulimit -f 50;"
        )
        code, errors = end(process)
    assert code == 1
    assert "stdout cannot be written: File too large" in errors
    whole = out.read_bytes().count(b"\n")
    assert committed(gateway, "g") <= whole < RECORDS
    process = start(
        *("topic", "consume", "t", "-g", "g", "-n", "1", "-f", "%o"), stdout=subprocess.PIPE
    )
    assert int(process.communicate(timeout=TIMEOUT_S)[0]) <= whole


def test_nothing_is_committed_of_what_a_full_device_refused(
    gateway: FakeLogGateway, start: Start
) -> None:
    with open("/dev/full", "wb") as full:
        code, errors = end(start("topic", "consume", "t", "-g", "g", "-e", stdout=full))
    assert code == 1
    assert errors == (
        "error: OUTPUT_FAILED: stdout cannot be written: No space left on device; what was done "
        "before stays done\n"
    )
    assert committed(gateway, "g") == 0


@pytest.mark.parametrize("group", [(), ("-g", "g")])
def test_the_end_of_the_pipe_is_noticed_while_no_record_comes(
    start: Start, group: tuple[str, ...]
) -> None:
    process = start("topic", "consume", "quiet", *group, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert end(process) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_consume_ends_quietly_at_a_signal_and_commits_what_was_written(
    gateway: FakeLogGateway, start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        process = start("topic", "consume", "t", "-g", "g", stdout=file)
    deadline_reads = 0
    while out.stat().st_size < RECORDS * 50:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        deadline_reads += 1
        assert deadline_reads < TIMEOUT_S * 20
    process.send_signal(number)
    assert end(process) == (130, "")
    assert committed(gateway, "g") == out.read_bytes().count(b"\n") == RECORDS


@pytest.mark.parametrize(
    "arguments", [("--help",), ("version",), ("config", "list"), ("topic", "consume", "--help")]
)
def test_every_command_tells_of_output_that_is_lost(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*MAINSTEM, *arguments], stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_S
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: OUTPUT_FAILED: stdout cannot be written: No space left")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("arguments", [("--help",), ("config", "list")])
def test_every_command_ends_quietly_when_its_reader_is_gone(arguments: tuple[str, ...]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [*MAINSTEM, *arguments], stdout=write_end, stderr=subprocess.PIPE, timeout=TIMEOUT_S
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("redirection", "words"),
    [
        ("topic consume t -e >&-", "stdout cannot be written: Bad file descriptor"),
        ("version >&-", "stdout cannot be written: Bad file descriptor"),
        ("topic produce t <&-", "the input cannot be read: Bad file descriptor"),
        ("topic list --format json > /dev/full", '"status"'),
    ],
)
def test_a_stream_that_the_shell_closed_is_one_sentence(
    gateway: FakeLogGateway, redirection: str, words: str
) -> None:
    done = subprocess.run(
        ["/bin/bash", "-c", f'"$0" -m mainstem.cli {redirection}', sys.executable],
        stderr=subprocess.PIPE,
        timeout=TIMEOUT_S,
        env={**os.environ, "MAINSTEM_BOOTSTRAP_SERVERS": gateway.address},
        text=True,
    )
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_gateway_that_cannot_say_where_it_listens_drains_and_ends(tmp_path: Path) -> None:
    arguments = ("gateway", "run", "--warehouse", str(tmp_path / "w"), "--listen", "127.0.0.1:0")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*MAINSTEM, *arguments], stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_S
        )
    assert done.returncode == 1
    assert b"OUTPUT_FAILED: stdout cannot be written: No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"was cancelled" not in done.stderr


def test_produce_sends_all_although_its_report_cannot_be_printed() -> None:
    with FakeGateway({"t": 1}) as gateway:
        for target, code in (("/dev/full", 1), (None, 0)):
            read_end, write_end = os.pipe()
            os.close(read_end)
            out = write_end if target is None else os.open(target, os.O_WRONLY)
            done = subprocess.run(
                [*MAINSTEM, "topic", "produce", "t", "-v", "-b", gateway.address],
                input=b"a\nb\nc\n",
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=TIMEOUT_S,
            )
            os.close(write_end)
            if target is not None:
                os.close(out)
            assert done.returncode == code, done.stderr
            assert b"3 records to t" in done.stderr
            assert b"Traceback" not in done.stderr


def test_errors_are_objects_with_format_json_before_or_after_the_command() -> None:
    for arguments in (
        ("--format", "json", "topic", "list", "-b", "127.0.0.1:1", "--timeout", "1"),
        ("topic", "list", "-b", "127.0.0.1:1", "--timeout", "1", "--format", "json"),
        ("--format", "json", "topic", "crate"),
    ):
        done = subprocess.run([*MAINSTEM, *arguments], capture_output=True, timeout=TIMEOUT_S)
        found = json.loads(done.stderr)
        assert found["status"] in ("GATEWAY_UNAVAILABLE", "WRONG_USAGE")
        assert found["message"]
        assert done.returncode == (2 if found["status"] == "WRONG_USAGE" else 1)
        assert done.stdout == b""


def test_a_character_that_the_encoding_of_stdout_lacks_is_escaped() -> None:
    answer = subprocess.run(
        [*MAINSTEM, "-X", "warehouse=/stra\u00dfe", "config", "show"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        timeout=TIMEOUT_S,
    )
    assert answer.returncode == 0, answer.stderr
    assert rb"/stra\xdfe" in answer.stdout


def test_a_name_that_is_no_text_is_told_in_an_object_after_what_was_done() -> None:
    with FakeGateway({"t": 1}) as gateway:
        answer = subprocess.run(
            [*MAINSTEM, *("topic", "delete", "t", "b\udcff", "-y", "-b", gateway.address, *JSON)],
            capture_output=True,
            timeout=TIMEOUT_S,
        )
    assert answer.stderr == b""
    done, refused = map(json.loads, answer.stdout.splitlines())
    assert (done["topic"], done["status"]) == ("t", "OK")
    assert (refused["topic"], refused["status"]) == ("b\udcff", "INVALID_CONFIG")
