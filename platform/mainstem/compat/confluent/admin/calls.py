"""What every call of AdminClient does: check its arguments, run in a thread, give futures."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NoReturn, Self, TypeVar

from mainstem import client
from mainstem.compat.confluent.configuration import (
    Configuration,
    in_kafkas_words,
    kafka_exceptions,
    no_pickle,
)
from mainstem.compat.confluent.error import refused
from mainstem.errors import ConfigError, MainstemError

T = TypeVar("T")

TIMEOUT_S: Final = 30.0


class Calls:
    """A client of the gateways, and threads that wait for its answers."""

    def __init__(self, conf: Mapping[str, Any], /, **keywords: Any) -> None:
        configuration = Configuration(conf, keywords, own=())
        try:
            self._admin = client.AdminClient(configuration.settings)
        except ConfigError as error:
            raise in_kafkas_words(error) from error
        self._threads = ThreadPoolExecutor(2, "mainstem-admin")
        # There is no close() in confluent-kafka: it ends with the last reference.
        self._finalizer = weakref.finalize(self, _end, self._threads, self._admin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._finalizer()

    def __len__(self) -> int:
        """0: nothing waits to be polled for."""
        return 0

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> NoReturn:
        raise no_pickle(self)

    def _start(self, work: Callable[..., T], *args: Any) -> Future[T]:
        def run() -> T:
            with kafka_exceptions():
                try:
                    return work(*args)
                except (ValueError, TypeError) as error:
                    raise refused("_INVALID_ARG", str(error)) from error

        return self._threads.submit(run)

    def _start_together(
        self, work: Callable[[], Any], keys: Iterable[Any], one: Callable[[Any, Any], Any]
    ) -> dict[Any, Future[Any]]:
        """One call whose answer has a part for each key."""
        pairs: list[tuple[Any, Future[Any]]] = [(key, Future()) for key in keys]
        for _, future in pairs:
            future.set_running_or_notify_cancel()

        def spread(done: Future[Any]) -> None:
            for key, future in pairs:
                try:
                    with kafka_exceptions():
                        answer = one(done.result(), key)
                except BaseException as error:  # CancelledError too: somebody waits for each
                    future.set_exception(error)
                else:
                    future.set_result(answer)

        self._start(work).add_done_callback(spread)
        return dict(pairs)


def _end(threads: ThreadPoolExecutor, admin: client.AdminClient) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    admin.close()


def options(kwargs: Mapping[str, Any]) -> tuple[float, bool]:
    """request_timeout in seconds, and validate_only.

    Raises:
        TypeError: Another option.
    """
    known = {
        "request_timeout",
        "operation_timeout",
        "validate_only",
        "broker",
        "include_authorized_operations",
        "require_stable",
        "isolation_level",
    }
    unknown = kwargs.keys() - known
    if unknown:
        raise TypeError(f"there is no option {min(unknown)!r}")
    timeout = kwargs.get("request_timeout")
    timeout_s = TIMEOUT_S if timeout is None or timeout < 0 else float(timeout)
    return timeout_s, bool(kwargs.get("validate_only"))


def list_of(values: object, kind: type) -> None:
    """Checks that there is a list of `kind`, which is not empty.

    Raises:
        TypeError: It is something else.
        ValueError: It is empty.
    """
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError(f"expected a non-empty list of {kind.__name__}")
    if not values:
        raise ValueError(f"expected a non-empty list of {kind.__name__}")
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}, not {type(value).__name__}")


def value(found: T | MainstemError) -> T:
    """The answer for one target.

    Raises:
        MainstemError: It is an error.
    """
    if isinstance(found, MainstemError):
        raise found
    return found
