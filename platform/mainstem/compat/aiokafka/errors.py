"""aiokafka's errors, and which of them each of ours is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from mainstem.errors import MainstemError


class KafkaError(RuntimeError):
    """The base; `retriable`: the same call may succeed later."""

    retriable: ClassVar[bool] = False
    #: Whether aiokafka asks for the metadata again; here the clients do what is to be done.
    invalid_metadata: ClassVar[bool] = False


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
    """What the gateway said.

    Attributes:
        errno: Kafka's number of it.
        message: Its name in capitals.
        description: A sentence about the class.
    """

    errno: ClassVar[int] = -1
    message: ClassVar[str] = "UNKNOWN"
    description: ClassVar[str] = "What the gateway said."

    def __init_subclass__(cls) -> None:
        words = re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Error"))
        cls.message = words.upper()
        cls.description = cls.__doc__ or ""

    def __str__(self) -> str:
        said = super().__str__()
        return f"[Error {self.errno}] {type(self).__name__}{said and ': '}{said}"


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


class InvalidTxnState(BrokerResponseError):
    """The transaction is over, or the call does not fit what became of it: abort it, and go on."""

    errno = 48


class ConcurrentTransactions(BrokerResponseError):
    """The transaction before is being completed."""

    errno = 51
    retriable = True


class TopicAuthorizationFailedError(BrokerResponseError):
    """The caller may not do this with the topic."""

    errno = 29


class GroupAuthorizationFailedError(BrokerResponseError):
    """The caller may not do this with the group."""

    errno = 30


class ClusterAuthorizationFailedError(BrokerResponseError):
    """The caller may not do this with the cluster."""

    errno = 31


class TransactionalIdAuthorizationFailed(BrokerResponseError):
    """The caller may not do this with the transactional id."""

    errno = 53


class SaslAuthenticationFailed(BrokerResponseError):
    """The caller has not proved who they are."""

    errno = 58


#: Errors that no gateway gives; programs name them where they catch errors. With their numbers, and
#: a plus where they are retriable.
_NEVER_GIVEN: Final = """
CoordinatorLoadInProgressError=14+ CoordinatorNotAvailableError=15+ DelegationTokenAuthDisabled=61
DelegationTokenAuthorizationFailed=65 DelegationTokenExpired=66 DelegationTokenNotFound=62
DelegationTokenOwnerMismatch=63 DelegationTokenRequestNotAllowed=64 DuplicateSequenceNumber=46
FetchSessionIdNotFound=70 GroupCoordinatorNotAvailableError=15+ GroupLoadInProgressError=14+
IllegalSaslStateError=34 InconsistentGroupProtocolError=23 InvalidCommitOffsetSizeError=28
InvalidFetchRequestError=4 InvalidFetchSessionEpoch=71 InvalidGroupIdError=24
InvalidPrincipalType=67 InvalidProducerEpoch=47 InvalidProducerIdMapping=49
InvalidReplicationAssignmentError=39 InvalidReplicationFactorError=38 InvalidRequiredAcksError=21
InvalidSessionTimeoutError=26 InvalidTimestampError=32 InvalidTransactionTimeout=50
LeaderNotAvailableError=5+ ListenerNotFound=72 LogDirNotFound=57 MemberIdRequired=79 NoError=0
NotControllerError=41+ NotCoordinatorError=16+ NotCoordinatorForGroupError=16+
NotEnoughReplicasAfterAppendError=20+ NotEnoughReplicasError=19+ OffsetMetadataTooLargeError=12
OperationNotAttempted=55 ReassignmentInProgress=60 RebalanceInProgressError=27
RecordListTooLargeError=18 ReplicaNotAvailableError=9 SecurityDisabled=54
StaleControllerEpochError=11 StaleLeaderEpochCodeError=13 TransactionCoordinatorFenced=52
UnsupportedForMessageFormatError=43 UnsupportedSaslMechanismError=33
"""
_NEVER_RAISED: Final = """
AuthenticationFailedError AuthenticationMethodNotSupported Cancelled+ CorrelationIdError+
IllegalArgumentError IncompatibleBrokerVersion KafkaConfigurationError KafkaProtocolError+
KafkaUnavailableError MetadataEmptyBrokerList+ NoBrokersAvailable+ NodeNotReadyError+
QuotaViolationError StaleMetadata+ TooManyInFlightRequests+ UnrecognizedBrokerVersion
UnsupportedCodecError
"""


def _define(word: str, base: type[KafkaError]) -> None:
    name, _, number = word.rstrip("+").partition("=")
    facts: dict[str, object] = {"__doc__": "Is never raised here.", "__module__": __name__}
    facts["retriable"] = word.endswith("+")
    if number:
        facts["errno"] = int(number)
    globals()[name] = type(name, (base,), facts)


for _word in _NEVER_GIVEN.split():
    _define(_word, BrokerResponseError)
for _word in _NEVER_RAISED.split():
    _define(_word, KafkaError)

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[BrokerResponseError]: ...


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
    "INVALID_TXN_STATE": InvalidTxnState,
    "TRANSACTION_ABORTED": InvalidTxnState,
    "TRANSACTION_TIMED_OUT": InvalidTxnState,
    "CONCURRENT_TRANSACTIONS": ConcurrentTransactions,
    "OFFSET_OUT_OF_RANGE": OffsetOutOfRangeError,
    "LOG_TRUNCATED": OffsetOutOfRangeError,
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
    "SASL_AUTHENTICATION_FAILED": SaslAuthenticationFailed,
    "SESSION_EXPIRED": SaslAuthenticationFailed,
    "AUTHORIZATION_FAILED": ClusterAuthorizationFailedError,
    "TOPIC_AUTHORIZATION_FAILED": TopicAuthorizationFailedError,
    "GROUP_AUTHORIZATION_FAILED": GroupAuthorizationFailedError,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": TransactionalIdAuthorizationFailed,
    "CLUSTER_AUTHORIZATION_FAILED": ClusterAuthorizationFailedError,
    "THROTTLING_QUOTA_EXCEEDED": ThrottlingQuotaExceeded,
    "LOG_DAMAGED": KafkaStorageError,
    "UNSUPPORTED_TABLE": UnsupportedVersionError,
    "DELIVERY_TIMEOUT": KafkaTimeoutError,
    "QUEUE_FULL": KafkaTimeoutError,
    "PRODUCER_CLOSED": ProducerClosed,
    "CONSUMER_CLOSED": ConsumerStoppedError,
}


#: By Kafka's number, the class.
kafka_errors: Final[dict[int, type[BrokerResponseError]]] = {
    one.errno: one for one in reversed(BrokerResponseError.__subclasses__())
}


def for_code(error_code: int) -> type[BrokerResponseError]:
    """The class of one of Kafka's numbers; UnknownError for one that has none."""
    return kafka_errors.get(error_code, UnknownError)


def from_mainstem(error: BaseException) -> BaseException:
    """The same error in aiokafka's words; the sentence is ours. Another error stays as it is."""
    if not isinstance(error, MainstemError):
        return error
    found = CLASSES.get(error.code, UnknownError)(error.message)
    found.__cause__ = error
    return found
