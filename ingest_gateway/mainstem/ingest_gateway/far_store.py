"""What a gateway does otherwise where its store is far away: more calls are under way at a time,
and what was read may be kept on a disk of its own."""

from __future__ import annotations

from typing import Final

import structlog

from mainstem.config import ConfigValue, GatewayConfig
from mainstem.delta_log.store import CloudPrefix, DiskCache, Place, Warehouse

log = structlog.get_logger()

#: On a disk a call keeps it or the processor busy, and more than a few at a time only wait for each
#: other. A service answers each after 60 to 200 ms, however many there are: with 16 threads, 100
#: topics that commit two objects each would take more than a second for what takes 200 ms.
FAR_DEFAULTS: Final[dict[str, ConfigValue]] = {
    "append.threads": 256,
    "commit.concurrency": 256,
    "fetch.threads": 32,
    # Two puts each, and some more for checkpoints: 40 puts a second with the log's own, however
    # many topics trickle; 500 $ a month of S3 Standard.
    "commit.unawaited.rate": 15,
    # Five puts a second at most, for all that gets records with acks=1. One record at a time, each
    # of which waits for the next interval, is then answered within 250 ms.
    "wal.interval.ms": 200,
}


def config_for(config: GatewayConfig, store: Warehouse) -> GatewayConfig:
    """The settings, with other defaults where the store is far away. What was set stays."""
    if not store.is_far:
        return config
    near = {"wal.interval.ms"} if config.text("wal.directory") else set()
    return config.with_defaults({k: v for k, v in FAR_DEFAULTS.items() if k not in near})


def cache_for(config: GatewayConfig, place: Place) -> DiskCache | None:
    """The cache of `fetch.cache.directory`; None: there is none, or the store is near.

    Raises:
        DiskCacheInUse: Another gateway has the directory.
    """
    directory = config.text("fetch.cache.directory")
    if not directory:
        return None
    if not isinstance(place, CloudPrefix):
        log.info("fetch.cache.directory is not used: the warehouse is on a disk", value=directory)
        return None
    return DiskCache(directory, config.number("fetch.cache.disk.bytes"))
