"""The gateway process: starts the services, waits for SIGTERM, drains, and ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import start_http_server

from mainstem.config import GatewayConfig
from mainstem.delta_log import LocalStore
from mainstem.errors import InvalidConfigError
from mainstem.ingest_gateway.admin_service import AdminService
from mainstem.ingest_gateway.gateway_metrics import GatewayMetrics
from mainstem.ingest_gateway.log_service import LogService
from mainstem.ingest_gateway.topic_registry import TopicRegistry
from mainstem.limits import MESSAGE_OVERHEAD_BYTES
from mainstem.protocol.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc

log = structlog.get_logger()

LOG_SERVICE = log_pb2.DESCRIPTOR.services_by_name["Log"].full_name
ADMIN_SERVICE = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name


class Gateway:
    """One gateway on the running event loop: `start`, then `drain`.

    Args:
        config: See `load_gateway_config`.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._draining = asyncio.Event()
        self._metrics = GatewayMetrics()
        self._pool = ThreadPoolExecutor(
            config.number("append.threads"), thread_name_prefix="append"
        )
        self._store = LocalStore(config.text("warehouse"))
        self._registry = TopicRegistry(self._store, config, self._metrics, self._pool)
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=_server_options(config))
        self._close_metrics: Callable[[], None] = lambda: None
        self.address = ""

    async def start(self) -> str:
        """Checks the store, binds and serves; returns the host:port that is listened on.

        Raises:
            InvalidConfigError: The address cannot be bound.
            StoreUnavailableError: The warehouse cannot hold a log; the message says why.
        """
        self._store.self_check()
        listener = self._config.text("listeners")
        host = _host(listener)
        self._register_services()
        try:
            port = self._server.add_insecure_port(listener)
        except RuntimeError as error:
            raise InvalidConfigError(
                f"cannot listen on {listener}: {error}; is another gateway running there?",
                name="listeners",
            ) from error
        bound = f"{host}:{port}"
        self.address = self._config.text("advertised.listeners") or bound
        await self._server.start()
        self._start_metrics()
        for service in ("", LOG_SERVICE, ADMIN_SERVICE):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        log.info(
            "gateway ready",
            address=self.address,
            warehouse=self._store.uri,
            version=version("mainstem"),
        )
        return bound

    async def drain(self) -> None:
        """Stops: health goes NOT_SERVING, accepted batches are committed and answered, streams end."""
        grace_s = self._config.number("shutdown.grace.ms") / 1000
        log.info("gateway draining", grace_s=grace_s)
        await self._health.enter_graceful_shutdown()
        self._draining.set()
        await self._registry.drain(grace_s)
        await self._server.stop(grace=min(grace_s, 5.0))
        self._close_metrics()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._store.close()
        log.info("gateway stopped")

    def _register_services(self) -> None:
        log_service = LogService(
            self._registry, self._config, self._metrics, lambda: self.address, self._draining
        )
        admin_service = AdminService(
            self._registry,
            warehouse_uri=self._store.uri,
            version=version("mainstem"),
            gateway_id=self._config.text("gateway.id") or f"{socket.gethostname()}-{os.getpid()}",
            address=lambda: self.address,
        )
        log_pb2_grpc.add_LogServicer_to_server(log_service, self._server)
        admin_pb2_grpc.add_AdminServicer_to_server(admin_service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (LOG_SERVICE, ADMIN_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    def _start_metrics(self) -> None:
        listener = self._config.text("metrics.listeners")
        if not listener:
            return
        host, _, port = listener.rpartition(":")
        try:
            server, thread = start_http_server(int(port), host, registry=self._metrics.registry)
        except (OSError, ValueError) as error:
            raise InvalidConfigError(
                f"cannot serve metrics on {listener}: {error}", name="metrics.listeners"
            ) from error

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._close_metrics = close


async def serve(config: GatewayConfig, on_ready: Callable[[str], None]) -> None:
    """Runs a gateway until SIGTERM or SIGINT, then drains it.

    Args:
        on_ready: Gets the host:port that is listened on, once requests are answered.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gateway = Gateway(config)
    on_ready(await gateway.start())
    await stop.wait()
    await gateway.drain()


def configure_logging(config: GatewayConfig) -> None:
    """structlog to stderr, for people or as JSON; the standard library's loggers too."""
    level = getattr(logging, config.text("log.level").upper())
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor] = (
        [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
        if config.text("log.format") == "json"
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _server_options(config: GatewayConfig) -> list[tuple[str, int]]:
    message_bytes_max = config.number("socket.request.max.bytes") + MESSAGE_OVERHEAD_BYTES
    return [
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", -1),
        # Two gateways on one port would share its connections at random.
        ("grpc.so_reuseport", 0),
        # Clients ping idle connections; the default would answer too_many_pings.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _host(listener: str) -> str:
    host, separator, port = listener.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65_535:
        raise InvalidConfigError(
            f"listeners is {listener!r}; it must be host:port, for example 127.0.0.1:9490",
            name="listeners",
        )
    return host
