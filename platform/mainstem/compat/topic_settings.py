"""Settings of Kafka's topics that change nothing here, and that files written for Kafka have."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from mainstem.client.settings import say

_SEGMENTS: Final = "a topic has no segments"
_REPLICAS: Final = "the store keeps the copies, and an answer to acks=all is durable in it"
_FLUSH: Final = "what is acknowledged is on disk"

#: By name, why it changes nothing.
IDLE: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("segment.bytes", "segment.ms", "segment.jitter.ms", "segment.index.bytes"), _SEGMENTS
    ),
    "index.interval.bytes": _SEGMENTS,
    "preallocate": _SEGMENTS,
    "min.insync.replicas": _REPLICAS,
    "unclean.leader.election.enable": _REPLICAS,
    "flush.messages": _FLUSH,
    "flush.ms": _FLUSH,
}


def taken(config: Mapping[str, object] | None) -> dict[str, object]:
    """What is left to set; each of the others is told once in the log.

    compression.type=producer, Kafka's default, is ours as well where nothing is said.
    """
    found: dict[str, object] = {}
    for name, value in (config or {}).items():
        if name in IDLE:
            say(logging.INFO, f"{name} of a topic changes nothing here: {IDLE[name]}")
        elif name == "compression.type" and str(value).lower() == "producer":
            say(logging.INFO, "compression.type=producer of a topic changes nothing here")
        else:
            found[name] = value
    return found
