"""What the adapters take out of a configuration, and the statistics that they report."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from mainstem.compat.confluent.error import KafkaError, KafkaException, from_mainstem, refused
from mainstem.errors import ConfigError, MainstemError

LOG: Final = logging.getLogger("mainstem.client")

_CALLBACKS: Final = ("error_cb", "stats_cb", "throttle_cb", "on_delivery", "on_commit")


class Configuration:
    """A program's dictionary, without what the adapter does by itself.

    Attributes:
        settings: For mainstem.client.
        error_cb, stats_cb, on_delivery, on_commit: Functions, or None.

    Raises:
        TypeError: It is no dictionary, or a callback cannot be called.
    """

    def __init__(
        self, config: object, keywords: Mapping[str, object], *, own: tuple[str, ...]
    ) -> None:
        if config is None and keywords:
            config = {}
        if not isinstance(config, Mapping):
            raise TypeError("expected configuration dict")
        settings: dict[str, object] = {str(n): v for n, v in config.items()}
        settings.update(keywords)
        for nested in ("default.topic.config",):
            inner = settings.pop(nested, None)
            if isinstance(inner, Mapping):
                settings = {**{str(n): v for n, v in inner.items()}, **settings}
        functions: dict[str, Any] = {}
        for name in _CALLBACKS:
            found = settings.pop(name, None)
            if found is not None and not callable(found):
                raise TypeError(f"expected {name} property as a callable function")
            functions[name] = found
        self.error_cb: Callable[[KafkaError], object] | None = functions["error_cb"]
        self.on_delivery: Callable[..., object] | None = functions["on_delivery"]
        self.on_commit: Callable[..., object] | None = functions["on_commit"]
        self.own: dict[str, object] = {name: settings.pop(name, None) for name in own}
        self.settings = settings
        self.statistics = Statistics(
            functions["stats_cb"],
            float(str(settings.pop("statistics.interval.ms", None) or 0)) / 1000,
            str(settings.get("client.id") or "mainstem"),
        )
        logger = settings.pop("logger", None)
        if logger is not None:
            forward_logs(logger)

    def own_bool(self, name: str, default: bool) -> bool:
        """One of the adapter's own settings, true or false."""
        value = self.own.get(name)
        if value is None:
            return default
        word = str(value).strip().lower()
        if word not in ("true", "1", "t", "false", "0", "f"):
            raise refused("_INVALID_ARG", f"{name} is {value!r}; it must be true or false")
        return word in ("true", "1", "t")

    def own_int(self, name: str, default: int) -> int:
        """One of the adapter's own settings, a number."""
        value = self.own.get(name)
        if value is None:
            return default
        try:
            return int(str(value))
        except ValueError:
            raise refused("_INVALID_ARG", f"{name} is {value!r}; it must be a number") from None

    def tell_error(self, error: MainstemError) -> None:
        """Calls error_cb, if there is one."""
        if self.error_cb is not None:
            self.error_cb(from_mainstem(error))


def seconds(timeout: float | None) -> float | None:
    """A timeout as mainstem.client takes it; None: without end.

    Raises:
        TypeError: It is no number.
    """
    if timeout is None:
        return None
    if not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout is a {type(timeout).__name__}; it must be a number of seconds")
    return None if timeout < 0 else timeout


def no_pickle(client: object) -> TypeError:
    """The error for a client that is to be sent to another process."""
    name = type(client).__name__
    return TypeError(f"a {name} has threads and connections: make one in each process")


def in_kafkas_words(error: ConfigError) -> KafkaException:
    """A wrong configuration."""
    return refused("_INVALID_ARG", error.message)


class Statistics:
    """Calls stats_cb with a JSON text every statistics.interval.ms, inside poll() and flush()."""

    def __init__(self, callback: Callable[[str], object] | None, interval_s: float, name: str):
        self._callback = callback if interval_s > 0 else None
        self._interval_s = interval_s
        self._name = name
        self._started = self._last = time.monotonic()

    @property
    def wanted(self) -> bool:
        """There is somebody to report to."""
        return self._callback is not None

    def due_in_s(self, wait_s: float | None) -> float | None:
        """How long to wait at most, so that a report is not late; None: without end."""
        if self._callback is None:
            return wait_s
        left_s = max(0.0, self._last + self._interval_s - time.monotonic())
        return left_s if wait_s is None else min(wait_s, left_s)

    def report(self, kind: str, collect: Callable[[], dict[str, object]]) -> int:
        """Reports if it is time to; returns how many callbacks were called."""
        now = time.monotonic()
        if self._callback is None or now - self._last < self._interval_s:
            return 0
        self._last = now
        found = {
            "name": self._name,
            "client_id": self._name,
            "type": kind,
            "ts": int(now * 1_000_000),
            "time": int(time.time()),
            "age": int((now - self._started) * 1_000_000),
            **collect(),
        }
        self._callback(json.dumps(found))
        return 1


class _Forward(logging.Handler):
    """Hands the client's log to the logger that a program gave."""

    def __init__(self, target: logging.Logger) -> None:
        super().__init__()
        self.target = target

    def emit(self, record: logging.LogRecord) -> None:
        if self.target.isEnabledFor(record.levelno):
            self.target.handle(record)


def forward_logs(logger: object) -> None:
    """Lets `logger` have what the client logs, once, unless it has it as a parent already."""
    if not isinstance(logger, logging.Logger):
        raise TypeError("expected logger property as a logging.Logger")
    parent: logging.Logger | None = LOG
    while parent is not None:
        if parent is logger:
            return
        parent = parent.parent
    if not any(isinstance(one, _Forward) and one.target is logger for one in LOG.handlers):
        LOG.addHandler(_Forward(logger))


@contextlib.contextmanager
def kafka_exceptions() -> Any:
    """Raises our errors as KafkaException."""
    try:
        yield
    except MainstemError as error:
        raise KafkaException(from_mainstem(error)) from error
