"""The table `system/acls`: access control lists, one row for each principal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.system.row_table import RowTable
from mainstem.errors import InvalidConfigError, LogDamagedError, PolicyViolationError
from mainstem.limits import ACLS_MAX
from mainstem.security import AclBinding, AclBindingFilter, acl_binding_of, words_of

NAME: Final = "acls"

#: The rules that name one principal.
Rules = tuple[AclBinding, ...]

#: What `RowTable.update` and `WatchedRows.update` take.
Change = Callable[[dict[str, Rules]], Mapping[str, Rules | None]]


class AclsTable(RowTable[Rules]):
    """The table, open; made if it is not there. Calls block; one caller at a time."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, NAME, operation="ACLS", encode=_encode, decode=_decode)


class AclsChange:
    """A change of the table, and what it came to once it is written. Called again, it begins again.

    Attributes:
        created_count: Rules that were not there before.
        removed: Rules that were.
    """

    def __init__(
        self, added: Iterable[AclBinding] = (), removed: Iterable[AclBindingFilter] = ()
    ) -> None:
        self._added = list(dict.fromkeys(added))
        self._filters = list(removed)
        self.created_count = 0
        self.removed: list[AclBinding] = []

    def __call__(self, rows: dict[str, Rules]) -> dict[str, Rules | None]:
        """The rows that are different then; see `RowTable.update`.

        Raises:
            PolicyViolationError: There would be too many rules.
        """
        self.removed = []
        changed: dict[str, Rules | None] = {}
        if self._filters:
            for principal, rules in rows.items():
                gone = [rule for rule in rules if any(one.matches(rule) for one in self._filters)]
                if gone:
                    self.removed += gone
                    left = set(gone)
                    changed[principal] = tuple(r for r in rules if r not in left) or None
        new: dict[str, list[AclBinding]] = {}
        for rule in self._added:
            if rule not in rows.get(rule.principal, ()):
                new.setdefault(rule.principal, []).append(rule)
        for principal, more in new.items():
            changed[principal] = (*rows.get(principal, ()), *more)
        self.created_count = sum(map(len, new.values()))
        count = sum(map(len, rows.values())) + self.created_count
        if self.created_count and count > ACLS_MAX:
            raise PolicyViolationError(
                f"there would be {count} rules, and there may be {ACLS_MAX}: use prefixes, or "
                "groups of principals, and remove rules that nobody needs",
                limit_rules=ACLS_MAX,
            )
        return changed


def all_rules(rows: Mapping[str, Rules]) -> list[AclBinding]:
    """The rules of all rows, in one order."""
    return [rule for _, rules in sorted(rows.items()) for rule in rules]


def _encode(rules: Rules) -> Mapping[str, Any]:
    said = [words_of(rule) for rule in rules]
    for words in said:
        del words["principal"]  # once, however many rules it has
    return {"principal": rules[0].principal, "rules": said}


def _decode(body: Mapping[str, Any]) -> Rules:
    try:
        principal = body["principal"]
        return tuple(acl_binding_of(principal=principal, **words) for words in body["rules"])
    except (InvalidConfigError, KeyError, TypeError) as error:
        # Rules that are not understood might deny something: none of them counts.
        raise LogDamagedError(
            f"a row of the table system/{NAME} is not understood: {error}; a newer mainstem may "
            "have written it"
        ) from error
