"""Settings: what exists, with type, default, unit and meaning. Names are Kafka's if it has one."""

from mainstem.config._addresses import split_address
from mainstem.config._amounts import larger_unit, parse_amount, with_unit
from mainstem.config._faults import Faults
from mainstem.config._gateway import (
    GATEWAY_KEYS,
    GatewayConfig,
    Setting,
    load_gateway_config,
)
from mainstem.config._intervals import interval_ms
from mainstem.config._keys import (
    ConfigKey,
    ConfigType,
    ConfigValue,
    format_value,
    keys_by_name,
    nearest_name,
    parse_value,
    unknown_setting,
)
from mainstem.config._store import STORE_KEYS, StoreSettings
from mainstem.config._toml import read_toml
from mainstem.config._topic import TOPIC_KEYS, TopicConfig

__all__ = [
    "GATEWAY_KEYS",
    "STORE_KEYS",
    "TOPIC_KEYS",
    "ConfigKey",
    "ConfigType",
    "ConfigValue",
    "Faults",
    "GatewayConfig",
    "Setting",
    "StoreSettings",
    "TopicConfig",
    "format_value",
    "interval_ms",
    "keys_by_name",
    "larger_unit",
    "load_gateway_config",
    "nearest_name",
    "parse_amount",
    "parse_value",
    "read_toml",
    "split_address",
    "unknown_setting",
    "with_unit",
]
