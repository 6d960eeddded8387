"""What is kept of transactions, and how they are named and ordered."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mainstem.errors import InvalidConfigError, InvalidTxnStateError
from mainstem.ingest_gateway.transactions.ids import (
    EPOCH_MAX,
    NUMBER_MAX,
    TransactionRef,
    check_transactional_id,
    fence,
    ordinal,
)
from mainstem.ingest_gateway.transactions.rows import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    PREPARED,
    Completed,
    IdRow,
    LookRow,
    OffsetPart,
    TopicPart,
    TransactionRow,
)

ODD = 'a "quoted"\\ \n  ид\0 transactional id/1'

#: Of a principal, as its row has it where callers prove who they are.
OWNED = IdRow(ODD, 7, 3, 60_000, owner="User:CN=a:b,O=x")

ROW = IdRow(
    ODD,
    7,
    3,
    60_000,
    state=PREPARED,
    transaction_epoch=2,
    number=5,
    topics=(TopicPart("t", "id", ("1-a", "1-b"), {0: 2, 7: 1}),),
    offsets=(OffsetPart("g", "t", "id", 0, 4, 9, "said"),),
    direct=(("t", "id"),),
    completed=Completed(1, 2, True),
    updated_ms=17,
    client_id="c",
    deadline_ms=99,
)


@pytest.mark.parametrize(
    "row",
    [
        TransactionRow(ODD, ROW),
        TransactionRow(ODD, None),
        TransactionRow("e", IdRow("e", -1, 0, 0, is_epochs=True, one_off=True)),
        TransactionRow("", LookRow({"t": 4, "u": -1})),
    ],
)
def test_a_row_comes_back_as_it_was_written(row: TransactionRow) -> None:
    assert TransactionRow.decode(*row.encode()) == row
    assert row.takes_away == (row.value is None)


def test_the_rows_of_two_ids_and_of_the_look_have_keys_of_their_own() -> None:
    keys = {TransactionRow(name, None).encode()[0] for name in ("a", "b", '{"look":"topics"}')}
    assert len(keys | {TransactionRow("", LookRow({})).encode()[0]}) == 4


def test_ordinals_order_all_transactions_of_an_id_with_fences_in_between() -> None:
    rng = random.Random(1)
    epochs = sorted({0, EPOCH_MAX, *(rng.randrange(EPOCH_MAX) for _ in range(50))})
    places: list[int] = []
    for epoch in epochs:
        if epoch:
            places.append(fence(epoch, "i").ordinal | 1)
        places += [ordinal(epoch, number) for number in (0, 1, 2, NUMBER_MAX)]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    assert max(places) < 2**63


def test_a_token_names_its_transaction_in_any_process() -> None:
    ref = TransactionRef(ODD, 7, 3, 5)
    assert TransactionRef.of_token(ref.token) == ref
    assert ref.token.isascii()
    assert "\n" not in ref.token


@pytest.mark.parametrize("token", ["", "x", "é", "W10=", "WzEsMl0=", "eyJhIjoxfQ==", "A" * 10_000])
def test_what_is_no_token_is_refused_with_what_to_pass(token: str) -> None:
    with pytest.raises(InvalidTxnStateError, match="prepare_transaction"):
        TransactionRef.of_token(token)


@pytest.mark.parametrize("name", ["", "x" * 250, "é" * 125])
def test_a_transactional_id_has_1_to_249_bytes(name: str) -> None:
    with pytest.raises(InvalidConfigError, match="1 to 249"):
        check_transactional_id(name)
    check_transactional_id("x" * 249)


def test_what_became_of_a_prepared_transaction_outlives_the_next_ones() -> None:
    over = replace(ROW, state=COMMITTING, ordinal=8, completed=None)
    assert over.over(COMMITTED, 20).completed is None, "it was never prepared"
    aborted = ROW.over(ABORTED, 20)
    assert aborted.completed == Completed(2, 5, False)
    assert (aborted.topics, aborted.deadline_ms) == ((), 0)
    later = replace(aborted, state=COMMITTING, transaction_epoch=3, number=1).over(COMMITTED, 21)
    assert later.completed == Completed(2, 5, False)


def test_whose_an_id_is_comes_back_and_is_left_out_where_it_is_nobodys() -> None:
    assert IdRow.decode(OWNED.encode()) == OWNED
    assert "owner" not in ROW.encode(), "gateways that know of no owners read these rows"
    assert OWNED.over(COMMITTED, 1).owner == OWNED.owner
