"""Processes that fork beside clients: the child is refused, or works, but never hangs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mainstem.testing import FakeGateway
from mainstem.testing._fake_fetch import FakeLogGateway

#: In an interpreter of its own: the test's has a gateway with threads in gRPC. Its children send a
#: record or say why not.
_PROGRAM = """
from multiprocessing import get_context
from mainstem.client import AdminClient, Consumer, Producer

config = {{"bootstrap.servers": "{address}"}}

def child(answers):
    for make in (Producer, Consumer, AdminClient):
        try:
            with make(config) as client:
                if make is Producer:
                    client.send("one", b"").result(20)
        except RuntimeError as error:
            answers.put(str(error))
        else:
            answers.put("made")

def run(method):
    context = get_context(method)
    answers = context.Queue()
    process = context.Process(target=child, args=(answers,))
    process.start()
    for _ in range(3):
        print(answers.get(timeout=40))
    process.join(20)
    print(process.exitcode)

if __name__ == "__main__":
    producer = Producer(config)
    producer.send("one", b"").result(20)
    if "{closed}":
        producer.close()
    run("{method}")
    producer.close()
"""


def _children_say(
    gateway: FakeGateway, tmp_path_factory: pytest.TempPathFactory, **how: str
) -> str:
    program = tmp_path_factory.mktemp("program") / "program.py"
    program.write_text(_PROGRAM.format(address=gateway.address, **how))
    ended = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_child_that_was_forked_beside_an_open_client_is_told_how_to_start_it(
    gateway: FakeGateway, tmp_path_factory: pytest.TempPathFactory
) -> None:
    *answers, code = _children_say(gateway, tmp_path_factory, method="fork", closed="").splitlines()
    assert len(answers) == 3
    for answer in answers:
        assert "was forked while clients of mainstem were open in process" in answer
        assert "get_context('spawn') or 'forkserver'" in answer
    assert code == "0"


@pytest.mark.parametrize(("method", "closed"), [("fork", "yes"), ("forkserver", "")])
def test_a_child_makes_clients_where_none_was_open_before_or_it_was_not_forked(
    gateway: FakeGateway, tmp_path_factory: pytest.TempPathFactory, method: str, closed: str
) -> None:
    said = _children_say(gateway, tmp_path_factory, method=method, closed=closed)
    assert said.splitlines() == ["made", "made", "made", "0"]


#: The same: a child that is forked from a process with a gateway in it dies in gRPC now and then.
_READS = """
import os
from mainstem.client import Consumer, TopicPartition
from mainstem.errors import ConsumerClosedError

with Consumer({{"bootstrap.servers": "{address}"}}) as consumer:
    consumer.assign([TopicPartition("t", 0, 0)])
    assert consumer.poll(20)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            consumer.{read}
        except ConsumerClosedError as error:
            consumer.close()
            status = 0 if "forked child" in str(error) else 2
        finally:
            os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(consumer.poll(20).offset)
"""


@pytest.mark.parametrize("read", ["poll(0)", "consume(1, 0)", "poll_batch(0)"])
def test_records_that_a_consumer_has_fetched_are_its_own_and_no_forked_childs(read: str) -> None:
    with FakeLogGateway({"t": 1}) as gateway:
        gateway.append("t", 0, [b"0", b"1", b"2"])
        ended = subprocess.run(
            [sys.executable, "-c", _READS.format(address=gateway.address, read=read)],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert (ended.returncode, ended.stdout) == (0, "0\n1\n"), ended.stderr
