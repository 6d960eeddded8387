"""Quotas: set, removed, looked at."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import structlog

from mainstem.errors import InvalidConfigError
from mainstem.ingest_gateway.quotas import QUOTAS_MAX, Alter, FollowedQuotas, Quotas
from mainstem.ingest_gateway.services.call import Call
from mainstem.protocol.v1 import security_pb2
from mainstem.security import QuotaEntity, QuotaName, quota_name, quota_value

log = structlog.get_logger()

_ALTERATIONS_MAX: Final = QUOTAS_MAX


class QuotaService:
    """Serves the calls of `mainstem.v1.Security` that are about quotas."""

    def __init__(self, quotas: Quotas, followed: FollowedQuotas) -> None:
        self._quotas = quotas
        self._followed = followed

    async def AlterClientQuotas(
        self, request: security_pb2.AlterClientQuotasRequest, call: Call
    ) -> security_pb2.AlterClientQuotasResponse:
        alterations = _alterations(request)
        if alterations:
            await self._followed.alter(alterations)
            log.info(
                "quotas changed",
                entities=[str(entity) for entity in alterations][:10],
                **call.facts(),
            )
        return security_pb2.AlterClientQuotasResponse()

    async def DescribeClientQuotas(
        self, request: security_pb2.DescribeClientQuotasRequest, call: Call
    ) -> security_pb2.DescribeClientQuotasResponse:
        rows = self._quotas.rows
        return security_pb2.DescribeClientQuotasResponse(
            quotas=[
                security_pb2.ClientQuota(
                    entity=security_pb2.QuotaEntity(
                        principal=entity.principal, client_id=entity.client_id
                    ),
                    values=[
                        security_pb2.QuotaValue(name=name, value=rows[entity][name])
                        for name in sorted(rows[entity])
                    ],
                )
                for entity in sorted(rows, key=lambda one: (one.principal, one.client_id))
            ]
        )


def _alterations(request: security_pb2.AlterClientQuotasRequest) -> Mapping[QuotaEntity, Alter]:
    """What is to become of the values of each entity, in the order of the request.

    Raises:
        InvalidConfigError: Something of it cannot be.
    """
    if len(request.alterations) > _ALTERATIONS_MAX:
        raise InvalidConfigError(
            f"the request alters the quotas of {len(request.alterations)} entities; "
            f"{_ALTERATIONS_MAX} are the most at a time",
            limit=_ALTERATIONS_MAX,
        )
    found: dict[QuotaEntity, Alter] = {}
    for one in request.alterations:
        entity = QuotaEntity(one.entity.principal, one.entity.client_id)
        entity.check()
        if entity in found:
            raise InvalidConfigError(f"the quotas of {entity} are altered twice in one request")
        values: dict[QuotaName, float] = {}
        for item in one.set:
            name = quota_name(item.name)
            if name in values:
                raise InvalidConfigError(f"{name} of {entity} is set twice in one request")
            values[name] = quota_value(name, item.value)
        removed = [quota_name(name) for name in one.remove]
        both = sorted(values.keys() & removed)
        if both:
            raise InvalidConfigError(f"{both[0]} of {entity} is set and removed in one request")
        found[entity] = partial(_alter, values, removed)
    return found


def _alter(
    values: Mapping[QuotaName, float], removed: list[QuotaName], row: dict[QuotaName, float]
) -> None:
    row.update(values)
    for name in removed:
        row.pop(name, None)
