"""Settings in the environment: `MAINSTEM_MESSAGE_MAX_BYTES`, and names that only look like one."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from mainstem.config._keys import unknown_setting
from mainstem.errors import InvalidConfigError

ENVIRONMENT_PREFIX: Final = "MAINSTEM_"

#: Environment variables with the prefix that are read elsewhere.
_OTHER_VARIABLES: Final = frozenset(
    {
        "MAINSTEM_CONFIG",
        "MAINSTEM_PROFILE",
        "MAINSTEM_PROFILES",
        "MAINSTEM_FORMAT",
        "MAINSTEM_TIMEOUT",
        "MAINSTEM_BOOTSTRAP_SERVERS",
        "MAINSTEM_JOBS",
        "MAINSTEM_SASL_PASSWORD",
        "MAINSTEM_USER_PASSWORD",
        "MAINSTEM_PURE_PYTHON",
        "MAINSTEM_TEST_SEED",
    }
)

#: What Kubernetes, and Docker's links, set in each container for each Service, here for one called
#: `mainstem` or `mainstem-...`. Only the URL, `..._PORT`, could be what somebody has set by hand.
_SERVICE_LINK: Final = re.compile(
    r"MAINSTEM_(\w+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL: Final = re.compile(r"(tcp|udp|sctp)://\S+")


def settings_in_environment(
    environment: Mapping[str, str], known: Collection[str], unsupported: Mapping[str, str]
) -> tuple[list[tuple[str, str, str]], tuple[str, ...]]:
    """The settings among the variables, and what to warn of.

    Args:
        known: The names of the settings that exist.
        unsupported: Names that Kafka has and we lack, with the reason.

    Returns:
        Variable, setting and value of each; and a sentence for each variable with our prefix that
        is no setting, with the nearest one. The links of Kubernetes share one sentence.
    """
    found: list[tuple[str, str, str]] = []
    links: list[str] = []
    warnings: list[str] = []
    for variable, value in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _OTHER_VARIABLES:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
        if name in known:
            found.append((variable, name, value))
        elif _is_service_link(variable, value):
            links.append(variable)
        else:
            warnings.append(f"{variable} is ignored: {_why(name, known, unsupported)}")
    if links:
        warnings.append(
            f"{', '.join(links)}: ignored, as Kubernetes sets them for a Service whose name begins "
            "with `mainstem`; `enableServiceLinks: false` in the pod's spec leaves them out"
        )
    return found, tuple(warnings)


def _is_service_link(variable: str, value: str) -> bool:
    if _SERVICE_LINK.fullmatch(variable):
        return True
    return variable.endswith("_PORT") and _SERVICE_URL.fullmatch(value) is not None


def _why(name: str, known: Collection[str], unsupported: Mapping[str, str]) -> str:
    error: InvalidConfigError = unknown_setting(name, known, unsupported)
    nearest = error.facts.get("nearest")
    if not nearest:
        return error.message
    variable = ENVIRONMENT_PREFIX + str(nearest).upper().replace(".", "_")
    return f"there is no setting {name!r}; did you mean {nearest}, which is {variable}?"
