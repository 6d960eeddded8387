"""A teller in a process of its own: reads requests for transfers, and books each in two topics.

Usage: python bank_process.py SETTINGS      (a JSON object, see `bank.Teller`)

Each transaction has the debits and credits of some requests, and the offsets of what was read. Some
are aborted on purpose; their records say so. Ends with its stdin. Exit code 3: another teller has
its transactional id.
"""

from __future__ import annotations

import faulthandler
import json
import random
import select
import sys
import time
from typing import Any

from mainstem.client import Consumer, Producer, TopicPartition
from mainstem.errors import MainstemError

FENCED = 3


class Teller:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._topics: list[str] = settings["topics"]
        self._partitions: int = settings["partitions"]
        self._name: str = settings["name"]
        self._random = random.Random(settings["seed"])
        common = {
            "bootstrap.servers": settings["bootstrap"],
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 300,
            "request.timeout.ms": 2_000,
            "client.id": self._name,
        }
        self._producer = Producer(
            {**common, "transactional.id": self._name, "transaction.timeout.ms": 5_000}
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": settings["group"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 3_000,
            }
        )
        self._consumer.subscribe([settings["requests"]])

    def run(self) -> None:
        self._until_done(self._producer.init_transactions)
        while not select.select([sys.stdin], [], [], 0)[0]:
            try:
                records = self._consumer.consume(20, timeout=0.1)
                if records:
                    self._book(records)
            except MainstemError as error:
                self._start_again(error)
        self._consumer.close()
        self._producer.close()

    def _book(self, records: list[Any]) -> None:
        gives_up = self._random.random() < 0.15
        self._producer.begin_transaction()
        for record in records:
            request = json.loads(record.value)
            debit, credit = self._random.sample(self._topics, 2)
            for topic, amount in ((debit, -request["amount"]), (credit, request["amount"])):
                value = {**request, "amount": amount, "by": self._name, "aborted": gives_up}
                partition = self._random.randrange(self._partitions)
                self._producer.produce(topic, json.dumps(value), partition=partition)
        self._producer.send_offsets_to_transaction(
            self._consumer.position(self._consumer.assignment()),
            self._consumer.consumer_group_metadata(),
        )
        if gives_up:
            self._producer.abort_transaction()
            self._rewind()
        else:
            self._producer.commit_transaction()

    def _start_again(self, error: MainstemError) -> None:
        print(f"{time.time():.3f} {self._name}: {error.code}: {error}", file=sys.stderr, flush=True)
        if error.fatal:
            sys.exit(FENCED)
        self._until_done(self._abort)
        self._until_done(self._rewind)

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction()
        except MainstemError as error:
            if error.code != "INVALID_TXN_STATE":  # committed after all, or none is open
                raise

    def _rewind(self) -> None:
        """Goes on where the group's offsets say."""
        assigned = self._consumer.assignment()
        for one in self._consumer.committed(assigned) if assigned else ():
            self._consumer.seek(TopicPartition(one.topic, one.partition, max(one.offset, 0)))

    def _until_done(self, call: Any) -> None:
        while True:
            try:
                call()
            except MainstemError as error:
                if error.fatal:
                    sys.exit(FENCED)
                time.sleep(0.05)
            else:
                return


if __name__ == "__main__":
    faulthandler.enable()  # SIGABRT shows where every thread is
    Teller(json.loads(sys.argv[1])).run()
