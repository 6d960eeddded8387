"""The gateway's side of signing in: the exchange, what bounds it, and what a session may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import scramp
from tests.certificates import write_certificates
from tests.unit.ingest_gateway.harness import refused, run, soon
from tests.unit.ingest_gateway.payloads import values_request
from tests.unit.ingest_gateway.stream_call import StreamCall
from tests.unit.ingest_gateway.test_audit import audit

from mainstem.config import load_gateway_config
from mainstem.delta_log import LocalStore
from mainstem.delta_log.store import open_warehouse, parse_warehouse
from mainstem.delta_log.system import User, open_users
from mainstem.errors import InvalidConfigError, StoreUnavailableError
from mainstem.ingest_gateway.server import Gateway
from mainstem.ingest_gateway.services import users as user_service
from mainstem.protocol import error_from_rpc
from mainstem.protocol.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    log_pb2,
    security_pb2,
    security_pb2_grpc,
    transactions_pb2,
    transactions_pb2_grpc,
)
from mainstem.security import new_credential

MECHANISM = "SCRAM-SHA-256"
AUTHENTICATE = "/mainstem.v1.Security/Authenticate"
SECRET = "0123456789abcdef" * 2
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    write_certificates(directory)
    return directory


def credential(password: str = "secret") -> Any:
    return new_credential(password, MECHANISM, 4096)


class Asking:
    """A gateway that asks who calls, with the user alice, and a connection to it."""

    def __init__(
        self,
        gateway: Gateway,
        channel: grpc.aio.Channel,
        credentials: grpc.ChannelCredentials,
        warehouse: Path,
    ) -> None:
        self.gateway = gateway
        self.channel = channel
        self._credentials = credentials
        self.warehouse = warehouse
        self.security = security_pb2_grpc.SecurityStub(channel)
        self.admin = admin_pb2_grpc.AdminStub(channel)

    def stream(self, method: str, **options: Any) -> StreamCall:
        return StreamCall(self.gateway.address, method, self._credentials, **options)

    def exchange(self) -> StreamCall:
        """A call of Authenticate."""
        return self.stream(
            AUTHENTICATE,
            request_serializer=security_pb2.AuthenticateRequest.SerializeToString,
            response_deserializer=security_pb2.AuthenticateResponse.FromString,
        )

    async def sign_in(self, name: str = "alice", password: str = "secret") -> str:
        """The session's metadata; raises AioRpcError."""
        client = scramp.ScramClient([MECHANISM], name, password)
        async with self.exchange() as call:
            await call.write(
                security_pb2.AuthenticateRequest(
                    mechanism=MECHANISM, auth_bytes=client.get_client_first().encode()
                )
            )
            client.set_server_first((await answer(call)).auth_bytes.decode())
            await call.write(
                security_pb2.AuthenticateRequest(auth_bytes=client.get_client_final().encode())
            )
            last = await answer(call)
        client.set_server_final(last.auth_bytes.decode())
        assert last.session_lifetime_ms > 0
        return f"Session {last.session_token}"

    async def list_topics(self, authorization: str) -> int:
        found = await self.admin.ListTopics(
            admin_pb2.ListTopicsRequest(),
            metadata=[("authorization", authorization)] if authorization else None,
            timeout=20,
        )
        return len(found.topics)

    def elsewhere(self) -> Any:
        """The table, as another gateway has it."""
        return open_users(LocalStore(self.warehouse))


async def answer(call: StreamCall) -> security_pb2.AuthenticateResponse:
    found = await soon(call.read())
    assert isinstance(found, security_pb2.AuthenticateResponse)
    return found


async def read_all(call: StreamCall) -> None:
    while await soon(call.read()) is not grpc.aio.EOF:
        pass


@asynccontextmanager
async def asking(warehouse: Path, certificates: Path, **settings: object) -> AsyncIterator[Asking]:
    store = open_warehouse(parse_warehouse(str(warehouse)), create=True)
    open_users(store).update(lambda _: {"alice": User({MECHANISM: credential()})})
    store.close()
    flags: dict[str, object] = {
        "listeners": "127.0.0.1:0",
        "warehouse": str(warehouse),
        "ssl.certificate.location": str(certificates / "gateway.pem"),
        "ssl.key.location": str(certificates / "gateway.key"),
        "ssl.ca.location": str(certificates / "ca.pem"),
        "sasl.enabled.mechanisms": MECHANISM,
        "gateway.secret": SECRET,
    }
    flags |= {name.replace("_", "."): value for name, value in settings.items()}
    gateway = Gateway(load_gateway_config(environment={}, flags=flags))
    address = await gateway.start()
    credentials = grpc.ssl_channel_credentials((certificates / "ca.pem").read_bytes())
    try:
        async with grpc.aio.secure_channel(address, credentials) as channel:
            yield Asking(gateway, channel, credentials, warehouse)
    finally:
        await soon(gateway.drain())


