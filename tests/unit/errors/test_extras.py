"""A package whose extra is not installed says so in a sentence."""

from __future__ import annotations

import subprocess
import sys

PACKAGES = {
    "mainstem.metrics": "prometheus_client",
    "mainstem.delta_log": "google_crc32c",
    "mainstem.ingest_gateway": "structlog",
    "mainstem.jobs": "google_crc32c",
    "pyspark_mainstem": "pyspark",
}

# Imports each package while what the extras install is refused, as if it were not installed.
CODE = f"""
import importlib, sys
blocked = {sorted({*PACKAGES.values(), "deltalake", "click", "rich"})!r}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
for package in {sorted(PACKAGES)!r}:
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        print(error)
"""


def test_every_package_of_an_extra_says_what_to_install() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True
    )
    told = answer.stdout.splitlines()
    assert len(told) == len(PACKAGES), answer.stdout
    for package, line in zip(sorted(PACKAGES), told, strict=True):
        assert line.startswith(f"{package}: this needs the package "), line
        assert "pip install 'mainstem[" in line
