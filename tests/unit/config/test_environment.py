"""Environment variables that are settings of the gateway, and those that only look like one."""

from __future__ import annotations

import pytest

from mainstem.config import load_gateway_config

SERVICE_LINKS = {
    "MAINSTEM_PORT": "tcp://10.0.0.1:9490",
    "MAINSTEM_SERVICE_HOST": "10.0.0.1",
    "MAINSTEM_SERVICE_PORT": "9490",
    "MAINSTEM_SERVICE_PORT_GRPC": "9490",
    "MAINSTEM_PORT_9490_TCP": "tcp://10.0.0.1:9490",
    "MAINSTEM_PORT_9490_TCP_PROTO": "tcp",
    "MAINSTEM_PORT_9490_TCP_PORT": "9490",
    "MAINSTEM_PORT_9490_TCP_ADDR": "10.0.0.1",
    "MAINSTEM_GATEWAY_SERVICE_HOST": "10.0.0.2",
    "MAINSTEM_GATEWAY_PORT": "tcp://10.0.0.2:9490",
    "MAINSTEM_GATEWAY_METRICS_PORT_9491_UDP_ADDR": "10.0.0.2",
    "MAINSTEM_LISTENERS_PORT": "tcp://[fd00::1]:9490",
}


def test_all_links_of_kubernetes_services_are_ignored_with_one_warning() -> None:
    config = load_gateway_config(environment=SERVICE_LINKS)
    assert config.settings == load_gateway_config(environment={}).settings
    (warning,) = config.warnings
    assert all(variable in warning for variable in SERVICE_LINKS)
    assert "enableServiceLinks: false" in warning


@pytest.mark.parametrize("variable", SERVICE_LINKS)
def test_a_single_link_of_a_kubernetes_service_is_ignored_with_a_warning(variable: str) -> None:
    (warning,) = load_gateway_config(environment={variable: SERVICE_LINKS[variable]}).warnings
    assert variable in warning
    assert "Kubernetes" in warning


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MAINSTEM_NUM_PARTITION", "3", "did you mean num.partitions, which is"),
        ("MAINSTEM_WAREHOUS", "/data", "MAINSTEM_WAREHOUSE"),
        ("MAINSTEM_METRICS_PORT", "9491", "there is no setting 'metrics.port'"),
        ("MAINSTEM_LOG_DIRS", "/data", "log.dirs is not supported: the log is the Delta tables"),
        ("MAINSTEM_HOME", "/opt/mainstem", "MAINSTEM_HOME is ignored"),
        ("MAINSTEM_VERSION", "1.2", "MAINSTEM_VERSION is ignored"),
        ("MAINSTEM_OPTS", "", "MAINSTEM_OPTS is ignored"),
        ("MAINSTEM_", "", "MAINSTEM_ is ignored"),
    ],
)
def test_a_variable_that_is_no_setting_is_a_warning_with_the_nearest_and_not_an_error(
    variable: str, value: str, said: str
) -> None:
    config = load_gateway_config(environment={variable: value})
    (warning,) = config.warnings
    assert said in warning
    assert "Kubernetes" not in warning
    assert config.settings == load_gateway_config(environment={}).settings


def test_variables_that_are_settings_or_read_elsewhere_are_not_warned_of() -> None:
    environment = {"MAINSTEM_NUM_PARTITIONS": "3", "MAINSTEM_JOBS": "jobs.toml", "HOME": "/root"}
    environment |= {"MAINSTEM_SASL_PASSWORD": "x", "MAINSTEM_USER_PASSWORD": "x"}
    config = load_gateway_config(environment=environment)
    assert config.warnings == ()
    assert config.number("num.partitions") == 3
    assert config.settings["num.partitions"].origin == "MAINSTEM_NUM_PARTITIONS"
