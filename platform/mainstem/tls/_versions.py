"""Which versions of TLS a gateway speaks.

gRPC for Python has no setting for it. What it has is the cipher suites of TLS 1.2, which it reads
from the environment when it is imported; those of TLS 1.3 stay as they are. So TLS 1.2 is left out
by a suite of it that no two can agree on. Imports no gRPC.
"""

from __future__ import annotations

import os
from typing import Final

PROTOCOLS: Final = "ssl.enabled.protocols"

_VARIABLE: Final = "GRPC_SSL_CIPHER_SUITES"

#: It needs a key that both sides know already, and gRPC has no means to give it one.
_NO_SUITE: Final = "ECDHE-PSK-AES128-CBC-SHA"


def leave_tls_1_2_out() -> None:
    """Has this process speak TLS 1.3 only, as server and as client: before it imports gRPC."""
    os.environ[_VARIABLE] = _NO_SUITE


def tls_1_2_is_left_out() -> bool:
    """Whether `leave_tls_1_2_out` was called, or the environment says the same."""
    return os.environ.get(_VARIABLE) == _NO_SUITE
