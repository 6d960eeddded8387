"""The table of users."""

from __future__ import annotations

import pytest

from mainstem.delta_log import LocalStore
from mainstem.delta_log.system import User, change_users, check_changes, open_users
from mainstem.errors import InvalidConfigError
from mainstem.security import new_credential

ONE = new_credential("secret", "SCRAM-SHA-256", 4096)
OTHER = new_credential("secret", "SCRAM-SHA-512", 4096)


def test_users_come_back_as_they_were_written(store: LocalStore) -> None:
    ours, theirs = open_users(store), open_users(store)
    name = "Zoë, =:x"
    ours.update(lambda rows: change_users(rows, [(name, ONE), (name, OTHER), ("bob", ONE)], []))
    assert theirs.read() == {
        name: User({"SCRAM-SHA-256": ONE, "SCRAM-SHA-512": OTHER}),
        "bob": User({"SCRAM-SHA-256": ONE}),
    }
    theirs.update(lambda rows: change_users(rows, [], [(name, "SCRAM-SHA-256"), ("bob", "")]))
    assert ours.read() == {name: User({"SCRAM-SHA-512": OTHER})}


def test_with_the_last_mechanism_the_user_goes() -> None:
    rows = {"bob": User({"SCRAM-SHA-256": ONE})}
    assert change_users(rows, [], [("bob", "SCRAM-SHA-256")]) == {"bob": None}


def test_who_is_not_there_cannot_be_deleted_and_nothing_is_changed() -> None:
    rows = {"bob": User({"SCRAM-SHA-256": ONE})}
    with pytest.raises(InvalidConfigError, match="no such user"):
        change_users(rows, [("eve", ONE)], [("alice", "")])
    with pytest.raises(InvalidConfigError, match="no credentials of SCRAM-SHA-512"):
        change_users(rows, [], [("bob", "SCRAM-SHA-512")])


def test_who_is_named_twice_is_refused() -> None:
    check_changes([("a", ONE), ("a", OTHER)], [("b", "")])
    for upsertions, deletions in (
        ([("a", ONE), ("a", ONE)], []),
        ([("a", ONE)], [("a", "SCRAM-SHA-256")]),
        ([("a", ONE)], [("a", "")]),
        ([], [("a", ""), ("a", "SCRAM-SHA-256")]),
    ):
        with pytest.raises(InvalidConfigError, match="twice"):
            check_changes(upsertions, deletions)


def test_there_are_no_more_users_than_a_gateway_can_read() -> None:
    user = User({"SCRAM-SHA-256": ONE})
    rows = {str(number): user for number in range(5_000)}
    assert change_users(rows, [("0", OTHER)], [])["0"] is not None
    with pytest.raises(InvalidConfigError, match="5000 users"):
        change_users(rows, [("one more", ONE)], [])
