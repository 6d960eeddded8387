"""What applications build of a producer and a consumer, with nothing but their public calls."""

from mainstem.client.recipes.dead_letters import (
    DEAD_LETTER_SUFFIX,
    DeadLetterHandler,
    RetryPolicy,
)
from mainstem.client.recipes.leader_election import LeaderElection
from mainstem.client.recipes.redrive import REDRIVE_COUNT_HEADER, DeadLetter, Redrive

__all__ = [
    "DEAD_LETTER_SUFFIX",
    "REDRIVE_COUNT_HEADER",
    "DeadLetter",
    "DeadLetterHandler",
    "LeaderElection",
    "Redrive",
    "RetryPolicy",
]
