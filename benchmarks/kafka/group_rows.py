"""Rows of consumer groups: ten members share 900 partitions, and one of them is killed.

Each member is a process, which waits, with its consumer made, until all may subscribe at once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final, Self

from benchmarks.kafka.group_member import Member
from benchmarks.kafka.ownership import Ownership
from benchmarks.kafka.processes import cpu_s
from benchmarks.kafka.row import KAFKA, MAINSTEM, Outcome, Row, Variant
from benchmarks.kafka.systems import QUIET, Systems

_CHECKOUT: Final = Path(__file__).resolve().parents[2]

_MEMBERS: Final = 10
_TOPICS: Final = 9
_PARTITIONS_EACH: Final = 100

#: The same for all. Kafka's default, 45 s, would make turns long and nothing else.
_SESSION_TIMEOUT_MS: Final = 10_000

#: So long must all be shared out and unchanged. It is not counted.
_HOLD_S: Final = 1.0

_DEADLINE_S: Final = 120.0

_SESSION: Final = {"session.timeout.ms": _SESSION_TIMEOUT_MS}
#: With this protocol the broker knows the timeouts: settings of the group.
_CONSUMER_PROTOCOL: Final = {
    "group.protocol": "consumer",
    "consumer.session.timeout.ms": _SESSION_TIMEOUT_MS,
}

_VARIANTS: Final = (
    Variant("mainstem", MAINSTEM, dict(_SESSION)),
    Variant("Kafka, classic", KAFKA, dict(_SESSION)),
    Variant(
        "Kafka, cooperative",
        KAFKA,
        {**_SESSION, "partition.assignment.strategy": "cooperative-sticky"},
    ),
    Variant("Kafka, KIP-848", KAFKA, dict(_CONSUMER_PROTOCOL)),
    Variant(
        "Kafka, KIP-848, 1 s beats",
        KAFKA,
        {**_CONSUMER_PROTOCOL, "consumer.heartbeat.interval.ms": 1_000},
    ),
)

_groups: Final = itertools.count(1)


class _Group:
    """Ten processes that have not subscribed yet; at the end of the block they are killed."""

    def __init__(self, systems: Systems, variant: Variant) -> None:
        self.topics = _topics(systems, variant.system)
        partitions = [(topic, n) for topic in self.topics for n in range(_PARTITIONS_EACH)]
        self.ownership = Ownership(partitions, _MEMBERS)
        address = systems.address(variant.system)
        name = f"group-{next(_groups)}"
        own = {k: v for k, v in variant.config.items() if not k.startswith("consumer.")}
        self._of_group = {k: v for k, v in variant.config.items() if k not in own}
        if self._of_group:
            _configure_group(address, name, self._of_group)
        self._member = Member(variant.system, address, name, self.topics, own)
        self._processes: list[subprocess.Popen[str]] = []
        self._lines: queue.Queue[tuple[int, str]] = queue.Queue()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._log = stack.enter_context(tempfile.TemporaryFile("w+"))
            command = [sys.executable, "-m", "benchmarks.kafka.group_member"]
            for number in range(_MEMBERS):
                process = subprocess.Popen(
                    [*command, json.dumps(asdict(self._member))],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                    text=True,
                    cwd=_CHECKOUT,
                )
                stack.callback(_end, process)
                self._processes.append(process)
                assert process.stdout is not None
                reader = threading.Thread(target=self._read, args=(number, process.stdout))
                reader.start()
            for _ in range(_MEMBERS):
                self._next_line(time.monotonic() + _DEADLINE_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def subscribe(self) -> float:
        """All at once; returns when, by the monotonic clock."""
        started = time.monotonic()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return started

    def kill(self, number: int) -> float:
        """SIGKILL to a member; returns when."""
        self._processes[number].kill()
        killed_at = time.monotonic()
        self._processes[number].wait(_DEADLINE_S)
        self.ownership.lose(number, killed_at)
        return killed_at

    def complete_at(self) -> float:
        """Waits until the assignment is complete and stable; returns since when it is.

        Raises:
            RuntimeError: It does not become so; the message has what the members wrote.
        """
        ends_at = time.monotonic() + _DEADLINE_S
        while not self.ownership.is_stable(time.monotonic(), _HOLD_S):
            since = self.ownership.complete_since_s
            with contextlib.suppress(queue.Empty):
                number, line = self._next_line(ends_at if since is None else since + _HOLD_S)
                told = json.loads(line)
                owned = [(topic, partition) for topic, partition in told["owned"]]
                self.ownership.tell(number, owned, told["at_s"])
            if time.monotonic() > ends_at:
                raise RuntimeError(f"members own {self.ownership.counts}\n{self._failure()}")
        assert self.ownership.complete_since_s is not None
        return self.ownership.complete_since_s

    def cpu_s(self) -> float:
        """Of all members that live."""
        return sum(cpu_s(one.pid) for one in self._processes if one.poll() is None)

    def _read(self, number: int, output: IO[str]) -> None:
        for line in output:
            self._lines.put((number, line))

    def _next_line(self, ends_at: float) -> tuple[int, str]:
        return self._lines.get(timeout=max(ends_at - time.monotonic(), 0.001))

    def _failure(self) -> str:
        self._log.seek(0)
        return self._log.read()[-3000:]


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(_DEADLINE_S)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        # What was written to a member that is gone cannot be flushed.
        with contextlib.suppress(BrokenPipeError):
            pipe.close()


def _topics(systems: Systems, system: str) -> list[str]:
    """Made once, for all turns."""
    keys = [f"{system} group topic {number}" for number in range(_TOPICS)]
    if keys[0] not in systems.filled:
        names = systems.new_topics(system, _TOPICS, _PARTITIONS_EACH)
        systems.filled.update(zip(keys, names, strict=True))
    return [systems.filled[key] for key in keys]


def _configure_group(address: str, group: str, settings: Mapping[str, Any]) -> None:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    changes = [
        ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(_DEADLINE_S)


def _joined(systems: Systems, variant: Variant, _: float) -> Outcome:
    """From the first that subscribes to a complete assignment."""
    server = systems.server_pid(variant.system)
    with _Group(systems, variant) as group:
        server_before, before = cpu_s(server), group.cpu_s()
        started = group.subscribe()
        seconds = group.complete_at() - started
        return Outcome(
            round(seconds, 3),
            round(group.cpu_s() - before, 3),
            round(cpu_s(server) - server_before, 3),
        )


def _killed(systems: Systems, variant: Variant, _: float) -> Outcome:
    """From SIGKILL of a member to a complete assignment of the others."""
    server = systems.server_pid(variant.system)
    with _Group(systems, variant) as group:
        group.subscribe()
        group.complete_at()
        server_before = cpu_s(server)
        killed_at = group.kill(0)
        seconds = group.complete_at() - killed_at
        return Outcome(
            round(seconds, 3),
            server_cpu_s=round(cpu_s(server) - server_before, 3),
            more={"after_session_timeout_s": round(seconds - _SESSION_TIMEOUT_MS / 1000, 3)},
        )


ROWS: Final = (
    Row("rebalance, 10 members", "s", _VARIANTS, _joined, 8.0, lower_is_better=True),
    Row("rebalance, one killed", "s", _VARIANTS, _killed, lower_is_better=True),
)
