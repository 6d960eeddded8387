"""The write-ahead log, in which requests with acks=1 are durable before their table commit."""

from mainstem.delta_log.wal.files import LocalWalFiles, WalFile, WalInUse
from mainstem.delta_log.wal.format import (
    WalRequest,
    decode_entry,
    decode_segment,
    encode_entry,
    encode_frame,
    entry_topic,
)
from mainstem.delta_log.wal.log import Wal

__all__ = [
    "LocalWalFiles",
    "Wal",
    "WalFile",
    "WalInUse",
    "WalRequest",
    "decode_entry",
    "decode_segment",
    "encode_entry",
    "encode_frame",
    "entry_topic",
]
