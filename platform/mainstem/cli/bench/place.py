"""What every benchmark needs: a gateway, a topic that is deleted after it, percentiles."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.cli.context import admin_client, say
from mainstem.client import AdminClient
from mainstem.errors import MainstemError
from mainstem.testing import GatewayProcess


@dataclass(frozen=True, slots=True)
class BenchPlace:
    """Where it is measured.

    Attributes:
        bootstrap_servers: The gateways to measure; None: start one.
        directory: Where the started gateway's warehouse is made, and removed; None: the system's.
        gateway_config: Settings of the started gateway.
        topic_config: Settings of the topic.
        timeout_s: For each administrative call.
    """

    bootstrap_servers: str | None
    directory: str | None
    partition_count: int
    timeout_s: float
    gateway_config: Mapping[str, str] = field(default_factory=dict)
    topic_config: Mapping[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """For the result: what else it depends on."""
        return {
            **{f"topic {name}": value for name, value in self.topic_config.items()},
            **{f"gateway {name}": value for name, value in self.gateway_config.items()},
            "gateway": self.bootstrap_servers or "started for it",
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "version": version("mainstem"),
        }


@dataclass(frozen=True, slots=True)
class BenchTopic:
    """A new topic. `gateway`: the process, if it was started for it."""

    servers: str
    name: str
    admin: AdminClient
    gateway: GatewayProcess | None

    def peak_rss_bytes(self) -> int | None:
        """The gateway's, where that can be known."""
        return (self.gateway.peak_rss_bytes() if self.gateway else 0) or None


@contextlib.contextmanager
def bench_topic(place: BenchPlace) -> Iterator[BenchTopic]:
    """A topic for one benchmark.

    Raises:
        MainstemError: The topic could not be made.
    """
    with contextlib.ExitStack() as stack:
        gateway = None
        servers = place.bootstrap_servers
        if servers is None:
            folder = tempfile.TemporaryDirectory(prefix="mainstem-bench-", dir=place.directory)
            warehouse = stack.enter_context(folder)
            gateway = stack.enter_context(GatewayProcess(warehouse, settings=place.gateway_config))
            servers = gateway.address
        admin = stack.enter_context(admin_client(servers))
        name = f"bench-{secrets.token_hex(6)}"
        admin.create_topic(name, place.partition_count, place.topic_config, timeout=place.timeout_s)
        try:
            yield BenchTopic(servers, name, admin, gateway)
        finally:
            _delete(admin, name, place.timeout_s)


def random_column(rows: int, size: int) -> pa.Array:
    """A binary column of values of `size` random bytes."""
    offsets = np.arange(rows + 1, dtype=np.int32) * size
    data = pa.py_buffer(secrets.token_bytes(rows * size))
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), data])


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99 and max."""
    milliseconds = np.array(seconds) * 1000
    p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99])
    found = {"p50": p50, "p95": p95, "p99": p99, "max": milliseconds.max()}
    return {name: round(float(value), 3) for name, value in found.items()}


def _delete(admin: AdminClient, topic: str, timeout_s: float) -> None:
    """What went wrong before must not be hidden by a gateway that is gone."""
    try:
        admin.delete_topic(topic, timeout=timeout_s)
    except MainstemError as error:
        say(f"topic {topic} is left behind: {error.code}: {error.message}")
