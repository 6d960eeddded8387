"""KafkaError and KafkaException, and which code each of our errors has."""

from __future__ import annotations

import builtins
import functools
from typing import TYPE_CHECKING, Any, Final

from mainstem.errors import MainstemError

_CODES_TEXT: Final = """
_BAD_MSG=-199 _BAD_COMPRESSION=-198 _DESTROY=-197 _FAIL=-196 _TRANSPORT=-195
_CRIT_SYS_RESOURCE=-194 _RESOLVE=-193 _MSG_TIMED_OUT=-192 _PARTITION_EOF=-191
_UNKNOWN_PARTITION=-190 _FS=-189 _UNKNOWN_TOPIC=-188 _ALL_BROKERS_DOWN=-187 _INVALID_ARG=-186
_TIMED_OUT=-185 _QUEUE_FULL=-184 _ISR_INSUFF=-183 _NODE_UPDATE=-182 _SSL=-181 _WAIT_COORD=-180
_UNKNOWN_GROUP=-179 _IN_PROGRESS=-178 _PREV_IN_PROGRESS=-177 _EXISTING_SUBSCRIPTION=-176
_ASSIGN_PARTITIONS=-175 _REVOKE_PARTITIONS=-174 _CONFLICT=-173 _STATE=-172
_UNKNOWN_PROTOCOL=-171 _NOT_IMPLEMENTED=-170 _AUTHENTICATION=-169 _NO_OFFSET=-168 _OUTDATED=-167
_TIMED_OUT_QUEUE=-166 _UNSUPPORTED_FEATURE=-165 _WAIT_CACHE=-164 _INTR=-163
_KEY_SERIALIZATION=-162 _VALUE_SERIALIZATION=-161 _KEY_DESERIALIZATION=-160
_VALUE_DESERIALIZATION=-159 _PARTIAL=-158 _READ_ONLY=-157 _NOENT=-156 _UNDERFLOW=-155
_INVALID_TYPE=-154 _RETRY=-153 _PURGE_QUEUE=-152 _PURGE_INFLIGHT=-151 _FATAL=-150
_INCONSISTENT=-149 _GAPLESS_GUARANTEE=-148 _MAX_POLL_EXCEEDED=-147 _UNKNOWN_BROKER=-146
_NOT_CONFIGURED=-145 _FENCED=-144 _APPLICATION=-143 _ASSIGNMENT_LOST=-142 _NOOP=-141
_AUTO_OFFSET_RESET=-140 _LOG_TRUNCATION=-139 _INVALID_DIFFERENT_RECORD=-138 _DESTROY_BROKER=-137
UNKNOWN=-1 NO_ERROR=0 OFFSET_OUT_OF_RANGE=1 INVALID_MSG=2 UNKNOWN_TOPIC_OR_PART=3
INVALID_MSG_SIZE=4 LEADER_NOT_AVAILABLE=5 NOT_LEADER_FOR_PARTITION=6 REQUEST_TIMED_OUT=7
BROKER_NOT_AVAILABLE=8 REPLICA_NOT_AVAILABLE=9 MSG_SIZE_TOO_LARGE=10 STALE_CTRL_EPOCH=11
OFFSET_METADATA_TOO_LARGE=12 NETWORK_EXCEPTION=13 COORDINATOR_LOAD_IN_PROGRESS=14
COORDINATOR_NOT_AVAILABLE=15 NOT_COORDINATOR=16 TOPIC_EXCEPTION=17 RECORD_LIST_TOO_LARGE=18
NOT_ENOUGH_REPLICAS=19 NOT_ENOUGH_REPLICAS_AFTER_APPEND=20 INVALID_REQUIRED_ACKS=21
ILLEGAL_GENERATION=22 INCONSISTENT_GROUP_PROTOCOL=23 INVALID_GROUP_ID=24 UNKNOWN_MEMBER_ID=25
INVALID_SESSION_TIMEOUT=26 REBALANCE_IN_PROGRESS=27 INVALID_COMMIT_OFFSET_SIZE=28
TOPIC_AUTHORIZATION_FAILED=29 GROUP_AUTHORIZATION_FAILED=30 CLUSTER_AUTHORIZATION_FAILED=31
INVALID_TIMESTAMP=32 UNSUPPORTED_SASL_MECHANISM=33 ILLEGAL_SASL_STATE=34 UNSUPPORTED_VERSION=35
TOPIC_ALREADY_EXISTS=36 INVALID_PARTITIONS=37 INVALID_REPLICATION_FACTOR=38
INVALID_REPLICA_ASSIGNMENT=39 INVALID_CONFIG=40 NOT_CONTROLLER=41 INVALID_REQUEST=42
UNSUPPORTED_FOR_MESSAGE_FORMAT=43 POLICY_VIOLATION=44 OUT_OF_ORDER_SEQUENCE_NUMBER=45
DUPLICATE_SEQUENCE_NUMBER=46 INVALID_PRODUCER_EPOCH=47 INVALID_TXN_STATE=48
INVALID_PRODUCER_ID_MAPPING=49 INVALID_TRANSACTION_TIMEOUT=50 CONCURRENT_TRANSACTIONS=51
TRANSACTION_COORDINATOR_FENCED=52 TRANSACTIONAL_ID_AUTHORIZATION_FAILED=53 SECURITY_DISABLED=54
OPERATION_NOT_ATTEMPTED=55 KAFKA_STORAGE_ERROR=56 LOG_DIR_NOT_FOUND=57
SASL_AUTHENTICATION_FAILED=58 UNKNOWN_PRODUCER_ID=59 REASSIGNMENT_IN_PROGRESS=60
DELEGATION_TOKEN_AUTH_DISABLED=61 DELEGATION_TOKEN_NOT_FOUND=62
DELEGATION_TOKEN_OWNER_MISMATCH=63 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED=64
DELEGATION_TOKEN_AUTHORIZATION_FAILED=65 DELEGATION_TOKEN_EXPIRED=66 INVALID_PRINCIPAL_TYPE=67
NON_EMPTY_GROUP=68 GROUP_ID_NOT_FOUND=69 FETCH_SESSION_ID_NOT_FOUND=70
INVALID_FETCH_SESSION_EPOCH=71 LISTENER_NOT_FOUND=72 TOPIC_DELETION_DISABLED=73
FENCED_LEADER_EPOCH=74 UNKNOWN_LEADER_EPOCH=75 UNSUPPORTED_COMPRESSION_TYPE=76
STALE_BROKER_EPOCH=77 OFFSET_NOT_AVAILABLE=78 MEMBER_ID_REQUIRED=79
PREFERRED_LEADER_NOT_AVAILABLE=80 GROUP_MAX_SIZE_REACHED=81 FENCED_INSTANCE_ID=82
ELIGIBLE_LEADERS_NOT_AVAILABLE=83 ELECTION_NOT_NEEDED=84 NO_REASSIGNMENT_IN_PROGRESS=85
GROUP_SUBSCRIBED_TO_TOPIC=86 INVALID_RECORD=87 UNSTABLE_OFFSET_COMMIT=88
THROTTLING_QUOTA_EXCEEDED=89 PRODUCER_FENCED=90 RESOURCE_NOT_FOUND=91 DUPLICATE_RESOURCE=92
UNACCEPTABLE_CREDENTIAL=93 INCONSISTENT_VOTER_SET=94 INVALID_UPDATE_VERSION=95
FEATURE_UPDATE_FAILED=96 PRINCIPAL_DESERIALIZATION_FAILURE=97 UNKNOWN_TOPIC_ID=100
INCONSISTENT_TOPIC_ID=103 FENCED_MEMBER_EPOCH=110 UNRELEASED_INSTANCE_ID=111
UNSUPPORTED_ASSIGNOR=112 STALE_MEMBER_EPOCH=113 MISMATCHED_ENDPOINT_TYPE=114
UNSUPPORTED_ENDPOINT_TYPE=115 UNKNOWN_CONTROLLER_ID=116 UNKNOWN_SUBSCRIPTION_ID=117
TELEMETRY_TOO_LARGE=118 INVALID_REGISTRATION=119 TRANSACTION_ABORTABLE=120
INVALID_RECORD_STATE=121 SHARE_SESSION_NOT_FOUND=122 INVALID_SHARE_SESSION_EPOCH=123
FENCED_STATE_EPOCH=124 INVALID_VOTER_KEY=125 DUPLICATE_VOTER=126 VOTER_NOT_FOUND=127
INVALID_REGULAR_EXPRESSION=128 REBOOTSTRAP_REQUIRED=129 STREAMS_INVALID_TOPOLOGY=130
STREAMS_INVALID_TOPOLOGY_EPOCH=131 STREAMS_TOPOLOGY_FENCED=132 SHARE_SESSION_LIMIT_REACHED=133
"""

