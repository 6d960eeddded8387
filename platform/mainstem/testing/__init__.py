"""What tests of mainstem, and of programs that use it, need: real gateways, a fake one,
and a judge of histories."""

from mainstem.testing._fake_fault import Fault
from mainstem.testing._fake_gateway import FakeGateway
from mainstem.testing._fake_producers import FakeProducers, FakeRun
from mainstem.testing._fake_topic import FakeTopic, StoredRecord
from mainstem.testing._gateway_process import GatewayProcess, GatewayProcessError
from mainstem.testing._history import (
    HistoryWriter,
    OffsetCommit,
    OffsetRow,
    Operation,
    Output,
    Ownership,
    Read,
    Removed,
    Run,
    Send,
    read_history,
    runs_of,
)
from mainstem.testing._history_judge import check_history
from mainstem.testing._verdict import FINDING_KINDS, HistoryFinding, Verdict

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
    "OffsetCommit",
    "OffsetRow",
    "Operation",
    "Output",
    "Ownership",
    "Read",
    "Removed",
    "Run",
    "Send",
    "StoredRecord",
    "Verdict",
    "check_history",
    "read_history",
    "runs_of",
]
