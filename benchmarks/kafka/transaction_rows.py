"""The row of transactions: the same records as the row `produce`, a thousand to a transaction."""

from __future__ import annotations

from typing import Final

from benchmarks.kafka.client_rows import Work
from benchmarks.kafka.row import KAFKA, MAINSTEM, Row, Variant

_ID: Final = {"transactional.id": "bench"}

ROWS: Final = (
    Row(
        "produce in transactions",
        "records/s",
        (
            Variant("mainstem", MAINSTEM, dict(_ID)),
            Variant("Kafka, default", KAFKA, dict(_ID)),
            Variant("Kafka, linger.ms=0", KAFKA, {**_ID, "linger.ms": 0}),
        ),
        Work("transactions", 200_000, 100_000),
    ),
)
