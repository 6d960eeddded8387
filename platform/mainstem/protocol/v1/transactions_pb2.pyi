from mainstem.protocol.v1 import groups_pb2 as _groups_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransactionId(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "number")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    number: int
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class InitTransactionsRequest(_message.Message):
    __slots__ = ("transactional_id", "transaction_timeout_ms", "single_use")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SINGLE_USE_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    transaction_timeout_ms: int
    single_use: bool
    def __init__(self, transactional_id: _Optional[str] = ..., transaction_timeout_ms: _Optional[int] = ..., single_use: bool = ...) -> None: ...

class InitTransactionsResponse(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "prepared_token", "coordinator")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREPARED_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    prepared_token: str
    coordinator: str
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., prepared_token: _Optional[str] = ..., coordinator: _Optional[str] = ...) -> None: ...

class BeginTransactionRequest(_message.Message):
    __slots__ = ("transaction",)
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    transaction: TransactionId
    def __init__(self, transaction: _Optional[_Union[TransactionId, _Mapping]] = ...) -> None: ...

class BeginTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AddOffsetsRequest(_message.Message):
    __slots__ = ("transaction", "offsets")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    transaction: TransactionId
    offsets: _groups_pb2.CommitOffsetsRequest
    def __init__(self, transaction: _Optional[_Union[TransactionId, _Mapping]] = ..., offsets: _Optional[_Union[_groups_pb2.CommitOffsetsRequest, _Mapping]] = ...) -> None: ...

class AddOffsetsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EndTransactionRequest(_message.Message):
    __slots__ = ("transaction", "commit", "record_count")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    transaction: TransactionId
    commit: bool
    record_count: int
    def __init__(self, transaction: _Optional[_Union[TransactionId, _Mapping]] = ..., commit: bool = ..., record_count: _Optional[int] = ...) -> None: ...

class EndTransactionResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TransactionResult]
    def __init__(self, results: _Optional[_Iterable[_Union[TransactionResult, _Mapping]]] = ...) -> None: ...

class TransactionResult(_message.Message):
    __slots__ = ("topic", "partition", "base_offset", "record_count", "table_version")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    TABLE_VERSION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    base_offset: int
    record_count: int
    table_version: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., base_offset: _Optional[int] = ..., record_count: _Optional[int] = ..., table_version: _Optional[int] = ...) -> None: ...

class PrepareTransactionRequest(_message.Message):
    __slots__ = ("transaction", "timeout_ms", "record_count")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    transaction: TransactionId
    timeout_ms: int
    record_count: int
    def __init__(self, transaction: _Optional[_Union[TransactionId, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., record_count: _Optional[int] = ...) -> None: ...

class PrepareTransactionResponse(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: str
    def __init__(self, token: _Optional[str] = ...) -> None: ...

class CompleteTransactionRequest(_message.Message):
    __slots__ = ("token", "transactional_id", "commit")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    token: str
    transactional_id: str
    commit: bool
    def __init__(self, token: _Optional[str] = ..., transactional_id: _Optional[str] = ..., commit: bool = ...) -> None: ...

class CompleteTransactionsRequest(_message.Message):
    __slots__ = ("transactional_id", "epoch", "tokens", "commit", "one_off")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ONE_OFF_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    epoch: int
    tokens: _containers.RepeatedScalarFieldContainer[str]
    commit: bool
    one_off: bool
    def __init__(self, transactional_id: _Optional[str] = ..., epoch: _Optional[int] = ..., tokens: _Optional[_Iterable[str]] = ..., commit: bool = ..., one_off: bool = ...) -> None: ...

class CompleteTransactionsResponse(_message.Message):
    __slots__ = ("results", "already_committed")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    ALREADY_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TransactionResult]
    already_committed: bool
    def __init__(self, results: _Optional[_Iterable[_Union[TransactionResult, _Mapping]]] = ..., already_committed: bool = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("states",)
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, states: _Optional[_Iterable[str]] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions",)
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[TransactionDescription]
    def __init__(self, transactions: _Optional[_Iterable[_Union[TransactionDescription, _Mapping]]] = ...) -> None: ...

class DescribeTransactionRequest(_message.Message):
    __slots__ = ("transactional_id",)
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    def __init__(self, transactional_id: _Optional[str] = ...) -> None: ...

class TransactionDescription(_message.Message):
    __slots__ = ("transaction", "state", "age_ms", "timeout_ms", "record_count", "bytes", "client_id", "token", "topics", "groups")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    transaction: TransactionId
    state: str
    age_ms: int
    timeout_ms: int
    record_count: int
    bytes: int
    client_id: str
    token: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, transaction: _Optional[_Union[TransactionId, _Mapping]] = ..., state: _Optional[str] = ..., age_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., record_count: _Optional[int] = ..., bytes: _Optional[int] = ..., client_id: _Optional[str] = ..., token: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class AppendTransactionRequest(_message.Message):
    __slots__ = ("transactional_id", "ordinal", "topic", "topic_id", "staged")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    ordinal: int
    topic: str
    topic_id: str
    staged: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, transactional_id: _Optional[str] = ..., ordinal: _Optional[int] = ..., topic: _Optional[str] = ..., topic_id: _Optional[str] = ..., staged: _Optional[_Iterable[str]] = ...) -> None: ...

class AppendTransactionResponse(_message.Message):
    __slots__ = ("results", "table_version")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    TABLE_VERSION_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TransactionResult]
    table_version: int
    def __init__(self, results: _Optional[_Iterable[_Union[TransactionResult, _Mapping]]] = ..., table_version: _Optional[int] = ...) -> None: ...

class SettleTransactionRequest(_message.Message):
    __slots__ = ("transactional_id", "ordinal", "topic", "topic_id")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    ordinal: int
    topic: str
    topic_id: str
    def __init__(self, transactional_id: _Optional[str] = ..., ordinal: _Optional[int] = ..., topic: _Optional[str] = ..., topic_id: _Optional[str] = ...) -> None: ...

class SettleTransactionResponse(_message.Message):
    __slots__ = ("appended",)
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    appended: bool
    def __init__(self, appended: bool = ...) -> None: ...
