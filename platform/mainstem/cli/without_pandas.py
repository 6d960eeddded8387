"""Keeps pandas out of a process of ours that has no use for it.

Where pandas is installed, pyarrow imports it at the first `pa.array` of a list: half a second of
the processor and 36 MB of memory, which each gateway and each `mainstem topic produce` would pay.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def leave_pandas_out() -> None:
    """Has pyarrow take pandas for absent in this process, and for good.

    Only for processes whose program is ours: a library must not do this to an application.
    """
    if "pyarrow" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.array([0])  # looks for pandas once
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out", name=name)
        return None
