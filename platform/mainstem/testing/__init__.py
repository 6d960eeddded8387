"""What tests of mainstem, and of programs that use it, need: a real gateway in a process."""

from mainstem.testing._gateway_process import GatewayProcess, GatewayProcessError

__all__ = ["GatewayProcess", "GatewayProcessError"]
