"""The names in a SQL statement: topics, and tables that SQL created below `<warehouse>/tables`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mainstem.delta_log.store import CloudPrefix, LocalDirectory
from mainstem.jobs.sql_guard import SqlError, overlap
from mainstem.jobs.tables import TopicViews, quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Beside `topics` and `system` in a warehouse.
TABLES: Final = "tables"

#: What is not SQL's in a warehouse.
_PLATFORMS: Final = ("topics", "system", "wal", "streams")

_PART: Final = re.compile(r"`((?:[^`]|``)*)`")


class SqlTables:
    """Makes names known to Spark when a statement uses them, so that none that it does not use can
    stop it.

    Args:
        warehouse: Where it is.

    Attributes:
        directory: Where tables are kept that SQL created; None: an object storage service has none.
        database: What Spark calls the database of these tables.
    """

    def __init__(
        self, spark: SparkSession, warehouse: LocalDirectory | CloudPrefix, topics: TopicViews
    ) -> None:
        self._spark = spark
        self._topics = topics
        self.directory: Path | None = None
        if isinstance(warehouse, LocalDirectory):
            self.directory = Path(os.path.realpath(warehouse.path)) / TABLES
        told = str(self.directory or warehouse.uri)
        self.database = "tables_" + hashlib.sha256(told.encode()).hexdigest()[:8]

    @property
    def _kept(self) -> Path:
        assert self.directory is not None
        return self.directory

    def path(self, name: str) -> Path:
        """Where the table of that name is kept, or would be."""
        return self._kept / name.lower()

    def names(self) -> list[str]:
        """The tables that SQL created, in lower case."""
        if self.directory is None:
            return []
        with contextlib.suppress(OSError):
            return sorted(
                one.name
                for one in self.directory.iterdir()
                if not one.name.startswith(".")
                and any((one / "_delta_log").glob("*.json"))
                and not self._is_the_platforms(one)
            )
        return []

    def _is_the_platforms(self, place: Path) -> bool:
        """A link from here into the rest of the warehouse leads to a topic, not to a table."""
        return any(overlap(str(place), str(self._kept.parent / one)) for one in _PLATFORMS)

    def is_topic(self, name: str) -> bool:
        """Whether a statement that says `name` means a topic."""
        return self.topic(name) is not None

    def topic(self, name: str) -> str | None:
        """The topic that a statement means by `name`; None: it means a table."""
        return self._topics.by_view.get(name.lower())

    @contextlib.contextmanager
    def in_use(self, *, create: bool) -> Iterator[None]:
        """Names without a database are of these tables, and new ones are kept here.

        Args:
            create: Also make the directory when it is not there.
        """
        if self.directory is None or (not create and not self.directory.is_dir()):
            yield
            return
        if self._is_the_platforms(self.directory):
            raise SqlError(f"{self.directory} is a link into the platform's own directories")
        self._spark.sql(
            f"CREATE DATABASE IF NOT EXISTS {self.database} LOCATION "
            f"'{_literal(self.directory.as_uri())}'"
        )
        before = self._spark.catalog.currentDatabase()
        provider = self._spark.conf.get("spark.sql.sources.default")
        self._spark.catalog.setCurrentDatabase(self.database)
        self._spark.conf.set("spark.sql.sources.default", "delta")
        try:
            yield
        finally:
            self._spark.catalog.setCurrentDatabase(before)
            if provider is not None:
                self._spark.conf.set("spark.sql.sources.default", provider)

    def attach_missing(self, error: Any) -> str | None:
        """Makes known what Spark did not find, if it is here; returns its name.

        Raises:
            MainstemError: It is a topic that cannot be read.
        """
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            return None
        shown = (error.getMessageParameters() or {}).get("relationName", "")
        parts = [part.replace("``", "`") for part in _PART.findall(shown)]
        if not parts or (len(parts) > 1 and parts[-2] != self.database):
            return None
        return parts[-1] if self.attach(parts[-1]) else None

    def attach(self, name: str) -> bool:
        """Makes a name known; False: there is neither a topic nor a table of that name.

        Raises:
            MainstemError: It is a topic that cannot be read.
        """
        topic = self.topic(name)
        if topic is not None:
            self._topics.register(topic)
            return True
        if name.lower() not in self.names():
            return False
        known = f"{self.database}.{quote(name.lower())}"
        if not self._spark.catalog.tableExists(known):
            place = (self._kept / name.lower()).as_uri()
            self._spark.sql(f"CREATE TABLE {known} USING delta LOCATION '{_literal(place)}'")
        return True

    def pin_topics(self) -> None:
        """Has the topics that are known be read at versions with whole transactions only.

        Raises:
            MainstemError: See `whole_versions`.
        """
        self._topics.pin(self._topics.made)

    def attach_all(self) -> list[str]:
        """Makes every name known; returns why one is left out."""
        notes = [f"topic {name} is left out: {why}" for name, why in self._topics.register_all()]
        for name in self.names():
            try:
                self.attach(name)
            except Exception as error:  # Spark has many ways to say that a table is broken
                notes.append(f"table {name} is left out: {str(error).splitlines()[0]}")
        return notes

    def forget_missing(self, name: str) -> None:
        """Lets Spark forget a table whose directory somebody else removed."""
        if name.lower() not in self.names() and not (self._kept / name.lower()).exists():
            self._spark.sql(f"DROP TABLE IF EXISTS {self.database}.{quote(name.lower())}")

    def remove(self, name: str) -> None:
        """Removes the files of a table that was dropped: first its name, then what is in it.

        Raises:
            SqlError: They cannot be removed.
        """
        place = self._kept / name.lower()
        try:
            if place.is_symlink():
                place.unlink()
            elif place.exists():
                grave = self._kept / f".dropped-{uuid.uuid4().hex}"
                place.rename(grave)
                shutil.rmtree(grave)
        except OSError as error:
            raise SqlError(f"the files of table {name} cannot be removed: {error}") from error

    def is_taken(self, name: str) -> bool:
        """Whether something is already where a table of that name would be."""
        return os.path.lexists(self._kept / name.lower())

    def remove_unfinished(self, name: str) -> None:
        """Removes what a CREATE TABLE that failed has left, in the way of the next one."""
        if name.lower() not in self.names():
            self.remove(name)


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
