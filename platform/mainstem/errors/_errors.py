"""The error classes. A message says what happened, the value with its unit, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class MainstemError(Exception):
    """The base of every error that mainstem raises on purpose.

    Attributes:
        code: Stable name for programs; also the `reason` on the wire.
        retriable: The same call may succeed later.
        fatal: The object that raised it cannot be used any more.
        abortable: The open transaction is lost: abort it, and go on with the next. Kafka:
            txn_requires_abort.
        facts: What the message says, by name, for programs.
        retry_delay_ms: Wait at least this long before a retry; 0 means no advice.
    """

    code: ClassVar[str] = "INTERNAL"
    retriable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False
    abortable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_delay_ms: int = 0, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.retry_delay_ms = retry_delay_ms
        self.facts: dict[str, str] = {name: str(value) for name, value in facts.items()}


class InternalError(MainstemError):
    """A fault of ours. Report it with the gateway's log."""

    code = "INTERNAL"


class UnknownTopicError(MainstemError):
    """The topic does not exist. Create it, or set `auto.create.topics.enable` on the gateway."""

    code = "UNKNOWN_TOPIC"


class UnknownPartitionError(MainstemError):
    """The topic has no such partition."""

    code = "UNKNOWN_PARTITION"


class TopicExistsError(MainstemError):
    """A topic of that name exists."""

    code = "TOPIC_EXISTS"


class InvalidTopicError(MainstemError):
    """The name breaks Kafka's rule for topic names."""

    code = "INVALID_TOPIC"


class InvalidConfigError(MainstemError):
    """A setting is unknown, unsupported or out of range. Nothing was changed."""

    code = "INVALID_CONFIG"


class ConfigError(InvalidConfigError):
    """A setting of the client, given by the caller, is wrong."""


class InvalidRecordError(MainstemError):
    """A record or its payload is malformed. The request was refused; nothing of it is stored.

    A producer sends the other records of the request again, so only those that are wrong fail.

    Attributes:
        record_indexes: The records of the request, from 0, for which it was refused; empty: it is
            wrong as a whole.
    """

    code = "INVALID_RECORD"
    record_indexes: Sequence[int] = ()


class InvalidRequestError(MainstemError):
    """The bytes of a request are not the message that the call takes. Nothing was done."""

    code = "INVALID_REQUEST"


class RecordTooLargeError(InvalidRecordError):
    """A record is larger than `message.max.bytes`; as InvalidRecordError."""

    code = "RECORD_TOO_LARGE"


class RequestTooLargeError(InvalidRecordError):
    """A request has or unpacks to more bytes, records, names or other items than a gateway takes at
    a time; the message says of what. Send less at a time."""

    code = "REQUEST_TOO_LARGE"


class NotLeaderError(MainstemError):
    """This gateway does not lead the topic. Ask for metadata and go to the leader."""

    code = "NOT_LEADER"
    retriable = True


class FencedError(NotLeaderError):
    """Another writer has taken the topic with a higher epoch."""


class OutOfOrderSequenceError(MainstemError):
    """Batches of an idempotent producer before this one are missing. Nothing was taken."""

    code = "OUT_OF_ORDER_SEQUENCE"


class UnknownProducerIdError(MainstemError):
    """The producer id is not known, or was forgotten. Take a new one and begin at sequence 0."""

    code = "UNKNOWN_PRODUCER_ID"


class ProducerFencedError(MainstemError):
    """A newer producer has the id with a higher epoch."""

    code = "PRODUCER_FENCED"
    fatal = True


class InvalidTxnStateError(MainstemError):
    """The call does not fit the state of the transaction, which the message names: none is open,
    one is prepared and waits to be completed, or the like. Nothing was changed."""

    code = "INVALID_TXN_STATE"


class TransactionAbortedError(MainstemError):
    """The transaction was aborted, and nothing of it is in the log: its coordinator was replaced,
    an operator ended it, or something of it was refused. Abort it, and go on with the next."""

    code = "TRANSACTION_ABORTED"
    abortable = True


class TransactionTimedOutError(TransactionAbortedError):
    """The transaction was open for longer than `transaction.timeout.ms`, and was aborted."""

    code = "TRANSACTION_TIMED_OUT"


class ConcurrentTransactionsError(MainstemError):
    """The transaction before, of the same transactional id, is being completed. Try again."""

    code = "CONCURRENT_TRANSACTIONS"
    retriable = True


class OffsetOutOfRangeError(MainstemError):
    """The offset lies outside [log start offset, high watermark]; both are in the facts."""

    code = "OFFSET_OUT_OF_RANGE"


class LogTruncatedError(OffsetOutOfRangeError):
    """The log was put back from an older copy: it has other records than those that were read, or
    none, from `truncated_to` (in the facts) on. Nothing says where those are: seek to
    `truncated_to` to read what is there now.

    Kafka: LogTruncationException.
    """

    code = "LOG_TRUNCATED"


class PolicyViolationError(MainstemError):
    """What was asked contradicts a setting of the topic. Nothing was changed."""

    code = "POLICY_VIOLATION"


