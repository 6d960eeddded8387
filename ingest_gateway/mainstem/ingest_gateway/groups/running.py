"""What a gateway has while it coordinates the groups."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from mainstem.consumers import Coordinator
from mainstem.consumers.offset_rows import GroupRow
from mainstem.consumers.offsets_table import OffsetsTable


@dataclass(slots=True)
class Running:
    """What there is while this gateway coordinates.

    Attributes:
        not_looked_up: Topics that are to be looked up before all others are again, the next last.
        rows: The accepted row of each group, durable or not.
        missing: Topics that members want and that did not exist when they were looked for.
        looks: By topic, the look at it that is under way.
        loop: Where all of it changes.
    """

    coordinator: Coordinator
    table: OffsetsTable
    rows: dict[str, GroupRow] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    not_looked_up: list[str] = field(default_factory=list)
    looks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    all_topics_known: bool = False
    members_count: int = 0
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
