"""What comes into the log when something fails that nobody expected."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from mainstem.config import load_gateway_config
from mainstem.ingest_gateway import configure_logging

RECORD, SECRET = b"a customer's address", "top secret"


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def _fails(value: bytes, password: str) -> None:
    copy = {"sent": [value] * 1_000, "with": password}
    raise ValueError(f"a bug with {len(copy)} things")


@pytest.mark.parametrize("log_format", ["console", "json"])
@pytest.mark.parametrize("library", ["logging", "structlog"])
def test_a_traceback_shows_where_and_what_but_no_record_and_no_secret(
    capsys: pytest.CaptureFixture[str], log_format: str, library: str
) -> None:
    configure_logging(load_gateway_config(None, {}, {"log.format": log_format}))
    try:
        _fails(RECORD, SECRET)
    except ValueError:
        if library == "logging":
            logging.getLogger("a.module").exception("the request failed")
        else:
            structlog.get_logger().error("the request failed", exc_info=True)
    said = capsys.readouterr().err
    assert "the request failed" in said
    assert "_fails" in said
    assert "a bug with 2 things" in said
    assert "customer" not in said
    assert SECRET not in said
    if log_format == "json":
        assert json.loads(said)["exception"][0]["exc_type"] == "ValueError"


def test_facts_of_a_library_are_fields_and_its_noise_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(load_gateway_config(None, {}, {"log.format": "json", "log.level": "debug"}))
    logging.getLogger("mainstem.delta_log").warning("no", extra={"topic": "t", "errno": "ENOSPC"})
    for library in ("grpc._cython.cygrpc", "asyncio", "py4j.clientserver"):
        logging.getLogger(library).debug("noise")
        logging.getLogger(library).info("noise")
    structlog.get_logger().debug("ours")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["event"], first["topic"], first["errno"]) == ("no", "t", "ENOSPC")
    assert second["event"] == "ours"
