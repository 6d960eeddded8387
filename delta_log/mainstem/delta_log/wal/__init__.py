"""The write-ahead log, in which requests with acks=1 are durable before their table commit."""

from mainstem.delta_log.wal.files import LocalWalFiles, WalFile, WalInUse, WalLost
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
from mainstem.delta_log.wal.segments import is_segment

__all__ = [
    "LocalWalFiles",
    "Part",
    "Wal",
    "WalFile",
    "WalInUse",
    "WalLost",
    "WalRequest",
    "decode_entry",
    "decode_segment",
    "encode_entry",
    "encode_frame",
    "entry_topic",
    "is_segment",
]
