"""One leader among many processes: start it several times, and kill the one that leads.

    mainstem topic create scheduler -p 1
    python examples/leader_election.py 127.0.0.1:9490 scheduler

When the leader closes, another leads at once; when it is killed, after `session.timeout.ms`. A
leader that was only cut off may believe for a while that it still leads: give its epoch along with
all that it writes, and let what is written to refuse an older one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from mainstem.client import LeaderElection


def main(servers: str, topic: str) -> None:
    config = {"bootstrap.servers": servers, "session.timeout.ms": 3_000}
    with LeaderElection(topic, config) as election:
        print(f"{os.getpid()} stands by", flush=True)
        while election.wait():
            print(f"{os.getpid()} leads, epoch {election.epoch}", flush=True)
            while election.is_leader:
                time.sleep(0.1)  # what only one of them may do
            print(f"{os.getpid()} does not lead any more", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
        main(sys.argv[1], sys.argv[2])