def test_a_session_opens_what_nobody_else_may_and_ends_with_the_password(
    tmp_path: Path, certificates: Path
) -> None:
    async def test() -> None:
        async with asking(tmp_path / "w", certificates) as place:
            for wrong in ("", "Session x", "Basic YWxpY2U6c2VjcmV0", "Session", "nonsense"):
                async with refused(UNAUTHENTICATED, "SASL_AUTHENTICATION_FAILED"):
                    await place.list_topics(wrong)
            session = await place.sign_in()
            assert await place.list_topics(session) == 0
            # Another gateway changes the password: this one follows within a second.
            place.elsewhere().update(lambda _: {"alice": User({MECHANISM: credential("new")})})
            async with refused(UNAUTHENTICATED, "SESSION_EXPIRED"):
                await place.sign_in(password="new")  # it may be half a second behind
            again = await place.sign_in(password="new")
            assert await place.list_topics(again) == 0
            async with refused(UNAUTHENTICATED, "SESSION_EXPIRED"):
                await place.list_topics(session)

    run(test())


def test_who_was_changed_elsewhere_a_moment_ago_is_told_to_try_again_and_not_that_it_is_wrong(
    tmp_path: Path, certificates: Path
) -> None:
    async def test() -> None:
        async with asking(tmp_path / "w", certificates) as place:
            users = place.gateway._security.users
            assert users is not None
            # As if the gateway had not looked for a while.
            for task in place.gateway._security._tasks:
                await task.stop()
            place.elsewhere().update(lambda _: {"bob": User({MECHANISM: credential("bobs")})})
            async with refused(UNAUTHENTICATED, "SESSION_EXPIRED") as facts:
                await place.sign_in("bob", "bobs")
            assert "changed just now" in facts["message"]
            session = await place.sign_in("bob", "bobs")
            place.elsewhere().update(lambda _: {"bob": None})
            assert await place.list_topics(session) == 0, "nobody has looked"
            for code in ("SESSION_EXPIRED", "SASL_AUTHENTICATION_FAILED"):
                async with refused(UNAUTHENTICATED, code):
                    await place.sign_in("bob", "wrong")
            async with refused(UNAUTHENTICATED, "SESSION_EXPIRED"):
                await place.list_topics(session)

    run(test())


