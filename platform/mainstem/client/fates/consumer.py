"""What becomes of the settings that Kafka's consumers have."""

from __future__ import annotations

from typing import Final

from mainstem.client.fates.fate import Fate, accepted, own, refused, used

_BYTES_AHEAD: Final = "queued.max.messages.kbytes alone bounds what is fetched ahead"
_SERIALIZATION: Final = "org.apache.kafka.common.serialization."
_ASSIGNORS: Final = {
    "cooperativesticky": "uniform",
    "cooperative-sticky": "uniform",
    "sticky": "uniform",
    "roundrobin": "uniform",
    "uniform": "uniform",
    "range": "range",
} | {
    f"org.apache.kafka.clients.consumer.{name}assignor": kind
    for name, kind in {
        "cooperativesticky": "uniform",
        "sticky": "uniform",
        "roundrobin": "uniform",
        "range": "range",
    }.items()
}

CONSUMER: Final = [
    *own(
        "C",
        "group.id group.instance.id client.rack auto.offset.reset enable.auto.commit "
        "auto.commit.interval.ms enable.auto.offset.store session.timeout.ms "
        "max.poll.records isolation.level fetch.visibility follower.max.lag.ms "
        "request.timeout.ms default.api.timeout.ms topic.metadata.propagation.max.ms",
    ),
    *used(
        "C",
        "heartbeat.interval.ms",
        "heartbeat.interval.ms",
        "at most a third of session.timeout.ms, to which it is lowered",
    ),
    *used(
        "C",
        "partition.assignment.strategy",
        "partition.assignment.strategy",
        "the first of a list counts; all but range are uniform",
        words=_ASSIGNORS,
        first=True,
    ),
    *used("C", "max.poll.interval.ms", "max.poll.interval.ms", "at most a day", clamps=True),
    *used("C", "fetch.min.bytes", "fetch.min.bytes", "0 is 1", clamps=True),
    *used("C", "fetch.max.bytes", "fetch.max.bytes", "lowered to 48 MiB", clamps=True),
    *used("C", "fetch.max.wait.ms", "fetch.max.wait.ms", clamps=True),
    *used("C", "max.partition.fetch.bytes", "max.partition.fetch.bytes", clamps=True),
    *used("C", "queued.max.messages.kbytes", "queued.max.messages.kbytes", clamps=True),
    *used("C", "retry.backoff.ms", "retry.backoff.ms", "0 is 1", clamps=True),
    *used("C", "retry.backoff.max.ms", "retry.backoff.max.ms", "0 is 1", clamps=True),
    *used("C", "auto.commit.enable", "enable.auto.commit"),
    *used("C", "fetch.wait.max.ms", "fetch.max.wait.ms"),
    *used("C", "fetch.message.max.bytes", "max.partition.fetch.bytes", clamps=True),
    *used("C", "fetch.error.backoff.ms", "retry.backoff.ms", yields=True, clamps=True),
    *used("C", "socket.timeout.ms", "request.timeout.ms", yields=True),
    *used(
        "C",
        "group.remote.assignor",
        "partition.assignment.strategy",
        words=_ASSIGNORS,
        yields=True,
    ),
    *accepted(
        "C",
        "group.protocol group.protocol.type",
        "the coordinator assigns, as in Kafka's consumer protocol (KIP-848)",
        values=("consumer", "classic"),
        otherwise="remove it; there are no share or streams groups",
    ),
    *accepted("C", "coordinator.query.interval.ms", "a coordinator that moved is found at once"),
    *accepted("C", "queued.min.messages fetch.queue.backoff.ms", _BYTES_AHEAD),
    *accepted("C", "receive.message.max.bytes message.max.bytes", "fetch.max.bytes bounds answers"),
    *accepted("C", "message.copy.max.bytes", "it is about librdkafka's own buffers"),
    *accepted("C", "max.in.flight.requests.per.connection max.in.flight", "it bounds no fetch"),
    *accepted(
        "C",
        "enable.partition.eof",
        "poll() gives records only",
        values=("false",),
        otherwise="compare position() with get_watermark_offsets(), or use "
        "mainstem.compat.confluent, which has it",
    ),
    *accepted("C", "check.crcs", "gRPC and Parquet have checks of their own"),
    *accepted(
        "C",
        "allow.auto.create.topics",
        "a consumer creates no topic",
        values=("false",),
        otherwise="set it to false, and create the topic with AdminClient or mainstem topic create",
    ),
    *accepted("C", "exclude.internal.topics", "there are no internal topics to read"),
    *accepted(
        "C",
        "offset.store.method",
        "the gateway keeps the offsets",
        values=("broker",),
        otherwise="remove it, or assign() partitions with offsets of your own",
    ),
    *accepted("C", "offset.store.sync.interval.ms offset.store.path", "the gateway keeps offsets"),
    *accepted(
        "C", "consume.callback.max.messages", "there are no consume callbacks: poll() gives records"
    ),
    *accepted(
        "C",
        "key.deserializer value.deserializer",
        "keys and values are bytes",
        values=(f"{_SERIALIZATION}bytearraydeserializer",),
        otherwise="deserialise after poll(), or use mainstem.compat, which takes functions",
    ),
    *refused(
        "C",
        "key.deserializer.builder value.deserializer.builder",
        "give a function or an object of mainstem.compat.confluent.serialization as "
        "key.deserializer or value.deserializer",
    ),
    *accepted(
        "C",
        "share.acknowledgement.mode share.acquire.mode",
        "there are no share groups; members of a group share partitions",
    ),
    *accepted(
        "C",
        "internal.leave.group.on.close",
        "close() leaves the group",
        values=("true",),
        otherwise="set group.instance.id, whose partitions wait for it until its session ends",
    ),
    *accepted(
        "C",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "there is one version of the protocol",
    ),
    *refused("C", "consume_cb", "call poll() in a loop"),
    *refused("C", "rebalance_cb", "give on_assign and on_revoke to subscribe()"),
    *refused("C", "offset_commit_cb", "set on_commit"),
    Fate("on_commit", frozenset({"consumer"}), "used", "a function (error, partitions)"),
]
