"""What runs once a record: compiled where the installation could compile it, else in Python.

`plain.py` says what each does. `_compiled.pyx` does the same with fewer steps, and may be missing:
a plain installation needs no compiler. The variable MAINSTEM_PURE_PYTHON=1 leaves it out.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from mainstem.client.per_record import plain

#: Of what `_compiled.pyx` offers; another number in a module that an older checkout has built.
VERSION: Final = 4

if TYPE_CHECKING:
    from mainstem.client.per_record.plain import (
        OpenRecords,
        RecordColumns,
        binary_column,
        faster_produce,
        record_places,
    )

    COMPILED: bool
else:
    chosen = plain
    if not os.environ.get("MAINSTEM_PURE_PYTHON"):
        try:
            from mainstem.client.per_record import _compiled
        except ImportError:
            pass
        else:
            if getattr(_compiled, "VERSION", 0) == VERSION:
                chosen = _compiled
    COMPILED = chosen is not plain
    OpenRecords = chosen.OpenRecords
    RecordColumns = chosen.RecordColumns
    binary_column = chosen.binary_column
    faster_produce = chosen.faster_produce
    record_places = chosen.record_places

__all__ = [
    "COMPILED",
    "OpenRecords",
    "RecordColumns",
    "binary_column",
    "faster_produce",
    "record_places",
]
