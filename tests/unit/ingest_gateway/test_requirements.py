"""What each call needs: every call has its row, and no row is of no call."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.ingest_gateway.test_access_matrix import CASES

from mainstem.ingest_gateway.services.requirements import REQUIREMENTS
from mainstem.protocol.v1 import (
    admin_pb2,
    groups_pb2,
    log_pb2,
    security_pb2,
    transactions_pb2,
)


def test_every_call_of_the_protocol_says_what_it_needs() -> None:
    calls = {
        method.full_name
        for module in (log_pb2, groups_pb2, admin_pb2, transactions_pb2, security_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert set(REQUIREMENTS) == calls


def test_only_signing_in_needs_no_sign_in() -> None:
    assert [name for name, one in REQUIREMENTS.items() if not one.signed_in] == [
        "mainstem.v1.Security.Authenticate"
    ]


def test_the_guide_tells_of_every_call_what_it_needs(repo_root: Path) -> None:
    told: dict[str, set[tuple[str, str]]] = {}
    for line in (repo_root / "docs/guides/security.md").read_text().splitlines():
        calls, needs, *_ = [*line.split("|")[1:], "", ""]
        said = {
            (operation, kind.upper().replace(" ", "_"))
            for operation, kind in re.findall(
                r"\b([A-Z_]+) on the (topic|group|cluster|transactional id)", needs
            )
        }
        for call in re.findall(r"`((?:Log|Admin|Groups|Transactions|Security)\.\w+)`", calls):
            assert call not in told
            told[call] = said
    # What a call really needs is tried out with the same cases.
    needed: dict[str, set[tuple[str, str]]] = {}
    for case in CASES:
        needed.setdefault(case.call, set()).update(one[:2] for one in case.needs)
    assert told == needed
