"""System tables in which the latest row of a key counts: written by an appender, kept small beside
its commits, and known as a whole to the gateway that leads them."""

from mainstem.delta_log.latest.rewriting import is_due
from mainstem.delta_log.latest.rows import LatestRow, RowsByPlace, View
from mainstem.delta_log.latest.table import LatestTable, TableKind

__all__ = [
    "LatestRow",
    "LatestTable",
    "RowsByPlace",
    "TableKind",
    "View",
    "is_due",
]
