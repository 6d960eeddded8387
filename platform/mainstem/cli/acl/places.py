"""Where `mainstem acl` finds the rules: at a gateway, or in the table of a warehouse."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from mainstem.cli.context import admin_client
from mainstem.cli.options import Settings
from mainstem.cli.warehouse import opened_warehouse

if TYPE_CHECKING:
    from mainstem.client import AclDecision, AdminClient, CreatedAcls, DeletedAcls
    from mainstem.delta_log.system import AclsTable
    from mainstem.security import AclBinding, AclBindingFilter, Operation, ResourceType


class Rules(Protocol):
    """What can be done with the rules."""

    def create(self, rules: Sequence[AclBinding]) -> CreatedAcls: ...

    def describe(self, asked: AclBindingFilter) -> list[AclBinding]: ...

    def delete(self, filters: Sequence[AclBindingFilter]) -> DeletedAcls: ...

    def check(
        self,
        principal: str,
        groups: Sequence[str],
        host: str,
        operation: Operation,
        resource: tuple[ResourceType, str],
    ) -> AclDecision: ...


@contextlib.contextmanager
def opened_rules(settings: Settings, servers: str, warehouse: str | None) -> Iterator[Rules]:
    """The rules, while the block lasts.

    Args:
        warehouse: None: ask the gateways.

    Raises:
        InvalidConfigError, StoreUnavailableError: As `open_warehouse`.
    """
    if warehouse is None:
        with admin_client(servers) as admin:
            yield _AtGateway(admin, settings.timeout_s)
        return
    from mainstem.delta_log.system import AclsTable

    with opened_warehouse(settings, warehouse) as store:
        yield _InTable(AclsTable(store), settings)


class _AtGateway:
    def __init__(self, admin: AdminClient, timeout_s: float) -> None:
        self._admin = admin
        self._timeout_s = timeout_s

    def create(self, rules: Sequence[AclBinding]) -> CreatedAcls:
        return self._admin.create_acls(rules, self._timeout_s)

    def describe(self, asked: AclBindingFilter) -> list[AclBinding]:
        return self._admin.describe_acls(asked, self._timeout_s)

    def delete(self, filters: Sequence[AclBindingFilter]) -> DeletedAcls:
        return self._admin.delete_acls(filters, self._timeout_s)

    def check(
        self,
        principal: str,
        groups: Sequence[str],
        host: str,
        operation: Operation,
        resource: tuple[ResourceType, str],
    ) -> AclDecision:
        return self._admin.check_acl(
            principal, operation, *resource, groups=groups, host=host, timeout=self._timeout_s
        )


class _InTable:
    """Whether they are in force is as the settings here say of gateways."""

    def __init__(self, table: AclsTable, settings: Settings) -> None:
        self._table = table
        self._config = settings.gateway_config()
        self._in_force = self._config.text("authorizer") == "acl"

    def create(self, rules: Sequence[AclBinding]) -> CreatedAcls:
        from mainstem.client import CreatedAcls
        from mainstem.delta_log.system import AclsChange

        change = AclsChange(added=rules)
        self._table.update(change)
        return CreatedAcls(change.created_count, self._in_force)

    def describe(self, asked: AclBindingFilter) -> list[AclBinding]:
        return [rule for rule in self._all() if asked.matches(rule)]

    def delete(self, filters: Sequence[AclBindingFilter]) -> DeletedAcls:
        from mainstem.client import DeletedAcls
        from mainstem.delta_log.system import AclsChange

        change = AclsChange(removed=filters)
        self._table.update(change)
        return DeletedAcls(tuple(change.removed), self._in_force)

    def check(
        self,
        principal: str,
        groups: Sequence[str],
        host: str,
        operation: Operation,
        resource: tuple[ResourceType, str],
    ) -> AclDecision:
        from mainstem.client import AclDecision
        from mainstem.security import ANY, Acls, Principal, check_principal, parse_super_users

        kind, _, name = check_principal(principal).partition(":")
        acls = Acls(
            parse_super_users(self._config.text("super.users")),
            allow_if_none=self._config.flag("allow.everyone.if.no.acl.found"),
        )
        acls.replace(self._all())
        who = Principal(kind, name, frozenset(groups))
        return AclDecision(acls.allows(who, host or ANY, operation, *resource), self._in_force)

    def _all(self) -> list[AclBinding]:
        from mainstem.delta_log.system import all_rules

        return all_rules(self._table.read())
