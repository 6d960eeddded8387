"""`mainstem topic redrive`"""

from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import click

from mainstem.cli.completion import complete_topics
from mainstem.cli.context import (
    EXIT_INTERRUPTED,
    Settings,
    admin_client,
    bootstrap_servers,
    fail,
    pass_settings,
    print_rows,
    reports_errors,
    say,
    say_dry_run,
    split_flags,
)
from mainstem.cli.help import ExampleCommand
from mainstem.cli.options import refuse_transactions
from mainstem.cli.partitions import all_partitions, offset_bounds

if TYPE_CHECKING:
    from mainstem.client import (
        AdminClient,
        Consumer,
        DeadLetter,
        RecordMetadata,
        Redrive,
        TopicPartition,
    )

#: How long a wait for dead letters lasts before the end is looked for again.
_WAIT_S: Final = 0.1

#: How often the group is asked how far others are.
_ASK_EVERY_S: Final = 0.5

#: Records between two commits: what a crash may put back twice.
_BATCH: Final = 500

#: A redrive that was killed keeps its partitions for so long.
_SESSION_MS: Final = 10_000

#: When nothing moves for so long, it is said why.
_TELL_AFTER_S: Final = 2.0


@click.command(cls=ExampleCommand)
@click.argument("topic", metavar="TOPIC.dlt", shell_complete=complete_topics)
@click.option("--to", metavar="TOPIC", help="Send all of them to this topic, placed by their keys.")
@click.option("-n", "--num", type=click.IntRange(min=1), help="End after so many records.")
@click.option("-g", "--group", help="The group that remembers the place.  [default: TOPIC.redrive]")
@click.option("--by-key", is_flag=True, help="Let the key decide on the partition.")
@click.option("--now", is_flag=True, help="Give records the current time instead of their own.")
@click.option("--dry-run", is_flag=True, help="Show what would be put back, change nothing.")
@bootstrap_servers
@pass_settings
@reports_errors
def redrive(
    settings: Settings,
    topic: str,
    to: str | None,
    num: int | None,
    group: str | None,
    by_key: bool,
    now: bool,
    dry_run: bool,
    bootstrap_servers: str,
) -> None:
    """Put dead letters back into the topics that they came from.

    Read is what lies in TOPIC.dlt now and was not put back before; what comes while it runs stays,
    so that a record which fails again does not go in circles. Dead letters stay where they are, as
    all records do: the place is remembered by a consumer group.

    Each record gets its original key, value, timestamp and headers, and the header
    dlt-redrive-count; the other headers of the dead letter go. It goes to its original partition,
    or where its key belongs if the topic has no such partition (any more), with --to or with
    --by-key. A record that is older than its topic keeps (retention.ms) is refused: say --now. A
    dead letter whose record was too large for TOPIC.dlt does not have all of it, and is not put
    back; that is told, and the exit code is 1.

    Every 500 records, when all are acknowledged, the place is committed. Ctrl-C ends after those
    that are on their way. After a crash the next run puts those up to 500 back once more; none is
    lost. Several runs at once share the work.

    \b
    EXAMPLES
      mainstem topic redrive orders.dlt --dry-run
      mainstem topic redrive orders.dlt
      mainstem topic redrive orders.dlt -n 10 --to orders-test
    """
    from mainstem.client import Producer, Redrive

    refuse_transactions(settings)
    if to == topic:
        raise click.UsageError("--to is the topic of dead letters itself")
    group = group or f"{topic}.redrive"
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(admin_client(bootstrap_servers))
        ends = _left(admin, topic, group, settings.timeout_s)
        if not ends:
            say(f"nothing to put back: group {group} is at the end of {topic}")
            return
        producer = stack.enter_context(Producer(_producer_config(settings, bootstrap_servers)))
        consumer = stack.enter_context(_consumer(settings, bootstrap_servers, group))
        machine = Redrive(
            consumer,
            producer,
            to=to,
            by_key=by_key,
            now=now,
            kept_since_ms=_Retention(admin, settings.timeout_s),
        )
        if dry_run:
            _show(settings, machine, consumer, ends, num)
            say_dry_run()
            return
        run = _Run(settings, admin, consumer, machine, topic, group, ends)
        with _interrupts() as interrupted:
            try:
                run.run(num, interrupted)
            finally:
                run.summarise()
        if machine.incomplete_count:
            say(
                f"{machine.incomplete_count} dead letters do not have their records' values, which "
                "were too large, and were not put back; see their headers dlt-topic, dlt-partition "
                "and dlt-offset"
            )
        if interrupted():
            say("interrupted; the next run goes on here")
            raise SystemExit(EXIT_INTERRUPTED)
        if machine.incomplete_count:
            raise SystemExit(1)


