"""The Transactions service: what producers, operators and other gateways ask of transactions."""

from __future__ import annotations

import asyncio
from functools import partial

from mainstem.delta_log.append import TransactionMark
from mainstem.errors import InvalidOffsetError, InvalidTxnStateError, MainstemError
from mainstem.ingest_gateway.groups import GroupCoordination, OffsetCommits
from mainstem.ingest_gateway.services.call import Call
from mainstem.ingest_gateway.services.owners import check_owner, check_owner_of
from mainstem.ingest_gateway.transactions import (
    Entry,
    TransactionCoordination,
    TransactionRef,
    check_transactional_id,
    complete_several,
    described,
    give_up,
)
from mainstem.protocol import error_from_message
from mainstem.protocol.v1 import transactions_pb2
from mainstem.security import Operation, QuotaName, ResourceType

_DESCRIBED_AT_ONCE = 1_000


class TransactionService:
    """Serves `mainstem.v1.Transactions`.

    Args:
        address: Of this gateway, as clients reach it.
    """

    def __init__(
        self,
        transactions: TransactionCoordination,
        groups: GroupCoordination,
        offset_commits: OffsetCommits,
        address: str,
    ) -> None:
        self._transactions = transactions
        self._groups = groups
        self._offset_commits = offset_commits
        self._address = address

    # -- producers ---------------------------------------------------------------------------------

    async def InitTransactions(
        self, request: transactions_pb2.InitTransactionsRequest, call: Call
    ) -> transactions_pb2.InitTransactionsResponse:
        check_transactional_id(request.transactional_id)
        term = await self._transactions.started()
        row = await term.init(
            request.transactional_id,
            request.transaction_timeout_ms,
            call.client_id,
            single_use=request.single_use,
            owner=call.owner,
            check_owner=partial(check_owner_of, call=call),
        )
        return transactions_pb2.InitTransactionsResponse(
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            prepared_token=row.prepared_token,
            coordinator=self._address,
        )

    async def BeginTransaction(
        self, request: transactions_pb2.BeginTransactionRequest, call: Call
    ) -> transactions_pb2.BeginTransactionResponse:
        ref = TransactionRef.of(request.transaction)
        term = await self._transactions.started()
        check_owner(term, ref.transactional_id, call)
        with call.taking(QuotaName.OPEN_TRANSACTIONS, ref.transactional_id, term.is_open):
            await term.begin(ref, call.client_id)
        return transactions_pb2.BeginTransactionResponse()

    async def AddOffsets(
        self, request: transactions_pb2.AddOffsetsRequest, call: Call
    ) -> transactions_pb2.AddOffsetsResponse:
        ref = TransactionRef.of(request.transaction)
        running = await self._groups.started()
        term = await self._transactions.started()
        check_owner(term, ref.transactional_id, call)
        term.check_open(ref)
        offsets = request.offsets
        try:
            response, rows = await self._offset_commits.take(running, offsets)
            for one in response.offsets:
                if one.HasField("error"):
                    raise error_from_message(one.error)
            if any(row.value is None for row in rows):
                raise InvalidOffsetError("a transaction cannot take back a committed offset")
        except MainstemError as refusal:
            if refusal.retriable:
                raise
            term.refuse_offsets(ref, refusal)
            raise
        term.add_offsets(ref, offsets.group, offsets.member_id, offsets.member_epoch, rows)
        return transactions_pb2.AddOffsetsResponse()

    async def EndTransaction(
        self, request: transactions_pb2.EndTransactionRequest, call: Call
    ) -> transactions_pb2.EndTransactionResponse:
        ref = TransactionRef.of(request.transaction)
        term = await self._transactions.started()
        check_owner(term, ref.transactional_id, call)
        count = request.record_count if request.HasField("record_count") else None
        results = await term.end(ref, commit=request.commit, record_count=count)
        return transactions_pb2.EndTransactionResponse(results=results)

    async def PrepareTransaction(
        self, request: transactions_pb2.PrepareTransactionRequest, call: Call
    ) -> transactions_pb2.PrepareTransactionResponse:
        ref = TransactionRef.of(request.transaction)
        term = await self._transactions.started()
        check_owner(term, ref.transactional_id, call)
        count = request.record_count if request.HasField("record_count") else None
        token = await term.prepare(ref, request.timeout_ms, count)
        return transactions_pb2.PrepareTransactionResponse(token=token)

    async def CompleteTransaction(
        self, request: transactions_pb2.CompleteTransactionRequest, call: Call
    ) -> transactions_pb2.EndTransactionResponse:
        if request.WhichOneof("which") == "transactional_id":
            term = await self._transactions.started()
            results = await term.complete_id(request.transactional_id, commit=request.commit)
        else:
            ref = TransactionRef.of_token(request.token)
            term = await self._transactions.started()
            results = await term.complete(ref, commit=request.commit)
        return transactions_pb2.EndTransactionResponse(results=results)

    async def CompleteTransactions(
        self, request: transactions_pb2.CompleteTransactionsRequest, call: Call
    ) -> transactions_pb2.CompleteTransactionsResponse:
        check_transactional_id(request.transactional_id)
        term = await self._transactions.started()
        if not request.commit:
            await give_up(term, [TransactionRef.of_token(token) for token in request.tokens])
            return transactions_pb2.CompleteTransactionsResponse()
        results, already = await complete_several(
            term,
            request.transactional_id,
            request.epoch,
            request.tokens,
            one_off=request.one_off,
        )
        return transactions_pb2.CompleteTransactionsResponse(
            results=results, already_committed=already
        )

    # -- operators ---------------------------------------------------------------------------------

    async def ListTransactions(
        self, request: transactions_pb2.ListTransactionsRequest, call: Call
    ) -> transactions_pb2.ListTransactionsResponse:
        term = await self._transactions.started()
        wanted = frozenset(request.states)
        response = transactions_pb2.ListTransactionsResponse()
        for index, entry in enumerate(term.sorted_entries(), start=1):
            is_wanted = entry.state in wanted if wanted else entry.state != "EMPTY"
            name = entry.row.transactional_id
            if is_wanted and call.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
                response.transactions.append(described(entry, term.now(), brief=True))
            if index % _DESCRIBED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return response

    async def DescribeTransaction(
        self, request: transactions_pb2.DescribeTransactionRequest, call: Call
    ) -> transactions_pb2.TransactionDescription:
        term = await self._transactions.started()
        entry: Entry = term.known(request.transactional_id)
        found = described(entry, term.now())
        for names, kind in ((found.topics, ResourceType.TOPIC), (found.groups, ResourceType.GROUP)):
            names[:] = await call.allowed(Operation.DESCRIBE, kind, list(names))
        return found

    # -- other gateways ----------------------------------------------------------------------------

    async def AppendTransaction(
        self, request: transactions_pb2.AppendTransactionRequest, call: Call
    ) -> transactions_pb2.AppendTransactionResponse:
        mark = _mark(request.transactional_id, request.ordinal)
        results, version = await self._transactions.appends.append_here(
            mark, request.topic, request.topic_id, tuple(request.staged)
        )
        return transactions_pb2.AppendTransactionResponse(results=results, table_version=version)

    async def SettleTransaction(
        self, request: transactions_pb2.SettleTransactionRequest, call: Call
    ) -> transactions_pb2.SettleTransactionResponse:
        mark = _mark(request.transactional_id, request.ordinal)
        appender = await self._transactions.appends.leader_here(request.topic, request.topic_id)
        return transactions_pb2.SettleTransactionResponse(
            appended=await appender.settle_transaction(mark)
        )


def _mark(transactional_id: str, ordinal: int) -> TransactionMark:
    """What another gateway asks about."""
    check_transactional_id(transactional_id)
    if ordinal <= 0 or ordinal % 2:
        raise InvalidTxnStateError(
            f"{ordinal} is no transaction's ordinal; they are positive and even",
            transactional_id=transactional_id,
        )
    return TransactionMark(transactional_id, ordinal)
