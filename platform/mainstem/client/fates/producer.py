"""What becomes of the settings that Kafka's producers have."""

from __future__ import annotations

from typing import Final

from mainstem.client.fates.fate import accepted, own, refused, used

_MURMUR2: Final = (
    "keys are placed by murmur2, as by Kafka's Java client, so keys may go to other partitions "
    "than before"
)
_BYTES_QUEUED: Final = "buffer.memory alone bounds what waits, in bytes"
_COMPAT: Final = "mainstem.compat.confluent has it"
_JAVA: Final = "org.apache.kafka.clients.producer."
_SERIALIZATION: Final = "org.apache.kafka.common.serialization."
_PLACED_OTHERWISE: Final = {
    "consistent": "default",
    "consistent_random": "default",
    "fnv1a": "default",
    "fnv1a_random": "default",
    "murmur2": "default",
    "random": "round_robin",
}


_NO_SNAPPY: Final = {
    "snappy": "Arrow has no snappy buffers; set lz4, which is as fast. A topic's own "
    "compression.type may be snappy"
}

PRODUCER: Final = [
    *own(
        "P",
        "sticky.partitioning.linger.ms buffer.memory max.block.ms request.timeout.ms "
        "retries retry.backoff.ms retry.backoff.max.ms max.request.size enable.idempotence acks",
    ),
    *used(
        "P",
        "linger.ms",
        "linger.ms",
        "whole milliseconds: a fraction is rounded up",
        clamps=True,
    ),
    *used(
        "P", "batch.size", "batch.size", "counts a topic's bytes, not a partition's", clamps=True
    ),
    *used(
        "P",
        "delivery.timeout.ms",
        "delivery.timeout.ms",
        "0, without end in librdkafka, is the longest time",
        words={"0": "2147483647"},
    ),
    *used(
        "P",
        "compression.type",
        "compression.type",
        "snappy is refused: set lz4",
        words={"inherit": "none"},
        refuses=_NO_SNAPPY,
    ),
    *used(
        "P",
        "partitioner",
        "partitioner",
        _MURMUR2,
        words=_PLACED_OTHERWISE,
        told=_PLACED_OTHERWISE,
    ),
    *used("P", "queue.buffering.max.ms", "linger.ms", clamps=True),
    *used("P", "queue.buffering.max.kbytes", "buffer.memory", "in KiB", factor=1024),
    *used("P", "message.timeout.ms", "delivery.timeout.ms", words={"0": "2147483647"}),
    *used("P", "message.send.max.retries", "retries"),
    *used("P", "request.required.acks", "acks"),
    *used(
        "P", "compression.codec", "compression.type", words={"inherit": "none"}, refuses=_NO_SNAPPY
    ),
    *used("P", "message.max.bytes", "max.request.size", yields=True),
    *used(
        "P",
        "partitioner.class",
        "partitioner",
        "for Java's own classes; for another give a Python function as partitioner",
        words={
            f"{_JAVA}roundrobinpartitioner": "round_robin",
            f"{_JAVA}uniformstickypartitioner": "default",
            f"{_JAVA}internals.defaultpartitioner": "default",
        },
    ),
    *used(
        "P",
        "max.in.flight.requests.per.connection",
        "max.in.flight.requests.per.connection",
        "at most 5 with enable.idempotence",
        clamps=True,
    ),
    *used("P", "max.in.flight", "max.in.flight.requests.per.connection", clamps=True),
    *used("P", "socket.timeout.ms", "request.timeout.ms", yields=True),
    *accepted("P", "queue.buffering.max.messages", _BYTES_QUEUED, loud=True),
    *accepted("P", "batch.num.messages", "batch.size alone bounds a batch, in bytes"),
    *accepted("P", "queue.buffering.backpressure.threshold message.copy.max.bytes", _BYTES_QUEUED),
    *accepted(
        "P",
        "compression.level compression.gzip.level compression.lz4.level compression.zstd.level",
        "Arrow chooses the level",
    ),
    *accepted(
        "P",
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms",
        "all partitions of a topic have one leader: none is slower than the others",
    ),
    *accepted(
        "P",
        "partitioner.ignore.keys",
        "keys decide, as by default",
        values=("false",),
        otherwise="set partitioner=round_robin, which does not look at keys",
    ),
    *accepted(
        "P",
        "enable.gapless.guarantee",
        "order is kept without it; a failed record never stops those behind it",
        values=("false",),
        otherwise="stop the producer at the first failed delivery report instead",
    ),
    *accepted(
        "P",
        "queuing.strategy",
        "records are sent in the order of produce()",
        values=("fifo",),
        otherwise="remove it",
    ),
    *accepted("P", "produce.offset.report", "each delivery report has its offset"),
    *accepted(
        "P",
        "delivery.report.only.error",
        "each callback is called",
        values=("false",),
        otherwise="leave it out and return from the callback when there is no error; or use "
        "mainstem.compat.confluent, which has it",
    ),
    *accepted(
        "P", "allow.auto.create.topics", "the gateway decides: its auto.create.topics.enable"
    ),
    *accepted(
        "P",
        "key.serializer value.serializer",
        "keys and values are bytes, or str that becomes UTF-8",
        values=(
            f"{_SERIALIZATION}bytearrayserializer",
            f"{_SERIALIZATION}stringserializer",
        ),
        otherwise="serialise before produce(), or use mainstem.compat, which takes functions",
    ),
    *refused(
        "P",
        "key.serializer.builder value.serializer.builder",
        "give a function or an object of mainstem.compat.confluent.serialization as key.serializer "
        "or value.serializer",
    ),
    *own("P", "transactional.id transaction.timeout.ms"),
    *accepted(
        "P",
        "transaction.two.phase.commit.enable",
        "prepare_transaction() is there without it",
        values=("true", "false"),
        otherwise="remove it",
    ),
    *refused("P", "on_delivery dr_cb dr_msg_cb", f"give on_delivery to produce(); {_COMPAT}"),
    *refused("P", "partitioner_cb", "give a Python function as partitioner"),
    *refused("P", "msg_order_cmp", "it is a function of the C API: remove it"),
]
