"""AdminClient's calls about settings of topics."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from mainstem.compat.confluent.admin.calls import Calls, list_of, options
from mainstem.compat.confluent.admin.model import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from mainstem.compat.confluent.error import refused
from mainstem.compat.topic_settings import IDLE, taken


class ConfigCalls(Calls):
    """Settings of topics."""

    def describe_configs(
        self, resources: Sequence[ConfigResource], **kwargs: Any
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Settings of topics, by name."""
        list_of(resources, ConfigResource)
        timeout_s, _ = options(kwargs)

        def describe(resource: ConfigResource) -> dict[str, ConfigEntry]:
            found = self._admin.describe_topic(_topic_of(resource), timeout_s)
            return {
                one.name: ConfigEntry(
                    one.name,
                    one.value,
                    ConfigSource.DEFAULT_CONFIG
                    if one.is_default
                    else ConfigSource.DYNAMIC_TOPIC_CONFIG,
                    is_default=one.is_default,
                )
                for one in found.config
            }

        return {resource: self._start(describe, resource) for resource in resources}

    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], **kwargs: Any
    ) -> dict[ConfigResource, Future[None]]:
        """Sets some settings of topics, and puts others back to their defaults."""
        list_of(resources, ConfigResource)
        timeout_s, only = options(kwargs)

        def alter(resource: ConfigResource) -> None:
            changes: dict[str, object] = {}
            back = []
            for entry in resource.incremental_configs:
                if entry.incremental_operation is AlterConfigOpType.SET:
                    changes[entry.name] = entry.value
                elif entry.incremental_operation is AlterConfigOpType.DELETE:
                    back.append(entry.name)
                else:
                    raise refused(
                        "_NOT_IMPLEMENTED",
                        f"{entry.name}: only SET and DELETE are there; SET the whole list",
                    )
            back = [name for name in back if name not in IDLE]
            topic, wanted = _topic_of(resource), taken(changes)
            if wanted or back:
                self._admin.alter_config(topic, wanted, back, only, timeout_s)

        return {resource: self._start(alter, resource) for resource in resources}

    def alter_configs(
        self, resources: Sequence[ConfigResource], **kwargs: Any
    ) -> dict[ConfigResource, Future[None]]:
        """Sets all settings of topics: what is not named goes back to its default."""
        list_of(resources, ConfigResource)
        timeout_s, only = options(kwargs)

        def alter(resource: ConfigResource) -> None:
            topic = _topic_of(resource)
            now = self._admin.describe_topic(topic, timeout_s).config
            back = [
                one.name
                for one in now
                if not one.is_default and one.name not in resource.set_config_dict
            ]
            wanted = taken(resource.set_config_dict)
            if wanted or back:
                self._admin.alter_config(topic, wanted, back, only, timeout_s)

        return {resource: self._start(alter, resource) for resource in resources}


def _topic_of(resource: ConfigResource) -> str:
    if resource.restype is not ResourceType.TOPIC:
        raise refused(
            "_NOT_IMPLEMENTED",
            f"{resource}: only topics have settings that change while a gateway runs; a gateway's "
            "are in its file",
        )
    return resource.name
