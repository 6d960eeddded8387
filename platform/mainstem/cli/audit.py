"""`mainstem cluster audit`: who did what."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from mainstem.cli.context import (
    Settings,
    pass_settings,
    print_object,
    print_rows,
    reports_errors,
    say_if_empty,
)
from mainstem.cli.errors import FormatError
from mainstem.cli.help import ExampleCommand
from mainstem.cli.warehouse import opened_warehouse, warehouse_option

_COLUMNS = ["time", "kind", "principal", "host", "call", "resource", "error", "count"]
_WIDE = ["client_id", "operation", "resource_type", "allowed", "gateway_id", "summary"]


@click.command(cls=ExampleCommand)
@click.option(
    "--since",
    metavar="TIME",
    help="Only since then: 1h for an hour ago, or 2026-01-31T12:00:00Z.  [default: the beginning]",
)
@click.option("--principal", metavar="PRINCIPAL", help="Only of this one, as User:alice.")
@click.option("--call", metavar="CALL", help="Only this call, as DeleteTopic.")
@click.option("--refused", is_flag=True, help="Only what was not allowed, and failed sign-ins.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="At most so many rows, the newest; 0: all.",
)
@warehouse_option
@pass_settings
@reports_errors
def audit(
    settings: Settings,
    since: str | None,
    principal: str | None,
    call: str | None,
    refused: bool,
    limit: int,
    warehouse: str | None,
) -> None:
    """Print who did what: administrative acts, refusals, failed sign-ins.

    The newest come last. The rows are those of the Delta table `system/audit`, which gateways with
    audit.enabled write a second later. KIND is act, refusal, sign-in, sample (of reads and writes,
    with audit.sample.ratio), or left-out: COUNT rows are not there, as too many came at a time.
    ERROR is the code of what the call failed with. No gateway is needed. With `--format wide` and
    `json` there is more, such as what was asked.

    \b
    EXAMPLES
      mainstem cluster audit --warehouse ./warehouse
      mainstem cluster audit --since 1h --principal User:alice --call DeleteTopic
      mainstem cluster audit --refused -n 0 --format json > refusals.ndjson
    """
    from mainstem.delta_log.system import AppendedTable
    from mainstem.records import format_timestamp_ms

    since_ms = _since_ms(since)
    found: list[Mapping[str, Any]] = []
    with opened_warehouse(settings, warehouse) as store:
        if AppendedTable.exists(store, "audit"):
            table = AppendedTable(store, "audit", retention_ms=0)
            for row in table.newest_first(since_ms):
                value = row.value
                if (
                    row.time_ms >= since_ms
                    and principal in (None, value["principal"])
                    and call in (None, value["call"])
                    and not (refused and value["allowed"])
                ):
                    found.append(value)
                    if len(found) == limit:
                        break
    found.sort(key=lambda value: int(value["time_ms"]))
    if settings.format == "json":
        for value in found:
            print_object(settings, value)
        return
    columns = [*_COLUMNS, *(_WIDE if settings.format == "wide" else ())]
    rows: list[list[object]] = [
        [_cell(value, column, format_timestamp_ms) for column in columns] for value in found
    ]
    print_rows(settings, columns, rows, numbers=["count"])
    say_if_empty(
        settings, rows, "there are no such rows; gateways with audit.enabled=true write them"
    )


def _cell(value: Mapping[str, Any], column: str, shown_time: Any) -> object:
    if column == "time":
        return shown_time(value["time_ms"])
    if column == "resource":
        names = value["resources"]
        more = value["resource_count"] - 1
        first = _line(names[0]) if names else ""
        return f"{first} and {more} more" if more > 0 else first
    found = value[column]
    return _line(found) if isinstance(found, str) else found


def _line(text: str) -> str:
    """On one line, and without what would move a terminal's cursor: callers choose names."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _since_ms(since: str | None) -> int:
    from mainstem.cli.where import parse_time_ms

    if since is None:
        return 0
    now_ms = int(time.time() * 1000)
    try:
        if since[:1].isdigit() and since[-1:].isalpha() and not since.endswith("Z"):
            since = f"-{since}"
        return parse_time_ms(since, now_ms, "--since")
    except FormatError as error:
        raise click.UsageError(str(error)) from None
