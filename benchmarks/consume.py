"""How fast a consumer reads, from the tail in memory and from history, against a real gateway.

    python benchmarks/consume.py --records 1000000

Tail: the gateway has just taken the records. History: it was restarted and reads its table.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time

import numpy as np
import pyarrow as pa

from mainstem.client import AdminClient, Consumer, Producer, TopicPartition
from mainstem.testing import GatewayProcess

TOPIC = "bench"
BATCH_ROWS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, GatewayProcess(directory) as gateway:
        _fill(gateway.address, options)
        gc.collect()
        gc.freeze()
        for source in ("tail", "history"):
            if source == "history":
                gateway.restart()
            for call in ("consume", "poll", "poll_batch"):
                rates = []
                for _ in range(options.rounds):
                    if source == "history":
                        gateway.restart()
                    rates.append(_read(gateway.address, options, call))
                shown = "  ".join(f"{rate:>9,.0f}" for rate in rates)
                print(f"{source:8} {call:10} {shown}  records/s", flush=True)


def _fill(address: str, options: argparse.Namespace) -> None:
    with AdminClient({"bootstrap.servers": address}) as admin:
        admin.create_topic(TOPIC, options.partitions)
    size = options.value_bytes
    offsets = np.arange(BATCH_ROWS + 1, dtype=np.int32) * size
    values = pa.Array.from_buffers(
        pa.binary(),
        BATCH_ROWS,
        [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(os.urandom(size * BATCH_ROWS))],
    )
    partitions = pa.array(np.arange(BATCH_ROWS, dtype=np.int32) % options.partitions)
    batch = pa.record_batch([values, partitions], names=["value", "partition"])
    with Producer({"bootstrap.servers": address}) as producer:
        for _ in range(options.records // BATCH_ROWS):
            producer.produce_batch(TOPIC, batch)


def _read(address: str, options: argparse.Namespace, call: str) -> float:
    total = options.records // BATCH_ROWS * BATCH_ROWS
    with Consumer({"bootstrap.servers": address}) as consumer:
        started = time.perf_counter()
        consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(options.partitions)])
        count = 0
        while count < total:
            if call == "consume":
                count += len(consumer.consume(500, 30))
            elif call == "poll":
                count += consumer.poll(30) is not None
            else:
                count += sum(batch.num_rows for batch in consumer.poll_batch(30).values())
        rate: float = total / (time.perf_counter() - started)
        return rate


if __name__ == "__main__":
    main()
