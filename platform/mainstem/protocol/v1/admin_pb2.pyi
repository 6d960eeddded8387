from mainstem.protocol.v1 import log_pb2 as _log_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateTopicRequest(_message.Message):
    __slots__ = ("topic", "partition_count", "config", "validate_only")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_count: int
    config: _containers.ScalarMap[str, str]
    validate_only: bool
    def __init__(self, topic: _Optional[str] = ..., partition_count: _Optional[int] = ..., config: _Optional[_Mapping[str, str]] = ..., validate_only: bool = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic_id", "partition_count")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    partition_count: int
    def __init__(self, topic_id: _Optional[str] = ..., partition_count: _Optional[int] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    def __init__(self, topic_id: _Optional[str] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicListing]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicListing, _Mapping]]] = ...) -> None: ...

class TopicListing(_message.Message):
    __slots__ = ("topic", "topic_id", "partition_count", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: str
    partition_count: int
    error: _log_pb2.Error
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[str] = ..., partition_count: _Optional[int] = ..., error: _Optional[_Union[_log_pb2.Error, _Mapping]] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DescribeTopicResponse(_message.Message):
    __slots__ = ("topic", "topic_id", "leader", "leader_epoch", "table_version", "table_uri", "partitions", "config")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TABLE_VERSION_FIELD_NUMBER: _ClassVar[int]
    TABLE_URI_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: str
    leader: str
    leader_epoch: int
    table_version: int
    table_uri: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionDescription]
    config: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[str] = ..., leader: _Optional[str] = ..., leader_epoch: _Optional[int] = ..., table_version: _Optional[int] = ..., table_uri: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionDescription, _Mapping]]] = ..., config: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ...) -> None: ...

class PartitionDescription(_message.Message):
    __slots__ = ("partition", "log_start_offset", "high_watermark", "log_end_offset", "file_count", "size_bytes", "record_count")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    file_count: int
    size_bytes: int
    record_count: int
    def __init__(self, partition: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., file_count: _Optional[int] = ..., size_bytes: _Optional[int] = ..., record_count: _Optional[int] = ...) -> None: ...

class ConfigEntry(_message.Message):
    __slots__ = ("name", "value", "is_default", "unit", "doc")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    is_default: bool
    unit: str
    doc: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., is_default: bool = ..., unit: _Optional[str] = ..., doc: _Optional[str] = ...) -> None: ...

class AlterTopicConfigRequest(_message.Message):
    __slots__ = ("topic", "set", "reset", "validate_only")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    set: _containers.ScalarMap[str, str]
    reset: _containers.RepeatedScalarFieldContainer[str]
    validate_only: bool
    def __init__(self, topic: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., reset: _Optional[_Iterable[str]] = ..., validate_only: bool = ...) -> None: ...

class AlterTopicConfigResponse(_message.Message):
    __slots__ = ("table_version",)
    TABLE_VERSION_FIELD_NUMBER: _ClassVar[int]
    table_version: int
    def __init__(self, table_version: _Optional[int] = ...) -> None: ...

class AddPartitionsRequest(_message.Message):
    __slots__ = ("topic", "partition_count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_count: int
    def __init__(self, topic: _Optional[str] = ..., partition_count: _Optional[int] = ...) -> None: ...

class AddPartitionsResponse(_message.Message):
    __slots__ = ("table_version",)
    TABLE_VERSION_FIELD_NUMBER: _ClassVar[int]
    table_version: int
    def __init__(self, table_version: _Optional[int] = ...) -> None: ...

class TrimPrefixRequest(_message.Message):
    __slots__ = ("topic", "partitions", "validate_only")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionTrim]
    validate_only: bool
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionTrim, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class PartitionTrim(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class TrimPrefixResponse(_message.Message):
    __slots__ = ("table_version", "partitions")
    TABLE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    table_version: int
    partitions: _containers.RepeatedCompositeFieldContainer[TrimmedPartition]
    def __init__(self, table_version: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[TrimmedPartition, _Mapping]]] = ...) -> None: ...

class TrimmedPartition(_message.Message):
    __slots__ = ("partition", "log_start_offset_before", "log_start_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_BEFORE_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    log_start_offset_before: int
    log_start_offset: int
    def __init__(self, partition: _Optional[int] = ..., log_start_offset_before: _Optional[int] = ..., log_start_offset: _Optional[int] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("warehouse_uri", "version", "gateways", "store_trouble")
    WAREHOUSE_URI_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GATEWAYS_FIELD_NUMBER: _ClassVar[int]
    STORE_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    warehouse_uri: str
    version: str
    gateways: _containers.RepeatedCompositeFieldContainer[GatewayDescription]
    store_trouble: str
    def __init__(self, warehouse_uri: _Optional[str] = ..., version: _Optional[str] = ..., gateways: _Optional[_Iterable[_Union[GatewayDescription, _Mapping]]] = ..., store_trouble: _Optional[str] = ...) -> None: ...

class GatewayDescription(_message.Message):
    __slots__ = ("gateway_id", "address", "topics_led", "rack", "draining", "in_bytes_per_s", "out_bytes_per_s")
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_LED_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    IN_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    OUT_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    address: str
    topics_led: int
    rack: str
    draining: bool
    in_bytes_per_s: int
    out_bytes_per_s: int
    def __init__(self, gateway_id: _Optional[str] = ..., address: _Optional[str] = ..., topics_led: _Optional[int] = ..., rack: _Optional[str] = ..., draining: bool = ..., in_bytes_per_s: _Optional[int] = ..., out_bytes_per_s: _Optional[int] = ...) -> None: ...

class RebalanceRequest(_message.Message):
    __slots__ = ("validate_only",)
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    validate_only: bool
    def __init__(self, validate_only: bool = ...) -> None: ...

class RebalanceResponse(_message.Message):
    __slots__ = ("gateway_id", "moves")
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    moves: _containers.RepeatedCompositeFieldContainer[TopicMove]
    def __init__(self, gateway_id: _Optional[str] = ..., moves: _Optional[_Iterable[_Union[TopicMove, _Mapping]]] = ...) -> None: ...

class TopicMove(_message.Message):
    __slots__ = ("topic", "gateway_id", "address", "done")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    gateway_id: str
    address: str
    done: bool
    def __init__(self, topic: _Optional[str] = ..., gateway_id: _Optional[str] = ..., address: _Optional[str] = ..., done: bool = ...) -> None: ...

class ListConnectionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListConnectionsResponse(_message.Message):
    __slots__ = ("gateway_id", "connections")
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    connections: _containers.RepeatedCompositeFieldContainer[ConnectionDescription]
    def __init__(self, gateway_id: _Optional[str] = ..., connections: _Optional[_Iterable[_Union[ConnectionDescription, _Mapping]]] = ...) -> None: ...

class ConnectionDescription(_message.Message):
    __slots__ = ("peer", "client_id", "open_calls", "call_count", "received_bytes", "sent_bytes", "age_ms", "idle_ms")
    PEER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    OPEN_CALLS_FIELD_NUMBER: _ClassVar[int]
    CALL_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    peer: str
    client_id: str
    open_calls: int
    call_count: int
    received_bytes: int
    sent_bytes: int
    age_ms: int
    idle_ms: int
    def __init__(self, peer: _Optional[str] = ..., client_id: _Optional[str] = ..., open_calls: _Optional[int] = ..., call_count: _Optional[int] = ..., received_bytes: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., age_ms: _Optional[int] = ..., idle_ms: _Optional[int] = ...) -> None: ...
