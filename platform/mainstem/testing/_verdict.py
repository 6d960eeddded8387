"""What a history says: promises that were broken, and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: What can be found about the log and those who read it, each with what it means.
LOG_FINDING_KINDS: Final = {
    "lost write": "an acknowledged record is not in the log, which was read past its place",
    "duplicate": "a record of an idempotent producer is in the log more than once",
    "inconsistent offset": "two records have one offset, or a record is not where it was answered",
    "aborted read": "a record was read that was refused, or that nobody sent",
    "poll skip": "a consumer went past a record that is in the log",
    "non-monotonic poll": "a consumer was given an offset that it had passed",
    "non-monotonic send": "a producer's records are not in the order in which it sent them",
    "unseen": "an acknowledged record lies behind everything that was read",
    "vanished": "at an offset at which a reader was given a record the log has none at the end",
}

#: What can be found about consumer groups.
GROUP_FINDING_KINDS: Final = {
    "undelivered": "a record of the log was given to no member of a group",
    "delivered twice": "the output of an exactly-once group has a record more than once",
    "unassigned poll": "a member was given a record of a partition that it did not have",
    "offset went back": "a group's offset is lower than one that was stored or acknowledged before",
    "lost commit": "a member began before an offset whose commit had been acknowledged",
}

FINDING_KINDS: Final = {**LOG_FINDING_KINDS, **GROUP_FINDING_KINDS}

#: Findings of one kind that are kept with their text; all are counted.
FINDINGS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class HistoryFinding:
    """A broken promise: a kind out of `FINDING_KINDS`, and the record that shows it."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(slots=True)
class Verdict:
    """What a history says.

    Attributes:
        findings: The first `FINDINGS_MAX` of each kind.
        counts: How many records or polls each kind has.
        acknowledged_count: Records with the outcome ok, by acks.
        duplicate_count: Superfluous copies of any producer's records. Without idempotence they are
            allowed.
        unknown_count: Records whose producer was told neither ok nor fail.
        unknown_stored_count: Those of them that are in the log.
    """

    findings: list[HistoryFinding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINDING_KINDS, 0))
    acknowledged_count: dict[str, int] = field(default_factory=dict)
    failed_count: int = 0
    unknown_count: int = 0
    unknown_stored_count: int = 0
    stored_count: int = 0
    duplicate_count: int = 0

    @property
    def ok(self) -> bool:
        """Whether no promise was broken."""
        return not any(self.counts.values())

    def add(self, kind: str, message: str, count: int = 1) -> None:
        """Notes a finding about `count` records, of which the message tells the first."""
        self.counts[kind] += count
        if sum(1 for finding in self.findings if finding.kind == kind) < FINDINGS_MAX:
            self.findings.append(HistoryFinding(kind, message))
