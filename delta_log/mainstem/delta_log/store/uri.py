"""From a warehouse's URI, as users write it, to its `Store`."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from mainstem.delta_log.store.local import LocalStore
from mainstem.delta_log.store.object_store import NotFound, Store
from mainstem.errors import InvalidConfigError, StoreUnavailableError


def open_store(uri: str | os.PathLike[str], *, create: bool = False) -> Store:
    """The store at `uri`: a local path, or a `file:` URI.

    Args:
        create: Make the directory when it is not there; a reader does not.

    Raises:
        InvalidConfigError: The URI has a scheme that is not supported.
        StoreUnavailableError: There is nothing, or it cannot be opened.
    """
    path = os.fspath(uri)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path):
        parts = urlsplit(path)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise InvalidConfigError(
                f"the warehouse {path} is neither a local path nor a file: URI; other stores are "
                "not supported yet",
                name="warehouse",
                value=path,
            )
        path = unquote(parts.path)
    try:
        return LocalStore(path, create=create)
    except NotFound as error:
        raise StoreUnavailableError(
            f"there is no warehouse at {path}: the directory does not exist", path=path
        ) from error
