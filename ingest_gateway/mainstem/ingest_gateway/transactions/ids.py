"""How transactions are named and ordered: references, ordinals, tokens of prepared ones. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Final

from mainstem.delta_log.append import TransactionMark
from mainstem.errors import InvalidConfigError, InvalidTxnStateError
from mainstem.protocol.v1 import transactions_pb2

#: Kafka has no limit of its own; a topic's name has this one.
TRANSACTIONAL_ID_BYTES_MAX: Final = 249

#: A producer's transactions in one epoch: more than anybody makes in a century.
NUMBER_MAX: Final = 2**32 - 1
EPOCH_MAX: Final = 2**29 - 1

_EPOCH_SHIFT: Final = 33


@dataclass(frozen=True, slots=True)
class TransactionRef:
    """One transaction of one producer, as its calls name it.

    Attributes:
        number: From 1 in each epoch.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    number: int

    @classmethod
    def of(cls, message: transactions_pb2.TransactionId) -> TransactionRef:
        """Of a request.

        Raises:
            InvalidConfigError: The transactional id is none.
            InvalidTxnStateError: The number is none.
        """
        check_transactional_id(message.transactional_id)
        if not 1 <= message.number <= NUMBER_MAX:
            raise InvalidTxnStateError(
                f"the number of a transaction is {message.number}; it must be from 1 to "
                f"{NUMBER_MAX}",
                transactional_id=message.transactional_id,
            )
        return cls(
            message.transactional_id,
            message.producer_id,
            message.producer_epoch,
            message.number,
        )

    def message(self) -> transactions_pb2.TransactionId:
        return transactions_pb2.TransactionId(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            number=self.number,
        )

    @property
    def mark(self) -> TransactionMark:
        """What its commits carry."""
        return TransactionMark(self.transactional_id, ordinal(self.producer_epoch, self.number))

    @property
    def token(self) -> str:
        """For whoever completes it, once it is prepared."""
        body = [self.transactional_id, self.producer_id, self.producer_epoch, self.number]
        return base64.urlsafe_b64encode(json.dumps(body).encode()).decode()

    @classmethod
    def of_token(cls, token: str) -> TransactionRef:
        """The way back.

        Raises:
            InvalidTxnStateError: It is no token.
        """
        try:
            name, producer_id, epoch, number = json.loads(
                base64.urlsafe_b64decode(token.encode("ascii", "replace"))
            )
            found = cls(str(name), int(producer_id), int(epoch), int(number))
        except (ValueError, TypeError, binascii.Error):
            raise InvalidTxnStateError(
                f"{token[:100]!r} is no token of a prepared transaction; pass what "
                "prepare_transaction() returned"
            ) from None
        check_transactional_id(found.transactional_id)
        return found


def ordinal(producer_epoch: int, number: int) -> int:
    """The place of a transaction among all of its transactional id; even."""
    return producer_epoch << _EPOCH_SHIFT | number << 1


def fence(producer_epoch: int, transactional_id: str) -> TransactionMark:
    """Later than whatever a producer of an epoch before this one can have ended, and earlier than
    the first of this one."""
    return TransactionMark(transactional_id, ordinal(producer_epoch, 0) - 2)


def check_transactional_id(transactional_id: str) -> None:
    """Raises InvalidConfigError if it is none."""
    size_bytes = len(transactional_id.encode("utf-8", "surrogatepass"))
    if not 1 <= size_bytes <= TRANSACTIONAL_ID_BYTES_MAX:
        raise InvalidConfigError(
            f"transactional.id has {size_bytes} bytes; it must have 1 to "
            f"{TRANSACTIONAL_ID_BYTES_MAX}",
            name="transactional.id",
        )
