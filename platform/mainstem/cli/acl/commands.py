"""`mainstem acl ...`"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from mainstem.cli.acl.places import opened_rules
from mainstem.cli.context import (
    Settings,
    bootstrap_servers,
    confirm,
    no_confirm_option,
    pass_settings,
    print_object,
    print_rows,
    reports_errors,
    say,
    say_dry_run,
    say_if_empty,
)
from mainstem.cli.help import ExampleGroup
from mainstem.limits import SECURITY_CHANGES_MAX

if TYPE_CHECKING:
    from mainstem.cli.acl.rules import Resources
    from mainstem.security import AclBinding

F = TypeVar("F", bound=Callable[..., Any])

_OPERATIONS: Final = (
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
)

_COLUMNS: Final = (
    "principal",
    "permission",
    "operation",
    "resource_type",
    "pattern_type",
    "name",
    "host",
)


class _Operation(click.Choice):  # type: ignore[type-arg]  # generic from click 8.2 on
    """An operation in kafka-acls' words, or as rules have it: `DescribeConfigs`,
    `DESCRIBE_CONFIGS`."""

    def __init__(self) -> None:
        super().__init__(_OPERATIONS, case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = super().convert(str(value).replace("_", "").replace("-", ""), param, ctx)
        name = "".join(f"_{letter}" if letter.isupper() else letter for letter in str(found))
        return name.lstrip("_").upper()


_operations = click.option(
    "--operation",
    "operations",
    multiple=True,
    type=_Operation(),
    help="What is done: read, write, describe, ...; may be repeated.",
)
_warehouse = click.option(
    "--warehouse",
    metavar="DIR",
    help="Read or change the table of this warehouse, without a gateway: also for the first rule, "
    "before anybody may change any.",
)


def _resources(*pattern_types: str, default: str) -> Callable[[F], F]:
    """The options that say what rules are about."""
    options = (
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="`*`: all of them."),
        click.option("--group", "groups", multiple=True, metavar="NAME", help="A consumer group."),
        click.option(
            "--transactional-id", "transactional_ids", multiple=True, metavar="ID", help="An id."
        ),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option(
            "--resource-pattern-type",
            "pattern_type",
            type=click.Choice(pattern_types, case_sensitive=False),
            default=default,
            show_default=True,
            help="How the names are meant.",
        ),
    )

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.group(cls=ExampleGroup)
def acl() -> None:
    """Access control lists: who may do what. In force where gateways have `authorizer=acl`.

    The options are those of kafka-acls.

    \b
    EXAMPLES
      mainstem acl create --allow-principal User:alice --operation Read --topic orders
      mainstem acl create --allow-principal User:app --consumer --topic orders --group billing
      mainstem acl list --principal User:alice
      mainstem acl check --principal User:alice --operation read --topic orders
      mainstem acl delete --principal User:alice --topic orders
    """


@acl.command()
@click.option("--allow-principal", "allowed", multiple=True, metavar="TYPE:NAME", help="Who may.")
@click.option("--deny-principal", "denied", multiple=True, metavar="TYPE:NAME", help="Who may not.")
@click.option(
    "--allow-host", "allowed_hosts", multiple=True, metavar="ADDRESS", help="From where.  [all]"
)
@click.option(
    "--deny-host", "denied_hosts", multiple=True, metavar="ADDRESS", help="From where.  [all]"
)
@_operations
@_resources("literal", "prefixed", default="literal")
@click.option("--producer", is_flag=True, help="What a producer needs, in place of --operation.")
@click.option("--consumer", is_flag=True, help="What a member of a group needs, likewise.")
@click.option("--idempotent", is_flag=True, help="With --producer: also a producer id.")
@_warehouse
@bootstrap_servers
@pass_settings
@reports_errors
def create(
    settings: Settings,
    /,
    bootstrap_servers: str,
    warehouse: str | None,
    allowed: Sequence[str],
    denied: Sequence[str],
    allowed_hosts: Sequence[str],
    denied_hosts: Sequence[str],
    operations: Sequence[str],
    producer: bool,
    consumer: bool,
    idempotent: bool,
    **resources: Any,
) -> None:
    """Add rules, all or none; those that are there already stay as they are.

    Prints the rules. Without --operation they are about all operations.

    \b
    EXAMPLES
      mainstem acl create --allow-principal User:alice --operation Read --operation Write \\
        --topic orders
      mainstem acl create --allow-principal User:etl --operation Read --topic raw. \\
        --resource-pattern-type prefixed
      mainstem acl create --allow-principal User:app --producer --idempotent --topic orders \\
        --transactional-id app-
      mainstem acl create --deny-principal 'User:*' --deny-host 203.0.113.0/24 --topic '*'
      mainstem acl create --warehouse ./warehouse --allow-principal User:ops --cluster
    """
    from mainstem.cli.acl.rules import Callers, consumer_rules, producer_rules, rules_of

    if operations and (producer or consumer):
        raise click.UsageError("--producer and --consumer say the operations; no --operation")
    if idempotent and not producer:
        raise click.UsageError("--idempotent goes with --producer")
    what = _named(resources)
    callers = Callers(allowed, denied, allowed_hosts, denied_hosts)
    if (producer or consumer) and denied:
        raise click.UsageError("--producer and --consumer allow; no --deny-principal")
    rules: list[AclBinding] = []
    if producer:
        rules += producer_rules(what, callers, idempotent=idempotent)
    if consumer:
        rules += consumer_rules(what, callers)
    if not rules:
        rules = rules_of(what, callers, operations)
    with opened_rules(settings, bootstrap_servers, warehouse) as there:
        created = there.create(rules)
    _print(settings, rules)
    say(f"{created.created_count} of {len(rules)} rules are new")
    _say_force(created.in_force)


@acl.command("list")
@click.option("--principal", "principals", multiple=True, metavar="TYPE:NAME", help="Of these.")
@_operations
@_resources("any", "match", "literal", "prefixed", default="any")
@_warehouse
@bootstrap_servers
@pass_settings
@reports_errors
def list_(
    settings: Settings,
    /,
    bootstrap_servers: str,
    warehouse: str | None,
    principals: Sequence[str],
    operations: Sequence[str],
    **resources: Any,
) -> None:
    """List rules: all, or those that have what the options say.

    With --resource-pattern-type match, every rule that is about what is named: also by a prefix,
    or as `*`.

    \b
    EXAMPLES
      mainstem acl list
      mainstem acl list --topic orders --resource-pattern-type match
      mainstem acl list --principal User:alice --format json
    """
    from mainstem.cli.acl.rules import filters_of

    found: dict[AclBinding, None] = {}
    with opened_rules(settings, bootstrap_servers, warehouse) as there:
        for asked in filters_of(_named(resources), principals, operations):
            found.update(dict.fromkeys(there.describe(asked)))
    _print(settings, list(found))
    say_if_empty(settings, list(found), "there is no such rule; see mainstem acl create --help")


@acl.command()
@click.option("--principal", "principals", multiple=True, metavar="TYPE:NAME", help="Of these.")
@click.option("--host", "hosts", multiple=True, metavar="ADDRESS", help="With these hosts.")
@click.option(
    "--permission",
    type=click.Choice(("allow", "deny"), case_sensitive=False),
    help="Only those that do this.",
)
@_operations
@_resources("any", "match", "literal", "prefixed", default="literal")
@click.option("--all", "every", is_flag=True, help="Every rule that there is.")
@click.option("--dry-run", is_flag=True, help="Print the rules, and remove nothing.")
@no_confirm_option
@_warehouse
@bootstrap_servers
@pass_settings
@reports_errors
def delete(
    settings: Settings,
    /,
    bootstrap_servers: str,
    warehouse: str | None,
    principals: Sequence[str],
    hosts: Sequence[str],
    permission: str | None,
    operations: Sequence[str],
    every: bool,
    dry_run: bool,
    no_confirm: bool,
    **resources: Any,
) -> None:
    """Remove rules that have what the options say, and print them.

    \b
    EXAMPLES
      mainstem acl delete --principal User:alice --topic orders
      mainstem acl delete --principal User:alice --operation write --dry-run
      mainstem acl delete --topic raw. --resource-pattern-type prefixed -y
    """
    from mainstem.cli.acl.rules import filters_of
    from mainstem.security import acl_filter_of, words_of

    what = _named(resources)
    is_named = any((principals, hosts, permission, operations, *what.each()))
    if every and is_named:
        raise click.UsageError("--all removes every rule: name nothing with it")
    if not every and not is_named:
        raise click.UsageError("say which rules: --principal, --topic, ...; or --all")
    if not any(what.each()) and resources["pattern_type"] == "literal":
        what = _named({**resources, "pattern_type": "any"})
    filters = filters_of(what, principals, operations, hosts, (permission or "").upper())
    with opened_rules(settings, bootstrap_servers, warehouse) as there:
        if no_confirm and not dry_run:
            deleted = there.delete(filters)
            _print(settings, list(deleted.rules))
            say_if_empty(settings, deleted.rules, "there was no such rule")
            _say_force(deleted.in_force)
            return
        found: dict[AclBinding, None] = {}
        for asked in filters:
            found.update(dict.fromkeys(there.describe(asked)))
        _print(settings, list(found))
        if dry_run:
            say_dry_run()
            return
        if not found:
            say_if_empty(settings, (), "there is no such rule")
            return
        if not confirm(f"Remove {len(found)} rules?"):
            say("nothing was removed")
            raise SystemExit(1)
        # These, and none that was made while the question waited.
        those = [acl_filter_of(**words_of(rule)) for rule in found]
        parts = range(0, len(those), SECURITY_CHANGES_MAX)
        done = [there.delete(those[at : at + SECURITY_CHANGES_MAX]) for at in parts]
    say(f"{sum(len(one.rules) for one in done)} rules were removed")
    _say_force(done[-1].in_force)


@acl.command()
@click.option("--principal", required=True, metavar="TYPE:NAME", help="Who.")
@click.option(
    "--principal-group", "of_groups", multiple=True, metavar="NAME", help="Of a token's groups."
)
@click.option("--host", default="", metavar="ADDRESS", help="From where.  [anywhere else]")
@click.option("--operation", required=True, type=_Operation(), help="What.")
@_resources("literal", default="literal")
@_warehouse
@bootstrap_servers
@pass_settings
@reports_errors
def check(
    settings: Settings,
    /,
    bootstrap_servers: str,
    warehouse: str | None,
    principal: str,
    of_groups: Sequence[str],
    host: str,
    operation: str,
    **resources: Any,
) -> None:
    """Say whether the rules of now, and super.users, allow something.

    \b
    EXAMPLES
      mainstem acl check --principal User:alice --operation read --topic orders
      mainstem acl check --principal User:bob --principal-group readers --host 10.0.0.7 \\
        --operation write --topic orders --format json
    """
    from mainstem.security import Operation, ResourceType

    named = list(_named(resources).each())
    if len(named) != 1:
        raise click.UsageError(
            "name one resource: --topic, --group, --transactional-id or --cluster"
        )
    kind, name, _ = named[0]
    with opened_rules(settings, bootstrap_servers, warehouse) as there:
        decided = there.check(
            principal, of_groups, host, Operation(operation), (ResourceType(kind), name)
        )
    answer = {
        "principal": principal,
        "operation": operation,
        "resource_type": kind,
        "name": name,
        "allowed": decided.allowed,
    }
    print_object(settings, answer)
    _say_force(decided.in_force)


def _named(options: dict[str, Any]) -> Resources:
    from mainstem.cli.acl.rules import Resources

    return Resources(
        options["topics"],
        options["groups"],
        options["transactional_ids"],
        options["cluster"],
        options["pattern_type"].upper(),
    )


def _print(settings: Settings, rules: Sequence[AclBinding]) -> None:
    from mainstem.security import words_of

    rows = [[words[column] for column in _COLUMNS] for words in map(words_of, rules)]
    print_rows(settings, _COLUMNS, rows)


def _say_force(in_force: bool) -> None:
    if not in_force:
        say(
            "the rules are kept and not in force: authorizer is none, and who may connect may do "
            "everything; set authorizer=acl on every gateway"
        )
