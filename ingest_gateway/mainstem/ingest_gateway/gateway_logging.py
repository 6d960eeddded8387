"""What a gateway, and a scheduler of jobs, write to their log.

**No line shows the variables of a program.** They hold records and secrets; and to print them takes
the event loop a second where they are large.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog

from mainstem.config import GatewayConfig

_FRAMES: Final = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)

#: Libraries whose lines below a warning say nothing of us: each call of gRPC, of a JVM.
_NOISY: Final = ("grpc", "asyncio", "py4j", "pyspark", "urllib3")


def configure_logging(config: GatewayConfig) -> None:
    """structlog to stderr, for people or as JSON; the standard library's loggers too.

    What the settings are warned of are the first lines.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.ExtraAdder(),
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor] = (
        [structlog.processors.ExceptionRenderer(_FRAMES), structlog.processors.JSONRenderer()]
        if config.text("log.format") == "json"
        else [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(handlers=[handler], force=True)
    set_log_level(config)
    structlog.configure(
        processors=[
            # The standard library's level, which may change; a logger keeps all else for good.
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    for warning in config.warnings:
        structlog.get_logger().warning(warning)


def set_log_level(config: GatewayConfig) -> None:
    """Writes lines from `log.level` on, from now on."""
    level: int = getattr(logging, config.text("log.level").upper())
    logging.getLogger().setLevel(level)
    for library in _NOISY:
        logging.getLogger(library).setLevel(max(level, logging.WARNING))
