"""The wire: generated messages (`mainstem.protocol.v1`), and errors as gRPC statuses; fields by
hand."""

from mainstem.protocol._fields import field_tag, varint
from mainstem.protocol._metadata import AUTHORIZER_KEY
from mainstem.protocol._status import (
    DOMAIN,
    encryption_hint,
    error_from_message,
    error_from_rpc,
    error_to_message,
    error_to_status,
    never_left,
    refused_records,
    sign_in_failure,
    status_code_for,
)

__all__ = [
    "AUTHORIZER_KEY",
    "DOMAIN",
    "encryption_hint",
    "error_from_message",
    "error_from_rpc",
    "error_to_message",
    "error_to_status",
    "field_tag",
    "never_left",
    "refused_records",
    "sign_in_failure",
    "status_code_for",
    "varint",
]
