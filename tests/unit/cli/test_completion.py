"""What Tab offers: the topics of a gateway, and nothing where it cannot know."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from click.shell_completion import ShellComplete

from mainstem.cli.root import cli
from mainstem.testing import FakeGateway


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GRPC_VERBOSITY", os.environ.get("GRPC_VERBOSITY", ""))
    monkeypatch.setenv("MAINSTEM_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with FakeGateway({"orders": 2, "orders.dlt": 1, "payments": 1}) as running:
        yield running


def offered(line: str, begun: str = "") -> list[str]:
    words = ShellComplete(cli, {}, "mainstem", "_MAINSTEM_COMPLETE")
    return [item.value for item in words.get_completions(shlex.split(line), begun)]


@pytest.mark.parametrize(
    "command",
    [
        "topic describe",
        "topic consume",
        "topic produce",
        "topic delete",
        "topic list",
        "topic alter-config",
        "topic add-partitions --total 9",
        "topic trim-prefix",
        "topic backup",
        "topic redrive",
        "group seek billing --topics",
    ],
)
def test_topics_are_offered_where_one_is_typed(gateway: FakeGateway, command: str) -> None:
    assert offered(f"-b {gateway.address} {command}", "ord") == ["orders", "orders.dlt"]


def test_a_configuration_that_is_not_there_keeps_nothing_from_being_offered(
    gateway: FakeGateway,
) -> None:
    line = f"--config /nowhere.toml -b {gateway.address} topic describe"
    assert offered(line, "pay") == ["payments"]


def test_what_is_typed_already_is_not_offered_again(gateway: FakeGateway) -> None:
    place = f"-b {gateway.address}"
    assert offered(f"topic describe {place} orders") == ["orders.dlt", "payments"]
    assert offered(f"{place} group seek g -T", "orders,p") == ["orders,payments"]


def test_the_environment_says_which_gateway(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSTEM_BOOTSTRAP_SERVERS", gateway.address)
    assert offered("topic describe", "p") == ["payments"]


def test_a_new_topic_has_a_name_that_no_gateway_knows(gateway: FakeGateway) -> None:
    assert offered(f"-b {gateway.address} topic create", "ord") == []


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "not an address", "nowhere.invalid:9490"])
@pytest.mark.parametrize("command", ["topic describe", "group describe", "topic consume t -g"])
def test_nothing_is_offered_where_no_gateway_answers_and_soon(servers: str, command: str) -> None:
    started = time.monotonic()
    assert offered(f"{command} -b {servers!r}") == []
    assert time.monotonic() - started < 20


def test_a_shell_sees_names_and_no_message(gateway: FakeGateway) -> None:
    for servers, expected in ((gateway.address, "plain,payments\n"), ("127.0.0.1:1", "\n")):
        environment = {
            **os.environ,
            "COMP_WORDS": "mainstem topic describe p",
            "COMP_CWORD": "3",
            "_MAINSTEM_COMPLETE": "bash_complete",
            "MAINSTEM_BOOTSTRAP_SERVERS": servers,
        }
        done = subprocess.run(
            [sys.executable, "-m", "mainstem.cli"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.stdout.strip(), done.stderr) == (expected.strip(), "")