#: Names and numbers of Kafka's errors, and of librdkafka's own, which are negative.
CODES: Final[dict[str, int]] = {
    name: int(number) for name, number in (pair.split("=") for pair in _CODES_TEXT.split())
}
_NAMES: Final[dict[int, str]] = {number: name for name, number in CODES.items()}

#: By the code of a MainstemError, the name of Kafka's.
KAFKA_NAMES: Final[dict[str, str]] = {
    "INTERNAL": "UNKNOWN",
    "UNKNOWN_TOPIC": "UNKNOWN_TOPIC_OR_PART",
    "UNKNOWN_PARTITION": "_UNKNOWN_PARTITION",
    "TOPIC_EXISTS": "TOPIC_ALREADY_EXISTS",
    "INVALID_TOPIC": "TOPIC_EXCEPTION",
    "INVALID_CONFIG": "INVALID_CONFIG",
    "INVALID_RECORD": "INVALID_RECORD",
    "INVALID_REQUEST": "INVALID_REQUEST",
    "RECORD_TOO_LARGE": "MSG_SIZE_TOO_LARGE",
    "REQUEST_TOO_LARGE": "RECORD_LIST_TOO_LARGE",
    "NOT_LEADER": "NOT_LEADER_FOR_PARTITION",
    "OUT_OF_ORDER_SEQUENCE": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "UNKNOWN_PRODUCER_ID": "UNKNOWN_PRODUCER_ID",
    "PRODUCER_FENCED": "_FENCED",
    "INVALID_TXN_STATE": "INVALID_TXN_STATE",
    "TRANSACTION_ABORTED": "TRANSACTION_ABORTABLE",
    "TRANSACTION_TIMED_OUT": "TRANSACTION_ABORTABLE",
    "CONCURRENT_TRANSACTIONS": "CONCURRENT_TRANSACTIONS",
    "OFFSET_OUT_OF_RANGE": "_AUTO_OFFSET_RESET",
    "LOG_TRUNCATED": "_LOG_TRUNCATION",
    "POLICY_VIOLATION": "POLICY_VIOLATION",
    "UNKNOWN_MEMBER": "UNKNOWN_MEMBER_ID",
    "STALE_MEMBER_EPOCH": "STALE_MEMBER_EPOCH",
    "STALE_COMMIT": "ILLEGAL_GENERATION",
    "INSTANCE_FENCED": "FENCED_INSTANCE_ID",
    "NOT_ASSIGNED": "UNKNOWN_MEMBER_ID",
    "UNKNOWN_GROUP": "GROUP_ID_NOT_FOUND",
    "GROUP_NOT_EMPTY": "NON_EMPTY_GROUP",
    "GROUP_FULL": "GROUP_MAX_SIZE_REACHED",
    "INVALID_OFFSET": "INVALID_REQUEST",
    "BACK_PRESSURE": "THROTTLING_QUOTA_EXCEEDED",
    "HELD": "REQUEST_TIMED_OUT",
    "SHUTTING_DOWN": "BROKER_NOT_AVAILABLE",
    "GATEWAY_UNAVAILABLE": "_ALL_BROKERS_DOWN",
    "STORE_UNAVAILABLE": "KAFKA_STORAGE_ERROR",
    "OUTCOME_UNKNOWN": "_TIMED_OUT",
    "SASL_AUTHENTICATION_FAILED": "_AUTHENTICATION",
    "SESSION_EXPIRED": "SASL_AUTHENTICATION_FAILED",
    "AUTHORIZATION_FAILED": "CLUSTER_AUTHORIZATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED": "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED": "GROUP_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED": "CLUSTER_AUTHORIZATION_FAILED",
    "THROTTLING_QUOTA_EXCEEDED": "THROTTLING_QUOTA_EXCEEDED",
    "LOG_DAMAGED": "KAFKA_STORAGE_ERROR",
    "UNSUPPORTED_TABLE": "UNSUPPORTED_VERSION",
    "DELIVERY_TIMEOUT": "_MSG_TIMED_OUT",
    "QUEUE_FULL": "_QUEUE_FULL",
    "PRODUCER_CLOSED": "_DESTROY",
    "CONSUMER_CLOSED": "_STATE",
}


