"""What a task writes: a transaction of its own, which it prepares and leaves to the driver."""

from __future__ import annotations

import contextlib
import uuid
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from itertools import chain
from typing import Final

import pyarrow as pa

from mainstem.client import BatchMetadata, Producer
from mainstem.errors import MainstemError
from pyspark_mainstem._sink_columns import by_topic
from pyspark_mainstem._sink_options import SinkOptions

#: Batches whose fate has not been looked at. The producer bounds what is under way by bytes.
_UNSEEN_MAX: Final = 64

#: Seconds that a task which fails takes to tell the gateway.
_ABORT_S: Final = 5.0


def write_task(rows: Iterable[pa.RecordBatch], options: SinkOptions, name: str) -> str:
    """Writes the rows in a prepared transaction; returns its token, empty where there is no row.

    A task that fails leaves nothing behind; one that is killed, an open transaction, which the
    coordinator aborts when its time is up.

    Args:
        name: The beginning of the transactional id; each attempt makes one of its own of it, so
            that no two of them are in each other's way.

    Raises:
        MainstemError: A row cannot be written, or the gateway refuses it.
    """
    parts = (part for batch in rows for part in by_topic(batch, options.topic))
    first = next(parts, None)
    if first is None:
        return ""
    config = {**options.producer, "transactional.id": f"{name}-{uuid.uuid4().hex}"}
    with Producer(config) as producer:
        producer.init_transactions(single_use=True)
        producer.begin_transaction()
        try:
            unseen: deque[Future[BatchMetadata]] = deque()
            for topic, batch in chain((first,), parts):
                unseen.append(producer.produce_batch(topic, batch))
                while len(unseen) > _UNSEEN_MAX or (unseen and unseen[0].done()):
                    unseen.popleft().result()
            producer.flush()
            for future in unseen:
                future.result()
            return producer.prepare_transaction(lifetime=options.commit_timeout_ms / 1000)
        except BaseException:
            # It is aborted in any case when its time is up.
            with contextlib.suppress(MainstemError):
                producer.abort_transaction(_ABORT_S)
            raise
