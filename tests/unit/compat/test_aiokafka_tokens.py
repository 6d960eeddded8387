"""Tokens of a provider in aiokafka's shape."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from typing import Any

import pytest

from mainstem.compat.aiokafka import AIOKafkaProducer
from mainstem.compat.aiokafka import tokens as module
from mainstem.compat.aiokafka.abc import AbstractTokenProvider
from mainstem.compat.aiokafka.tokens import oauth_cb_of


def jwt_of(**claims: Any) -> str:
    return f"a.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c"


class Provider(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        await asyncio.sleep(0)
        return self._token


def test_a_token_says_itself_when_it_ends() -> None:
    assert oauth_cb_of(Provider(jwt_of(exp=2_000_000_000)))("") == (
        jwt_of(exp=2_000_000_000),
        2_000_000_000.0,
    )
    for opaque in ("opaque", jwt_of(), jwt_of(exp="x"), "a.b.c", "a.é.c"):
        token, ends_at = oauth_cb_of(Provider(opaque))("")
        assert token == opaque
        assert 30 < ends_at - time.time() <= 60


def test_a_provider_that_hangs_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOKEN_S_MAX", 0.1)
    cancelled = threading.Event()

    class Hangs(AbstractTokenProvider):
        async def token(self) -> str:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "never"

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.to_thread(oauth_cb_of(Hangs()), "")
        assert await asyncio.to_thread(cancelled.wait, 30)

    asyncio.run(main())


def test_what_is_no_provider_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match=r"must be an .*AbstractTokenProvider"):
            AIOKafkaProducer(
                bootstrap_servers="127.0.0.1:1",
                security_protocol="SASL_SSL",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=lambda: "token",
            )

    asyncio.run(main())
