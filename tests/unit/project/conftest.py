"""The benchmarks are imported from the root."""

from __future__ import annotations

import sys
from pathlib import Path

# Last in the path, so that nothing of the root hides an installed module.
sys.path.append(str(Path(__file__).resolve().parents[3]))
