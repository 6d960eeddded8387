"""What rows ask of a client, with nats-py; see `client.py`.

nats-py lives in an event loop, which has a thread of its own here, so that the rows can call it
from any thread. A message has no key: the key's bytes go in front of the value's.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final

import nats
from nats.aio.msg import Msg

if TYPE_CHECKING:
    from benchmarks.kafka.client import Task

#: Messages that may wait for their acknowledgements; nats-py's own default for this.
_OUTSTANDING: Final = 4_000
_DEADLINE_S: Final = 300.0
_NO_LIMIT: Final = -1


class Nats:
    """nats-py, with JetStream."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._subjects = [f"{task.topic}.{number}" for number in range(task.partitions)]
        self._seen: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connection: Any = self._run(self._connect())
        self._stream = self._connection.jetstream()
        self._next_subject = itertools.cycle(self._subjects).__next__
        # Counts what is read; set when it is as much as `consume` waits for.
        self._read = 0
        self._wanted = 0
        self._enough = asyncio.Event()

    def begin_reading(self) -> None:
        took = self._take if self._task.row.startswith("consume") else self._hand_over
        self._run(
            self._stream.subscribe(
                f"{self._task.topic}.*",
                stream=self._task.topic,
                ordered_consumer=True,
                cb=took,
                pending_msgs_limit=_NO_LIMIT,
                pending_bytes_limit=_NO_LIMIT,
            )
        )

    def produce(self, records: Iterator[tuple[bytes, bytes]], *, callbacks: bool) -> None:
        assert not callbacks
        self._run(self._produce(records))

    def consume(self, count: int) -> None:
        self._run(self._consume(count))

    def poll(self, timeout_s: float) -> bytes | None:
        try:
            return self._seen.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def produce_one(self, value: bytes) -> None:
        """Hands it to the loop; the row sees by reading whether it arrived."""
        publish = self._connection.publish(self._next_subject(), value, reply=self._nobody)
        asyncio.run_coroutine_threadsafe(publish, self._loop)

    def produce_and_wait(self, key: bytes, value: bytes) -> None:
        self._run(self._stream.publish(self._next_subject(), key + value))

    def close(self) -> None:
        self._run(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_DEADLINE_S)

    async def _connect(self) -> Any:
        connection = await nats.connect(f"nats://{self._task.address}")
        # Acknowledgements that nobody waits for come here, and are dropped.
        self._nobody = connection.new_inbox()
        return connection

    async def _produce(self, records: Iterator[tuple[bytes, bytes]]) -> None:
        """The client's own `publish_async` does this too, at half the speed."""
        inbox = self._connection.new_inbox()
        room = asyncio.Semaphore(_OUTSTANDING)
        refused: list[bytes] = []

        async def acknowledged(message: Msg) -> None:
            if b'"error"' in message.data or not message.data:
                refused.append(message.data)
            room.release()

        answers = await self._connection.subscribe(
            inbox,
            cb=acknowledged,
            pending_msgs_limit=_NO_LIMIT,
            pending_bytes_limit=_NO_LIMIT,
        )
        publish = self._connection.publish
        for subject, (key, value) in zip(itertools.cycle(self._subjects), records, strict=False):
            await room.acquire()
            await publish(subject, key + value, reply=inbox)
        async with asyncio.timeout(_DEADLINE_S):
            for _ in range(_OUTSTANDING):
                await room.acquire()
        await answers.unsubscribe()
        if refused:
            raise RuntimeError(f"not everything was stored: {refused[:1]}")

    async def _consume(self, count: int) -> None:
        self._wanted += count
        self._enough.clear()
        if self._read < self._wanted:
            async with asyncio.timeout(_DEADLINE_S):
                await self._enough.wait()

    async def _take(self, message: Msg) -> None:
        _ = message.data[:16], message.data[16:], message.metadata.sequence.stream
        self._read += 1
        if self._read >= self._wanted:
            self._enough.set()

    async def _hand_over(self, message: Msg) -> None:
        self._seen.put(message.data)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * _DEADLINE_S)
