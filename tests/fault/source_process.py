"""Produces numbered records with keys to a topic, as an idempotent producer, until its stdin ends.

Usage: python source_process.py BOOTSTRAP TOPIC KEYS
"""

from __future__ import annotations

import select
import sys
import uuid

from mainstem.client import Producer


def main(bootstrap: str, topic: str, keys: str) -> None:
    life = uuid.uuid4().hex[:8]
    number = 0
    with Producer({"bootstrap.servers": bootstrap, "retry.backoff.max.ms": 300}) as producer:
        while not select.select([sys.stdin], [], [], 0.02)[0]:
            for _ in range(10):
                producer.produce(topic, f"{life}-{number}", key=f"k{number % int(keys)}")
                number += 1
            producer.poll(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
