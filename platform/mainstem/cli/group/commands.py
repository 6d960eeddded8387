"""`mainstem group ...`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    run_each,
    say,
    say_dry_run,
    say_if_empty,
    status_columns,
    status_of,
)
from mainstem.cli.group.describe import describe
from mainstem.cli.group.seek import seek
from mainstem.cli.help import ExampleGroup
from mainstem.cli.partitions import (
    all_partitions,
    members_refusal,
    partitions_option,
    split_topics,
    topics_option,
)


@click.group(cls=ExampleGroup)
def group() -> None:
    """Look at consumer groups and their lag, move their offsets, and delete them.

    \b
    EXAMPLES
      mainstem group list
      mainstem group describe billing
      mainstem group seek billing --to PT1H --dry-run
      mainstem group delete billing
    """


group.add_command(describe)
group.add_command(seek)

_groups = click.argument(
    "groups", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups
)


@group.command("list")
@bootstrap_servers
@pass_settings
@reports_errors
def list_(settings: Settings, bootstrap_servers: str) -> None:
    """List the groups that have members or committed offsets.

    STATE is EMPTY without members, RECONCILING while partitions move from member to member, and
    otherwise STABLE.

    \b
    EXAMPLES
      mainstem group list
      mainstem group list --format json
    """
    with admin_client(bootstrap_servers) as admin:
        listings = admin.list_consumer_groups(timeout=settings.timeout_s)
    rows = [[one.group_id, one.state, one.member_count] for one in listings]
    print_rows(settings, ["group", "state", "members"], rows, numbers=["members"])
    say_if_empty(settings, rows, "no group yet: one begins with its first consumer")


@group.command("offset-delete")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@topics_option
@partitions_option
@no_confirm_option
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, delete nothing.")
@bootstrap_servers
@pass_settings
@reports_errors
def offset_delete(
    settings: Settings,
    group_id: str,
    topics: Sequence[str],
    partitions: Sequence[int],
    no_confirm: bool,
    dry_run: bool,
    bootstrap_servers: str,
) -> None:
    """Forget what a group has committed of some topics.

    The group's members begin these partitions where auto.offset.reset says. The group must not have
    members. Up to 1,000 offsets go in one table commit, more in several.

    \b
    EXAMPLES
      mainstem group offset-delete billing --topics orders
      mainstem group offset-delete billing --topics orders -p 0 -p 1 --dry-run
    """
    names = split_topics(topics)
    if not names:
        raise click.UsageError("say of which topics: --topics TOPIC,...")
    with admin_client(bootstrap_servers) as admin:
        asked = all_partitions(admin, names, partitions, settings.timeout_s)
        stored = admin.list_consumer_group_offsets(group_id, asked, timeout=settings.timeout_s)
        if not stored:
            fail(f"group {group_id} has committed nothing of {', '.join(names)}")
        columns = ["topic", "partition", "offset"]
        rows: list[list[Any]] = [[tp.topic, tp.partition, tp.offset] for tp in stored]
        if dry_run or not no_confirm:
            print_rows(settings, columns, rows, numbers=["partition", "offset"])
        if dry_run:
            say_dry_run()
        refusal = members_refusal(admin, group_id, settings.timeout_s)
        if refusal is not None:
            raise refusal
        if dry_run:
            return
        if not no_confirm and not confirm(f"Forget these offsets of group {group_id}?"):
            say("nothing was deleted")
            raise SystemExit(1)
        done = admin.delete_consumer_group_offsets(group_id, stored, timeout=settings.timeout_s)
    failed = any(done.values())
    if failed or no_confirm:
        rows = [
            [*row, *status_of(settings, done[tp])] for row, tp in zip(rows, stored, strict=True)
        ]
        columns += status_columns(settings)
        print_rows(settings, columns, rows, numbers=["partition", "offset"])
    else:
        say(f"the offsets of group {group_id} were deleted")
    if failed:
        raise SystemExit(1)


@group.command()
@_groups
@no_confirm_option
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, delete nothing.")
@bootstrap_servers
@pass_settings
@reports_errors
def delete(
    settings: Settings,
    groups: Sequence[str],
    no_confirm: bool,
    dry_run: bool,
    bootstrap_servers: str,
) -> None:
    """Delete groups without members, with their committed offsets. There is no way back.

    \b
    EXAMPLES
      mainstem group delete billing
      mainstem group delete billing shipping --no-confirm
      mainstem group delete billing --dry-run
    """
    from mainstem.errors import MainstemError

    with admin_client(bootstrap_servers) as admin:

        def look_at(name: str) -> dict[str, object]:
            found = admin.describe_consumer_groups([name], timeout=settings.timeout_s)[name]
            if isinstance(found, MainstemError):
                raise found
            refusal = members_refusal(admin, name, settings.timeout_s)
            if refusal is not None:
                raise refusal
            return {"offsets": len(found.offsets)}

        def delete_one(name: str) -> dict[str, object]:
            error = admin.delete_consumer_groups([name], timeout=settings.timeout_s)[name]
            if error is not None:
                raise error
            return {}

        if dry_run:
            run_each(settings, "group", groups, look_at, columns=["offsets"])
            say_dry_run()
            return
        if not no_confirm:
            which = (
                f"group {groups[0]}" if len(groups) == 1 else f"these groups: {', '.join(groups)}"
            )
            if not confirm(f"Delete {which}, with all committed offsets?"):
                say("nothing was deleted")
                raise SystemExit(1)
        run_each(settings, "group", groups, delete_one)
