"""aiokafka's errors, and which of them each of ours is."""

from __future__ import annotations

from typing import ClassVar, Final

from mainstem.errors import MainstemError


class KafkaError(RuntimeError):
    """The base; `retriable`: the same call may succeed later."""

    retriable: ClassVar[bool] = False


class ConsumerStoppedError(Exception):
    """The consumer was stopped."""


class IllegalOperation(Exception):
    """A call that needs a group.id."""


class IllegalStateError(KafkaError):
    """A call that does not fit what was called before."""


class KafkaConnectionError(KafkaError):
    """No gateway was reached."""

    retriable = True


class KafkaTimeoutError(KafkaError):
    """No answer in time; a record may be in the log."""


class ProducerClosed(KafkaError):
    """The producer was stopped, or was not started."""


class ProducerFenced(KafkaError):
    """Another producer goes on in this one's place."""


class CommitFailedError(KafkaError):
    """Another member may have the partitions."""


class RecordTooLargeError(KafkaError):
    """A record is larger than a message may be."""


class NoOffsetForPartitionError(KafkaError):
    """There is no offset to read from, and auto_offset_reset is none."""


class UnsupportedFeatureError(KafkaError):
    """What does not exist here; the sentence says what to do."""


class BrokerResponseError(KafkaError):
    """What the gateway said; `errno` is Kafka's number of it."""

    errno: ClassVar[int] = -1


class UnknownError(BrokerResponseError):
    """Something that has no number."""


class OffsetOutOfRangeError(BrokerResponseError):
    """The offset is not in the log."""

    errno = 1


class CorruptRecordException(BrokerResponseError):
    """A record is malformed."""

    errno = 2


InvalidMessageError = CorruptRecordException


class UnknownTopicOrPartitionError(BrokerResponseError):
    """There is no such topic or partition."""

    errno = 3
    retriable = True


class NotLeaderForPartitionError(BrokerResponseError):
    """Another gateway leads the topic."""

    errno = 6
    retriable = True


class RequestTimedOutError(BrokerResponseError):
    """The gateway did not answer in time."""

    errno = 7
    retriable = True


class BrokerNotAvailableError(BrokerResponseError):
    """The gateway is shutting down."""

    errno = 8
    retriable = True


class MessageSizeTooLargeError(BrokerResponseError):
    """A record is larger than message.max.bytes."""

    errno = 10


class InvalidTopicError(BrokerResponseError):
    """The name of a topic is not allowed."""

    errno = 17


class IllegalGenerationError(BrokerResponseError):
    """A commit of a membership that is over."""

    errno = 22


class UnknownMemberIdError(BrokerResponseError):
    """The member is out of its group."""

    errno = 25


class UnsupportedVersionError(BrokerResponseError):
    """A table that this version cannot read."""

    errno = 35


class TopicAlreadyExistsError(BrokerResponseError):
    """A topic of that name exists."""

    errno = 36


class InvalidPartitionsError(BrokerResponseError):
    """The number of partitions is not allowed."""

    errno = 37


class InvalidConfigurationError(BrokerResponseError):
    """A setting is wrong."""

    errno = 40


class InvalidRequestError(BrokerResponseError):
    """A request that the gateway refuses to read."""

    errno = 42


class PolicyViolationError(BrokerResponseError):
    """A topic's policy forbids it."""

    errno = 44


class OutOfOrderSequenceNumber(BrokerResponseError):
    """A record that came before is missing."""

    errno = 45


class KafkaStorageError(BrokerResponseError):
    """The store failed."""

    errno = 56
    retriable = True


class UnknownProducerId(BrokerResponseError):
    """The gateway has forgotten the producer."""

    errno = 59


class NonEmptyGroup(BrokerResponseError):
    """The group has members."""

    errno = 68


class GroupIdNotFound(BrokerResponseError):
    """There is no such group."""

    errno = 69


class GroupMaxSizeReached(BrokerResponseError):
    """The group has as many members as it may."""

    errno = 81


class FencedInstanceId(BrokerResponseError):
    """Another process has the same group_instance_id."""

    errno = 82


class ThrottlingQuotaExceeded(BrokerResponseError):
    """The gateway has too much to do."""

    errno = 89
    retriable = True


#: By the code of a MainstemError.
CLASSES: Final[dict[str, type[Exception]]] = {
    "INTERNAL": UnknownError,
    "UNKNOWN_TOPIC": UnknownTopicOrPartitionError,
    "UNKNOWN_PARTITION": UnknownTopicOrPartitionError,
    "TOPIC_EXISTS": TopicAlreadyExistsError,
    "INVALID_TOPIC": InvalidTopicError,
    "INVALID_CONFIG": InvalidConfigurationError,
    "INVALID_RECORD": CorruptRecordException,
    "INVALID_REQUEST": InvalidRequestError,
    "RECORD_TOO_LARGE": MessageSizeTooLargeError,
    "REQUEST_TOO_LARGE": MessageSizeTooLargeError,
    "NOT_LEADER": NotLeaderForPartitionError,
    "OUT_OF_ORDER_SEQUENCE": OutOfOrderSequenceNumber,
    "UNKNOWN_PRODUCER_ID": UnknownProducerId,
    "PRODUCER_FENCED": ProducerFenced,
    "OFFSET_OUT_OF_RANGE": OffsetOutOfRangeError,
    "POLICY_VIOLATION": PolicyViolationError,
    "UNKNOWN_MEMBER": CommitFailedError,
    "STALE_MEMBER_EPOCH": CommitFailedError,
    "STALE_COMMIT": CommitFailedError,
    "INSTANCE_FENCED": FencedInstanceId,
    "NOT_ASSIGNED": CommitFailedError,
    "UNKNOWN_GROUP": GroupIdNotFound,
    "GROUP_NOT_EMPTY": NonEmptyGroup,
    "GROUP_FULL": GroupMaxSizeReached,
    "INVALID_OFFSET": OffsetOutOfRangeError,
    "BACK_PRESSURE": ThrottlingQuotaExceeded,
    "HELD": RequestTimedOutError,
    "SHUTTING_DOWN": BrokerNotAvailableError,
    "GATEWAY_UNAVAILABLE": KafkaConnectionError,
    "STORE_UNAVAILABLE": KafkaStorageError,
    "OUTCOME_UNKNOWN": KafkaTimeoutError,
    "LOG_DAMAGED": KafkaStorageError,
    "UNSUPPORTED_TABLE": UnsupportedVersionError,
    "DELIVERY_TIMEOUT": KafkaTimeoutError,
    "QUEUE_FULL": KafkaTimeoutError,
    "PRODUCER_CLOSED": ProducerClosed,
    "CONSUMER_CLOSED": ConsumerStoppedError,
}


def from_mainstem(error: BaseException) -> BaseException:
    """The same error in aiokafka's words; the sentence is ours. Another error stays as it is."""
    if not isinstance(error, MainstemError):
        return error
    found = CLASSES.get(error.code, UnknownError)(error.message)
    found.__cause__ = error
    return found
