"""What a warehouse keeps of the streams of SQL: who runs one, how it ended, stopping it."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mainstem.jobs.kept_streams import ENDED, KILLED, RUNNING, KeptStreams, StreamError

STATEMENT = "INSERT INTO big SELECT * FROM orders"

#: Holds the lock until its stdin ends, as a JVM does that a stream is in.
HOLDER = """
import fcntl, sys
with open(sys.argv[1], "rb+") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(streams: KeptStreams, name: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(streams.lock_file(name))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def streams(tmp_path: Path) -> KeptStreams:
    return KeptStreams(tmp_path)


def make(streams: KeptStreams, name: str = "big") -> None:
    stream = streams.prepare(name, STATEMENT, table="Big")
    streams.write(replace(stream, state=RUNNING, host="here", pid=7))


def test_a_stream_runs_as_long_as_its_process_lives_whatever_its_file_says(
    streams: KeptStreams,
) -> None:
    make(streams)
    with held(streams, "big"):
        assert streams.read("big").state == RUNNING
        assert [one.name for one in streams.all()] == ["big"]
        writer = streams.writer_of("BIG")
        assert writer is not None
        assert writer.name == "big"
        with pytest.raises(StreamError, match=r"runs already, on here \(pid 7\)"):
            streams.prepare("big", STATEMENT, table="big")
        with pytest.raises(StreamError, match="stop it first"):
            streams.forget("big")
    assert streams.read("big").state == KILLED
    assert streams.writer_of("big") is None
    streams.write(replace(streams.read("big"), state=ENDED))
    assert streams.read("big").state == ENDED


#: Asks whether a stream runs, again and again, until its stdin ends.
LOOKER = """
import select, sys
from pathlib import Path
from mainstem.jobs.kept_streams import KeptStreams
streams = KeptStreams(Path(sys.argv[1]))
print("looking", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    streams.is_running("big")
"""


def test_looking_whether_a_stream_runs_is_in_nobodys_way(
    streams: KeptStreams, tmp_path: Path
) -> None:
    make(streams)
    command = [sys.executable, "-c", LOOKER, str(tmp_path)]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as looker,
        open(streams.lock_file("big"), "rb+") as file,
    ):
        assert looker.stdout is not None
        assert looker.stdout.readline() == "looking\n"
        assert not any(streams.is_running("big") for _ in range(2_000)), "a look is no run"
        for _ in range(2_000):  # as the JVM does that is to run it, once
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_UN)


def test_the_same_statement_goes_on_and_another_one_is_refused(streams: KeptStreams) -> None:
    make(streams)
    kept = replace(streams.read("big"), table_id="t", state=ENDED)
    streams.write(kept)
    assert (
        streams.prepare("big", f"  {STATEMENT.replace(' FROM', chr(10) + 'FROM')};", table="big")
        == kept
    )
    with pytest.raises(StreamError, match=r"is another statement.*--forget big"):
        streams.prepare("big", STATEMENT + " WHERE offset > 1", table="big")
    # The name behind INTO is a topic's now.
    with pytest.raises(StreamError, match=r"wrote to the table big.*now means the topic Big"):
        streams.prepare("big", STATEMENT, topic="Big")
    (streams.checkpoint("big")).mkdir()
    streams.forget("big")
    assert streams.all() == []
    assert streams.prepare("big", STATEMENT + " WHERE offset > 1", table="big").table_id == ""


def test_who_stops_a_stream_waits_until_its_process_has_let_go(tmp_path: Path) -> None:
    streams = KeptStreams(tmp_path)
    make(streams)
    with held(streams, "big") as process:
        looks = 0

        def let_go(_: float) -> None:
            nonlocal looks
            looks += 1
            assert streams.is_asked_to_stop("big")
            if looks == 1:
                streams.forget_request("big")  # as one that starts does: it is asked again
            else:
                process.kill()
                process.wait()

        assert KeptStreams(tmp_path, sleep=let_go).stop("big", 30)
    assert looks >= 2
    assert not streams.is_asked_to_stop("big")
    assert not streams.stop("big", 30)


def test_a_process_that_does_not_answer_is_named(tmp_path: Path) -> None:
    streams = KeptStreams(tmp_path, sleep=lambda _: None)
    make(streams)
    with held(streams, "big"), pytest.raises(StreamError, match=r"within 0 s.*here \(pid 7\)"):
        streams.stop("big", 0)
    assert streams.is_asked_to_stop("big")


@pytest.mark.parametrize("name", ["", ".", "..", "../topics", "a/b", "-x", "a" * 101, "a b"])
def test_a_name_that_could_lead_elsewhere_is_refused(streams: KeptStreams, name: str) -> None:
    for call in (lambda: streams.prepare(name, STATEMENT, table="t"), lambda: streams.forget(name)):
        with pytest.raises(StreamError, match="cannot name a stream"):
            call()


def test_an_unknown_stream_is_told_with_the_nearest(streams: KeptStreams) -> None:
    with pytest.raises(StreamError, match="there are none"):
        streams.stop("big", 1)
    make(streams)
    with pytest.raises(StreamError, match="did you mean big"):
        streams.stop("bigg", 1)


def test_a_damaged_file_is_said_and_hides_no_other_stream(streams: KeptStreams) -> None:
    make(streams)
    make(streams, "other")
    for damage in ("{", "[1]", '{"name": "big"}'):
        (streams.lock_file("big").parent / "stream.json").write_text(damage)
        with pytest.raises(StreamError, match="cannot be read"):
            streams.read("big")
        assert [one.name for one in streams.all()] == ["other"]


def test_a_stream_that_never_began_is_in_nobodys_way(streams: KeptStreams) -> None:
    streams.prepare("big", STATEMENT, table="big")
    assert streams.all() == []
    with pytest.raises(StreamError, match="there are none"):
        streams.read("big")
    streams.prepare("big", STATEMENT + " WHERE offset > 1", table="big")


def test_who_cannot_ask_a_stream_to_stop_is_told_why_and_does_not_wait(
    tmp_path: Path, streams: KeptStreams
) -> None:
    make(streams)
    (tmp_path / "streams/big/stop").symlink_to(tmp_path / "gone" / "stop")
    with held(streams, "big"), pytest.raises(StreamError, match=r"cannot be asked.*No such file"):
        streams.stop("big", 60)


def test_what_a_forgetting_that_was_cut_short_has_left_goes_with_the_next(
    tmp_path: Path, streams: KeptStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    make(streams)
    make(streams, "other")
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            streams.forget("big")
    with pytest.raises(StreamError, match=r"there is no stream 'big' .*; there are other$"):
        streams.read("big")
    streams.forget("other")
    assert list((tmp_path / "streams").iterdir()) == []
