"""What each call of the protocol needs: the one table. A call without a row cannot be served.

Source: the table "Protocols and operations" of Kafka's documentation of authorization.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import MethodDescriptor

from mainstem.ingest_gateway.transactions import TransactionRef
from mainstem.security import CLUSTER_NAME, Operation, ResourceType


class Need(NamedTuple):
    """An operation on a resource."""

    operation: Operation
    resource_type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """What is checked of a call.

    Attributes:
        needs: Of its request. All of them, or the call is refused.
        each: The service asks for more itself: of each thing that the answer has, for its own
            error, or to leave it out; or by what it finds.
        signed_in: Only who has proved who they are may call. False: whoever is connected.
    """

    needs: Callable[[Any], Iterable[Need]] = lambda _: ()
    each: bool = False
    signed_in: bool = True


def topic(operation: Operation, name: str) -> Need:
    return Need(operation, ResourceType.TOPIC, name)


def group(operation: Operation, name: str) -> Need:
    return Need(operation, ResourceType.GROUP, name)


def transactional_id(operation: Operation, name: str) -> Need:
    return Need(operation, ResourceType.TRANSACTIONAL_ID, name)


def cluster(operation: Operation) -> Need:
    return Need(operation, ResourceType.CLUSTER, CLUSTER_NAME)


#: To look a member of an enumeration up takes a while, where it is asked for with every batch.
_WRITE: Final = Operation.WRITE
_TOPIC: Final = ResourceType.TOPIC


def produce_needs(request: Any) -> tuple[Need, ...]:
    """Of a ProduceRequest, also in a stream."""
    need = Need(_WRITE, _TOPIC, request.topic)
    name = request.transactional_id
    return (need, transactional_id(_WRITE, name)) if name else (need,)


def _offsets_needs(request: Any) -> Iterator[Need]:
    """Of a CommitOffsetsRequest."""
    yield group(Operation.READ, request.group)
    for name in dict.fromkeys(one.topic for one in request.offsets):
        yield topic(Operation.READ, name)


def _add_offsets_needs(request: Any) -> Iterator[Need]:
    yield transactional_id(Operation.WRITE, request.transaction.transactional_id)
    yield from _offsets_needs(request.offsets)


def _complete_needs(request: Any) -> Iterator[Need]:
    name = request.transactional_id
    if request.WhichOneof("which") == "token":
        name = TransactionRef.of_token(request.token).transactional_id
    yield transactional_id(Operation.WRITE, name)


def _complete_several_needs(request: Any) -> Iterator[Need]:
    yield transactional_id(Operation.WRITE, request.transactional_id)
    for token in request.tokens:
        name = TransactionRef.of_token(token).transactional_id
        yield transactional_id(Operation.WRITE, name)


def _topic(operation: Operation) -> Requirement:
    return Requirement(lambda request: (topic(operation, request.topic),))


def _group(operation: Operation, *, each: bool = False) -> Requirement:
    return Requirement(lambda request: (group(operation, request.group),), each=each)


def _transaction(operation: Operation) -> Requirement:
    return Requirement(
        lambda request: (transactional_id(operation, request.transaction.transactional_id),)
    )


def _transactional_id(operation: Operation, *, each: bool = False) -> Requirement:
    return Requirement(
        lambda request: (transactional_id(operation, request.transactional_id),), each=each
    )


def _cluster(operation: Operation) -> Requirement:
    return Requirement(lambda _: (cluster(operation),))


_EACH: Final = Requirement(each=True)

REQUIREMENTS: Final[dict[str, Requirement]] = {
    "mainstem.v1.Log.Produce": Requirement(produce_needs),
    "mainstem.v1.Log.ProduceStream": _EACH,
    "mainstem.v1.Log.InitProducer": _EACH,
    "mainstem.v1.Log.Fetch": _EACH,
    "mainstem.v1.Log.ListOffsets": _EACH,
    "mainstem.v1.Log.Metadata": _EACH,
    "mainstem.v1.Admin.CreateTopic": _EACH,
    "mainstem.v1.Admin.DeleteTopic": _topic(Operation.DELETE),
    "mainstem.v1.Admin.ListTopics": _EACH,
    "mainstem.v1.Admin.DescribeTopic": Requirement(
        lambda request: (topic(Operation.DESCRIBE, request.topic),), each=True
    ),
    "mainstem.v1.Admin.AlterTopicConfig": _topic(Operation.ALTER_CONFIGS),
    "mainstem.v1.Admin.AddPartitions": _topic(Operation.ALTER),
    "mainstem.v1.Admin.TrimPrefix": _topic(Operation.DELETE),
    "mainstem.v1.Admin.DescribeCluster": _cluster(Operation.DESCRIBE),
    "mainstem.v1.Admin.Rebalance": _cluster(Operation.ALTER),
    "mainstem.v1.Admin.ListConnections": _cluster(Operation.DESCRIBE),
    "mainstem.v1.Groups.Heartbeat": _group(Operation.READ, each=True),
    "mainstem.v1.Groups.Leave": _group(Operation.READ),
    "mainstem.v1.Groups.CommitOffsets": Requirement(_offsets_needs),
    "mainstem.v1.Groups.FetchOffsets": _group(Operation.DESCRIBE, each=True),
    "mainstem.v1.Groups.ListGroups": _EACH,
    "mainstem.v1.Groups.DescribeGroup": _group(Operation.DESCRIBE, each=True),
    "mainstem.v1.Groups.DeleteGroup": _group(Operation.DELETE),
    "mainstem.v1.Transactions.InitTransactions": _transactional_id(Operation.WRITE),
    "mainstem.v1.Transactions.BeginTransaction": _transaction(Operation.WRITE),
    "mainstem.v1.Transactions.AddOffsets": Requirement(_add_offsets_needs),
    "mainstem.v1.Transactions.EndTransaction": _transaction(Operation.WRITE),
    "mainstem.v1.Transactions.PrepareTransaction": _transaction(Operation.WRITE),
    "mainstem.v1.Transactions.CompleteTransaction": Requirement(_complete_needs),
    "mainstem.v1.Transactions.CompleteTransactions": Requirement(_complete_several_needs),
    "mainstem.v1.Transactions.ListTransactions": _EACH,
    "mainstem.v1.Transactions.DescribeTransaction": _transactional_id(
        Operation.DESCRIBE, each=True
    ),
    "mainstem.v1.Transactions.AppendTransaction": _cluster(Operation.CLUSTER_ACTION),
    "mainstem.v1.Transactions.SettleTransaction": _cluster(Operation.CLUSTER_ACTION),
    "mainstem.v1.Security.Authenticate": Requirement(signed_in=False),
    "mainstem.v1.Security.AlterUserScramCredentials": _cluster(Operation.ALTER),
    "mainstem.v1.Security.DescribeUserScramCredentials": _cluster(Operation.DESCRIBE),
    "mainstem.v1.Security.CreateAcls": _cluster(Operation.ALTER),
    "mainstem.v1.Security.DescribeAcls": _cluster(Operation.DESCRIBE),
    "mainstem.v1.Security.DeleteAcls": _cluster(Operation.ALTER),
    "mainstem.v1.Security.CheckAcl": _cluster(Operation.DESCRIBE),
    "mainstem.v1.Security.AlterClientQuotas": _cluster(Operation.ALTER_CONFIGS),
    "mainstem.v1.Security.DescribeClientQuotas": _cluster(Operation.DESCRIBE_CONFIGS),
}


def requirement_of(method: MethodDescriptor) -> Requirement:
    """What a call needs.

    Raises:
        KeyError: It has no row: nobody has thought about who may make it.
    """
    return REQUIREMENTS[method.full_name]
