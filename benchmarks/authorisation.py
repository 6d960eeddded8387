"""What access control lists add to a request: `python benchmarks/authorisation.py`.

For each kind of rules, what `Call.require_all` takes for a produce request: where everybody may do
everything, where the decision is remembered, and where it is made. The principals are many, as are
the connections: each has an object of its own. Time of the processor, not of the clock.
"""

from __future__ import annotations

import time
from typing import Any

from mainstem.ingest_gateway.caller import Identity
from mainstem.ingest_gateway.connections import Connection
from mainstem.ingest_gateway.security import Access
from mainstem.ingest_gateway.services.call import Call
from mainstem.ingest_gateway.services.requirements import produce_needs
from mainstem.protocol.v1 import log_pb2
from mainstem.security import AclBinding, Acls, Principal, acl_binding_of

USERS = 20
TOPICS = 50


def rules(count: int) -> list[AclBinding]:
    """Half of them literal, half of them prefixed; each user may write each topic by a prefix."""
    found = [
        acl_binding_of(
            "TOPIC", f"t-{n // USERS % 5}", "PREFIXED", f"User:u{n % USERS}", "*", "WRITE", "ALLOW"
        )
        for n in range(min(count, 5 * USERS))
    ]
    while len(found) < count:
        number = len(found)
        kind = "PREFIXED" if number % 2 else "LITERAL"
        found.append(
            acl_binding_of(
                "TOPIC", f"other-{number}", kind, f"User:u{number % USERS}", "*", "READ", "ALLOW"
            )
        )
    return found[:count]


def calls(access: Access) -> list[Call]:
    context: Any = None
    made = []
    for number in range(USERS):
        connection = Connection(f"ipv4:192.0.2.{number}:4711", "", 0.0)
        made.append(Call(context, connection, Identity(Principal("User", f"u{number}")), access))
    return made


def us_per_request(access: Access, rounds: int, acls: Acls | None = None) -> float:
    requests = [log_pb2.ProduceRequest(topic=f"t-{n % 5}-{n}") for n in range(TOPICS)]
    asking = calls(access)
    pairs = [(call, request) for call in asking for request in requests]
    spent = 0.0
    for _ in range(rounds):
        if acls is not None:
            acls.replace(acls.bindings)  # what was remembered is forgotten
        began = time.thread_time()
        for call, request in pairs:
            call.require_all(produce_needs, request)
        spent += time.thread_time() - began
    return spent / rounds / len(pairs) * 1e6


def main() -> None:
    print(f"open access            {us_per_request(Access(), 200):6.2f} us")
    for count in (500, 1_000, 10_000):
        acls = Acls()
        acls.replace(rules(count))
        access = Access(acls)
        us_per_request(access, 1)
        print(f"{count:6} rules, remembered {us_per_request(access, 200):6.2f} us")
        print(f"{count:6} rules, decided    {us_per_request(access, 20, acls):6.2f} us")


if __name__ == "__main__":
    main()
