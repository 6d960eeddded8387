"""Change two topics and a database together, or not at all, whatever crashes.

    python examples/two_phase_sqlite.py 127.0.0.1:9490 orders invoices shop.db

Each order is a row of the database and a record of each topic. The topics' transaction is prepared
first; the database decides, as it keeps the token in the transaction that has the row; then the
topics' transaction is completed. A process that starts completes what the database has decided, and
aborts what it has not. Start it twice: the older one is fenced on both sides.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time
import uuid

from mainstem.client import Producer


class Shop:
    """The database. One process writes to it: who opens it last.

    Raises:
        RuntimeError: From any method but the first: another process has opened it since.
    """

    def __init__(self, path: str) -> None:
        self._me = uuid.uuid4().hex
        self._database = sqlite3.connect(path, isolation_level=None, timeout=60.0)
        self._run("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY)")
        self._run("CREATE TABLE IF NOT EXISTS tokens (token PRIMARY KEY)")
        self._run("CREATE TABLE IF NOT EXISTS owner (one PRIMARY KEY, name)")
        # From here on the process before this one decides nothing more.
        self._run("INSERT OR REPLACE INTO owner VALUES (1, ?)", self._me)

    def decided(self) -> list[str]:
        """Tokens of transactions that are decided, and perhaps not completed."""
        return [str(token) for (token,) in self._run("SELECT token FROM tokens")]

    def completed(self, token: str) -> None:
        self._run("DELETE FROM tokens WHERE token = ?", token)

    def next_number(self) -> int:
        [(number,)] = self._run("SELECT coalesce(max(number) + 1, 0) FROM orders")
        return int(number)

    def decide(self, number: int, token: str) -> None:
        """Commits an order, and with it the topics' transaction."""
        self._run("BEGIN IMMEDIATE")
        try:
            if self._run("SELECT name FROM owner") != [(self._me,)]:
                raise RuntimeError("another process has opened the database")
            self._run("INSERT INTO orders VALUES (?)", number)
            self._run("INSERT INTO tokens VALUES (?)", token)
            self._run("COMMIT")
        except BaseException:
            self._run("ROLLBACK")
            raise

    def _run(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        return self._database.execute(statement, values).fetchall()


def recover(shop: Shop, producer: Producer) -> None:
    """What the database has decided is completed, what it has not is aborted."""
    undecided = producer.init_transactions()
    for token in shop.decided():
        producer.complete_transaction(token)
        shop.completed(token)
        if token == undecided:
            undecided = None
    if undecided is not None:
        producer.complete_transaction(undecided, commit=False)


def main(servers: str, orders: str, invoices: str, path: str) -> None:
    config = {"bootstrap.servers": servers, "transactional.id": f"shop-{orders}"}
    shop = Shop(path)
    with Producer(config) as producer:
        recover(shop, producer)
        while True:
            number = shop.next_number()
            producer.begin_transaction()
            producer.produce(orders, str(number))
            producer.produce(invoices, str(number))
            token = producer.prepare_transaction()
            shop.decide(number, token)
            producer.complete_transaction(token)
            shop.completed(token)
            print(f"order {number}", flush=True)
            time.sleep(0.01)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
        main(*sys.argv[1:])
