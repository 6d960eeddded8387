"""Settings: what exists, with type, default, unit and meaning. Names are Kafka's wherever Kafka has one."""

from mainstem.config._keys import (
    ConfigKey,
    ConfigType,
    ConfigValue,
    format_value,
    nearest_name,
    parse_value,
    unknown_setting,
)
from mainstem.config._topic import TOPIC_KEYS, TopicConfig

__all__ = [
    "TOPIC_KEYS",
    "ConfigKey",
    "ConfigType",
    "ConfigValue",
    "TopicConfig",
    "format_value",
    "nearest_name",
    "parse_value",
    "unknown_setting",
]
