"""A member of a consumer group, in a process of its own: group_rows.py starts it.

Reads a `Member` as JSON from its only argument. Prints a line once it could subscribe, waits for a
line, subscribes, and from then on prints what it owns whenever that changed:
`{"at_s": seconds of the monotonic clock, "owned": [[topic, partition], ...]}`. Ends with its input.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.kafka.row import MAINSTEM

_POLL_S: Final = 0.02


@dataclass(slots=True)
class Member:
    """Who joins what.

    Attributes:
        system: `mainstem` or `kafka`.
        config: Settings of the consumer beside `bootstrap.servers` and `group.id`.
    """

    system: str
    address: str
    group: str
    topics: list[str]
    config: dict[str, Any] = field(default_factory=dict)


def _consumer(member: Member) -> Any:
    config = {
        "bootstrap.servers": member.address,
        "group.id": member.group,
        "enable.auto.commit": False,
        **member.config,
    }
    if member.system == MAINSTEM:
        from mainstem.client import Consumer

        return Consumer(config)
    from confluent_kafka import Consumer as KafkaConsumer

    return KafkaConsumer(config)


def main() -> None:
    """Joins, and tells."""
    member = Member(**json.loads(sys.argv[1]))
    consumer = _consumer(member)
    print("ready", flush=True)
    sys.stdin.readline()
    stop = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    consumer.subscribe(member.topics)
    owned: list[tuple[str, int]] = []
    while not stop.is_set():
        consumer.poll(_POLL_S)
        now = sorted((one.topic, one.partition) for one in consumer.assignment())
        if now != owned:
            owned = now
            print(json.dumps({"at_s": time.monotonic(), "owned": owned}), flush=True)
    consumer.close()


if __name__ == "__main__":
    main()
