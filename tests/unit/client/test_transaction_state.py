"""The state machine of transactions: every call in every state, and what is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mainstem.client.producer.transactions.state import TransactionState, TxnState
from mainstem.errors import (
    InvalidRecordError,
    InvalidTxnStateError,
    TransactionAbortedError,
    TransactionTimedOutError,
)

FITS = {
    "init_transactions": {"UNINITIALISED", "READY", "PREPARED"},
    "begin_transaction": {"READY"},
    "send_offsets_to_transaction": {"OPEN", "LOST"},
    "commit_transaction": {"OPEN", "LOST", "COMMITTING"},
    "prepare_transaction": {"OPEN", "LOST", "PREPARING"},
    "abort_transaction": {"OPEN", "LOST", "ABORTING"},
    "complete_transaction": {"UNINITIALISED", "READY", "PREPARED"},
}


def uninitialised() -> TransactionState:
    return TransactionState("x")


def ready() -> TransactionState:
    made = uninitialised()
    made.initialised(7, 2, "")
    return made


def opened() -> TransactionState:
    made = ready()
    made.opened()
    return made


def begun() -> TransactionState:
    made = opened()
    made.beginning()
    made.has_begun()
    return made


def lost() -> TransactionState:
    made = begun()
    assert made.lost(InvalidRecordError("malformed"))
    return made


def ending(state: TxnState) -> Callable[[], TransactionState]:
    def make() -> TransactionState:
        made = begun()
        assert made.ending(state)
        return made

    return make


def prepared() -> TransactionState:
    made = ending(TxnState.PREPARING)()
    made.prepared("token")
    return made


STATES: dict[str, Callable[[], TransactionState]] = {
    "UNINITIALISED": uninitialised,
    "READY": ready,
    "OPEN": opened,
    "LOST": lost,
    "COMMITTING": ending(TxnState.COMMITTING),
    "ABORTING": ending(TxnState.ABORTING),
    "PREPARING": ending(TxnState.PREPARING),
    "PREPARED": prepared,
}


def test_every_state_is_here() -> None:
    assert set(STATES) == {state.name for state in TxnState}


@pytest.mark.parametrize("call", FITS)
@pytest.mark.parametrize("name", STATES)
def test_a_call_fits_its_states_and_is_refused_in_any_other(name: str, call: str) -> None:
    state = STATES[name]()
    assert state.state.name == name
    if name in FITS[call]:
        state.start(call)
        assert state.under_way == call
        return
    with pytest.raises(InvalidTxnStateError) as caught:
        state.start(call)
    assert call in caught.value.message
    assert state.state.value in caught.value.message
    assert caught.value.facts == {"transactional_id": "x", "state": name}
    assert state.under_way == ""


@pytest.mark.parametrize("call", FITS)
def test_one_call_at_a_time(call: str) -> None:
    state = opened()
    state.start("send_offsets_to_transaction")
    with pytest.raises(InvalidTxnStateError, match=r"send_offsets_to_transaction\(\) is under way"):
        state.start(call)
    state.finish()
    state.start("commit_transaction")


@pytest.mark.parametrize("name", STATES)
def test_records_are_taken_in_an_open_transaction_only(name: str) -> None:
    state = STATES[name]()
    if name == "OPEN":
        state.check_takes("produce")
        state.start("send_offsets_to_transaction")
        state.check_takes("produce")
        state.finish()
        for end in ("commit_transaction", "prepare_transaction", "abort_transaction"):
            state.start(end)
            with pytest.raises(InvalidTxnStateError, match="takes nothing more"):
                state.check_takes("produce")
            state.finish()
    elif name == "LOST":
        with pytest.raises(TransactionAbortedError, match="malformed"):
            state.check_takes("produce")
    else:
        with pytest.raises(InvalidTxnStateError):
            state.check_takes("produce")


def test_numbers_count_what_was_begun_and_a_repeated_begin_keeps_its_number() -> None:
    state = ready()
    for number in (1, 2):
        state.opened()
        assert state.beginning() == state.beginning() == (7, 2, "x", number)
        state.has_begun()
        assert state.ending(TxnState.COMMITTING)
        state.ended("committed")
        state.opened()
        assert not state.ending(TxnState.COMMITTING)  # empty
        state.ended("committed")


def test_a_new_epoch_counts_from_1_again() -> None:
    state = begun()
    state.ending(TxnState.COMMITTING)
    state.ended("committed")
    state.initialised(7, 3, "")
    state.opened()
    assert state.beginning() == (7, 3, "x", 1)


def test_a_begin_that_may_have_been_taken_is_ended_too() -> None:
    state = opened()
    state.beginning()
    assert not state.begun
    assert state.ending(TxnState.ABORTING)


@pytest.mark.parametrize("end", [TxnState.COMMITTING, TxnState.PREPARING])
def test_a_lost_transaction_can_only_be_aborted(end: TxnState) -> None:
    state = lost()
    with pytest.raises(TransactionAbortedError) as caught:
        state.ending(end)
    assert caught.value.facts["cause"] == "INVALID_RECORD"
    assert isinstance(caught.value.__cause__, InvalidRecordError)
    assert state.state is TxnState.LOST
    assert state.ending(TxnState.ABORTING)
    state.ended("aborted")
    state.start("begin_transaction")


def test_a_transaction_that_timed_out_says_so() -> None:
    state = begun()
    state.lost(TransactionTimedOutError("too long"))
    assert isinstance(state.lost_error(), TransactionTimedOutError)


def test_the_first_failure_counts_and_none_when_it_is_over() -> None:
    state = lost()
    assert not state.lost(InvalidRecordError("later"))
    assert "malformed" in state.lost_error().message
    for name in ("READY", "COMMITTING", "ABORTING", "PREPARED"):
        assert not STATES[name]().lost(InvalidRecordError("late"))


def test_a_commit_that_was_refused_leaves_a_lost_transaction() -> None:
    state = ending(TxnState.COMMITTING)()
    state.refused(TransactionAbortedError("no"))
    assert state.state is TxnState.LOST


def test_only_its_own_token_completes_a_prepared_transaction() -> None:
    state = prepared()
    state.completed("another")
    assert state.state is TxnState.PREPARED
    state.completed("token")
    assert (state.state, state.token) == (TxnState.READY, "")
    other = ready()
    other.completed("token")
    assert other.state is TxnState.READY


def test_a_producer_that_finds_a_prepared_transaction_completes_it_first() -> None:
    state = uninitialised()
    state.initialised(7, 2, "token")
    with pytest.raises(InvalidTxnStateError, match="complete_transaction"):
        state.start("begin_transaction")
    state.completed("token")
    state.start("begin_transaction")
