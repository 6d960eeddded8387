"""What tests of mainstem, and of programs that use it, need: real gateways, a fake one,
and a judge of histories."""

from mainstem.testing._fake_gateway import FakeGateway, FakeTopic, Fault, StoredRecord
from mainstem.testing._gateway_process import GatewayProcess, GatewayProcessError
from mainstem.testing._history import (
    FINDING_KINDS,
    HistoryFinding,
    HistoryWriter,
    Read,
    Run,
    Send,
    Verdict,
    check_history,
    read_history,
)

__all__ = [
    "FINDING_KINDS",
    "FakeGateway",
    "FakeTopic",
    "Fault",
    "GatewayProcess",
    "GatewayProcessError",
    "HistoryFinding",
    "HistoryWriter",
    "Read",
    "Run",
    "Send",
    "StoredRecord",
    "Verdict",
    "check_history",
    "read_history",
]
