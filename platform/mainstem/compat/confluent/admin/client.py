"""AdminClient: the calls about topics, settings and groups, and those about the cluster."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from mainstem.compat.confluent.admin.acls import AclCalls
from mainstem.compat.confluent.admin.calls import options
from mainstem.compat.confluent.admin.configs import ConfigCalls
from mainstem.compat.confluent.admin.groups import GroupCalls
from mainstem.compat.confluent.admin.model import DescribeClusterResult
from mainstem.compat.confluent.admin.topics import TopicCalls
from mainstem.compat.confluent.admin.users import UserCalls
from mainstem.compat.confluent.error import NO_OTHER_CREDENTIALS, refused
from mainstem.compat.confluent.metadata import broker_numbers, split_address
from mainstem.compat.confluent.model import Node


class AdminClient(TopicCalls, ConfigCalls, GroupCalls, UserCalls, AclCalls):
    """Administration. Calls take lists, and give a future for each of their targets.

    A future's exception is a KafkaException. `request_timeout` is in seconds, 30 by default;
    `operation_timeout` is taken and changes nothing: what is done is durable when it is told.

    Args:
        conf: `bootstrap.servers`, and `client.id` if wanted.
    """

    def poll(self, timeout: float = -1) -> int:
        """0: futures end by themselves."""
        return 0

    def describe_cluster(self, **kwargs: Any) -> Future[DescribeClusterResult]:
        """The gateways."""
        timeout_s, _ = options(kwargs)

        def describe() -> DescribeClusterResult:
            found = self._admin.describe_cluster(timeout_s)
            numbers = broker_numbers(one.address for one in found.gateways)
            racks = {one.address: one.rack or None for one in found.gateways}
            nodes = [Node(number, *split_address(at), racks[at]) for at, number in numbers.items()]
            return DescribeClusterResult(nodes[0] if nodes else None, nodes, found.warehouse_uri)

        return self._start(describe)

    def cluster_id(self, timeout: float = -1) -> str | None:
        """The name that stands for the cluster; asks a gateway."""
        return self.list_topics(timeout=timeout).cluster_id

    # -------------------------------------------------------------------------- what cannot be

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Refused: see sasl.password.location."""
        raise refused("_NOT_IMPLEMENTED", NO_OTHER_CREDENTIALS)

    def elect_leaders(self, election_type: object, partitions: object = None, **kwargs: Any) -> Any:
        """Refused: gateways take over topics by themselves."""
        raise refused("_NOT_IMPLEMENTED", "a topic's leader is replaced by itself, by its lease")
