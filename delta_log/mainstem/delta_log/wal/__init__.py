"""The write-ahead log, in which requests with acks=1 are durable before their table commit."""

from mainstem.delta_log.wal.files import LocalWalFiles, LocalWals, SealedWalFiles
from mainstem.delta_log.wal.format import (
    WalRequest,
    decode_entry,
    decode_segment,
    encode_entry,
    encode_frame,
    entry_topic,
)
from mainstem.delta_log.wal.log import Wal
from mainstem.delta_log.wal.objects import ObjectWalFiles, ObjectWals
from mainstem.delta_log.wal.orphans import Part
from mainstem.delta_log.wal.others import OtherLogs
from mainstem.delta_log.wal.place import WalFiles, WalInUse, WalLost, WalPlace, WalSealed
from mainstem.delta_log.wal.segments import WalFile, is_segment

__all__ = [
    "LocalWalFiles",
    "LocalWals",
    "ObjectWalFiles",
    "ObjectWals",
    "OtherLogs",
    "Part",
    "SealedWalFiles",
    "Wal",
    "WalFile",
    "WalFiles",
    "WalInUse",
    "WalLost",
    "WalPlace",
    "WalRequest",
    "WalSealed",
    "decode_entry",
    "decode_segment",
    "encode_entry",
    "encode_frame",
    "entry_topic",
    "is_segment",
]
