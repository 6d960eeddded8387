"""A row of the audit: what somebody did, or was not allowed to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

#: Of each text in a row, and of the summary.
_TEXT_CHARACTERS_MAX: Final = 300
_SUMMARY_CHARACTERS_MAX: Final = 2_000

#: Names of resources that a row has. It says how many there were.
_RESOURCES_MAX: Final = 20


class AuditKind(StrEnum):
    """Why there is a row."""

    ACT = "act"
    REFUSAL = "refusal"
    SIGN_IN = "sign-in"
    SAMPLE = "sample"
    LEFT_OUT = "left-out"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """What is known of one call, or of several that were the same.

    Attributes:
        kind: `act`: an administrative act, whether it went well or not. `refusal`: something was
            asked that the caller may not do. `sign-in`: one that failed. `sample`: a read or a
            write. `left-out`: so many rows are not here, as too many came at a time.
        time_ms: Of the first.
        principal: Who it was; of a sign-in that failed, who they said they were.
        host: The address that the call came from.
        call: The method's name.
        operation, resource_type, resources: What it needs, where that is known.
        allowed: Whether the caller may do it.
        error: The code of what it failed with; empty: it did not.
        summary: What was asked, without records and secrets.
        count: How many the same, one after the other.
        resource_count: How many there were; some of their names may not be here.
    """

    kind: AuditKind
    time_ms: int
    gateway_id: str = ""
    principal: str = ""
    client_id: str = ""
    host: str = ""
    call: str = ""
    operation: str = ""
    resource_type: str = ""
    resources: tuple[str, ...] = ()
    allowed: bool = True
    error: str = ""
    summary: str = ""
    count: int = 1
    resource_count: int = 0

    def bounded(self) -> Self:
        """The same with no more of each text than a row may have."""
        return replace(
            self,
            principal=_cut(self.principal),
            client_id=_cut(self.client_id),
            host=_cut(self.host),
            resources=tuple(_cut(name) for name in self.resources[:_RESOURCES_MAX]),
            summary=_cut(self.summary, _SUMMARY_CHARACTERS_MAX),
            resource_count=self.resource_count or len(self.resources),
        )

    def to_json(self) -> dict[str, Any]:
        """The row's value: flat, so that SQL has a short way to each part."""
        return {
            "kind": self.kind.value,
            "time_ms": self.time_ms,
            "gateway_id": self.gateway_id,
            "principal": self.principal,
            "client_id": self.client_id,
            "host": self.host,
            "call": self.call,
            "operation": self.operation,
            "resource_type": self.resource_type,
            "resources": list(self.resources),
            "resource_count": self.resource_count,
            "allowed": self.allowed,
            "error": self.error,
            "summary": self.summary,
            "count": self.count,
        }


def _cut(text: str, characters_max: int = _TEXT_CHARACTERS_MAX) -> str:
    return text if len(text) <= characters_max else text[: characters_max - 3] + "..."
