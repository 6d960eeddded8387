"""What tests of mainstem, and of programs that use it, need: real gateways, a fake one,
and a judge of histories."""

from mainstem.testing._fake_fault import Fault
from mainstem.testing._fake_gateway import FakeGateway
from mainstem.testing._fake_producers import FakeProducers, FakeRun
from mainstem.testing._fake_topic import FakeTopic, StoredRecord
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
    "FakeProducers",
    "FakeRun",
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
