"""Two gateways on one warehouse that lose their topics to each other, beside maintenance."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc
from tests.fault.workload import (
    STOP_TIMEOUT_S,
    Follower,
    Judgement,
    Producers,
    ProducerSpec,
    judge,
    open_topics,
    tally,
)

from mainstem.client import AdminClient
from mainstem.protocol import error_from_rpc
from mainstem.protocol.v1 import log_pb2, log_pb2_grpc
from mainstem.testing import GatewayProcess, HistoryWriter, Send
from mainstem.testing._history import SendOutcome

TOPICS = {"orders": 3, "clicks": 1}

#: acks=1 is apart: its records are only in the log of the gateway that took them until it commits,
#: and are not in the topic where another gateway goes on meanwhile.
PRODUCERS = (
    ProducerSpec("idempotent-batches", "all", True, 60),
    ProducerSpec("idempotent-records", "all", True, 1),
    ProducerSpec("other-batches", "all", True, 60),
    ProducerSpec("hasty-batches", "all", True, 60, delivery_timeout_ms=700, request_timeout_ms=600),
    ProducerSpec("plain-batches", "all", False, 60),
)

LEADER_PRODUCERS = (
    ProducerSpec("leader-batches", "1", False, 60),
    ProducerSpec("leader-records", "1", False, 1),
)

HEARTBEAT_MS, SESSION_MS = 100, 400
SETTINGS: Mapping[str, object] = {
    "gateway.heartbeat.interval.ms": HEARTBEAT_MS,
    "gateway.session.timeout.ms": SESSION_MS,
    "checkpoint.interval.commits": 50,
}

#: Nothing was stored. Of any other failure nobody can tell.
_REFUSED = {"NOT_LEADER", "BACK_PRESSURE", "SHUTTING_DOWN", "UNKNOWN_TOPIC"}

_PATIENCE_S = 60.0

_MAINTENANCE = Path(__file__).with_name("maintenance_process.py")


@dataclass(frozen=True)
class RaceReport:
    """What a run showed.

    Attributes:
        epochs: By topic, how many leader epochs were seen: how often its lead was taken, at least.
        maintenance: What the maintenance process counted.
    """

    seconds: float
    seed: int
    killed: bool
    leaders_lost_count: int
    epochs: Mapping[str, int]
    maintenance: Mapping[str, int]
    judgement: Judgement

    def __str__(self) -> str:
        return (
            f"two gateways for {self.seconds:.0f} s, {self.leaders_lost_count} leaders "
            f"{'killed' if self.killed else 'frozen'}, seed {self.seed}\n"
            f"leaders               {tally(self.epochs)}\n"
            f"maintenance           {tally(self.maintenance)}\n"
            f"{self.judgement}"
        )


def run_race(
    directory: Path,
    seed: int,
    seconds: float,
    *,
    kill: bool = False,
    specs: Sequence[ProducerSpec] = PRODUCERS,
    log_kept_s: int | None = None,
) -> RaceReport:
    """Runs the race in `directory`, which must be empty, for so long.

    Args:
        kill: Kill leaders and start them again. Otherwise they are frozen: one that was so for
            longer than the session timeout comes back believing that it leads what the other one
            leads by now.
        log_kept_s: For how long commit files are kept, instead of an hour, with a checkpoint every
            few commits: a leader that is frozen for longer comes back to a log that was cleaned
            behind its back.
    """
    dice = random.Random(seed)
    warehouse = directory / "warehouse"
    count = 0
    settings, config = dict(SETTINGS), {"commit.interval.ms": "20"}
    away_s = (0.5 * SESSION_MS / 1000, 5.0 * SESSION_MS / 1000)
    if log_kept_s is not None:
        settings["checkpoint.interval.commits"] = 5
        config["delta.logRetentionDuration"] = f"interval {log_kept_s} seconds"
        away_s = (away_s[0], log_kept_s + 5.0 * SESSION_MS / 1000)
    with (
        GatewayProcess(warehouse, settings=settings) as one,
        GatewayProcess(warehouse, settings=settings) as two,
    ):
        with AdminClient({"bootstrap.servers": one.address}) as admin:
            for topic, partitions in TOPICS.items():
                admin.create_topic(topic, partitions, config)
        orders = [f"{one.address},{two.address}", f"{two.address},{one.address}"]
        bootstrap = {spec.name: orders[i % 2] for i, spec in enumerate(specs)}
        with (
            Producers(directory / "producers", specs, TOPICS, bootstrap, seed) as producers,
            Follower(warehouse, TOPICS) as follower,
            maintenance(warehouse, seed) as work,
            Challenger("one", one.address, directory) as first,
            Challenger("two", two.address, directory) as second,
        ):
            producers.wait_until_acknowledged(1, 30)
            ends_at = time.monotonic() + seconds
            seen: dict[str, set[int]] = {topic: set() for topic in TOPICS}
            # On a busy machine it may take long until the lead changes hands for the first time.
            while time.monotonic() < ends_at + (
                _PATIENCE_S if max(map(len, seen.values())) < 2 else 0
            ):
                topic = dice.choice([*TOPICS])
                leader, epoch = _leader(topic, one, two)
                seen[topic].add(epoch)
                with _away(leader, kill=kill):
                    time.sleep(dice.uniform(*away_s))
                count += 1
                time.sleep(dice.uniform(0.0, 0.8))
                producers.check_running()
                assert one.is_running
                assert two.is_running
            first.stop()
            second.stop()
            producers.stop()
            done = work()
            time.sleep(1.0)  # the follower reads what came last
            assert one.terminate() == 0, one.log
            assert two.terminate() == 0, two.log
    follower.check()
    with open_topics(warehouse, TOPICS) as opened:
        epochs = {
            topic: len(seen[topic] | {topic_opened.state.epoch})
            for topic, topic_opened in opened.items()
        }
    histories = [*producers.histories, first.history, second.history]
    judgement = judge(warehouse, TOPICS, histories, follower.reads)
    return RaceReport(seconds, seed, kill, count, epochs, done, judgement)


class Challenger:
    """Sends single records to one gateway whether it leads or not, in a thread, while the block
    lasts.

    So the gateway is asked to lead as soon as the other one is not heard of.
    """

    def __init__(self, name: str, address: str, directory: Path) -> None:
        self.history = directory / f"challenger-{name}.jsonl"
        self._name = f"challenger-{name}"
        self._address = address
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=self._name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """Ends it, and raises what went wrong."""
        self.__exit__()
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with grpc.insecure_channel(self._address) as channel, HistoryWriter(self.history) as to:
                stub = log_pb2_grpc.LogStub(channel)
                number = 0
                while not self._stopped.wait(0.05):
                    for topic in TOPICS:
                        to.write(self._send(stub, topic, number))
                    number += 1
        except BaseException as error:
            self._failure = error

    def _send(self, stub: log_pb2_grpc.LogStub, topic: str, number: int) -> Send:
        record = log_pb2.Record(key=self._name.encode(), value=b"%d" % number, partition=0)
        request = log_pb2.ProduceRequest(
            topic=topic,
            acks=log_pb2.ACKS_ALL,
            records=log_pb2.Records(records=[record]),
        )
        outcome: SendOutcome = "ok"
        offset = -1
        try:
            answer = stub.Produce(request, timeout=5.0)
            if answer.HasField("error"):
                outcome = "fail" if answer.error.code in _REFUSED else "unknown"
            else:
                offset = answer.results[0].base_offset
        except grpc.RpcError as failure:
            outcome = "fail" if error_from_rpc(failure).code in _REFUSED else "unknown"
        return Send(self._name, topic, 0, number, 1, outcome, offset)


@contextlib.contextmanager
def maintenance(warehouse: Path, seed: int) -> Iterator[Callable[[], dict[str, int]]]:
    """Runs the maintenance process; the block is given a function that ends it and counts."""
    process = subprocess.Popen(
        [sys.executable, str(_MAINTENANCE), str(warehouse), str(seed), *TOPICS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def finish() -> dict[str, int]:
        output, _ = process.communicate(timeout=STOP_TIMEOUT_S)
        assert process.returncode == 0
        return dict(json.loads(output))

    try:
        yield finish
    finally:
        process.kill()
        process.communicate(timeout=STOP_TIMEOUT_S)


def _leader(topic: str, one: GatewayProcess, two: GatewayProcess) -> tuple[GatewayProcess, int]:
    """Which of the two leads the topic, as one of them knows it, and with which epoch."""
    with AdminClient({"bootstrap.servers": f"{one.address},{two.address}"}) as admin:
        described = admin.describe_topic(topic)
    return (two if described.leader == two.address else one), described.leader_epoch


@contextlib.contextmanager
def _away(gateway: GatewayProcess, *, kill: bool) -> Iterator[None]:
    """The gateway is dead or frozen while the block lasts."""
    if kill:
        gateway.kill()
    else:
        os.kill(gateway.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if kill:
            gateway.start()
        else:
            os.kill(gateway.pid, signal.SIGCONT)
