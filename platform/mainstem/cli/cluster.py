"""`mainstem cluster ...`"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from mainstem.cli.audit import audit
from mainstem.cli.context import (
    Settings,
    admin_client,
    bootstrap_servers,
    pass_settings,
    print_rows,
    reports_errors,
    say,
    status_columns,
    status_of,
)
from mainstem.cli.help import ExampleGroup
from mainstem.cli.transactions import transactions
from mainstem.cli.warehouse import opened_warehouse, warehouse_option
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from mainstem.client import ClusterDescription
    from mainstem.delta_log.verify import CheckResult, TopicReport


@click.group(cls=ExampleGroup)
def cluster() -> None:
    """Look at all gateways, and prove that the tables are what they promise.

    \b
    EXAMPLES
      mainstem cluster info
      mainstem cluster describe
      mainstem cluster health -b 10.0.0.1:9490
      mainstem cluster rebalance --dry-run
      mainstem cluster transactions list
      mainstem cluster audit --since 1h
      mainstem cluster verify --warehouse ./warehouse
    """


cluster.add_command(transactions)
cluster.add_command(audit)


@cluster.command()
@bootstrap_servers
@pass_settings
@reports_errors
def info(settings: Settings, bootstrap_servers: str) -> None:
    """List the gateways, as the first one that answers knows them.

    \b
    EXAMPLES
      mainstem cluster info
      mainstem cluster info -b 10.0.0.1:9490,10.0.0.2:9490 --format json
    """
    described = _describe(bootstrap_servers, settings.timeout_s)
    print_rows(
        settings,
        ["gateway_id", "address", "topics_led", "version", "warehouse"],
        [
            [
                one.gateway_id,
                one.address,
                one.topics_led,
                described.version,
                described.warehouse_uri,
            ]
            for one in described.gateways
        ],
        numbers=["topics_led"],
    )


@cluster.command()
@bootstrap_servers
@pass_settings
@reports_errors
def describe(settings: Settings, bootstrap_servers: str) -> None:
    """Show what each gateway does: topics that it leads, bytes a second, rack, state.

    Figures are those of each gateway's last heartbeat, as the first gateway that answers has read
    them. STATE is live, or draining: it hands over what it leads, and then ends.

    \b
    EXAMPLES
      mainstem cluster describe
      mainstem cluster describe -b 10.0.0.1:9490,10.0.0.2:9490 --format json
    """
    columns = ["gateway_id", "address", "rack", "state", "topics_led"]
    numbers = ["in_bytes_per_s", "out_bytes_per_s"]
    print_rows(
        settings,
        [*columns, *numbers],
        [
            [
                one.gateway_id,
                one.address,
                one.rack,
                "draining" if one.draining else "live",
                one.topics_led,
                one.in_bytes_s,
                one.out_bytes_s,
            ]
            for one in _describe(bootstrap_servers, settings.timeout_s).gateways
        ],
        numbers=["topics_led", *numbers],
    )


@cluster.command()
@bootstrap_servers
@click.option("--dry-run", is_flag=True, help="Say what would move; move nothing.")
@pass_settings
@reports_errors
def rebalance(settings: Settings, bootstrap_servers: str, dry_run: bool) -> None:
    """Move topics to the gateways that they belong to, now and all at once.

    Which gateway a topic belongs to is rendezvous hashing of its name over the gateways that are
    there. Gateways do the same by themselves, a few topics at a time, when for placement.delay.ms
    none has come or gone. A topic moves in one commit; producers are sent on, and no send fails.

    STATUS is OK where a topic has moved, and NOT_MOVED where it has not, for example as the store
    fails; then the exit code is 1, and the gateways' logs say why.

    \b
    EXAMPLES
      mainstem cluster rebalance --dry-run
      mainstem cluster rebalance -b 10.0.0.1:9490
    """
    rows: list[list[object]] = []
    failed = False
    with admin_client(bootstrap_servers) as admin:
        for gateway in admin.describe_cluster(settings.timeout_s).gateways:
            seen: set[str] = set()
            while True:
                found = admin.rebalance(
                    gateway.address, validate_only=dry_run, timeout=settings.timeout_s
                )
                new = [one for one in found if one.topic not in seen]
                seen |= {one.topic for one in new}
                for one in new:
                    status = "" if dry_run else "OK" if one.done else "NOT_MOVED"
                    failed = failed or status == "NOT_MOVED"
                    rows.append([one.topic, one.from_id, one.to_id, status])
                if dry_run or not new:
                    break
    print_rows(settings, ["topic", "from", "to", "status"], rows)
    if failed:
        raise SystemExit(1)


@cluster.command()
@bootstrap_servers
@pass_settings
@reports_errors
def health(settings: Settings, bootstrap_servers: str) -> None:
    """Ask every gateway of the cluster whether it serves.

    The gateways are those that the first one that answers knows. STATUS is OK, or the reason why
    not; then the exit code is 1. The check is the standard health service of gRPC.

    \b
    EXAMPLES
      mainstem cluster health
      mainstem cluster health -b 10.0.0.1:9490,10.0.0.2:9490 --timeout 2
    """
    from mainstem.cli.gateway.status import gateway_status

    rows: list[list[object]] = []
    failed = False
    for one in _describe(bootstrap_servers, settings.timeout_s).gateways:
        _, error = gateway_status(one.address, settings.timeout_s)
        failed = failed or error is not None
        rows.append([one.gateway_id, one.address, *status_of(settings, error)])
    print_rows(settings, ["gateway_id", "address", *status_columns(settings)], rows)
    if failed:
        raise SystemExit(1)


@cluster.command()
@click.option(
    "-T",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Only this topic; may be repeated.  [default: all, and the platform's own tables]",
)
@warehouse_option
@pass_settings
@reports_errors
def verify(settings: Settings, topics: Sequence[str], warehouse: str | None) -> None:
    """Prove that every record and every commit is what the log promises.

    Reads all records and commit files of the tables, changes nothing, and needs no gateway; any
    number of them may write meanwhile. A row for each topic and check: OK, or the first finding as
    `CODE: what; what to do`. With -v all findings that were kept are printed, on stderr.

    Without -T the platform's own tables come last: system/consumer_offsets, with what groups have
    committed, is checked as a topic is, and the others for log, files and statistics. What
    gateways have in their write-ahead logs and in no table yet is not looked at.

    \b
    log         the newest version and its checkpoints can be read, and carry mainstemLog
    files       every data file that the log names is there, has its size and can be read
    offsets     each partition's offsets follow each other, in files that do not overlap
    registers   log start and log end offsets, and producers' sequences, agree with the records
    statistics  the log's statistics of each file are those of its records
    sequences   no record of an idempotent producer is there twice, and none is left out
    commits     each commit that is still there adds what it says, and no end moves back

    \b
    EXAMPLES
      mainstem cluster verify
      mainstem cluster verify -T orders -T payments --warehouse ./warehouse
      mainstem cluster verify --warehouse ./warehouse --format json
    """
    from mainstem.delta_log import Topics
    from mainstem.delta_log.topics import SYSTEM
    from mainstem.delta_log.verify import verify_named, verify_system_table

    rows: list[list[object]] = []
    failed = False
    with opened_warehouse(settings, warehouse) as store:
        for name in () if topics else Topics(store).other_directories():
            say(f"note: topics/{name} is not a topic: it has no log that can be read")
        reports: dict[str, Callable[[], TopicReport]] = {
            topic: partial(verify_named, store, topic) for topic in topics or Topics(store).names()
        }
        for name in () if topics else Topics(store, folder=SYSTEM).names():
            reports[f"{SYSTEM}/{name}"] = partial(verify_system_table, store, name)
        for topic, verified in reports.items():
            try:
                report = verified()
            except MainstemError as error:
                failed = True
                rows.append([topic, "log", 0, 1, *status_of(settings, error)])
                continue
            failed = failed or not report.ok
            for result in report.results:
                counts = [result.checked_count, result.finding_count]
                rows.append([topic, result.check, *counts, *_status(settings, result)])
            for note in report.notes:
                say(f"note: {topic}: {note}")
            if settings.verbose:
                for finding in report.findings:
                    say(f"{topic}: {finding.code}: {finding}")
    print_rows(
        settings,
        ["topic", "check", "checked", "findings", *status_columns(settings)],
        rows,
        numbers=["checked", "findings"],
    )
    if failed:
        raise SystemExit(1)


def _status(settings: Settings, result: CheckResult) -> list[object]:
    if not result.findings:
        return status_of(settings, None)
    first = result.findings[0]
    return [first.code, str(first)] if settings.format == "json" else [f"{first.code}: {first}"]


def _describe(servers: str, timeout_s: float) -> ClusterDescription:
    with admin_client(servers) as admin:
        return admin.describe_cluster(timeout_s)
