"""A gateway on an event loop: makes its parts, in one order, serves, and drains."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping
from importlib.metadata import version
from typing import Any, Final

import grpc
import grpc.aio
import pyarrow as pa
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from mainstem.config import GatewayConfig
from mainstem.delta_log.store import StoreFull, Warehouse, open_warehouse, parse_warehouse
from mainstem.delta_log.system import GatewayBeat
from mainstem.errors import InvalidConfigError, StoreUnavailableError
from mainstem.ingest_gateway.audit import AuditLog
from mainstem.ingest_gateway.balancing import Balancing
from mainstem.ingest_gateway.cluster import Cluster, Load
from mainstem.ingest_gateway.condition import GatewayCondition
from mainstem.ingest_gateway.connections import Connections
from mainstem.ingest_gateway.far_store import cache_for, config_for
from mainstem.ingest_gateway.fetching import Arrivals
from mainstem.ingest_gateway.gateway_security import GatewaySecurity, check_security
from mainstem.ingest_gateway.gateway_tls import tls_of
from mainstem.ingest_gateway.groups import (
    GroupCoordination,
    GroupMetrics,
    OffsetCommits,
    watch_groups,
)
from mainstem.ingest_gateway.http_pages import gateway_pages
from mainstem.ingest_gateway.identity import GatewayIdentity
from mainstem.ingest_gateway.listeners import (
    address_of,
    advertised_address,
    check_can_listen,
    exposure,
    reachable,
)
from mainstem.ingest_gateway.metrics import GatewayMetrics
from mainstem.ingest_gateway.producer_id_source import ProducerIdSource
from mainstem.ingest_gateway.quotas import FollowedQuotas, Quotas
from mainstem.ingest_gateway.reader_threads import ReaderThreads
from mainstem.ingest_gateway.request_metrics import RequestMetrics
from mainstem.ingest_gateway.requests import RequestDoor
from mainstem.ingest_gateway.security import Proof
from mainstem.ingest_gateway.services import (
    AclService,
    AdminService,
    FetchService,
    GroupService,
    MetadataService,
    ProduceService,
    QuotaService,
    Rpc,
    TransactionService,
    UserService,
)
from mainstem.ingest_gateway.store_threads import StoreThreads
from mainstem.ingest_gateway.supervised import SupervisedTask
from mainstem.ingest_gateway.topics import (
    Appenders,
    GatewayTopics,
    Maintainer,
    Operations,
    WalRecovery,
)
from mainstem.ingest_gateway.transactions import Peers, TransactionCoordination, TransactionMetrics
from mainstem.limits import MESSAGE_OVERHEAD_BYTES
from mainstem.metrics import HttpServer
from mainstem.protocol.v1 import (
    admin_pb2,
    groups_pb2,
    log_pb2,
    security_pb2,
    transactions_pb2,
)

log = structlog.get_logger()

_SERVICES: Final = tuple(
    service.full_name
    for messages in (log_pb2, admin_pb2, groups_pb2, transactions_pb2, security_pb2)
    for service in messages.DESCRIPTOR.services_by_name.values()
)

#: The part of `drain.timeout.ms` that is kept for writing the last answers and for closing, half of
#: it each, and its upper bound.
_LAST_SHARE = 0.3
_LAST_S_MAX = 3.0

#: The part of the rest in which topics are handed over. What is left is closed.
_HAND_OVER_SHARE = 0.5
_CLOSE_S_MIN = 0.1

#: A store that says for longer nothing of its free space is one that hangs.
_STORE_ANSWER_S_MAX = 2.0

#: Connections stay open for so long after the gateway has ended a stream. A caller that still sends
#: when its connection closes gets an error for that, and throws away the answers that it has not
#: read yet.
_LINGER_S = 0.25

#: A client has so long to begin: to agree on TLS, and on HTTP/2.
_HANDSHAKE_MS: Final = 10_000

#: Of a call: twice of what its largest part has.
_METADATA_BYTES_MAX = 16 * 1024


#: Of `max.calls`, one in so many may wait for a quota.
_CALLS_PER_WAITING = 4


class Gateway:
    """One gateway on the running event loop: `start`, then `drain`.

    Args:
        config: See `load_gateway_config`.
        store: Where the tables are; the gateway closes it. None: the directory `warehouse`.
        proofs: More ways to sign in than the settings say, by their schemes.

    Raises:
        InvalidConfigError: The warehouse is in a store that is not supported.
        StoreUnavailableError: The warehouse cannot be opened; the message says why.
    """

    def __init__(
        self,
        config: GatewayConfig,
        store: Warehouse | None = None,
        proofs: Mapping[str, Proof] | None = None,
    ) -> None:
        self._config = config
        self._tls = tls_of(config)
        check_security(config)
        self._draining = asyncio.Event()
        self._metrics = GatewayMetrics()
        self._store = store or self._open_store()
        self._metrics.watch_store(self._store)
        config = self._config = config_for(config, self._store)
        self._pool = StoreThreads(config.number("append.threads"), "append")
        self._reader_threads = ReaderThreads(config.number("fetch.threads"))
        self._door = RequestDoor(config)
        self._connections = Connections(config.number("max.connections"))
        self._security = GatewaySecurity(config, self._store, self._pool, self._metrics, proofs)
        self._audit = AuditLog.of(config, self._metrics.registry)
        self._quotas = Quotas(
            self._metrics.registry,
            waiting_max=max(1, config.number("max.calls") // _CALLS_PER_WAITING),
        )
        self._rpc = Rpc(
            self._door,
            self._connections,
            self._security.sign_in,
            self._security.access,
            self._audit,
            self._quotas,
        )
        self._condition = GatewayCondition(self._store)
        self._health = health.aio.HealthServicer()
        self._serving: asyncio.Queue[bool] = asyncio.Queue()
        self._server = grpc.aio.server(
            interceptors=(RequestMetrics(self._metrics.registry),), options=_server_options(config)
        )
        self._background: list[SupervisedTask] = []
        #: What `_close` does, from the last to the first; each part is there once it is made.
        self._closing = contextlib.AsyncExitStack()
        self._closing.callback(self._store.close)
        self._closing.callback(self._pool.shutdown, wait=False, cancel_futures=True)
        self._closing.callback(self._reader_threads.close)
        self._closing.callback(self._door.close)
        self._cluster: Cluster | None = None
        #: host:port that clients are told.
        self.address = ""
        #: host:port of the HTTP endpoint; empty without one.
        self.metrics_address = ""

    def _open_store(self) -> Warehouse:
        config = self._config
        place = parse_warehouse(config.text("warehouse"), settings=config.store_settings())
        with contextlib.ExitStack() as undo:
            cache = cache_for(config, place)
            if cache is not None:
                undo.callback(cache.close)
                self._metrics.watch_cache(cache)
            store = open_warehouse(place, create=True, cache=cache)
            undo.pop_all()
        return store

    async def start(self) -> str:
        """Checks the store, binds and serves; returns the host:port that is listened on.

        Raises:
            InvalidConfigError: An address is malformed, or cannot be bound.
            StoreUnavailableError: The warehouse cannot hold a log; the message says why.
        """
        try:
            return await self._start()
        except BaseException:
            await self._close()
            raise

    async def _start(self) -> str:
        listener = self._config.text("listeners")
        host, wanted_port = address_of("listeners", listener)
        advertised = self._config.text("advertised.listeners")
        if advertised:
            advertised = advertised_address(advertised)
        try:
            self._store.self_check()
        except StoreFull as error:
            # To be freed through us: an operator deletes a topic, or trims it.
            log.error("the disk is full: only reads and what frees space work", error=error.message)
        self._in_background("pulse", self._condition.pulse)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._pool, self._store.fill_reserve)
        except StoreUnavailableError as error:
            log.warning("no space is set aside for deletions", error=error.message)
        identity: GatewayIdentity = await loop.run_in_executor(
            self._pool, GatewayIdentity, self._config, self._store
        )
        self._closing.push_async_callback(identity.close)
        self._metrics.watch_wal(identity.wal)
        # First: a bound port of a gRPC server that never started stays bound.
        self._start_http(identity.gateway_id)
        check_can_listen(host, wanted_port)
        try:
            port = self._listen(f"{host}:{wanted_port}")
        except RuntimeError as error:
            raise InvalidConfigError(
                f"cannot listen on {listener}: {error}", name="listeners"
            ) from error
        self.address = advertised or f"{reachable(host)}:{port}"
        self._closing.push_async_callback(self._security.close)
        await self._security.start()
        cluster = await self._make(identity)
        await self._recovery.recover()
        self._in_background("recover", self._recovery.go_on)
        self._in_background("finish deletions", self._topics.finish_deletions, returns=True)
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        self._in_background("tell health", self._tell_health)
        self._condition.ready(cluster, self._topics.leaders)
        self._in_background(
            "watch groups", lambda: watch_groups(self._groups, self._store, self._pool)
        )
        self._in_background("balance", self._balancing.run)
        log.info(
            "gateway ready",
            address=self.address,
            http=self.metrics_address,
            warehouse=self._store.uri,
            gateway_id=identity.gateway_id,
            version=version("mainstem"),
            memory_pool=pa.default_memory_pool().backend_name,
        )
        return f"{host}:{port}"

    def _listen(self, address: str) -> int:
        open_to_others = exposure(
            address,
            encrypted=self._tls is not None,
            asks=self._security.sign_in.asks,
            has_rules=not self._security.access.is_open,
        )
        if open_to_others:
            log.warning(open_to_others, address=address)
        if self._tls is not None:
            return self._server.add_secure_port(address, self._tls.server_credentials())
        return self._server.add_insecure_port(address)

    async def _make(self, identity: GatewayIdentity) -> Cluster:
        """Makes the parts of the gateway, from those that need nothing to the services."""
        config, metrics, wal = self._config, self._metrics, identity.wal
        maintainer = Maintainer(config.number("checkpoint.interval.commits"), metrics)
        self._maintainer = maintainer
        if self._audit is not None:
            self._audit.begin(self._store, identity.gateway_id, maintainer.committed_own)
            self._closing.push_async_callback(self._audit.close)
            self._in_background("audit", self._audit.run)
        quotas = FollowedQuotas(self._store, self._pool, self._quotas)
        self._in_background("quotas", quotas.run)
        id_source = ProducerIdSource(self._store, self._pool, maintainer.committed_own)
        self._closing.push_async_callback(id_source.close)
        producer_ids = await id_source.start()
        cluster = Cluster(
            self._store,
            config,
            identity.gateway_id,
            self.address,
            metrics,
            load=self._load,
            on_health=self._serving.put_nowait,
        )
        self._closing.push_async_callback(cluster.stop)
        await cluster.start()
        self._cluster = cluster
        arrivals = Arrivals(config.number("fetch.cache.bytes"))
        operations = Operations(self._pool)
        appenders = Appenders(
            config,
            metrics,
            self._pool,
            cluster=cluster,
            maintainer=maintainer,
            wal=wal,
            other_logs=identity.others,
            # Where it is asked who calls, whose an id is has been looked at before.
            producer_ids=None if self._security.sign_in.asks else producer_ids,
            on_records=arrivals.committed,
            on_durable=arrivals.durable if identity.is_shared else None,
        )
        topics = self._topics = GatewayTopics(
            self._store,
            config,
            metrics,
            reader_threads=self._reader_threads,
            operations=operations,
            appenders=appenders,
            cluster=cluster,
            wal=wal,
            on_closed=arrivals.closed,
        )
        self._recovery = WalRecovery(
            self._store, wal, identity.others, cluster, topics, operations, metrics
        )
        self._groups = GroupCoordination(
            topics,
            cluster,
            maintainer,
            self._store,
            config,
            metrics,
            self._pool,
        )
        transactions = TransactionCoordination(
            topics,
            self._groups,
            maintainer,
            id_source,
            self._store,
            config,
            metrics,
            self._pool,
            Peers(
                grpc.aio.insecure_channel if self._tls is None else self._tls.channel,
                self._security.authorization(identity.gateway_id),
            ),
        )
        metrics.registry.register(TransactionMetrics(transactions))
        self._closing.push_async_callback(transactions.close)
        self._closing.push_async_callback(self._groups.close, 0.0)
        self._balancing = Balancing(topics, self._groups, cluster, config)
        metrics.registry.register(GroupMetrics(self._groups, topics))
        self._fetches = FetchService(
            topics, arrivals, config, metrics, self._reader_threads, self._draining
        )
        self._closing.push_async_callback(self._fetches.close)
        self._produce = ProduceService(
            topics,
            id_source,
            config,
            metrics,
            self._door,
            transactions,
            self._draining,
        )
        admin = AdminService(
            topics,
            cluster,
            self._connections,
            self._balancing,
            gateway_id=identity.gateway_id,
            warehouse_uri=self._store.uri,
            version=version("mainstem"),
            store_trouble=self._store_trouble,
        )
        self._register(log_pb2, self._produce, self._fetches, MetadataService(topics, cluster))
        self._register(admin_pb2, admin)
        offset_commits = OffsetCommits(self._groups, config)
        self._register(groups_pb2, GroupService(self._groups, offset_commits, self._door))
        self._register(
            transactions_pb2,
            TransactionService(transactions, self._groups, offset_commits, self.address),
        )
        self._register(
            security_pb2,
            UserService(self._security.users, self._audit),
            AclService(self._security.acls),
            QuotaService(self._quotas, quotas),
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        return cluster

    def _load(self) -> Load:
        """What the heartbeat says of this gateway's work."""
        return Load(self._metrics.in_bytes, self._metrics.out_bytes)

    async def _store_trouble(self) -> str:
        """What is wrong with the store, which may be that it does not say."""
        asking = asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: self._condition.store_trouble
        )
        try:
            return await asyncio.wait_for(asking, _STORE_ANSWER_S_MAX)
        except TimeoutError:
            return f"the store of {self._store.uri} does not answer"

    @property
    def fetches_waiting(self) -> int:
        """Fetches that wait for records."""
        return self._fetches.waiting

    async def drain(self) -> bool:
        """Stops: health goes NOT_SERVING, accepted batches are committed and answered, streams end.

        Takes `drain.timeout.ms` at most, and says in the log what it has waited for in vain.

        Returns:
            Whether everything that was accepted is committed. If not, a store call may still hang
            in a thread, which Python would wait for when the process ends.
        """
        timeout_s = self._config.number("drain.timeout.ms") / 1000
        began_at = time.monotonic()
        ends_at = began_at + timeout_s
        log.info("gateway draining", timeout_s=timeout_s)
        self._condition.draining()
        await self._health.enter_graceful_shutdown()
        last_s = min(timeout_s * _LAST_SHARE, _LAST_S_MAX)
        closed_at = ends_at - last_s
        # While the others take over, calls are still served, and sent on.
        await self._hand_over(closed_at)
        self._draining.set()
        self._fetches.wake_all()
        close_s = max(closed_at - time.monotonic(), 0.0)
        clean = all(await asyncio.gather(self._close_topics(close_s), self._groups.close(close_s)))
        answers_end_at = min(ends_at - last_s / 2, time.monotonic() + _LAST_S_MAX)

        def left_s() -> float:
            return max(answers_end_at - time.monotonic(), 0.0)

        if await self._produce.streams_end(left_s()):
            await asyncio.sleep(min(_LINGER_S, left_s()))
        await self._server.stop(grace=left_s())
        try:
            # Also of a drain that takes no time: what does not wait for the store is closed.
            async with asyncio.timeout(max(ends_at - time.monotonic(), _CLOSE_S_MIN)):
                await self._close()
        except TimeoutError:
            log.error("the gateway ends with calls of the store that do not come back")
            clean = False
        log.info("gateway stopped", clean=clean, seconds=round(time.monotonic() - began_at, 3))
        return clean

    def _in_background(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        returns: bool = False,
    ) -> None:
        self._background.append(SupervisedTask(name, work, self._metrics, returns=returns))

    async def _hand_over(self, ends_at: float) -> None:
        """Leaves what is led here to the other gateways, if there are any."""
        if self._draining.is_set() or self._cluster is None:
            return
        if not self._cluster.places().others:
            return
        await self._cluster.begin_draining()
        left_s = max(ends_at - time.monotonic(), 0.0) * _HAND_OVER_SHARE
        try:
            async with asyncio.timeout(left_s):
                await self._balancing.hand_all_over(left_s)
        except TimeoutError:
            log.error("not everything is handed over, and the drain goes on")

    async def _close_topics(self, timeout_s: float) -> bool:
        """Whether all of them are closed, and no checkpoint is being written, in that time."""
        ends_at = time.monotonic() + timeout_s
        clean = await self._topics.drain(timeout_s)
        return await self._maintainer.close(max(ends_at - time.monotonic(), 0.1)) and clean

    async def _tell_health(self) -> None:
        """Tells health checks: a gateway that cannot reach its store is not ready."""
        serving = health_pb2.HealthCheckResponse
        while True:
            status = serving.SERVING if await self._serving.get() else serving.NOT_SERVING
            log.warning("health changed", status=serving.ServingStatus.Name(status))
            await self._set_health(status)

    async def _set_health(self, status: int) -> None:
        for service in ("", *_SERVICES):
            await self._health.set(service, status)

    async def _close(self) -> None:
        for task in self._background:
            await task.stop()
        await self._closing.aclose()

    def _register(self, messages: Any, *servicers: object) -> None:
        """Serves the one service of a module of messages."""
        (service,) = messages.DESCRIPTOR.services_by_name.values()
        calls = self._rpc.handlers(service, *servicers)
        self._server.add_registered_method_handlers(service.full_name, calls)
        # An old grpcio knows no registered handlers: it does nothing there.
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service.full_name, calls),)
        )

    def _start_http(self, gateway_id: str) -> None:
        listener = self._config.text("metrics.listeners")
        if not listener:
            return
        address_of("metrics.listeners", listener)

        def facts() -> list[tuple[str, object]]:
            return [
                ("gateway", gateway_id),
                ("address", self.address),
                ("warehouse", self._store.uri),
                ("version", version("mainstem")),
            ]

        def gateways() -> list[GatewayBeat]:
            return [] if self._cluster is None else self._cluster.gateways()

        pages = gateway_pages(self._metrics.registry, self._condition, facts, gateways)
        context = None if self._tls is None else self._tls.http_context()
        http = HttpServer("metrics.listeners", listener, pages, tls=context)
        self._closing.callback(http.close)
        self.metrics_address = http.address


def _server_options(config: GatewayConfig) -> list[tuple[str, int]]:
    message_bytes_max = config.number("socket.request.max.bytes") + MESSAGE_OVERHEAD_BYTES
    return [
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", -1),
        # Two gateways on one port would share its connections at random.
        ("grpc.so_reuseport", 0),
        # Clients ping quiet connections, to find out early that a gateway hangs; the default would
        # end them with too_many_pings. A ping costs less than any call.
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_allowed_incoming_connections", config.number("max.connections")),
        ("grpc.max_concurrent_streams", config.number("connection.max.calls")),
        # Whoever connects and says nothing takes a connection from others: for 2 min by default.
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        # With a token of 8 KiB a call has more metadata than gRPC lets through by default: it would
        # refuse some of these calls, by chance.
        ("grpc.max_metadata_size", _METADATA_BYTES_MAX),
    ]
