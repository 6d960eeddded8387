"""Proves that a table is what the log promises. Reads everything, changes nothing."""

from mainstem.delta_log.verify.topic import (
    ADVICE,
    CHECKS,
    FINDINGS_MAX,
    CheckResult,
    TopicReport,
    verify_named,
    verify_topic,
)

__all__ = [
    "ADVICE",
    "CHECKS",
    "FINDINGS_MAX",
    "CheckResult",
    "TopicReport",
    "verify_named",
    "verify_topic",
]
