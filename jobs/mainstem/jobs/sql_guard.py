"""What a SQL statement would write to, read from Spark's own parse of it, before it runs.

A guard against accidents: it refuses what SQL has statements for. It does not contain somebody who
means it, who may run Java (`reflect`) or another program with the rights that the statement has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mainstem.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALYST: Final = "org.apache.spark.sql.catalyst.plans.logical."

#: Whatever is none of these only reads, as the analysed plan confirms, in which all that does
#: something is a Command.
_DOES_SOMETHING: Final = (f"{_CATALYST}Command", f"{_CATALYST}ParsedStatement")
_DOES_SOMETHING_TOO: Final = frozenset({"InsertIntoDir", "CloneTableStatement"})

#: Commands that read.
_READS: Final = frozenset(
    {
        *("DescribeRelation", "DescribeColumn", "DescribeQueryCommand", "DescribeFunction"),
        *("DescribeNamespace", "DescribeDeltaHistory", "DescribeDeltaDetailCommand"),
        *("ShowColumns", "ShowCreateTable", "ShowFunctions", "ShowNamespaces", "ShowPartitions"),
        *("ShowNamespacesCommand", "ShowTableProperties", "ShowCatalogsCommand", "SetCommand"),
    }
)

#: Those whose result has every table's name, or does not tell when one was not found.
_READS_ALL: Final = frozenset({"ShowTables", "ShowTablesExtended", "ShowViews", "ExplainCommand"})

_CREATES: Final = frozenset(
    {"CreateTable", "CreateTableAsSelect", "ReplaceTable", "ReplaceTableAsSelect"}
)

#: Commands that change a table, and the method that gives it.
_CHANGES: Final = {
    "InsertIntoStatement": "table",
    "OverwriteByExpression": "table",
    "DeleteFromTable": "table",
    "UpdateTable": "table",
    "MergeIntoTable": "targetTable",
    "TruncateTable": "table",
    "AddColumns": "table",
    "DropColumns": "table",
    "RenameColumn": "table",
    "AlterColumns": "table",
    "SetTableProperties": "table",
    "UnsetTableProperties": "table",
    "AlterTableAddConstraint": "table",
    "AlterTableDropConstraint": "table",
    "CommentOnTable": "table",
    "OptimizeTableCommand": "child",
    "VacuumTableCommand": "child",
}


#: Nodes that stand for a table by its name, and the method that gives the name's parts.
_NAMES: Final = {
    "UnresolvedIdentifier": "nameParts",
    "UnresolvedRelation": "multipartIdentifier",
    "UnresolvedTable": "multipartIdentifier",
    "UnresolvedTableOrView": "multipartIdentifier",
}


#: A name that a table can have: Spark's rule.
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")


class SqlError(ConfigError):
    """Spark refused the statement or failed at it, or it is refused before it runs."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What is known of a statement before it runs.

    Attributes:
        is_query: It only gives rows.
        reads_all: Every table has to be known to it.
        creates, changes, drops: The table, by name, that it would; None: none.
        directories: What it would overwrite: paths as they stand in it.
    """

    is_query: bool = True
    reads_all: bool = False
    creates: str | None = None
    changes: str | None = None
    drops: str | None = None
    directories: tuple[str, ...] = ()

    @property
    def target(self) -> str | None:
        """The one table that it writes to, by name."""
        return self.creates or self.changes or self.drops


def read_statement(
    spark: SparkSession,
    text: str,
    database: str,
    is_topic: Callable[[str], bool] = lambda _: False,
) -> Statement:
    """Parses the statement, and finds out what it would write to.

    Args:
        database: Where named tables are; another one is refused.
        is_topic: Whether a name is a topic's, which need not be one that a table can have.

    Raises:
        SqlError: What it would make does not stay, or nobody knows where it would write.
        PySparkException: It cannot be parsed.
    """
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    found = Statement()
    for node in _nodes(plan):
        name = node.getClass().getSimpleName()
        if _is_script(spark, node, name):
            raise SqlError(f"one statement at a time: {_words(name)} is not run here")
        if name == "ScriptTransformation":
            raise SqlError("TRANSFORM is not run here: nobody knows where its program would write")
        is_known = name in _READS or name in _DOES_SOMETHING_TOO
        if not is_known and not any(_is(spark, node, kind) for kind in _DOES_SOMETHING):
            continue
        if name in _READS or name in _READS_ALL:
            this = Statement(is_query=False, reads_all=name in _READS_ALL)
        else:
            this = _of_command(spark, node, name, database, is_topic)
        if found.target is not None or found.directories:
            raise SqlError("one statement at a time: this one would write to several places")
        found = this
    return found


@dataclass(frozen=True, slots=True)
class Insert:
    """An INSERT INTO of a query.

    Attributes:
        table: Its name, or a topic's.
        columns: Those that it names; None: none.
        by_name: Columns are told by the names that the query gives them, not by their order.
        parse: Gives the query, as the JVM has it. A plan that was analysed once, and in vain, is no
            good any more: it is parsed each time.
    """

    table: str
    columns: tuple[str, ...] | None
    by_name: bool
    parse: Callable[[], Any]


def read_insert(
    spark: SparkSession, text: str, database: str, is_topic: Callable[[str], bool]
) -> Insert:
    """Parses `INSERT INTO <table or topic> SELECT ...`, which adds rows and does nothing else.

    Raises:
        SqlError: It is another statement.
        PySparkException: It cannot be parsed.
    """
    what = read_statement(spark, text, database, is_topic)
    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    node = parser.parsePlan(text)
    if node.getClass().getSimpleName() != "InsertIntoStatement" or what.changes is None:
        raise SqlError(
            "a stream is INSERT INTO <table or topic> SELECT ... FROM <topic> ...; what is WITH "
            "goes behind the table"
        )
    if node.overwrite() or node.ifPartitionNotExists() or node.partitionSpec().size() > 0:
        raise SqlError("a stream adds rows: INSERT INTO <table> SELECT ..., without more")
    named = node.userSpecifiedCols()
    columns = tuple(str(named.apply(index)) for index in range(named.size()))
    return Insert(
        what.changes,
        columns or None,
        bool(node.byName()),
        lambda: parser.parsePlan(text).query(),
    )


def analyse(spark: SparkSession, text: str, what: Statement) -> None:
    """Has Spark find all names of the statement, without running anything.

    Raises:
        SqlError: It is no query after all.
        PySparkException: A name is not known, or the statement makes no sense.
    """
    jvm: Any = spark._jvm
    state = spark._jsparkSession.sessionState()
    skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    plan = state.executePlan(state.sqlParser().parsePlan(text), skip).analyzed()
    if what.is_query:
        for node in _nodes(plan):
            if _is(spark, node, f"{_CATALYST}Command"):
                raise SqlError(f"{_words(node.getClass().getSimpleName())} is not run here")


def _of_command(
    spark: SparkSession, node: Any, name: str, database: str, is_topic: Callable[[str], bool]
) -> Statement:
    if name in _CREATES:
        _check_table_spec(node.tableSpec())
        return Statement(
            is_query=False, creates=_own_name(_parts(node.name()), database, "created")
        )
    if name == "DropTable":
        return Statement(is_query=False, drops=_own_name(_parts(node.child()), database, "dropped"))
    if name == "InsertIntoDir":
        storage = node.storage()
        paths = [_option(storage.properties(), "path")]
        if storage.locationUri().isDefined():
            jvm: Any = spark._jvm
            paths.append(jvm.org.apache.hadoop.fs.Path(storage.locationUri().get()).toString())
        directories = tuple(path for path in paths if path)
        if not directories:
            raise SqlError("INSERT OVERWRITE DIRECTORY does not say which")
        return Statement(is_query=False, directories=directories)
    if name in _CHANGES:
        return _changed(getattr(node, _CHANGES[name])(), database, is_topic)
    raise SqlError(
        f"{_words(name)} is not run here, as what it does would be gone when the command ends, or "
        "could reach a topic's files. There are SELECT, SHOW, DESCRIBE, EXPLAIN, CREATE [OR "
        "REPLACE] TABLE [... AS SELECT], DROP TABLE, INSERT, UPDATE, DELETE, MERGE, ALTER TABLE "
        "for columns, OPTIMIZE, VACUUM, and INSERT OVERWRITE DIRECTORY outside the warehouse"
    )


def _changed(table: Any, database: str, is_topic: Callable[[str], bool]) -> Statement:
    if table.getClass().getSimpleName() == "UnresolvedPathBasedDeltaTable":
        return Statement(is_query=False, directories=(str(table.path()),))
    if table.getClass().getSimpleName() == "UnresolvedRelation" and table.options().containsKey(
        "path"
    ):
        raise SqlError("a table that is written to is named, without the option path")
    parts = _parts(table)
    dotted = ".".join(parts)
    if len(parts) > 1 and is_topic(dotted):
        raise SqlError(f"the name of the topic {dotted} has a dot: put it into `backquotes`")
    if is_topic(dotted):
        return Statement(is_query=False, changes=dotted)
    if len(parts) == 2 and parts[0].lower() != database:
        return Statement(is_query=False, directories=(parts[1],))  # format.`path`
    return Statement(is_query=False, changes=_own_name(parts, database, "changed"))


def _check_table_spec(spec: Any) -> None:
    provider = str(spec.provider().get()) if spec.provider().isDefined() else "delta"
    if provider.lower() != "delta" or spec.serde().isDefined():
        raise SqlError(
            "a table is kept as a Delta table: leave out USING and STORED AS, or say USING delta"
        )
    options = spec.optionExpression().options()
    names = {str(options.apply(index)._1()).lower() for index in range(options.size())}
    if spec.location().isDefined() or spec.external() or names & {"path", "location"}:
        raise SqlError(
            "a table is kept below `tables` in the warehouse, where the next statement finds it: "
            "leave out LOCATION and the option path. INSERT OVERWRITE DIRECTORY writes elsewhere"
        )


def _parts(node: Any) -> list[str]:
    """The parts of a table's name.

    Raises:
        SqlError: It is computed.
    """
    method = _NAMES.get(node.getClass().getSimpleName())
    if method is not None:
        found = getattr(node, method)()
        parts = [str(found.apply(index)) for index in range(found.size())]
        return parts[1:] if len(parts) > 1 and parts[0].lower() == "spark_catalog" else parts
    raise SqlError("what is written to has to be named as it is: a table, or format.`path`")


def _own_name(parts: list[str], database: str, what: str) -> str:
    if len(parts) == 2 and parts[0].lower() == database:
        parts = parts[1:]
    if len(parts) != 1:
        raise SqlError(
            f"{'.'.join(parts)} cannot be {what}: tables have a name without a dot, and are kept "
            "below `tables` in the warehouse"
        )
    if not _NAME.fullmatch(parts[0]):
        # It names a directory, too: `../topics` would be the topics.
        no_topic = f". There is no topic `{parts[0]}` either: `mainstem topic create` makes one"
        raise SqlError(
            f"`{parts[0]}` cannot be {what}: a table's name has letters, digits and underscores"
            + (no_topic if what == "changed" else "")
        )
    return parts[0]


def _option(options: Any, name: str) -> str | None:
    """The value of an option in a Scala map, whatever the case of its name."""
    pairs = options.toSeq()
    for index in range(pairs.size()):
        if str(pairs.apply(index)._1()).lower() == name:
            return str(pairs.apply(index)._2())
    return None


def _nodes(plan: Any) -> Iterator[Any]:
    """The plan and what it consists of. What EXPLAIN explains is not run, and no part of it."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        for more in (node.children(), node.innerChildren()):
            waiting += [more.apply(index) for index in range(more.size())]


