"""Tokens of a provider in aiokafka's shape, which is awaited in the program's event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from mainstem.client.bearer_tokens import TOKEN_S_MAX, token_end_s
from mainstem.compat.aiokafka.abc import AbstractTokenProvider

#: Of a token that does not say when it ends.
_LIFETIME_S: Final = 60.0


def oauth_cb_of(provider: object) -> Callable[[str], tuple[str, float]]:
    """The function that our clients call.

    Raises:
        ValueError: It is no `AbstractTokenProvider`.
    """
    if not isinstance(provider, AbstractTokenProvider):
        raise ValueError(
            f"sasl_oauth_token_provider is a {type(provider).__name__}; it must be an "
            "mainstem.compat.aiokafka.abc.AbstractTokenProvider"
        )
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # made before the loop runs
        loop = None

    def oauth_cb(config: str) -> tuple[str, float]:
        if loop is None or not loop.is_running():
            token = asyncio.run(provider.token())
        else:
            awaited = asyncio.run_coroutine_threadsafe(provider.token(), loop)
            try:
                token = awaited.result(TOKEN_S_MAX)
            finally:
                awaited.cancel()
        ends_at = token_end_s(token)
        return token, time.time() + _LIFETIME_S if ends_at is None else ends_at

    return oauth_cb
