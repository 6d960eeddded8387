"""The write-ahead log, in which requests with acks=1 are durable before their table commit."""

from mainstem.delta_log.wal.files import (
    LocalWalFiles,
    SealedWalFiles,
    WalFile,
    WalInUse,
    WalLost,
    WalSealed,
    is_segment,
)
from mainstem.delta_log.wal.format import (
    WalRequest,
    decode_entry,
    decode_segment,
    encode_entry,
    encode_frame,
    entry_topic,
)
from mainstem.delta_log.wal.log import Wal
from mainstem.delta_log.wal.orphans import Part
from mainstem.delta_log.wal.others import OtherLogs

__all__ = [
    "LocalWalFiles",
    "OtherLogs",
    "Part",
    "SealedWalFiles",
    "Wal",
    "WalFile",
    "WalInUse",
    "WalLost",
    "WalRequest",
    "WalSealed",
    "decode_entry",
    "decode_segment",
    "encode_entry",
    "encode_frame",
    "entry_topic",
    "is_segment",
]
