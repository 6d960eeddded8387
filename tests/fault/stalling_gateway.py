"""A real gateway whose store stalls for one topic while a file exists.

Usage: python stalling_gateway.py WAREHOUSE STALL_FILE [KEY=VALUE]...
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import uvloop

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.unit.delta_log.faults import FaultyStore

from mainstem.config import load_gateway_config
from mainstem.delta_log import LocalStore
from mainstem.ingest_gateway import configure_logging, serve

STALLED_TOPIC = "stalled"


def main() -> None:
    warehouse, stall_file, *settings = sys.argv[1:]
    stall = Path(stall_file)

    def wait(call: str, path: str) -> None:
        while call.startswith("put") and f"topics/{STALLED_TOPIC}/" in path and stall.exists():
            time.sleep(0.02)

    flags: dict[str, object] = {"warehouse": warehouse, "listeners": "127.0.0.1:0"}
    for setting in settings:
        name, _, value = setting.partition("=")
        flags[name] = value
    config = load_gateway_config(environment={}, flags=flags)
    configure_logging(config)
    store = FaultyStore(LocalStore(warehouse), before=wait)
    uvloop.run(serve(config, lambda address: print(f"listening on {address}", flush=True), store))


if __name__ == "__main__":
    main()
