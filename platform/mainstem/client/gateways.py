"""The gateways that a client may ask: its bootstrap servers, and all that these have named."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

import grpc

from mainstem.client.backoff import again_when_throttled, backoff_s
from mainstem.client.channels import Channels
from mainstem.errors import (
    GatewayUnavailableError,
    MainstemError,
    OutcomeUnknownError,
    SessionExpiredError,
)
from mainstem.limits import GATEWAYS_MAX
from mainstem.protocol import error_from_rpc

#: When a gateway has not answered for so long, the next one is asked as well.
_HEDGE_S: Final = 0.3

#: A gateway that failed is asked after all others for so long.
_DOUBTED_S: Final = 10.0

#: A gateway that answers have not named for so long is forgotten when one comes that does not name
#: it: it may only be restarting. A client that asks nothing forgets nothing.
_FORGOTTEN_AFTER_S: Final = 600.0

#: Metadata is asked for again after so long at first, then after twice as long each time, up to
#: metadata.max.age.ms: a gateway that started with the client is known early.
FIRST_REFRESH_S: Final = 2.0

#: A question that had waited for so long when its connection broke is asked once more, over a new
#: one: it was a connection that had died without a word.
_WAITED_S: Final = 1.0

#: The waits before `ask_again` asks again.
_RETRY_S: Final = 0.1
_RETRY_S_MAX: Final = 1.0

#: Given a channel, the method to call: `lambda channel: LogStub(channel).Metadata`.
Method = Callable[[grpc.Channel], Any]


class Gateways:
    """Knows whom to ask, in which order, and asks several at once. Thread-safe.

    Attributes:
        channels: The connections.

    Args:
        servers: bootstrap.servers; never forgotten.
        clock: Monotonic seconds.
    """

    def __init__(
        self, servers: Sequence[str], channels: Channels, clock: Callable[[], float]
    ) -> None:
        self.channels = channels
        self._servers = tuple(dict.fromkeys(servers))
        self._clock = clock
        self._lock = threading.Lock()
        self._named_at: dict[str, float] = {}
        self._failed_at: dict[str, float] = {}
        self._last = ""

    # -------------------------------------------------------------------------------- what is known

    def learn(self, addresses: Iterable[str]) -> None:
        """An answer named the gateways that are alive: at most GATEWAYS_MAX are remembered."""
        named = [one for one in dict.fromkeys(addresses) if one and one not in self._servers]
        forgotten: list[str] = []
        with self._lock:
            now = self._clock()
            for one in named:
                self._named_at.pop(one, None)
                self._named_at[one] = now
            for one, at in list(self._named_at.items()):
                if now - at >= _FORGOTTEN_AFTER_S or len(self._named_at) > GATEWAYS_MAX:
                    del self._named_at[one]
                    self._failed_at.pop(one, None)
                    forgotten.append(one)
        for one in forgotten:
            self.channels.drop(one)

    def order(self) -> list[str]:
        """Every gateway that is known, in the order in which to ask.

        The one that answered last comes first, then the bootstrap servers, then those that were
        named, the latest first; at the end those that failed lately, the longest ago first.
        """
        with self._lock:
            now = self._clock()
            named = sorted(self._named_at, key=lambda one: -self._named_at[one])
            known = dict.fromkeys((*self._servers, *named))
            if self._last in known:
                known = dict.fromkeys((self._last, *known))
            doubted = {one: at for one, at in self._failed_at.items() if now - at < _DOUBTED_S}
            good = [one for one in known if one not in doubted]
            return good + sorted((o for o in known if o in doubted), key=doubted.__getitem__)

    def answered(self, address: str) -> None:
        """It answered: it is the first to be asked."""
        with self._lock:
            self._last = address
            self._failed_at.pop(address, None)

    def doubt(self, address: str) -> None:
        """It failed, or is slow: the others are asked first."""
        with self._lock:
            if address in self._servers or address in self._named_at:
                self._failed_at[address] = self._clock()

    def failed(
        self,
        failure: grpc.RpcError,
        address: str,
        channel: grpc.Channel | None = None,
        waited_s: float = math.inf,
    ) -> MainstemError:
        """A call to `address` failed; returns the error that says so.

        Args:
            channel: Of the call; replaced, if no answer came in time.
            waited_s: How much time it had.
        """
        assert isinstance(failure, grpc.Call)
        code = failure.code()
        hint = "check bootstrap.servers"
        if address not in self._servers:
            hint = (
                f"{address} is what a gateway says of itself: its advertised.listeners, or else "
                "listeners, must be an address that clients reach"
            )
        error = error_from_rpc(failure, hint)
        if isinstance(error, (GatewayUnavailableError, OutcomeUnknownError)):
            self.doubt(address)
        if isinstance(error, SessionExpiredError):
            self.channels.session_over(address, channel)
        if code == grpc.StatusCode.DEADLINE_EXCEEDED and channel is not None:
            self.channels.renew(address, channel, waited_s)
        return error

    # ------------------------------------------------------------------------------------- to ask

    def ask(self, method: Method, request: object, timeout_s: float) -> tuple[Any, str]:
        """The first answer, and who gave it. A gateway that is slow is not waited for: another is
        asked as well. Only for calls that may be made twice.

        Raises:
            GatewayUnavailableError: None answered within `timeout_s`.
            MainstemError: One answered with an error.
        """
        found = self._race(method, request, timeout_s)
        if isinstance(found, MainstemError):
            raise found  # here, where its traceback does not lead to a call
        return found

    def _race(
        self, method: Method, request: object, timeout_s: float
    ) -> tuple[Any, str] | MainstemError:
        ends_at = self._clock() + timeout_s
        waiting = self.order()
        calls: dict[str, tuple[grpc.Channel, Any]] = {}
        ended: SimpleQueue[tuple[str, grpc.Channel, Any]] = SimpleQueue()
        failure: MainstemError | None = None
        silent: list[str] = []
        begun_at: dict[str, float] = {}
        broken: set[str] = set()
        signed_out: set[str] = set()
        next_at = self._clock()
        try:
            while (waiting or calls) and (now := self._clock()) < ends_at:
                if waiting and (not calls or now >= next_at):
                    address = waiting.pop(0)
                    try:
                        calls[address] = self._begin(method, request, address, ends_at - now, ended)
                    except GatewayUnavailableError as closed:
                        failure = closed
                        continue
                    begun_at[address] = now
                    next_at = now + _HEDGE_S
                until = min(next_at, ends_at) if waiting else ends_at
                try:
                    address, channel, call = ended.get(timeout=max(0.001, until - self._clock()))
                except Empty:
                    continue
                del calls[address]
                try:
                    answer = call.result()
                except grpc.RpcError as error:
                    said = self.failed(error, address, channel, timeout_s)
                    if not said.retriable:
                        return said
                    if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                        silent.append(address)
                        continue
                    failure = said
                    if isinstance(said, SessionExpiredError):
                        if address not in signed_out:
                            signed_out.add(address)
                            waiting.insert(0, address)
                            next_at = self._clock()
                        continue
                    if address not in broken and self._clock() - begun_at[address] >= _WAITED_S:
                        broken.add(address)
                        self.channels.renew(address, channel, timeout_s)
                        waiting.append(address)
                except grpc.FutureCancelledError:
                    failure = self._cut_off(address)
                else:
                    self.answered(address)
                    return answer, address
        finally:
            for slow, (_, running) in calls.items():
                self.doubt(slow)
                running.cancel()
        for slow, (channel, _) in calls.items():
            self.channels.renew(slow, channel, timeout_s)
        silent += calls
        return failure or GatewayUnavailableError(
            f"{', '.join(silent)} did not answer within {timeout_s * 1000:.0f} ms"
        )

    def ask_again(self, method: Method, request: object, timeout_s: float) -> Any:
        """As `ask`, again and again where somebody between here and the gateways refuses the call,
        or a gateway does for a quota.

        Raises:
            GatewayUnavailableError: No gateway is reached.
            MainstemError: One answered with an error.
        """
        return again_when_throttled(
            lambda left_s: self._ask_again(method, request, left_s), timeout_s
        )

    def _ask_again(self, method: Method, request: object, timeout_s: float) -> Any:
        ends_at = self._clock() + timeout_s
        failures = 0
        while True:
            try:
                answer, _ = self.ask(method, request, max(0.001, ends_at - self._clock()))
            except OutcomeUnknownError:
                wait_s = backoff_s(_RETRY_S, _RETRY_S_MAX, failures)
                failures += 1
                if self._clock() + wait_s >= ends_at:
                    raise
                time.sleep(wait_s)
            else:
                return answer

    def _begin(
        self,
        method: Method,
        request: object,
        address: str,
        timeout_s: float,
        ended: SimpleQueue[tuple[str, grpc.Channel, Any]],
    ) -> tuple[grpc.Channel, Any]:
        channel = self.channels.get(address)
        try:
            call = method(channel).future(request, timeout=timeout_s)
        except ValueError:  # of gRPC: the channel is closed
            raise self._cut_off(address) from None
        call.add_done_callback(lambda done: ended.put((address, channel, done)))
        return channel, call

    def _cut_off(self, address: str) -> GatewayUnavailableError:
        """The connection was closed here, while or before a call was made over it."""
        if self.channels.closed:
            return GatewayUnavailableError("the client is closed")
        return GatewayUnavailableError(f"the connection to {address} was closed meanwhile; again")
