"""How much of the gateways somebody may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mainstem.client.admin.changes import change
from mainstem.client.arguments import check_seconds
from mainstem.client.gateways import Gateways
from mainstem.protocol.v1 import security_pb2, security_pb2_grpc

_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """The quotas of an entity.

    Attributes:
        principal: `User:name`; `<default>`: each user who has none; empty: whoever it is.
        client_id: Likewise.
        values: By name: `producer_byte_rate`, `consumer_byte_rate` (bytes a second),
            `request_rate` (requests a second), `connections`, `open_transactions`, `groups`,
            `controller_mutation_rate` (partitions a second that are made or deleted; KIP-599).
    """

    principal: str = ""
    client_id: str = ""
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """What is to become of the quotas of an entity. Kafka: ClientQuotaAlteration.

    Attributes:
        principal, client_id: See `ClientQuota`.
        set: Values by name.
        remove: Names of values that are taken back.
    """

    principal: str = ""
    client_id: str = ""
    set: Mapping[str, float] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


class QuotaAdmin:
    """The part of `AdminClient` that is about quotas."""

    def __init__(self, gateways: Gateways) -> None:
        self._quota_gateways = gateways

    def alter_client_quotas(
        self, alterations: Iterable[ClientQuotaAlteration], timeout: float = _TIMEOUT_S
    ) -> None:
        """Sets and takes back quotas, all or none. In force at the gateway that answers at once,
        and at the others a moment later. Kafka: alterClientQuotas.

        Raises:
            InvalidConfigError: An entity, a name or a value cannot be.
        """
        request = security_pb2.AlterClientQuotasRequest(
            alterations=[
                security_pb2.ClientQuotaAlteration(
                    entity=security_pb2.QuotaEntity(
                        principal=one.principal, client_id=one.client_id
                    ),
                    set=[
                        security_pb2.QuotaValue(name=name, value=value)
                        for name, value in one.set.items()
                    ],
                    remove=one.remove,
                )
                for one in alterations
            ]
        )
        change(
            self._quota_gateways,
            lambda channel: security_pb2_grpc.SecurityStub(channel).AlterClientQuotas,
            request,
            timeout,
        )

    def describe_client_quotas(self, timeout: float = _TIMEOUT_S) -> tuple[ClientQuota, ...]:
        """All quotas, by principal and client.id. Kafka: describeClientQuotas."""
        check_seconds(timeout)
        answer = self._quota_gateways.ask_again(
            lambda channel: security_pb2_grpc.SecurityStub(channel).DescribeClientQuotas,
            security_pb2.DescribeClientQuotasRequest(),
            timeout,
        )
        return tuple(
            ClientQuota(
                one.entity.principal,
                one.entity.client_id,
                {value.name: value.value for value in one.values},
            )
            for one in answer.quotas
        )
