"""A client of `list_append` in a process of its own: each transaction appends to some lists.

Usage: python list_append_process.py BOOTSTRAP NUMBER BEGAN HISTORY TOPIC...

Writes down what it is about to do and what came of it: `ok` (committed), `fail` (aborted for
certain) or `info` (nobody knows). Every life, and every life of its producer, is a process of the
history. Ends with its stdin.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from mainstem.client import Producer
from mainstem.errors import MainstemError, TransactionAbortedError

#: Lists that are appended to at a time; each for about a second.
KEYS_AT_ONCE: Final = 6
_KEYS_A_SECOND: Final = 6


def first_key(age_s: float) -> int:
    """The first of the lists that are appended to so long after the beginning."""
    return int(age_s * _KEYS_A_SECOND)


class Client:
    def __init__(
        self, bootstrap: str, number: int, began_s: float, history: str, topics: Sequence[str]
    ) -> None:
        self._bootstrap = bootstrap
        self._number = number
        self._began_s = began_s
        self._topics = topics
        self._history = open(history, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._random = random.Random(os.getpid())
        self._next = time.time_ns() // 1_000  # no life before this one has come so far
        self._process = self._new_process()

    def run(self) -> None:
        while not self._is_over():
            try:
                self._life()
            except MainstemError as error:
                print(f"{error.code}: {error}", file=sys.stderr, flush=True)
                time.sleep(0.05)

    def _life(self) -> None:
        """Of one producer, which the next one fences: whatever it left open is settled then."""
        config: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "transactional.id": f"client-{self._number}",
            "transaction.timeout.ms": 5_000,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 300,
            "request.timeout.ms": 2_000,
        }
        with Producer(config) as producer:
            producer.init_transactions()
            while not self._is_over():
                self._transaction(producer)

    def _transaction(self, producer: Producer) -> None:
        first = first_key(time.time() - self._began_s)
        appends: list[list[Any]] = [
            ["append", first + self._random.randrange(KEYS_AT_ONCE), self._value()]
            for _ in range(self._random.randint(1, 4))
        ]
        self._note("invoke", appends)
        outcome = "info"
        try:
            producer.begin_transaction()
            for _, key, value in appends:
                topic = self._topics[int(key) % len(self._topics)]
                producer.produce(topic, str(value), key=str(key))
            if self._random.random() < 0.15:
                producer.flush()
                producer.abort_transaction()
                outcome = "fail"
            else:
                producer.commit_transaction()
                outcome = "ok"
        except TransactionAbortedError:
            outcome = "fail"
            producer.abort_transaction()
        finally:
            self._note(outcome, appends)
            if outcome == "info":
                self._process = self._new_process()

    def _value(self) -> int:
        """That nobody else appends: clients differ in the last digit."""
        self._next += 1
        return self._next * 10 + self._number

    def _new_process(self) -> int:
        return time.time_ns() // 1_000 * 10 + self._number

    def _note(self, kind: str, appends: list[list[Any]]) -> None:
        operation = {
            "type": kind,
            "process": self._process,
            "value": appends,
            "time": time.time_ns(),
        }
        self._history.write(json.dumps(operation, separators=(",", ":")) + "\n")

    def _is_over(self) -> bool:
        return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    Client(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], sys.argv[5:]).run()
