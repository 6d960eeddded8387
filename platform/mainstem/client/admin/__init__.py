"""Administration: topics, the cluster, quotas, and groups seen from outside."""

from mainstem.client.admin.acls import AclDecision, CreatedAcls, DeletedAcls
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
from mainstem.client.admin.users import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)

__all__ = [
    "ADMIN_KEYS",
    "AclDecision",
    "AdminClient",
    "ClientQuota",
    "ClientQuotaAlteration",
    "ClusterDescription",
    "CompletedEpoch",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "CreatedAcls",
    "CreatedTopic",
    "DeletedAcls",
    "DeletedRecords",
    "GatewayDescription",
    "GroupMember",
    "GroupOffset",
    "OffsetMove",
    "PartitionDescription",
    "ScramCredentialInfo",
    "TopicConfigEntry",
    "TopicDescription",
    "TopicListing",
    "TopicMove",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
    "plan_seek",
]