def _is(spark: SparkSession, node: Any, kind: str) -> bool:
    from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]

    return bool(is_instance_of(spark.sparkContext._gateway, node, kind))


def _is_script(spark: SparkSession, node: Any, name: str) -> bool:
    return "ExecuteImmediate" in name or _is(spark, node, f"{_CATALYST}CompoundPlanStatement")


def _words(name: str) -> str:
    """CreateNamespace → CREATE NAMESPACE."""
    name = name.removesuffix("Command").removesuffix("Statement").replace("$", "")
    return "".join(f" {one}" if one.isupper() else one for one in name).strip().upper()


# -- places ----------------------------------------------------------------------------------------


def check_directory(spark: SparkSession, text: str, warehouse: str, more: Iterable[str]) -> None:
    """Refuses a directory that is in the warehouse or around it, however it is written.

    Args:
        text: As it stands in the statement.
        warehouse: The warehouse's directory, or its URI.
        more: Other directories of the platform, such as that of the write-ahead logs.

    Raises:
        SqlError: It is, or nobody can tell.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    jvm: Any = spark._jvm
    try:
        path = jvm.org.apache.hadoop.fs.Path(text)
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        system = path.getFileSystem(conf)
        qualified = system.makeQualified(path).toUri()
        is_local = system.getUri().getScheme() == "file"
        target = qualified.getPath()
    except (Py4JJavaError, PySparkException) as error:
        raise SqlError(f"{text!r} is not a place to write to: {error}") from None
    if "://" in warehouse:
        if not is_local and _same_prefix(str(qualified.toString()), warehouse):
            raise _is_inside(text, warehouse)
        warehouse_places: tuple[str, ...] = ()
    else:
        warehouse_places = (warehouse, *_links(warehouse))
    if not is_local:
        return
    for place in (*warehouse_places, *more):
        if overlap(target, place):
            raise _is_inside(text, warehouse)


def _is_inside(text: str, warehouse: str) -> SqlError:
    return SqlError(
        f"{text!r} is in the warehouse {warehouse}, or around it: what is there is the topics' and "
        "the platform's, and would be lost. Records come through a gateway; CREATE TABLE ... AS "
        "SELECT keeps a result; another directory can be written to"
    )


def _same_prefix(one: str, other: str) -> bool:
    """Whether one place in an object storage service is the other, or lies in it. Of a service, all
    names that Hadoop has for it are the same: s3, s3a, s3n."""
    parts = []
    for uri in (one, other):
        _, _, rest = uri.partition("://")
        parts.append([part for part in rest.split("/") if part])
    shorter = min(map(len, parts))
    return parts[0][:shorter] == parts[1][:shorter]


def _links(warehouse: str) -> Iterator[str]:
    """Where symbolic links in the warehouse lead, down to a topic's partitions."""
    level = [warehouse]
    for _ in range(3):
        below: list[str] = []
        for directory in level:
            try:
                with os.scandir(directory) as entries:
                    for entry in entries:
                        if entry.is_symlink():
                            yield os.path.realpath(entry.path)
                        if entry.is_dir() and not entry.name.startswith("_"):
                            below.append(entry.path)
            except OSError:
                continue
        level = below


def overlap(one: str, other: str) -> bool:
    """Whether one directory is the other, or lies in it: by names, links and mounts."""
    first, second = os.path.realpath(one), os.path.realpath(other)
    if os.path.commonpath([first, second]) in (first, second):
        return True
    return bool(
        _identities(first, 1) & _identities(second) or _identities(second, 1) & _identities(first)
    )


def _identities(path: str, count: int | None = None) -> set[tuple[int, int]]:
    """Device and inode of the directory, and of those around it; `count`: of so many, itself first.

    What does not exist yet has none of its own.
    """
    found: set[tuple[int, int]] = set()
    while count is None or count > 0:
        try:
            status = os.stat(path)
            found.add((status.st_dev, status.st_ino))
        except OSError:
            pass
        if count is not None:
            count -= 1
        parent = os.path.dirname(path)
        if parent == path:
            break
        path = parent
    return found
