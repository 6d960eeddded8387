"""Records that wait outside the log: of transactions that are larger than memory, or decided and
not appended everywhere yet."""

from mainstem.delta_log.staging.area import StagedObject, StagingArea
from mainstem.delta_log.staging.format import FRAME_BYTES_MAX, StagedCounts
from mainstem.delta_log.staging.reading import CHUNK_BYTES, StagedTopic

__all__ = [
    "CHUNK_BYTES",
    "FRAME_BYTES_MAX",
    "StagedCounts",
    "StagedObject",
    "StagedTopic",
    "StagingArea",
]
