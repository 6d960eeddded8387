"""A transactional producer that consists of calls, for the tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.unit.ingest_gateway.harness import WAIT_S, Client
from tests.unit.ingest_gateway.payloads import arrow_request, batch_of

from mainstem.protocol.v1 import groups_pb2, log_pb2, transactions_pb2, transactions_pb2_grpc

#: A leader epoch: somebody has read up to the offset, so that it is not looked for in the log.
READ = 2**60


def transactions(client: Client) -> Any:
    return transactions_pb2_grpc.TransactionsStub(client.channel)


class Transacting:
    """One producer with a transactional id.

    Attributes:
        number: Of the transaction that was begun last.
        coordinator: Where `init` was told that it is.
    """

    def __init__(self, client: Client, transactional_id: str = "i") -> None:
        self.client = client
        self.stub = transactions(client)
        self.transactional_id = transactional_id
        self.producer_id = self.producer_epoch = -1
        self.number = 0
        self.prepared_token = ""
        self.coordinator = ""
        self._sequences: dict[tuple[str, int], int] = {}

    def at(self, client: Client) -> None:
        """Goes on at another gateway."""
        self.client, self.stub = client, transactions(client)

    @property
    def ref(self) -> transactions_pb2.TransactionId:
        return transactions_pb2.TransactionId(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            number=self.number,
        )

    async def init(self, timeout_ms: int = 0, *, single_use: bool = False) -> Transacting:
        answer = await self.stub.InitTransactions(
            transactions_pb2.InitTransactionsRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=timeout_ms,
                single_use=single_use,
            ),
            timeout=WAIT_S,
        )
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self.prepared_token = answer.prepared_token
        self.coordinator = answer.coordinator
        self.number = 0
        return self

    async def begin(self) -> None:
        self.number += 1
        await self.stub.BeginTransaction(
            transactions_pb2.BeginTransactionRequest(transaction=self.ref), timeout=WAIT_S
        )

    def request(
        self, topic: str, values: Sequence[bytes], partition: int = 0, **fields: Any
    ) -> log_pb2.ProduceRequest:
        """The next records to a partition."""
        request = arrow_request(
            batch_of(key=[None] * len(values), value=list(values)),
            ranges=[(partition, 0, len(values))],
            topic=topic,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transactional_id=self.transactional_id,
            transaction_number=self.number,
            **fields,
        )
        first = self._sequences.get((topic, partition), 0)
        request.arrow.ranges[0].base_sequence = first
        self._sequences[topic, partition] = first + len(values)
        return request

    async def send(self, topic: str, *values: bytes, partition: int = 0) -> log_pb2.ProduceResponse:
        return await self.client.produce(self.request(topic, values, partition))

    async def offsets(
        self,
        group: str,
        offsets: Iterable[tuple[str, int, int]],
        member_id: str = "",
        member_epoch: int = -1,
    ) -> None:
        await self.stub.AddOffsets(
            transactions_pb2.AddOffsetsRequest(
                transaction=self.ref,
                offsets=groups_pb2.CommitOffsetsRequest(
                    group=group,
                    member_id=member_id,
                    member_epoch=member_epoch,
                    offsets=[
                        groups_pb2.CommittedOffset(
                            topic=topic, partition=partition, offset=offset, leader_epoch=READ
                        )
                        for topic, partition, offset in offsets
                    ],
                ),
            ),
            timeout=WAIT_S,
        )

    async def end(
        self, *, commit: bool = True, record_count: int | None = None
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """(base offset, record count) by topic and partition."""
        answer = await self.stub.EndTransaction(
            transactions_pb2.EndTransactionRequest(
                transaction=self.ref, commit=commit, record_count=record_count
            ),
            timeout=WAIT_S,
        )
        return placed(answer.results)

    async def prepare(self, timeout_ms: int = 0, *, record_count: int | None = None) -> str:
        answer = await self.stub.PrepareTransaction(
            transactions_pb2.PrepareTransactionRequest(
                transaction=self.ref, timeout_ms=timeout_ms, record_count=record_count
            ),
            timeout=WAIT_S,
        )
        return str(answer.token)


def placed(
    results: Iterable[transactions_pb2.TransactionResult],
) -> dict[tuple[str, int], tuple[int, int]]:
    return {(one.topic, one.partition): (one.base_offset, one.record_count) for one in results}


async def complete(
    client: Client, token: str, *, commit: bool = True
) -> dict[tuple[str, int], tuple[int, int]]:
    answer = await transactions(client).CompleteTransaction(
        transactions_pb2.CompleteTransactionRequest(token=token, commit=commit), timeout=WAIT_S
    )
    return placed(answer.results)


async def complete_several(
    client: Client, name: str, epoch: int, *tokens: str, commit: bool = True, one_off: bool = False
) -> tuple[dict[tuple[str, int], tuple[int, int]], bool]:
    answer = await transactions(client).CompleteTransactions(
        transactions_pb2.CompleteTransactionsRequest(
            transactional_id=name, epoch=epoch, tokens=tokens, commit=commit, one_off=one_off
        ),
        timeout=WAIT_S,
    )
    return placed(answer.results), answer.already_committed


async def listed(client: Client, *states: str) -> dict[str, str]:
    """The state of each transactional id."""
    answer = await transactions(client).ListTransactions(
        transactions_pb2.ListTransactionsRequest(states=states), timeout=WAIT_S
    )
    return {one.transaction.transactional_id: one.state for one in answer.transactions}
