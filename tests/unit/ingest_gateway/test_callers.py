"""Who makes the calls of a gateway: by the certificate of the connection, and by tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.certificates import write_certificates
from tests.oidc import DISCOVERY, OidcServer, oidc_server
from tests.unit.ingest_gateway.harness import WAIT_S, refused, run, running, until

from mainstem.ingest_gateway.server import Gateway
from mainstem.protocol.v1 import admin_pb2, admin_pb2_grpc
from mainstem.security import USER, Principal


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    write_certificates(tmp_path, "gateway", "Alice", "bob")
    return tmp_path


@pytest.fixture
def issuer() -> Iterator[OidcServer]:
    with oidc_server() as found:
        yield found


@asynccontextmanager
async def gateway_of(certificates: Path, **settings: Any) -> AsyncIterator[Gateway]:
    settings = {
        "ssl_certificate_location": str(certificates / "gateway.pem"),
        "ssl_key_location": str(certificates / "gateway.key"),
        "ssl_ca_location": str(certificates / "ca.pem"),
        **settings,
    }
    async with running(certificates / "warehouse", **settings) as (gateway, _):
        yield gateway


@asynccontextmanager
async def channel_of(
    gateway: Gateway, certificates: Path, name: str = ""
) -> AsyncIterator[grpc.aio.Channel]:
    pair = [(certificates / f"{name}.{end}").read_bytes() for end in ("key", "pem") if name]
    credentials = grpc.ssl_channel_credentials((certificates / "ca.pem").read_bytes(), *pair)
    async with grpc.aio.secure_channel(gateway.address, credentials) as channel:
        yield channel


async def ask(channel: grpc.aio.Channel, authorization: str = "") -> None:
    metadata = (("authorization", authorization),) if authorization else ()
    stub: Any = admin_pb2_grpc.AdminStub(channel)
    await stub.ListTopics(admin_pb2.ListTopicsRequest(), timeout=WAIT_S, metadata=metadata)


def callers(gateway: Gateway) -> list[Principal | None]:
    return [
        None if one.identity is None else one.identity.principal
        for one in gateway._connections.list()
    ]


def test_the_certificate_of_a_connection_says_whose_its_calls_are(certificates: Path) -> None:
    async def test() -> None:
        rules = r"RULE:^CN=(A.*)$/$1@example/L, RULE:^CN=gateway$/admin/"
        async with gateway_of(
            certificates, ssl_client_auth="required", ssl_principal_mapping_rules=rules
        ) as gateway:
            async with channel_of(gateway, certificates, "Alice") as channel:
                await ask(channel)
                await ask(channel)
                assert callers(gateway) == [Principal(USER, "alice@example")]
            async with channel_of(gateway, certificates, "bob") as channel:
                async with refused(
                    grpc.StatusCode.UNAUTHENTICATED, "SASL_AUTHENTICATION_FAILED"
                ) as facts:
                    await ask(channel)
                assert "no rule of ssl.principal.mapping.rules fits" in facts["message"]
                assert "'CN=bob'" in facts["message"]

    run(test())


def test_who_needs_no_certificate_is_nobody_with_one(certificates: Path) -> None:
    async def test() -> None:
        async with (
            gateway_of(certificates) as gateway,
            channel_of(gateway, certificates, "Alice") as channel,
        ):
            await ask(channel)
            assert callers(gateway) == [None]

    run(test())


def test_calls_of_one_connection_may_be_of_several_tokens(
    certificates: Path, issuer: OidcServer
) -> None:
    async def test() -> None:
        settings = {
            "sasl_enabled_mechanisms": "OAUTHBEARER",
            "sasl_oauthbearer_expected_issuer": issuer.url,
            "sasl_oauthbearer_expected_audience": "mainstem",
        }
        async with (
            gateway_of(certificates, **settings) as gateway,
            channel_of(gateway, certificates) as channel,
        ):
            for name, groups in (("alice", ["a", "b"]), ("bob", []), ("alice", ["a"])):
                await ask(channel, f"Bearer {issuer.token(name, groups=groups)}")
                assert callers(gateway) == [Principal(USER, name, frozenset(groups))]
            token = issuer.token("alice")
            for scheme in ("bearer", "BEARER", "Bearer  "):
                await ask(channel, f"{scheme} {token}")
            for wrong in (f"Bearer {token}x", "Bearer", f"Basic {token}", token, "Bearer a b"):
                async with refused(
                    grpc.StatusCode.UNAUTHENTICATED, "SASL_AUTHENTICATION_FAILED"
                ) as facts:
                    await ask(channel, wrong)
                assert token not in facts["message"]
            async with refused(grpc.StatusCode.UNAUTHENTICATED, "SASL_AUTHENTICATION_FAILED"):
                await ask(channel)

    run(test())


def test_a_session_ends_with_its_token_and_with_its_key(
    certificates: Path, issuer: OidcServer
) -> None:
    async def test() -> None:
        settings = {
            "sasl_enabled_mechanisms": "OAUTHBEARER",
            "sasl_oauthbearer_expected_issuer": issuer.url,
            "sasl_oauthbearer_expected_audience": "mainstem",
            "sasl_oauthbearer_clock_skew_seconds": 0,
        }
        async with (
            gateway_of(certificates, **settings) as gateway,
            channel_of(gateway, certificates) as channel,
        ):
            token = f"Bearer {issuer.token(lifetime_s=1.0)}"
            await ask(channel, token)
            (connection,) = gateway._connections.list()
            identity = connection.identity
            assert identity is not None
            await until(lambda: identity.is_over)
            async with refused(grpc.StatusCode.UNAUTHENTICATED, "SESSION_EXPIRED"):
                await ask(channel, token)
            async with refused(
                grpc.StatusCode.UNAUTHENTICATED, "SASL_AUTHENTICATION_FAILED"
            ) as facts:
                await ask(channel, token)
            assert "exp was" in facts["message"]

    run(test())


@pytest.mark.parametrize("way", ["hangs", "drips"])
def test_a_gateway_starts_serves_and_ends_while_its_issuer_hangs(
    certificates: Path, issuer: OidcServer, way: str
) -> None:
    getattr(issuer, way).add(DISCOVERY)

    async def test() -> None:
        settings = {
            "sasl_enabled_mechanisms": "OAUTHBEARER",
            "sasl_oauthbearer_expected_issuer": issuer.url,
            "sasl_oauthbearer_expected_audience": "mainstem",
        }
        async with (
            gateway_of(certificates, **settings) as gateway,
            channel_of(gateway, certificates) as channel,
            refused(grpc.StatusCode.UNAUTHENTICATED, "SASL_AUTHENTICATION_FAILED"),
        ):
            await ask(channel)
        issuer.closing.set()

    run(test())