def test_a_store_that_fails_leaves_everybody_as_they_were(
    tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with asking(tmp_path / "w", certificates) as place:
            users = place.gateway._security.users
            assert users is not None
            session = await place.sign_in()

            def fail() -> object:
                raise StoreUnavailableError("the store is away")

            table = users._rows._table
            assert table is not None
            monkeypatch.setattr(table, "read", fail)
            await asyncio.sleep(0.7)  # it has looked
            assert await place.list_topics(session) == 0
            assert await place.list_topics(await place.sign_in()) == 0
            async with refused(UNAUTHENTICATED, "SASL_AUTHENTICATION_FAILED"):
                await place.sign_in(password="wrong")

    run(test())


MESSAGES: dict[str, list[bytes]] = {
    "nothing": [],
    "no message": [b"\xff\xff\xff"],
    "no mechanism": [
        security_pb2.AuthenticateRequest(auth_bytes=b"n,,n=a,r=x").SerializeToString()
    ],
    "another mechanism": [
        security_pb2.AuthenticateRequest(
            mechanism="SCRAM-SHA-512\n" * 100, auth_bytes=b"n,,n=a,r=x"
        ).SerializeToString()
    ],
    "too long": [
        security_pb2.AuthenticateRequest(
            mechanism=MECHANISM, auth_bytes=b"n,,n=" + b"a" * 9000 + b",r=x"
        ).SerializeToString()
    ],
    "half": [
        security_pb2.AuthenticateRequest(
            mechanism=MECHANISM, auth_bytes=b"n,,n=alice,r=x"
        ).SerializeToString()
    ],
    "the first twice": [
        security_pb2.AuthenticateRequest(
            mechanism=MECHANISM, auth_bytes=b"n,,n=alice,r=x"
        ).SerializeToString()
    ]
    * 2,
}


#: Who they say they are, and by which mechanism they would prove it.
CLAIMS = {
    "another mechanism": ("", "SCRAM-SHA-512"),
    "half": ("alice", MECHANISM),
    "the first twice": ("alice", MECHANISM),
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_an_exchange_that_is_none_is_refused_and_audited_and_leaves_nothing(
    kind: str, tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_service, "_EXCHANGES_MAX", 1)

    async def test() -> None:
        async with asking(tmp_path / "w", certificates, audit_enabled=True) as place:
            async with place.stream(AUTHENTICATE) as call:
                for message in MESSAGES[kind]:
                    await call.write(message)
                await call.done_writing()
                with pytest.raises(grpc.RpcError) as caught:
                    await read_all(call)
            found = error_from_rpc(caught.value)
            assert found.code in ("SASL_AUTHENTICATION_FAILED", "INVALID_REQUEST"), found
            codes.append(found.code)
            # There is room for one exchange: the other is over.
            assert await place.list_topics(await place.sign_in()) == 0

    codes: list[str] = []
    run(test())
    claimed, mechanism = CLAIMS.get(kind, ("", ""))
    (row,) = [one for one in audit(tmp_path / "w") if one["kind"] == "sign-in"]
    assert (row["principal"], row["error"]) == (claimed, codes[0])
    assert row["summary"].startswith(mechanism)
    assert len(row["summary"]) < 100
    assert row["summary"].isprintable()


def test_a_flood_of_sign_ins_is_bounded_in_number_in_time_and_in_the_log(
    tmp_path: Path,
    certificates: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(user_service, "_EXCHANGES_MAX", 3)
    monkeypatch.setattr(user_service, "_EXCHANGE_S", 2.0)

    async def test() -> None:
        async with asking(tmp_path / "w", certificates) as place:
            async with AsyncExitStack() as open_calls:
                calls = [await open_calls.enter_async_context(place.exchange()) for _ in range(3)]
                for call in calls:
                    await call.write(
                        security_pb2.AuthenticateRequest(
                            mechanism=MECHANISM, auth_bytes=b"n,,n=alice,r=x"
                        )
                    )
                    assert (await answer(call)).auth_bytes
                async with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "BACK_PRESSURE"):
                    await place.sign_in()
                calls[0].cancel()  # a client that goes in the middle
                for call in calls[1:]:
                    async with refused(UNAUTHENTICATED, "SASL_AUTHENTICATION_FAILED") as facts:
                        await answer(call)
                    assert "within" in facts["message"]
            monkeypatch.setattr(user_service, "_EXCHANGE_S", 60.0)
            assert len(await asyncio.gather(*(place.sign_in() for _ in range(3)))) == 3
            for number in range(70):
                with pytest.raises(grpc.RpcError):
                    await place.sign_in(f"eve{number}", "wrong")

    run(test())
    said = capsys.readouterr()
    lines = [one for one in (said.out + said.err).splitlines() if "a sign-in failed" in one]
    assert len(lines) == 60
    # The one that went, and the two that were too slow; then those with a wrong password.
    assert all("alice" in one for one in lines[:3])
    assert sum("not signed in within" in one for one in lines) == 2
    assert "eve0" in lines[3]


def test_users_change_all_or_none(tmp_path: Path, certificates: Path) -> None:
    async def test() -> None:
        async with asking(tmp_path / "w", certificates) as place:
            metadata = [("authorization", await place.sign_in())]
            one = credential()

            def upsertion(name: str, **changes: Any) -> security_pb2.ScramCredentialUpsertion:
                fields: dict[str, Any] = {
                    "user": name,
                    "mechanism": MECHANISM,
                    "iterations": one.iterations,
                    "salt": one.salt,
                    "stored_key": one.stored_key,
                    "server_key": one.server_key,
                }
                return security_pb2.ScramCredentialUpsertion(**(fields | changes))

            for wrong in (
                upsertion("a\nb"),
                upsertion(""),
                upsertion("x" * 250),
                upsertion("b", iterations=1),
                upsertion("b", iterations=16385),
                upsertion("b", salt=b""),
                upsertion("b", stored_key=b"x"),
                upsertion("b", mechanism="PLAIN"),
                upsertion("good"),  # twice
            ):
                request_ = security_pb2.AlterUserScramCredentialsRequest(
                    upsertions=[upsertion("good"), wrong]
                )
                async with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CONFIG"):
                    await place.security.AlterUserScramCredentials(
                        request_, metadata=metadata, timeout=20
                    )
            found = await place.security.DescribeUserScramCredentials(
                security_pb2.DescribeUserScramCredentialsRequest(), metadata=metadata, timeout=20
            )
            assert [(user.user, len(user.credentials)) for user in found.users] == [("alice", 1)]
            async with refused(UNAUTHENTICATED, "SASL_AUTHENTICATION_FAILED"):
                await place.security.DescribeUserScramCredentials(
                    security_pb2.DescribeUserScramCredentialsRequest(), timeout=20
                )

    run(test())


def test_a_stream_of_records_ends_with_its_session_and_everything_accepted_is_answered(
    tmp_path: Path, certificates: Path
) -> None:
    async def test() -> None:
        async with asking(tmp_path / "w", certificates, connections_max_reauth_ms=1000) as place:
            metadata = [("authorization", await place.sign_in())]
            await place.admin.CreateTopic(
                admin_pb2.CreateTopicRequest(topic="orders", partition_count=1),
                metadata=metadata,
                timeout=20,
            )
            async with place.stream(
                "/mainstem.v1.Log/ProduceStream",
                metadata=tuple(metadata),
                request_serializer=log_pb2.ProduceRequest.SerializeToString,
                response_deserializer=log_pb2.ProduceResponse.FromString,
            ) as call:
                sent = answered = 0
                while True:
                    one = values_request(b"x", topic="orders")
                    one.correlation_id = sent + 1
                    await call.write(one)
                    sent += 1
                    found = await soon(call.read())
                    if found is grpc.aio.EOF:
                        break
                    assert not found.HasField("error"), found
                    answered += 1
                assert await call.code() == grpc.StatusCode.OK
                assert ("mainstem-end", "SESSION_EXPIRED") in await call.trailing_metadata()
            assert answered == sent - 1
            described = await place.admin.DescribeTopic(
                admin_pb2.DescribeTopicRequest(topic="orders"),
                metadata=[("authorization", await place.sign_in())],
                timeout=20,
            )
            assert described.partitions[0].high_watermark == answered

    run(test())


def test_a_call_between_gateways_is_believed_with_the_same_secret_only(
    tmp_path: Path, certificates: Path
) -> None:
    async def test() -> None:
        async with asking(tmp_path / "w", certificates) as place:
            stub = transactions_pb2_grpc.TransactionsStub(place.channel)

            async def settle(authorization: str) -> None:
                await stub.SettleTransaction(
                    transactions_pb2.SettleTransactionRequest(
                        transactional_id="t", ordinal=1, topic="none", topic_id="none"
                    ),
                    metadata=[("authorization", authorization)],
                    timeout=20,
                )

            authorization = place.gateway._security.authorization("gateway-2")
            assert authorization is not None
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await settle(authorization())
            assert error_from_rpc(caught.value).code == "INVALID_TXN_STATE", "it was let in"
            from mainstem.ingest_gateway.security import GatewayCalls, Secret

            other = GatewayCalls(Secret("another secret of 32 characters!!"))
            async with refused(UNAUTHENTICATED, "SASL_AUTHENTICATION_FAILED") as facts:
                await settle(other.authorization("gateway-2"))
            assert "gateway.secret" in facts["message"]

    run(test())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-512"}, "ssl.certificate.location is not set"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "ssl.certificate.location is not set"),
        ({"gateway.secret": "short"}, "at least 32"),
    ],
)
def test_settings_that_would_be_unsafe_are_refused_before_anything_is_made(
    tmp_path: Path, flags: dict[str, object], words: str, nothing_left: None
) -> None:
    config = load_gateway_config(environment={}, flags=flags | {"warehouse": str(tmp_path / "w")})
    with pytest.raises(InvalidConfigError, match=words):
        Gateway(config)
    assert not (tmp_path / "w").exists()


def test_access_control_lists_without_anybody_asked_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        flags = {"listeners": "127.0.0.1:0", "warehouse": str(tmp_path), "authorizer": "acl"}
        gateway = Gateway(load_gateway_config(environment={}, flags=flags))
        await gateway.start()
        await soon(gateway.drain())

    run(test())
    said = capsys.readouterr()
    assert "User:ANONYMOUS" in said.err + said.out
