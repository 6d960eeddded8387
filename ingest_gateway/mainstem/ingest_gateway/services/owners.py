"""Whose transactional ids are: nobody else sends in their transactions."""

from __future__ import annotations

from mainstem.errors import TransactionalIdAuthorizationError
from mainstem.ingest_gateway.services.call import Call
from mainstem.ingest_gateway.transactions import IdRow, Term


def check_owner(term: Term, transactional_id: str, call: Call) -> None:
    """Raises TransactionalIdAuthorizationError where the id is another principal's."""
    entry = term.find(transactional_id)
    if entry is not None:
        check_owner_of(entry.row, call)


def check_owner_of(row: IdRow, call: Call) -> None:
    """The same for what is known of an id."""
    if not call.owns(row.owner):
        raise TransactionalIdAuthorizationError(
            f"{call.principal} may not use transactional.id {row.transactional_id!r}: another "
            "principal has begun with it. Take another id, or wait until it is forgotten after "
            "transactional.id.expiration.ms",
            principal=call.principal,
            name=row.transactional_id,
        )
