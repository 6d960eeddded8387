"""aiokafka's keyword arguments as settings by Kafka's names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mainstem.compat.aiokafka.errors import from_mainstem
from mainstem.compat.aiokafka.helpers import SSLFiles
from mainstem.compat.aiokafka.tokens import oauth_cb_of
from mainstem.errors import MainstemError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CONNECTION: Final = _words(
    "client_id metadata_max_age_ms request_timeout_ms api_version retry_backoff_ms "
    "security_protocol ssl_context connections_max_idle_ms sasl_mechanism sasl_plain_password "
    "sasl_plain_username sasl_kerberos_service_name sasl_kerberos_domain_name "
    "sasl_oauth_token_provider"
)
PRODUCER: Final = _CONNECTION | _words(
    "acks compression_type max_batch_size partitioner max_request_size linger_ms "
    "enable_idempotence transactional_id transaction_timeout_ms"
)
CONSUMER: Final = _CONNECTION | _words(
    "group_id group_instance_id fetch_max_wait_ms fetch_max_bytes fetch_min_bytes "
    "max_partition_fetch_bytes auto_offset_reset enable_auto_commit auto_commit_interval_ms "
    "check_crcs partition_assignment_strategy max_poll_interval_ms rebalance_timeout_ms "
    "session_timeout_ms heartbeat_interval_ms consumer_timeout_ms max_poll_records "
    "exclude_internal_topics isolation_level client_rack"
)
ADMIN: Final = _CONNECTION

#: Arguments that change nothing here.
_IDLE: Final = frozenset({"api_version", "rebalance_timeout_ms", "consumer_timeout_ms"})

#: Values that say what is so without them.
_DEFAULTS: Final = {"sasl_kerberos_service_name": "kafka"}

_NAMES: Final = {
    "max_batch_size": "batch.size",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
}

_ASSIGNORS: Final = {
    "RoundRobinPartitionAssignor": "roundrobin",
    "RangePartitionAssignor": "range",
    "StickyPartitionAssignor": "sticky",
}


def settings_of(
    known: frozenset[str], bootstrap_servers: str | list[str], keywords: Mapping[str, Any]
) -> dict[str, object]:
    """The settings that the arguments stand for; what is None is not set.

    Raises:
        TypeError: An argument that aiokafka does not have either.
        ValueError: sasl_oauth_token_provider is none.
    """
    settings: dict[str, object] = {"bootstrap.servers": bootstrap_servers}
    signs_in = str(keywords.get("security_protocol")).upper().startswith("SASL")
    for name, value in keywords.items():
        if name not in known:
            raise TypeError(f"__init__() got an unexpected keyword argument {name!r}")
        if value is None or name in _IDLE or _DEFAULTS.get(name) == value:
            continue
        if name == "sasl_mechanism" and value == "PLAIN" and not signs_in:
            continue  # aiokafka's default
        if name == "ssl_context":
            if not isinstance(value, SSLFiles):
                raise TypeError(
                    f"ssl_context is a {type(value).__name__}; gRPC reads PEM files: give what "
                    "mainstem.compat.aiokafka.helpers.create_ssl_context returns"
                )
            settings |= value.settings()
            continue
        if name == "sasl_oauth_token_provider":
            settings["oauth_cb"] = oauth_cb_of(value)
            continue
        if name == "partition_assignment_strategy":
            names = [getattr(one, "__name__", str(one)) for one in value]
            value = [_ASSIGNORS.get(one, one) for one in names]
        settings[_NAMES.get(name, name.replace("_", "."))] = value
    return settings


def with_defaults(defaults: Mapping[str, Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments; one that is None, as in a program that passes its own on, is not given."""
    return {**defaults, **{name: value for name, value in keywords.items() if value is not None}}


def check_function(function: object, name: str) -> None:
    """Refuses what cannot be called.

    Raises:
        TypeError: It is no function, and not None.
    """
    if function is not None and not callable(function):
        raise TypeError(f"{name} is a {type(function).__name__}; it must be a function")


def no_pickle(client: object) -> TypeError:
    """The error for a client that is to be sent to another process."""
    name = type(client).__name__
    return TypeError(f"an {name} has tasks and connections: make one in each process")


@contextlib.contextmanager
def their_errors() -> Iterator[None]:
    """Raises our errors in aiokafka's words."""
    try:
        yield
    except MainstemError as error:
        raise from_mainstem(error) from error
