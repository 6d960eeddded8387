"""A store that is far away: many calls of a gateway are under way at a time."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from tests.unit.ingest_gateway.harness import WAIT_S, run, running

from mainstem.client import AsyncProducer
from mainstem.config import load_gateway_config
from mainstem.delta_log.store import LocalStore, MemoryStore, parse_warehouse
from mainstem.errors import InvalidConfigError
from mainstem.ingest_gateway.far_store import FAR_DEFAULTS, cache_for, config_for

#: More than the threads for a disk, and those that stand in for calls that hang.
TOPICS = 100


class _Far(MemoryStore):
    """Commits are answered when all topics' are under way."""

    def __init__(self) -> None:
        super().__init__()
        self.meet: threading.Barrier | None = None

    @property
    def is_far(self) -> bool:
        return True

    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        if self.meet is not None and path.startswith("topics/"):
            self.meet.wait(WAIT_S)
        super().put_if_absent(path, data, frees_space=frees_space)


@pytest.mark.slow
def test_commits_of_a_hundred_topics_are_under_way_at_the_same_time(tmp_path: Path) -> None:
    async def test() -> None:
        store = _Far()
        async with running(None, store, wal_directory=str(tmp_path)) as (gateway, client):
            for number in range(TOPICS):
                await client.create(f"t{number}")
            config = {"bootstrap.servers": gateway.address, "linger.ms": 0}
            async with AsyncProducer(config) as producer:

                async def send(number: int) -> int:
                    answer = await producer.send(f"t{number}", b"x", partition=0)
                    return (await answer).offset

                assert set(await asyncio.gather(*map(send, range(TOPICS)))) == {0}
                store.meet = threading.Barrier(TOPICS)
                assert set(await asyncio.gather(*map(send, range(TOPICS)))) == {1}
            store.meet = None

    run(test())


def test_what_somebody_has_set_stays_and_a_disk_has_its_own_defaults(tmp_path: Path) -> None:
    config = load_gateway_config(environment={}, flags={"fetch.threads": 7})
    far = config_for(config, _Far())
    assert far.number("fetch.threads") == 7
    assert far.number("append.threads") == FAR_DEFAULTS["append.threads"]
    assert far.settings["append.threads"].origin == "default where the store is far away"
    near = LocalStore(tmp_path)
    assert config_for(config, near) is config
    near.close()


def test_only_a_store_that_is_far_away_gets_a_cache_on_a_disk(tmp_path: Path) -> None:
    far, near = parse_warehouse("s3://bucket/lake"), parse_warehouse(tmp_path)
    flags = {"fetch.cache.directory": str(tmp_path / "cache"), "fetch.cache.disk.bytes": "16MiB"}
    config = load_gateway_config(environment={}, flags=flags)
    assert cache_for(load_gateway_config(environment={}), far) is None
    assert cache_for(config, near) is None
    assert not (tmp_path / "cache").exists()
    cache = cache_for(config, far)
    assert cache is not None
    try:
        with pytest.raises(InvalidConfigError, match="used by another gateway"):
            cache_for(config, far)
    finally:
        cache.close()
