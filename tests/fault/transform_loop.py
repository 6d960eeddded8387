"""Consume, transform, produce, while gateways, transformers and the source's producer are killed in
turn; then judges: the output is the input transformed, each record once, in order per partition.

The transformers are the example, `examples/exactly_once_transform.py`. Input and output have the
same number of partitions, and both go by the key.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fault.programs import Program
from tests.fault.short_sessions import ShortSessions

from mainstem.client import AdminClient, Consumer, TopicPartition
from mainstem.delta_log import Topics, read_data_file
from mainstem.delta_log.store import open_warehouse

SOURCE, TARGET = "words", "loud-words"
PARTITIONS = 3
KEYS = 40

_HERE = Path(__file__).parent
_EXAMPLE = _HERE.parents[1] / "examples" / "exactly_once_transform.py"

#: So many records are there before the first kill.
_RECORDS_MIN = 100

#: The example leaves these to whoever starts it again.
_MAY_END = (
    "mainstem.errors.GatewayUnavailableError",
    "mainstem.errors.OutcomeUnknownError",
    "mainstem.errors.ConcurrentTransactionsError",
)


@dataclass(frozen=True)
class TransformLoop:
    """The size of a run.

    Attributes:
        kill_count: Of gateways, transformers and the producer, in turn.
        pause_s: Between two of them, drawn between the two.
        patience_s: In which all is transformed after the last one.
    """

    kill_count: int
    pause_s: tuple[float, float] = (0.3, 2.0)
    gateway_count: int = 2
    transformer_count: int = 2
    patience_s: float = 90.0


@dataclass
class TransformReport:
    """What a run showed."""

    seed: int
    kills: int = 0
    ended: int = 0
    record_count: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        head = (
            f"{self.record_count} records transformed, {self.kills} kills, {self.ended} "
            f"transformers ended by themselves; {self.seconds:.0f} s, seed {self.seed}"
        )
        return "\n".join([head, *self.wrong[:10]])


def run_transform_loop(directory: Path, seed: int, size: TransformLoop) -> TransformReport:
    """Runs it in an empty directory."""
    dice = random.Random(seed)
    report = TransformReport(seed)
    began = time.monotonic()
    warehouse = directory / "warehouse"
    with contextlib.ExitStack() as stack:
        gateways = stack.enter_context(ShortSessions(warehouse, size.gateway_count))
        bootstrap = gateways.bootstrap
        with AdminClient({"bootstrap.servers": bootstrap}) as admin:
            for topic in (SOURCE, TARGET):
                admin.create_topic(topic, PARTITIONS, {"rollup.files": 3})
        source = stack.enter_context(
            Program(_HERE / "source_process.py", [bootstrap, SOURCE, str(KEYS)])
        )
        transformers = [
            stack.enter_context(
                Program(_EXAMPLE, [bootstrap, SOURCE, TARGET, f"worker-{n}"], _MAY_END)
            )
            for n in range(size.transformer_count)
        ]
        _wait_for_records(bootstrap, source, size.patience_s)
        turns = itertools.cycle(("gateway", "transformer", "source"))
        for turn in itertools.islice(turns, size.kill_count):
            time.sleep(dice.uniform(*size.pause_s))
            for one in (source, *transformers):
                one.check()
            report.kills += 1
            if turn == "gateway":
                gateways.kill_one(dice)
            elif turn == "transformer":
                dice.choice(transformers).kill()
            else:
                source.kill()
        time.sleep(1.0)
        source.stop()
        _wait_until_transformed(bootstrap, transformers, size.patience_s)
        for one in transformers:
            report.ended += one.ended_count
            one.end()
        gateways.terminate()
    _judge(warehouse, report)
    report.seconds = time.monotonic() - began
    return report


def _wait_for_records(bootstrap: str, source: Program, patience_s: float) -> None:
    """Processes take seconds to start where the machine is busy: kills are for those at work."""
    ends_at = time.monotonic() + patience_s
    places = [TopicPartition(SOURCE, n) for n in range(PARTITIONS)]
    with Consumer({"bootstrap.servers": bootstrap}) as consumer:
        while sum(consumer.get_watermark_offsets(one)[1] for one in places) <= _RECORDS_MIN:
            source.check()
            assert time.monotonic() < ends_at, f"nothing is produced\n{source.log[-3_000:]}"
            time.sleep(0.1)


def _wait_until_transformed(
    bootstrap: str, transformers: Sequence[Program], patience_s: float
) -> None:
    ends_at = time.monotonic() + patience_s
    places = [TopicPartition(SOURCE, n) for n in range(PARTITIONS)]
    group = f"{SOURCE}-to-{TARGET}"
    with Consumer({"bootstrap.servers": bootstrap, "group.id": group}) as consumer:
        ends = {one: consumer.get_watermark_offsets(one)[1] for one in places}
        while True:
            for one in transformers:
                one.check()
            found = {one: max(one.offset, 0) for one in consumer.committed(places)}
            if all(found[one] == ends[one] for one in places):
                return
            assert time.monotonic() < ends_at, (
                f"{found} of {ends} is transformed\n{transformers[0].log[-3_000:]}"
            )
            time.sleep(0.2)


def _judge(warehouse: Path, report: TransformReport) -> None:
    store = open_warehouse(warehouse)
    try:
        read, written = (values(Topics(store), topic) for topic in (SOURCE, TARGET))
    finally:
        store.close()
    report.record_count = sum(map(len, written.values()))
    for partition in range(PARTITIONS):
        expected = [value.upper() for value in read[partition]]
        report.wrong += differences(partition, expected, written[partition])


def differences(partition: int, expected: Sequence[bytes], found: Sequence[bytes]) -> list[str]:
    """What is wrong with the output of a partition."""
    if expected == found:
        return []
    wrong = [f"partition {partition}: {len(found)} records, {len(expected)} expected"]
    missing, strange = set(expected) - set(found), set(found) - set(expected)
    if missing:
        wrong.append(f"  lost: {sorted(missing)[:3]}")
    if strange:
        wrong.append(f"  nobody has sent: {sorted(strange)[:3]}")
    if len(set(found)) < len(found):
        wrong.append(f"  doubled: {[one for one in set(found) if found.count(one) > 1][:3]}")
    if not missing and not strange and len(set(found)) == len(found):
        at = next(
            n for n, pair in enumerate(zip(expected, found, strict=True)) if len(set(pair)) > 1
        )
        wrong.append(f"  out of order at {at}: {found[at]!r} instead of {expected[at]!r}")
    return wrong


def values(topics: Topics, topic: str) -> dict[int, list[bytes]]:
    """What a topic's table has, by partition, in the order of offsets."""
    opened = topics.open(topic)
    return {
        partition: [
            value
            for file in opened.state.files(partition).sorted()
            for batch in read_data_file(
                opened.store, file, file.base_offset, file.last_offset + 1, ["value"]
            )
            for value in batch.column("value").to_pylist()
        ]
        for partition in range(PARTITIONS)
    }
