"""A broadcast: every listener gets every record.

    python examples/broadcast.py 127.0.0.1:9490 orders cache-1
    python examples/broadcast.py 127.0.0.1:9490 orders cache-2

Each listener is a group of its own, named after it, so a listener that is started again goes on
where it was. Records from before its first start are left out.
"""

from __future__ import annotations

import contextlib
import sys

from mainstem.client import Consumer


def main(servers: str, topic: str, name: str) -> None:
    config = {"bootstrap.servers": servers, "group.id": name, "auto.offset.reset": "latest"}
    with Consumer(config) as consumer:
        consumer.subscribe([topic], on_assign=lambda *_: print(f"{name} listens", flush=True))
        while True:
            # A poll commits, from time to time, what the polls before it gave.
            record = consumer.poll(1.0)
            if record is not None:
                print(f"{name}: {record.value!r}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
        main(*sys.argv[1:])
