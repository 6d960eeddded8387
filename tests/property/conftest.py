"""The helpers of the unit tests are imported from the checkout's root."""

from __future__ import annotations

import sys
from pathlib import Path

# Last in the path, so that nothing of the root hides an installed module.
sys.path.append(str(Path(__file__).resolve().parents[2]))
