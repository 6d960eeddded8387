"""How long the tests take that can be longer: those of faults and of properties."""

from __future__ import annotations

import os

#: `make test-fault`, or MAINSTEM_TEST_FAULTS=full with any other way to run tests.
FULL = os.environ.get("MAINSTEM_TEST_FAULTS") == "full"
