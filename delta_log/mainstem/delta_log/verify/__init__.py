"""Proves that a table is what the log promises. Reads everything, changes nothing."""

from mainstem.delta_log.verify.topic import (
    ADVICE,
    CHECKS,
    FINDINGS_MAX,
    ROW_CHECKS,
    CheckResult,
    TopicReport,
    verify_named,
    verify_system_table,
    verify_topic,
)

__all__ = [
    "ADVICE",
    "CHECKS",
    "FINDINGS_MAX",
    "ROW_CHECKS",
    "CheckResult",
    "TopicReport",
    "verify_named",
    "verify_system_table",
    "verify_topic",
]
