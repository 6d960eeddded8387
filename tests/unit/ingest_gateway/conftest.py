"""What the tests of the gateway share."""

from __future__ import annotations

import sys
from pathlib import Path

# Last in the path, so that nothing of the checkout's root hides an installed module. The tests' own
# helpers (`tests.unit.ingest_gateway.harness`) are imported from there.
sys.path.append(str(Path(__file__).resolve().parents[3]))
