"""What a gateway says at its start of who may do what."""

from __future__ import annotations

import pytest

from mainstem.ingest_gateway.listeners import exposure


@pytest.mark.parametrize(
    "address", ["127.0.0.1:9490", "[::1]:9490", "localhost:9490", "127.9.9.9:1"]
)
def test_what_only_this_machine_reaches_is_no_matter(address: str) -> None:
    assert exposure(address, encrypted=False, asks=False, has_rules=False) == ""


@pytest.mark.parametrize("address", ["0.0.0.0:9490", "[::]:9490", "gateway-1:9490"])
@pytest.mark.parametrize(
    ("encrypted", "asks", "has_rules", "said"),
    [
        (False, False, False, "nothing is encrypted"),
        (False, False, True, "nothing is encrypted"),
        (True, False, False, "nobody is asked who they are"),
        (True, False, True, "nobody is asked who they are"),
        (True, True, False, "see authorizer"),
        (True, True, True, ""),
    ],
)
def test_what_others_reach_is_said_unless_it_is_guarded(
    address: str, encrypted: bool, asks: bool, has_rules: bool, said: str
) -> None:
    told = exposure(address, encrypted=encrypted, asks=asks, has_rules=has_rules)
    assert said in told
    assert bool(told) is bool(said)