class UnknownMemberError(MainstemError):
    """The group has no such member: it was evicted, or the gateway started again. Join again."""

    code = "UNKNOWN_MEMBER"


class StaleMemberEpochError(MainstemError):
    """The member epoch is not the member's current one. Heartbeat, and use the epoch it answers."""

    code = "STALE_MEMBER_EPOCH"


class StaleCommitError(MainstemError):
    """A later offset commit of the same member was taken already. Nothing was stored."""

    code = "STALE_COMMIT"


class InstanceFencedError(MainstemError):
    """Another process has joined with the same `group.instance.id`. Stop."""

    code = "INSTANCE_FENCED"
    fatal = True


class NotAssignedError(MainstemError):
    """The member does not own the partition, so it cannot commit its offset."""

    code = "NOT_ASSIGNED"


class UnknownGroupError(MainstemError):
    """There is no such group: it has neither members nor committed offsets."""

    code = "UNKNOWN_GROUP"


class GroupNotEmptyError(MainstemError):
    """The group has members. Stop them first."""

    code = "GROUP_NOT_EMPTY"


class GroupFullError(MainstemError):
    """The group, or the gateway, has as many members or groups as it may have."""

    code = "GROUP_FULL"


class InvalidOffsetError(MainstemError):
    """A committed offset is negative, its metadata too large, or too many come at once."""

    code = "INVALID_OFFSET"


class BackPressureError(MainstemError):
    """A queue of the gateway is full. The batch was not accepted; retry after the delay."""

    code = "BACK_PRESSURE"
    retriable = True


class HeldError(MainstemError):
    """An earlier batch of the topic on this stream was refused; this one must not overtake it."""

    code = "HELD"
    retriable = True


class ShuttingDownError(MainstemError):
    """The gateway is draining. Retry: another gateway, or this one after its restart."""

    code = "SHUTTING_DOWN"
    retriable = True


class GatewayUnavailableError(MainstemError):
    """No gateway answered in time. Check `bootstrap.servers` and that the gateway runs."""

    code = "GATEWAY_UNAVAILABLE"
    retriable = True


class StoreUnavailableError(MainstemError):
    """The store failed, and nothing was written. Retry."""

    code = "STORE_UNAVAILABLE"
    retriable = True


class OutcomeUnknownError(MainstemError):
    """The batch may or may not be in the log: the answer did not come in time."""

    code = "OUTCOME_UNKNOWN"
    retriable = True


class AuthenticationError(MainstemError):
    """The caller has not proved who they are. Check `security.protocol`, the certificate, or
    `sasl.username` and `sasl.password`."""

    code = "SASL_AUTHENTICATION_FAILED"


class SessionExpiredError(AuthenticationError):
    """What proved who the caller is does so no longer: sign in again. Clients do by themselves."""

    code = "SESSION_EXPIRED"
    retriable = True


class AuthorizationError(MainstemError):
    """The caller may not do this. The message names what is missing; see `mainstem acl`."""

    code = "AUTHORIZATION_FAILED"


class TopicAuthorizationError(AuthorizationError):
    """The caller may not do this with the topic, whether it exists or not."""

    code = "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationError(AuthorizationError):
    """The caller may not do this with the group, whether it exists or not."""

    code = "GROUP_AUTHORIZATION_FAILED"


class TransactionalIdAuthorizationError(AuthorizationError):
    """The caller may not do this with the transactional id, whether it exists or not."""

    code = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class ClusterAuthorizationError(AuthorizationError):
    """The caller may not do this with the cluster as a whole."""

    code = "CLUSTER_AUTHORIZATION_FAILED"


class QuotaExceededError(MainstemError):
    """The caller has used up their quota for now. Retry after the delay."""

    code = "THROTTLING_QUOTA_EXCEEDED"
    retriable = True


class LogDamagedError(MainstemError):
    """A file of the log is missing, torn or contradicts another. The message names the file."""

    code = "LOG_DAMAGED"


class UnsupportedTableError(LogDamagedError):
    """The table needs a feature that this version does not know, or it is no topic."""

    code = "UNSUPPORTED_TABLE"


class DeliveryTimeoutError(MainstemError):
    """`delivery.timeout.ms` passed before the acknowledgement. The record may be in the log."""

    code = "DELIVERY_TIMEOUT"


class QueueFullError(MainstemError, BufferError):
    """`buffer.memory` is full and stayed so for `max.block.ms`. Nothing was queued."""

    code = "QUEUE_FULL"
    retriable = True


class ProducerClosedError(MainstemError):
    """The producer was closed, and takes nothing more."""

    code = "PRODUCER_CLOSED"
    fatal = True


class ConsumerClosedError(MainstemError):
    """The consumer was closed, and reads nothing more."""

    code = "CONSUMER_CLOSED"
    fatal = True


def error_classes() -> dict[str, type[MainstemError]]:
    """The class for each code. Where several share a code, the most general one."""
    found: dict[str, type[MainstemError]] = {}
    pending: list[type[MainstemError]] = [MainstemError]
    while pending:
        cls = pending.pop(0)
        if cls is not MainstemError:
            found.setdefault(cls.code, cls)
        pending.extend(cls.__subclasses__())
    return found
