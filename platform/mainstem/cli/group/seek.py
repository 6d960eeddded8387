"""`mainstem group seek`"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mainstem.cli.completion import complete_groups
from mainstem.cli.context import (
    Settings,
    admin_client,
    bootstrap_servers,
    confirm,
    fail,
    no_confirm_option,
    pass_settings,
    print_rows,
    reports_errors,
    say,
    say_dry_run,
    status_columns,
    status_of,
)
from mainstem.cli.errors import FormatError
from mainstem.cli.group.offsets_file import read_offsets_file
from mainstem.cli.help import ExampleCommand
from mainstem.cli.partitions import (
    all_partitions,
    members_refusal,
    offset_bounds,
    offsets_at,
    partitions_option,
    split_topics,
    topics_option,
)
from mainstem.cli.where import Where, parse_where

if TYPE_CHECKING:
    from mainstem.client import AdminClient, OffsetMove, TopicPartition
    from mainstem.errors import MainstemError


@click.command(cls=ExampleCommand)
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@click.option("--to", metavar="WHERE", help="A place or a time, see above.")
@click.option("--to-group", metavar="GROUP", help="Where this group is.")
@click.option(
    "--to-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What a file says, see above.",
)
@topics_option
@partitions_option
@no_confirm_option
@click.option("--dry-run", is_flag=True, help="Show the plan, change nothing.")
@bootstrap_servers
@pass_settings
@reports_errors
def seek(
    settings: Settings,
    group_id: str,
    to: str | None,
    to_group: str | None,
    to_file: Path | None,
    topics: Sequence[str],
    partitions: Sequence[int],
    no_confirm: bool,
    dry_run: bool,
    bootstrap_servers: str,
) -> None:
    """Move the committed offsets of a group that has no members.

    The plan is shown, then asked about, then stored: up to 1,000 offsets in one table commit, more
    in several. It is about all partitions of the topics in which the group has committed something;
    with --topics about these topics, also new ones. A group that does not exist is made.

    \b
    WHERE, in each partition:
      start      its first record          N      offset N
      end        after its last record     -N     the last N records
      @TIME      the first record at or after TIME; after the last where none is that late
      PT1H       the same, with the time so long ago, by the clock here: P7D, PT90M, P1DT12H
    TIME is as of `mainstem topic consume`: 2026-01-31T12:00:00Z (UTC where no zone is named), -1h,
    or a number since 1970 (10 digits: seconds, 13: milliseconds). A time in the future is refused.

    An offset before the first record becomes that record's, one past the end becomes the end, as
    kafka-consumer-groups does it; the plan says where.

    --to-group takes over what another group has committed, and --to-file what a file says. A line
    of it is: topic, partition and offset, with commas, tabs or spaces between; or it is what
    `mainstem --format json group describe` printed. Partitions that they do not name stay as they
    are.

    \b
    EXAMPLES
      mainstem group seek billing --to start --dry-run
      mainstem group seek billing --to @2026-01-31T12:00:00Z --topics orders
      mainstem group seek billing --to PT1H --no-confirm
      mainstem group seek billing --to 1234 --topics orders -p 0
      mainstem group seek billing-test --to-group billing
      mainstem group describe billing --format json > billing.json
      mainstem group seek billing --to-file billing.json
    """
    if sum(one is not None for one in (to, to_group, to_file)) != 1:
        raise click.UsageError("say where to: one of --to, --to-group and --to-file")
    try:
        now_ms = time.time_ns() // 1_000_000
        where = parse_where(to, now_ms, "--to") if to is not None else None
        listed = read_offsets_file(to_file) if to_file is not None else None
    except FormatError as error:
        raise click.UsageError(str(error)) from None
    selection = _Selection(tuple(split_topics(topics)), tuple(partitions))
    with admin_client(bootstrap_servers) as admin:
        committed = {
            tp: tp.offset
            for tp in admin.list_consumer_group_offsets(group_id, timeout=settings.timeout_s)
        }
        if where is not None:
            wanted = _by_place(admin, group_id, where, selection, committed, settings.timeout_s)
        else:
            source = f"group {to_group}" if listed is None else str(to_file)
            wanted = selection.of(
                _offsets_of(admin, str(to_group), settings.timeout_s) if listed is None else listed
            )
            if not wanted:
                fail(f"{source} has no offset of what --topics and -p name")
        if where is not None and where.kind == "time":
            say(f"to the first records at or after {where}")
        moves = _plan(admin, wanted, committed, settings.timeout_s)
        refusal = members_refusal(admin, group_id, settings.timeout_s)
        if dry_run:
            _print_moves(settings, moves)
            say_dry_run()
        if refusal is not None:
            raise refusal
        if dry_run:
            return
        _move(settings, admin, group_id, moves, ask=not no_confirm)


@dataclass(frozen=True, slots=True)
class _Selection:
    """--topics and -p; empty: all."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]

    def of(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {
            tp: offset
            for tp, offset in offsets.items()
            if (not self.topics or tp.topic in self.topics)
            and (not self.partitions or tp.partition in self.partitions)
        }


def _by_place(
    admin: AdminClient,
    group_id: str,
    where: Where,
    selection: _Selection,
    committed: Mapping[TopicPartition, int],
    timeout_s: float,
) -> dict[TopicPartition, int]:
    """The offset of --to in each partition that is meant."""
    from mainstem.client import OFFSET_BEGINNING, OFFSET_END

    topics = selection.topics or sorted({tp.topic for tp in committed})
    if not topics:
        fail(f"group {group_id} has committed nothing yet: say of which topics with --topics")
    tps = all_partitions(admin, topics, selection.partitions, timeout_s)
    if where.kind == "offset":
        return dict.fromkeys(tps, where.number)
    if where.kind == "start":
        return offsets_at(admin, dict.fromkeys(tps, OFFSET_BEGINNING), timeout_s)
    ends = offsets_at(admin, dict.fromkeys(tps, OFFSET_END), timeout_s)
    if where.kind == "last":
        return {tp: max(0, ends[tp] - where.number) for tp in tps}
    if where.kind == "time":
        at = offsets_at(admin, dict.fromkeys(tps, where.number), timeout_s)
        return {tp: ends[tp] if at[tp] == OFFSET_END else at[tp] for tp in tps}
    return ends


def _offsets_of(admin: AdminClient, group_id: str, timeout_s: float) -> dict[TopicPartition, int]:
    offsets = admin.list_consumer_group_offsets(group_id, timeout=timeout_s)
    if not offsets:
        fail(f"group {group_id} has committed nothing")
    return {tp: tp.offset for tp in offsets}


def _plan(
    admin: AdminClient,
    wanted: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    timeout_s: float,
) -> list[OffsetMove]:
    from mainstem.client import plan_seek

    return plan_seek(wanted, committed, offset_bounds(admin, wanted, timeout_s))


def _move(
    settings: Settings, admin: AdminClient, group_id: str, moves: Sequence[OffsetMove], *, ask: bool
) -> None:
    targets = [move.target() for move in moves if move.moves]
    if ask:
        _print_moves(settings, moves)
        if not targets:
            say(f"group {group_id} is there already: nothing was changed")
            return
        what = f"{len(targets)} offset{'s' * (len(targets) > 1)}"
        if not confirm(f"Move {what} of group {group_id}?"):
            say("nothing was moved")
            raise SystemExit(1)
    done = admin.alter_consumer_group_offsets(group_id, targets, timeout=settings.timeout_s)
    failed = {tp: error for tp, error in done.items() if error is not None}
    if failed or not ask:
        _print_moves(settings, moves, done)
    else:
        say(f"group {group_id} was moved")
    if failed:
        raise SystemExit(1)


def _print_moves(
    settings: Settings,
    moves: Sequence[OffsetMove],
    done: Mapping[TopicPartition, MainstemError | None] | None = None,
) -> None:
    """The plan; with `done` also how each move went."""
    is_json = settings.format == "json"
    columns = ["topic", "partition", "before", "after", "change"]
    numbers = columns[1:]
    if is_json:
        columns += ["wanted", "log_start_offset", "log_end_offset"]
    elif any(move.is_clamped for move in moves):
        columns.append("note")
    if done is not None:
        columns += status_columns(settings)
    rows = []
    for move in moves:
        before = move.before
        change = None if before is None else move.after - before
        row: list[Any] = [move.topic, move.partition, before, move.after, change]
        if is_json:
            row += [move.wanted, move.log_start_offset, move.high_watermark]
        else:
            row[2] = "-" if before is None else before
            row[4] = "-" if change is None else f"{change:+d}" if change else "0"
        if "note" in columns:
            row.append(_note(move))
        if done is not None:
            row += status_of(settings, done.get(move.target()))
        rows.append(row)
    print_rows(settings, columns, rows, numbers=numbers)


def _note(move: OffsetMove) -> str:
    if not move.is_clamped:
        return ""
    if move.wanted > move.after:
        return f"{move.wanted} is past the end"
    return f"{move.wanted} is before the first record"
