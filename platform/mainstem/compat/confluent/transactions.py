"""The calls of confluent-kafka's Producer that are about transactions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from mainstem import client
from mainstem.client.producer.engine import Engine
from mainstem.client.producer.transactions import Transactions
from mainstem.compat.confluent.configuration import seconds
from mainstem.compat.confluent.error import KafkaException, from_mainstem, refused
from mainstem.compat.confluent.model import TopicPartition, to_ours
from mainstem.errors import ConfigError, InvalidTxnStateError, MainstemError


class TransactionalProducer:
    """What Producer does with its transactional.id."""

    _engine: Engine

    def _check_open(self) -> None:
        raise NotImplementedError

    def init_transactions(self, timeout: float = -1) -> None:
        """Makes this producer the one of its transactional.id; once, before the first transaction.

        Errors of this and the following calls are KafkaExceptions whose KafkaError says what to
        do: retriable(): call again; txn_requires_abort(): abort_transaction(), and go on with the
        next; fatal(): end.

        Args:
            timeout: Seconds to wait for the coordinator; negative: max.block.ms, a minute.
        """
        with self._transactions("init_transactions") as transactions:
            transactions.init(seconds(timeout))

    def begin_transaction(self) -> None:
        """What is produced from now on is of a transaction."""
        with self._transactions("begin_transaction") as transactions:
            transactions.open()

    def send_offsets_to_transaction(
        self,
        positions: Sequence[TopicPartition],
        group_metadata: client.ConsumerGroupMetadata,
        timeout: float = -1,
    ) -> None:
        """Commits offsets with the transaction.

        Args:
            positions: The next offsets to read; those that are OFFSET_INVALID are left out.
            group_metadata: From consumer_group_metadata() of the consumer.
        """
        ours = to_ours(positions)
        with self._transactions("send_offsets_to_transaction") as transactions:
            transactions.send_offsets(ours, group_metadata, seconds(timeout))

    def commit_transaction(self, timeout: float = -1) -> None:
        """Sends what waits, calls the callbacks, and commits."""
        with self._transactions("commit_transaction") as transactions:
            transactions.commit(seconds(timeout))

    def abort_transaction(self, timeout: float = -1) -> None:
        """Throws away what the transaction has sent, and what waits."""
        with self._transactions("abort_transaction") as transactions:
            transactions.abort(seconds(timeout))

    @contextlib.contextmanager
    def _transactions(self, call: str) -> Iterator[Transactions]:
        self._check_open()
        try:
            yield Transactions.of(self._engine, call)
        except ConfigError as error:
            raise refused("_NOT_CONFIGURED", error.message) from error
        except InvalidTxnStateError as error:
            raise refused("_STATE", error.message) from error
        except MainstemError as error:
            raise KafkaException(from_mainstem(error)) from error
