"""Every public name and method of the libraries that programs come from is there, or refused."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

OURS = {"confluent_kafka": "confluent", "aiokafka": "aiokafka"}

#: By library and its version, by module, the names, and of classes the methods.
NAMES = json.loads(Path(__file__).with_name("kafka_api_names.json").read_text())

MODULES = [
    (f"mainstem.compat.{OURS[root]}.{rest}".rstrip("."), names)
    for modules in NAMES.values()
    for module, names in modules.items()
    for root, _, rest in [module.partition(".")]
]


@pytest.mark.parametrize(("module", "names"), MODULES, ids=[module for module, _ in MODULES])
def test_every_name_can_be_imported_or_says_why_not(module: str, names: dict[str, str]) -> None:
    ours = importlib.import_module(module)
    refused = getattr(ours, "REFUSED", {})
    missing = []
    for name, methods in names.items():
        found = None if name in refused else getattr(ours, name, None)
        if found is None and name not in refused:
            missing.append(name)
        elif found is not None:
            missing += [f"{name}.{one}" for one in methods.split() if not hasattr(found, one)]
    assert missing == []
