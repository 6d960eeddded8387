"""What tests of mainstem, and of programs that use it, need: real gateways and a fake one."""

from mainstem.testing._fake_gateway import FakeGateway, FakeTopic, Fault, StoredRecord
from mainstem.testing._gateway_process import GatewayProcess, GatewayProcessError

__all__ = [
    "FakeGateway",
    "FakeTopic",
    "Fault",
    "GatewayProcess",
    "GatewayProcessError",
    "StoredRecord",
]
