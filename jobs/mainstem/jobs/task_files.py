"""The data files that a job's tasks write, until their commit. Shared by the jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from mainstem.delta_log.actions import DataFile
from mainstem.delta_log.store import NotFound, Store
from mainstem.errors import LogDamagedError, MainstemError


def check_present(store: Store, files: Iterable[DataFile]) -> None:
    """Nothing that is not there becomes part of the table.

    A run may take long; what is written and not committed is protected from vacuum by its age only.

    Raises:
        LogDamagedError: A file is gone.
    """
    for file in files:
        try:
            store.open(file.path).close()
        except NotFound as error:
            raise LogDamagedError(
                f"{file.path}, which a job's task wrote, is gone before its commit: vacuum keeps "
                "new files for too short a time; nothing was done",
                file=file.path,
            ) from error


def delete_files(store: Store, files: Iterable[DataFile]) -> None:
    """Removes files that were never part of the table. What cannot be removed is for vacuum."""
    for file in files:
        with contextlib.suppress(MainstemError):
            store.delete(file.path)
