"""Administration: topics, the cluster, quotas, and groups seen from outside."""

from mainstem.client.admin.admin import (
    ADMIN_KEYS,
    AdminClient,
    ClusterDescription,
    CreatedTopic,
    DeletedRecords,
    GatewayDescription,
    PartitionDescription,
    TopicConfigEntry,
    TopicDescription,
    TopicListing,
    TopicMove,
)
from mainstem.client.admin.groups import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    GroupMember,
    GroupOffset,
)
from mainstem.client.admin.quotas import ClientQuota, ClientQuotaAlteration
from mainstem.client.admin.seek_plan import OffsetMove, plan_seek
from mainstem.client.admin.transactions import CompletedEpoch

__all__ = [
    "ADMIN_KEYS",
    "AdminClient",
    "ClientQuota",
    "ClientQuotaAlteration",
    "ClusterDescription",
    "CompletedEpoch",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "CreatedTopic",
    "DeletedRecords",
    "GatewayDescription",
    "GroupMember",
    "GroupOffset",
    "OffsetMove",
    "PartitionDescription",
    "TopicConfigEntry",
    "TopicDescription",
    "TopicListing",
    "TopicMove",
    "plan_seek",
]
