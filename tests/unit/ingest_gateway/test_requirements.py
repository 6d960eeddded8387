"""What each call needs: every call has its row, and no row is of no call."""

from __future__ import annotations

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
