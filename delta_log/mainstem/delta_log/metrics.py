"""What an appender reports, and to whom nobody listens."""

from __future__ import annotations

from typing import Protocol


class AppenderMetrics(Protocol):
    """What an appender reports.

    `stage` is queue, encode or commit. `outcome` of a table commit is committed, conflict or
    unknown; of a roll-up committed, superseded or failed. Orphaned are records that were
    acknowledged with acks=1 and that another leader has kept from the table. `reason` of producers
    that are forgotten is expired or evicted.
    """

    def append_seconds(self, stage: str, seconds: float) -> None: ...
    def table_commit(self, outcome: str) -> None: ...
    def duplicates(self, batch_count: int) -> None: ...
    def roll_up(self, outcome: str, file_count: int) -> None: ...
    def orphaned(self, record_count: int) -> None: ...
    def producers_forgotten(self, reason: str, count: int) -> None: ...


class NoMetrics:
    """Counts nothing."""

    def append_seconds(self, stage: str, seconds: float) -> None:
        pass

    def table_commit(self, outcome: str) -> None:
        pass

    def duplicates(self, batch_count: int) -> None:
        pass

    def roll_up(self, outcome: str, file_count: int) -> None:
        pass

    def orphaned(self, record_count: int) -> None:
        pass

    def producers_forgotten(self, reason: str, count: int) -> None:
        pass