class _Codes(type):
    """Each code is an attribute of KafkaError."""

    if TYPE_CHECKING:

        def __getattr__(cls, name: str) -> int: ...


@functools.total_ordering
class KafkaError(metaclass=_Codes):
    """What went wrong, as a value. `KafkaError._PARTITION_EOF` and the like are its codes.

    Compares with codes and other errors by its code.

    Args:
        error: The code.
        reason: A sentence; by default the code's name in words, after "Local: " or "Broker: ".
    """

    def __init__(
        self,
        error: int,
        reason: builtins.str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = error
        self._reason = reason
        self._fatal = fatal
        self._retriable = retriable
        self._txn_requires_abort = txn_requires_abort

    def code(self) -> int:
        """The number."""
        return self._code

    def name(self) -> builtins.str:
        """The name of the number."""
        return _NAMES.get(self._code, f"ERR_{self._code}?")

    def str(self) -> builtins.str:
        """The sentence."""
        if self._reason:
            return self._reason
        words = self.name().strip("_").replace("_", " ").capitalize()
        return f"{'Local' if self._code < -1 else 'Broker'}: {words}"

    def fatal(self) -> bool:
        """The client cannot go on."""
        return self._fatal

    def retriable(self) -> bool:
        """The same call may succeed later."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """The transaction is lost: abort_transaction(), and go on with the next."""
        return self._txn_requires_abort

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KafkaError):
            return self._code == other._code
        return self._code == other if isinstance(other, int) else NotImplemented

    def __lt__(self, other: object) -> bool:
        if isinstance(other, KafkaError):
            return self._code < other._code
        return self._code < other if isinstance(other, int) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._code)

    def __repr__(self) -> builtins.str:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self.str()}"}}'

    __str__ = __repr__


for _name, _number in CODES.items():
    setattr(KafkaError, _name, _number)


class KafkaException(Exception):
    """An error that is raised; `args[0]` is the KafkaError."""


class _KafkaClientError(KafkaException):
    def __init__(
        self,
        kafka_error: KafkaError,
        exception: BaseException | None = None,
        kafka_message: Any = None,
    ) -> None:
        # Past SerializationError, which makes an error of its own.
        KafkaException.__init__(self, kafka_error)
        self.exception = exception
        self.kafka_message = kafka_message

    @property
    def code(self) -> int:
        """The KafkaError's code."""
        return int(self.args[0].code())

    @property
    def name(self) -> str:
        """The KafkaError's name."""
        return str(self.args[0].name())


class SerializationError(KafkaException):
    """A value that cannot be serialized or deserialized."""

    def __init__(self, reason: str) -> None:
        super().__init__(kafka_error("_VALUE_SERIALIZATION", reason))


class ConsumeError(_KafkaClientError):
    """A message that could not be consumed; `kafka_message` has it."""


class KeyDeserializationError(ConsumeError, SerializationError):
    """The key.deserializer raised."""

    def __init__(self, exception: BaseException | None = None, kafka_message: Any = None) -> None:
        error = kafka_error("_KEY_DESERIALIZATION", str(exception))
        super().__init__(error, exception, kafka_message)


class ValueDeserializationError(ConsumeError, SerializationError):
    """The value.deserializer raised."""

    def __init__(self, exception: BaseException | None = None, kafka_message: Any = None) -> None:
        error = kafka_error("_VALUE_DESERIALIZATION", str(exception))
        super().__init__(error, exception, kafka_message)


class ProduceError(_KafkaClientError):
    """A message that could not be produced."""


class KeySerializationError(ProduceError, SerializationError):
    """The key.serializer raised."""

    def __init__(self, exception: BaseException | None = None) -> None:
        super().__init__(kafka_error("_KEY_SERIALIZATION", str(exception)), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """The value.serializer raised."""

    def __init__(self, exception: BaseException | None = None) -> None:
        super().__init__(kafka_error("_VALUE_SERIALIZATION", str(exception)), exception)


def kafka_error(name: str, reason: str | None = None) -> KafkaError:
    """A KafkaError by the name of its code."""
    return KafkaError(CODES[name], reason)


def from_mainstem(error: MainstemError) -> KafkaError:
    """The same error in Kafka's words; the sentence is ours."""
    code = CODES[KAFKA_NAMES.get(error.code, "UNKNOWN")]
    return KafkaError(code, error.message, error.fatal, error.retriable, error.abortable)


def exception_from(error: MainstemError) -> KafkaException:
    """The exception to raise in its place."""
    return KafkaException(from_mainstem(error))


#: Why credentials are not given to a client that is open.
NO_OTHER_CREDENTIALS: Final = (
    "sasl.username and sasl.password are given when a client is made; for a password that changes "
    "give sasl.password.location, a file that is read each time that the client signs in"
)


def refused(name: str, sentence: str) -> KafkaException:
    """The exception for what cannot be."""
    return KafkaException(kafka_error(name, sentence))
