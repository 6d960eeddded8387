from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Acks(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACKS_UNSPECIFIED: _ClassVar[Acks]
    ACKS_NONE: _ClassVar[Acks]
    ACKS_LEADER: _ClassVar[Acks]
    ACKS_ALL: _ClassVar[Acks]

class FetchFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FETCH_FORMAT_UNSPECIFIED: _ClassVar[FetchFormat]
    FETCH_FORMAT_ARROW: _ClassVar[FetchFormat]
    FETCH_FORMAT_RECORDS: _ClassVar[FetchFormat]

class Visibility(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VISIBILITY_UNSPECIFIED: _ClassVar[Visibility]
    VISIBILITY_COMMITTED: _ClassVar[Visibility]
    VISIBILITY_DURABLE: _ClassVar[Visibility]
ACKS_UNSPECIFIED: Acks
ACKS_NONE: Acks
ACKS_LEADER: Acks
ACKS_ALL: Acks
FETCH_FORMAT_UNSPECIFIED: FetchFormat
FETCH_FORMAT_ARROW: FetchFormat
FETCH_FORMAT_RECORDS: FetchFormat
VISIBILITY_UNSPECIFIED: Visibility
VISIBILITY_COMMITTED: Visibility
VISIBILITY_DURABLE: Visibility

class Header(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("key", "value", "headers", "timestamp_ms", "partition")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    timestamp_ms: int
    partition: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ..., partition: _Optional[int] = ...) -> None: ...

class Records(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class PartitionRange(_message.Message):
    __slots__ = ("partition", "first_row", "row_count", "base_sequence")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    first_row: int
    row_count: int
    base_sequence: int
    def __init__(self, partition: _Optional[int] = ..., first_row: _Optional[int] = ..., row_count: _Optional[int] = ..., base_sequence: _Optional[int] = ...) -> None: ...

class ArrowRecords(_message.Message):
    __slots__ = ("ipc_stream", "ranges")
    IPC_STREAM_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ipc_stream: bytes
    ranges: _containers.RepeatedCompositeFieldContainer[PartitionRange]
    def __init__(self, ipc_stream: _Optional[bytes] = ..., ranges: _Optional[_Iterable[_Union[PartitionRange, _Mapping]]] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("correlation_id", "topic", "acks", "arrow", "records", "resume", "producer_id", "producer_epoch", "resends_rest", "takes_notices", "transactional_id", "transaction_number")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RESENDS_REST_FIELD_NUMBER: _ClassVar[int]
    TAKES_NOTICES_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    topic: str
    acks: Acks
    arrow: ArrowRecords
    records: Records
    resume: bool
    producer_id: int
    producer_epoch: int
    resends_rest: bool
    takes_notices: bool
    transactional_id: str
    transaction_number: int
    def __init__(self, correlation_id: _Optional[int] = ..., topic: _Optional[str] = ..., acks: _Optional[_Union[Acks, str]] = ..., arrow: _Optional[_Union[ArrowRecords, _Mapping]] = ..., records: _Optional[_Union[Records, _Mapping]] = ..., resume: bool = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., resends_rest: bool = ..., takes_notices: bool = ..., transactional_id: _Optional[str] = ..., transaction_number: _Optional[int] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("correlation_id", "table_version", "results", "positions", "error", "refused_records", "notice")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_VERSION_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REFUSED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    table_version: int
    results: _containers.RepeatedCompositeFieldContainer[PartitionResult]
    positions: _containers.RepeatedCompositeFieldContainer[RecordPosition]
    error: Error
    refused_records: _containers.RepeatedScalarFieldContainer[int]
    notice: Error
    def __init__(self, correlation_id: _Optional[int] = ..., table_version: _Optional[int] = ..., results: _Optional[_Iterable[_Union[PartitionResult, _Mapping]]] = ..., positions: _Optional[_Iterable[_Union[RecordPosition, _Mapping]]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., refused_records: _Optional[_Iterable[int]] = ..., notice: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class PartitionResult(_message.Message):
    __slots__ = ("partition", "base_offset", "record_count")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    partition: int
    base_offset: int
    record_count: int
    def __init__(self, partition: _Optional[int] = ..., base_offset: _Optional[int] = ..., record_count: _Optional[int] = ...) -> None: ...

class RecordPosition(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "facts", "retriable", "retry_delay_ms")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    facts: _containers.ScalarMap[str, str]
    retriable: bool
    retry_delay_ms: int
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., facts: _Optional[_Mapping[str, str]] = ..., retriable: bool = ..., retry_delay_ms: _Optional[int] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("partitions", "min_bytes", "max_wait_ms", "max_bytes", "format", "columns", "visibility")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[FetchPartition]
    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    format: FetchFormat
    columns: _containers.RepeatedScalarFieldContainer[str]
    visibility: Visibility
    def __init__(self, partitions: _Optional[_Iterable[_Union[FetchPartition, _Mapping]]] = ..., min_bytes: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., format: _Optional[_Union[FetchFormat, str]] = ..., columns: _Optional[_Iterable[str]] = ..., visibility: _Optional[_Union[Visibility, str]] = ...) -> None: ...

class FetchPartition(_message.Message):
    __slots__ = ("topic", "partition", "offset", "max_bytes", "topic_id", "leader_epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    max_bytes: int
    topic_id: str
    leader_epoch: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., topic_id: _Optional[str] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[FetchedPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[FetchedPartition, _Mapping]]] = ...) -> None: ...

class FetchedPartition(_message.Message):
    __slots__ = ("topic", "partition", "topic_id", "log_start_offset", "high_watermark", "next_offset", "arrow", "records", "error", "leader_epoch", "durable_mark", "follower_lag_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DURABLE_MARK_FIELD_NUMBER: _ClassVar[int]
    FOLLOWER_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    topic_id: str
    log_start_offset: int
    high_watermark: int
    next_offset: int
    arrow: bytes
    records: _containers.RepeatedCompositeFieldContainer[FetchedRecord]
    error: Error
    leader_epoch: int
    durable_mark: int
    follower_lag_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., topic_id: _Optional[str] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., next_offset: _Optional[int] = ..., arrow: _Optional[bytes] = ..., records: _Optional[_Iterable[_Union[FetchedRecord, _Mapping]]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., leader_epoch: _Optional[int] = ..., durable_mark: _Optional[int] = ..., follower_lag_ms: _Optional[int] = ...) -> None: ...

class FetchedRecord(_message.Message):
    __slots__ = ("offset", "timestamp_ms", "timestamp_type", "key", "value", "headers")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., timestamp_type: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("queries",)
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[OffsetQuery]
    def __init__(self, queries: _Optional[_Iterable[_Union[OffsetQuery, _Mapping]]] = ...) -> None: ...

class OffsetQuery(_message.Message):
    __slots__ = ("topic", "partition", "earliest", "latest", "timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    earliest: bool
    latest: bool
    timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., earliest: bool = ..., latest: bool = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[OffsetAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[OffsetAnswer, _Mapping]]] = ...) -> None: ...

class OffsetAnswer(_message.Message):
    __slots__ = ("topic", "partition", "offset", "topic_id", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    topic_id: str
    error: Error
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., topic_id: _Optional[str] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class InitProducerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InitProducerResponse(_message.Message):
    __slots__ = ("producer_id", "producer_epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class MetadataRequest(_message.Message):
    __slots__ = ("topics", "allow_auto_topic_creation")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_AUTO_TOPIC_CREATION_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    allow_auto_topic_creation: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., allow_auto_topic_creation: bool = ...) -> None: ...

class MetadataResponse(_message.Message):
    __slots__ = ("gateways", "topics", "places")
    GATEWAYS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    gateways: _containers.RepeatedScalarFieldContainer[str]
    topics: _containers.RepeatedCompositeFieldContainer[TopicMetadata]
    places: _containers.RepeatedCompositeFieldContainer[GatewayPlace]
    def __init__(self, gateways: _Optional[_Iterable[str]] = ..., topics: _Optional[_Iterable[_Union[TopicMetadata, _Mapping]]] = ..., places: _Optional[_Iterable[_Union[GatewayPlace, _Mapping]]] = ...) -> None: ...

class GatewayPlace(_message.Message):
    __slots__ = ("address", "rack", "draining")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    address: str
    rack: str
    draining: bool
    def __init__(self, address: _Optional[str] = ..., rack: _Optional[str] = ..., draining: bool = ...) -> None: ...

class TopicMetadata(_message.Message):
    __slots__ = ("topic", "topic_id", "partition_count", "leader", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: str
    partition_count: int
    leader: str
    error: Error
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[str] = ..., partition_count: _Optional[int] = ..., leader: _Optional[str] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...
