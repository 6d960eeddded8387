"""`mainstem group describe`"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from mainstem.cli.completion import complete_groups
from mainstem.cli.context import (
    Settings,
    admin_client,
    bootstrap_servers,
    out,
    pass_settings,
    print_object,
    print_rows,
    reports_errors,
    say,
)
from mainstem.cli.help import ExampleCommand

if TYPE_CHECKING:
    from mainstem.client import AdminClient, ConsumerGroupDescription, GroupMember, TopicPartition
    from mainstem.errors import MainstemError


@click.command(cls=ExampleCommand)
@click.argument(
    "groups", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups
)
@bootstrap_servers
@pass_settings
@reports_errors
def describe(settings: Settings, groups: Sequence[str], bootstrap_servers: str) -> None:
    """Print a group's state, its members, and how far it is with each partition.

    COMMITTED is the next offset that the group reads, LOG END one past the last record (the high
    watermark), LAG the difference; counted from the log start offset where retention has passed
    what is committed. A dash: nothing is committed, so where the member begins is its own matter
    (auto.offset.reset), and the partition is not part of the group's lag; or the log cannot be read
    now, and stderr says why. stderr also names partitions that were put back from an older copy and
    lack records that the group has read: LAG counts from where it goes on. `--format wide` adds
    whole member ids, log start offsets and the times of commits.

    The JSON of this command can be given to `group seek --to-file`.

    \b
    EXAMPLES
      mainstem group describe billing
      mainstem group describe billing shipping --format wide
      mainstem group describe billing --format json > billing.json
    """
    from mainstem.errors import MainstemError

    failed = False
    with admin_client(bootstrap_servers) as admin:
        described = admin.describe_consumer_groups(groups, timeout=settings.timeout_s)
        for index, (name, found) in enumerate(described.items()):
            if isinstance(found, MainstemError):
                failed = True
                _print_failure(settings, name, found)
                continue
            progress, error = _progress(admin, found, settings.timeout_s)
            if index and settings.format != "json":
                out.print()
            _print_group(settings, found, progress, error)
            if error is not None:
                failed = True
                if settings.format != "json":
                    say(f"{name}: {error.code}: {error.message}")
    if failed:
        raise SystemExit(1)


def _progress(
    admin: AdminClient, found: ConsumerGroupDescription, timeout_s: float
) -> tuple[list[dict[str, Any]], MainstemError | None]:
    """A row for each partition that has an offset or a reader.

    Where the log's offsets cannot be had, they are None, and the first reason is told.
    """
    from mainstem.client import OFFSET_BEGINNING, OFFSET_END, TopicPartition
    from mainstem.errors import MainstemError

    committed = {TopicPartition(one.topic, one.partition): one for one in found.offsets}
    readers: dict[TopicPartition, GroupMember] = {
        tp: member for member in found.members for tp in member.assignment
    }
    tps = sorted({*committed, *readers}, key=lambda tp: (tp.topic, tp.partition))
    starts = admin.list_offsets(dict.fromkeys(tps, OFFSET_BEGINNING), timeout=timeout_s)
    ends = admin.list_offsets(dict.fromkeys(tps, OFFSET_END), timeout=timeout_s)
    failure: MainstemError | None = None
    rows = []
    for tp in tps:
        stored, reader = committed.get(tp), readers.get(tp)
        start, end = starts[tp], ends[tp]
        lag = None
        if isinstance(start, MainstemError):
            failure = failure or start
        if isinstance(end, MainstemError):
            failure = failure or end
        elif stored is not None and not isinstance(start, MainstemError):
            lag = stored.lag_records(start, end)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed_offset": None if stored is None else stored.offset,
                "truncated_to": None if stored is None else stored.truncated_to,
                "log_start_offset": None if isinstance(start, MainstemError) else start,
                "log_end_offset": None if isinstance(end, MainstemError) else end,
                "lag_records": lag,
                "commit_timestamp_ms": None if stored is None else stored.commit_timestamp_ms,
                "metadata": None if stored is None else stored.metadata,
                "member_id": None if reader is None else reader.member_id,
                "client_id": None if reader is None else reader.client_id,
            }
        )
    return rows, failure


def _print_failure(settings: Settings, name: str, error: MainstemError) -> None:
    if settings.format == "json":
        print_object(settings, {"group": name, "status": error.code, "message": error.message})
    else:
        say(f"{name}: {error.code}: {error.message}")


def _print_group(
    settings: Settings,
    found: ConsumerGroupDescription,
    progress: Sequence[dict[str, Any]],
    error: MainstemError | None,
) -> None:
    lags = [row["lag_records"] for row in progress if row["lag_records"] is not None]
    if settings.format == "json":
        print_object(settings, _as_object(found, progress, sum(lags), error))
        return
    lag = f"{sum(lags):,}" if lags else "-"
    without = sum(row["committed_offset"] is None for row in progress)
    if without:
        lag += f" ({without} partition{'s' * (without > 1)} without a committed offset)"
    head: dict[str, Any] = {"group": found.group_id, "state": found.state}
    if found.members:
        head |= {"assignor": found.partition_assignor, "group epoch": found.group_epoch}
    print_object(settings, {**head, "members": len(found.members), "lag": lag})
    is_wide = settings.format == "wide"
    if found.members:
        out.print()
        _print_members(settings, found.members, is_wide=is_wide)
    if progress:
        out.print()
        _print_progress(settings, found.members, progress, is_wide=is_wide)
    for row in progress:
        if row["truncated_to"] is not None:
            say(
                f"{found.group_id}: {row['topic']}-{row['partition']} was put back from an older "
                f"copy: it lacks what the group has read from offset {row['truncated_to']} up to "
                f"{row['committed_offset']}, and the group goes on there"
            )


def _print_members(settings: Settings, members: Sequence[GroupMember], *, is_wide: bool) -> None:
    columns = ["member", "client", "epoch", "partitions"]
    has_instances = any(one.group_instance_id for one in members)
    if has_instances:
        columns.insert(2, "instance")
    waits = any(one.target != one.assignment for one in members)
    if waits:
        columns.append("shall have")
    rows = []
    for one in sorted(members, key=lambda one: (one.client_id, one.member_id)):
        row: list[Any] = [member_name(one, is_short=not is_wide), one.client_id]
        if has_instances:
            row.append(one.group_instance_id)
        row += [one.member_epoch, short_partitions(one.assignment) or "-"]
        if waits:
            row.append(short_partitions(one.target) or "-")
        rows.append(row)
    print_rows(settings, columns, rows, numbers=["epoch"])


def _print_progress(
    settings: Settings,
    members: Sequence[GroupMember],
    progress: Sequence[dict[str, Any]],
    *,
    is_wide: bool,
) -> None:
    from mainstem.records import format_timestamp_ms

    columns = ["topic", "partition", "committed", "log end", "lag"]
    numbers = columns[1:]
    if is_wide:
        columns.insert(3, "log start")
        numbers.append("log start")
        columns.append("committed at")
    if members:
        columns += ["member", "client"]
    names = {one.member_id: member_name(one, is_short=not is_wide) for one in members}
    rows = []
    for row in progress:
        cells = [row["topic"], row["partition"], _or_dash(row["committed_offset"])]
        if is_wide:
            cells.append(_or_dash(row["log_start_offset"]))
        cells += [_or_dash(row["log_end_offset"]), _or_dash(row["lag_records"])]
        if is_wide:
            at_ms = row["commit_timestamp_ms"]
            cells.append("-" if at_ms is None else format_timestamp_ms(at_ms))
        if members:
            cells += [names.get(row["member_id"], "-"), _or_dash(row["client_id"])]
        rows.append(cells)
    print_rows(settings, columns, rows, numbers=numbers)


def _or_dash(value: object) -> object:
    return "-" if value is None else value


def _as_object(
    found: ConsumerGroupDescription,
    progress: Sequence[dict[str, Any]],
    lag_records: int,
    error: MainstemError | None,
) -> dict[str, Any]:
    return {
        "group": found.group_id,
        "state": found.state,
        "group_epoch": found.group_epoch,
        "assignor": found.partition_assignor,
        "lag_records": lag_records,
        "members": [
            {
                "member_id": one.member_id,
                "client_id": one.client_id,
                "group_instance_id": one.group_instance_id,
                "member_epoch": one.member_epoch,
                "assignment": _pairs(one.assignment),
                "target": _pairs(one.target),
            }
            for one in found.members
        ],
        "partitions": list(progress),
        "status": "OK" if error is None else error.code,
        "message": "" if error is None else error.message,
    }


def _pairs(partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]


def short_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as people write them: `orders 0-2,5; payments 0`."""
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return "; ".join(f"{topic} {_ranges(numbers)}" for topic, numbers in sorted(by_topic.items()))


def _ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def member_name(member: GroupMember, *, is_short: bool) -> str:
    """The id; short: enough of it to tell members apart."""
    return member.member_id[:8] if is_short else member.member_id