class _Retention:
    """The lowest timestamp that a topic keeps; 0: it keeps all."""

    def __init__(self, admin: AdminClient, timeout_s: float) -> None:
        self._admin = admin
        self._timeout_s = timeout_s
        self._retention_ms: dict[str, int] = {}

    def __call__(self, topic: str) -> int:
        retention_ms = self._retention_ms.get(topic)
        if retention_ms is None:
            config = self._admin.describe_topic(topic, timeout=self._timeout_s).config
            values = {one.name: one.value for one in config}
            removes = "delete" in values["cleanup.policy"].split(",")
            # With LogAppendTime every record is new when it comes.
            by_record = values["message.timestamp.type"] == "CreateTime"
            retention_ms = int(values["retention.ms"]) if removes and by_record else -1
            self._retention_ms[topic] = retention_ms
        return 0 if retention_ms < 0 else max(0, time.time_ns() // 1_000_000 - retention_ms)


class _Run:
    """One run: until the ends are reached, by this process or another."""

    def __init__(
        self,
        settings: Settings,
        admin: AdminClient,
        consumer: Consumer,
        redrive: Redrive,
        topic: str,
        group: str,
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._consumer = consumer
        self._redrive = redrive
        self._topic = topic
        self._group = group
        self._ends = ends
        self._counts: Counter[str] = Counter()

    def run(self, num: int | None, interrupted: Callable[[], bool]) -> None:
        """Raises what `Redrive.run_once` raises. Ends after `num` records."""
        self._consumer.subscribe([self._topic])
        left = num
        progress: object = None
        moved_at = asked_at = time.monotonic()
        told = False
        while not interrupted() and (left is None or left > 0):
            limit = _BATCH if left is None else min(left, _BATCH)
            count = self._redrive.run_once(_WAIT_S, limit, self._ends, self._put_back)
            now = time.monotonic()
            if count:
                left = None if left is None else left - count
                moved_at = now
                continue
            if now - asked_at < _ASK_EVERY_S:
                continue
            asked_at = now
            rest = self._rest()
            if not rest:
                return
            if rest != progress:
                progress, moved_at = rest, now
            elif now - moved_at >= _TELL_AFTER_S and not told:
                told = True
                say(
                    f"waiting for another redrive of {self._topic}: one that runs, or one that was "
                    f"killed less than {_SESSION_MS // 1000} s ago"
                )
            if now - moved_at >= self._settings.timeout_s:
                fail(
                    f"nothing moved for {self._settings.timeout_s:g} s: other members of group "
                    f"{self._group} have {len(rest)} of its partitions; "
                    f"see `mainstem group describe {self._group}`"
                )

    def summarise(self) -> None:
        """A row for each topic that got something."""
        rows = [[topic, count] for topic, count in sorted(self._counts.items())]
        if rows:
            print_rows(self._settings, ["topic", "records"], rows, numbers=["records"])

    def _put_back(self, letter: DeadLetter, where: RecordMetadata) -> None:
        self._counts[where.topic] += 1
        if self._settings.verbose:
            record = letter.record
            say(
                f"{record.topic}-{record.partition}@{record.offset} is "
                f"{where.topic}-{where.partition}@{where.offset} now"
            )

    def _rest(self) -> dict[TopicPartition, int]:
        """What is left to read of the partitions that are not at their end, by anybody."""
        own = {tp: tp.offset for tp in self._consumer.position(self._consumer.assignment())}
        rest = {tp: end for tp, end in self._ends.items() if own.get(tp, -1) < end}
        if rest:
            committed = _committed(self._admin, self._group, rest, self._settings.timeout_s)
            rest = {tp: end - committed[tp] for tp, end in rest.items() if committed[tp] < end}
        return rest


def _left(
    admin: AdminClient, topic: str, group: str, timeout_s: float
) -> dict[TopicPartition, int]:
    """The end of each partition that has something which the group has not committed."""
    bounds = offset_bounds(admin, all_partitions(admin, [topic], (), timeout_s), timeout_s)
    committed = _committed(admin, group, bounds, timeout_s)
    return {tp: high for tp, (low, high) in bounds.items() if max(low, committed[tp]) < high}


def _committed(
    admin: AdminClient, group: str, tps: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, int]:
    """What the group has committed; -1 where nothing is."""
    asked = list(tps)
    found = admin.list_consumer_group_offsets(group, asked, timeout=timeout_s)
    return {tp: found[tp].offset if tp in found else -1 for tp in asked}


def _show(
    settings: Settings,
    redrive: Redrive,
    consumer: Consumer,
    ends: Mapping[TopicPartition, int],
    num: int | None,
) -> None:
    """Counts what a run would put back, by topic and reason; exit code 1 if it would fail."""
    from mainstem.client import DeadLetter, TopicPartition
    from mainstem.errors import MainstemError

    consumer.assign(list(ends))  # without an offset: where the group is
    counts: Counter[tuple[str, str, str]] = Counter()
    reasons: dict[tuple[str, str, str], str] = {}
    left = num
    while (left is None or left > 0) and any(
        tp.offset < ends[tp] for tp in consumer.position(ends)
    ):
        # Its own deadline: a partition that cannot be read is an error, not a wait.
        if not consumer.wait_ready(settings.timeout_s):
            fail(f"no dead letter came within {settings.timeout_s:g} s")
        for record in consumer.take_ready_many(_BATCH if left is None else min(left, _BATCH)):
            if record.offset >= ends[TopicPartition(record.topic, record.partition)]:
                continue
            letter = DeadLetter.read(record)
            left = None if left is None else left - 1
            try:
                topic, status = redrive.target(letter)[0], "OK"
                if letter.left_out:
                    status = "NOT_PUT_BACK: the dead letter does not have its record's value"
            except MainstemError as error:
                topic, status = letter.topic or "-", f"{error.code}: {error.message}"
            key = (topic, letter.exception, status if status == "OK" else status.split(":")[0])
            counts[key] += 1
            reasons.setdefault(key, letter.reason if status == "OK" else status)
    rows = [[*key[:2], count, key[2], reasons[key]] for key, count in sorted(counts.items())]
    columns = ["topic", "exception", "records", "status", "reason"]
    print_rows(settings, columns, rows, numbers=["records"])


def _producer_config(settings: Settings, servers: str) -> dict[str, object]:
    timeout_ms = max(1, int(settings.timeout_s * 1000))
    return {
        "bootstrap.servers": servers,
        "client.id": "mainstem-cli",
        "linger.ms": 0,
        "request.timeout.ms": timeout_ms,
        "max.block.ms": timeout_ms,
        "delivery.timeout.ms": timeout_ms,
        **split_flags(settings.flags)[0],
        "acks": "all",
    }


def _consumer(settings: Settings, servers: str, group: str) -> Consumer:
    from mainstem.client import Consumer

    timeout_ms = max(1, int(settings.timeout_s * 1000))
    return Consumer(
        {
            "bootstrap.servers": servers,
            "client.id": "mainstem-cli",
            "session.timeout.ms": _SESSION_MS,
            "request.timeout.ms": timeout_ms,
            "default.api.timeout.ms": timeout_ms,
            **split_flags(settings.flags)[1],
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed or SIGTERM came; the second one is an exception as always."""
    pressed: list[int] = []

    def note(number: int, _: object) -> None:
        pressed.append(number)
        restore()
        say("ends after the records that are on their way; press Ctrl-C again to end now")

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(pressed)
    finally:
        restore()
