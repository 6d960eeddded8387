"""What a stream of SQL writes to, and how its rows are made to fit: a table, or a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mainstem.client import AdminClient
from mainstem.client.connection_security import connection_of
from mainstem.errors import UnknownTopicError
from mainstem.jobs.kept_streams import KeptStream, StreamError
from mainstem.jobs.sql_guard import Insert, SqlError
from mainstem.jobs.sql_tables import SqlTables
from mainstem.jobs.tables import TopicViews

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructField

#: What a record in a topic may be given; `key` and `value` may be strings or binary.
_RECORD: Final = {
    "key": "string",
    "value": "string",
    "headers": "array<struct<key:string,value:binary>>",
    "partition": "int",
    "timestamp": "timestamp",
}


class TableTarget:
    """A Delta table below `tables` in the warehouse."""

    def __init__(self, session: SparkSession, tables: SqlTables, insert: Insert) -> None:
        self._session = session
        self._tables = tables
        self._insert = insert
        self._path = str(tables.path(insert.table))

    def fit(self, frame: DataFrame, kept: KeptStream) -> tuple[DataFrame, str]:
        """The rows as the table has them, and its id; makes the table where there is none.

        Raises:
            SqlError: They do not fit.
            StreamError: It is another table than the stream wrote to before.
        """
        names = _names(frame, self._insert)
        if self._insert.table.lower() not in self._tables.names():
            if kept.table_id:
                raise _is_gone(kept, f"the table {self._insert.table}")
            empty = self._session.createDataFrame([], frame.toDF(*names).schema)
            empty.write.format("delta").mode("error").save(self._path)
        found = self._session.sql(f"DESCRIBE DETAIL delta.`{self._path}`").select("id").first()
        assert found is not None
        _check_same(kept, f"the table {kept.table}", found[0])
        return self._positioned(frame, names), found[0]

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Starts the query."""
        return writer.format("delta").start(self._path)

    def _positioned(self, frame: DataFrame, names: list[str]) -> DataFrame:
        """As INSERT has it: by position, or by the names that it says."""
        table = self._insert.table
        target = self._session.read.format("delta").load(self._path).schema
        fields = {field.name.lower(): field for field in target.fields}
        if self._insert.columns is None and not self._insert.by_name:
            if len(names) != len(fields):
                raise SqlError(
                    f"the SELECT has {len(names)} columns and the table {table} has "
                    f"{len(fields)}: {', '.join(target.names)}"
                )
            wanted = [*target.fields]
        else:
            unknown = [name for name in names if name.lower() not in fields]
            if unknown:
                raise SqlError(
                    f"the table {table} has no column {', '.join(unknown)}; it has "
                    f"{', '.join(target.names)}"
                )
            wanted = [fields[name.lower()] for name in names]
        return _cast(self._session, frame, wanted, table)


class TopicTarget:
    """A topic, whose records the Spark sink sends through a gateway.

    Args:
        producer: Settings of the sink's producers, `bootstrap.servers` among them.
    """

    def __init__(
        self,
        session: SparkSession,
        topics: TopicViews,
        insert: Insert,
        topic: str,
        producer: Mapping[str, str],
    ) -> None:
        self._session = session
        self._topics = topics
        self._insert = insert
        self._topic = topic
        self._producer = producer

    def fit(self, frame: DataFrame, kept: KeptStream) -> tuple[DataFrame, str]:
        """The rows as the sink takes them, by the names of their columns, and the topic's id.

        Raises:
            SqlError: They do not fit; or the SELECT reads the topic that the INSERT fills.
            StreamError: It is another topic than the stream wrote to before.
            MainstemError: No gateway answers, or it has no such topic.
        """
        from pyspark.sql.types import BinaryType, StructField, StructType

        if self._topic in self._topics.made:
            raise SqlError(
                f"the stream would read what it writes to {self._topic}, and have no end: write to "
                "another topic"
            )
        names = [name.lower() for name in _names(frame, self._insert)]
        unknown = [name for name in names if name not in _RECORD]
        if unknown or "value" not in names:
            wrong = f"not {', '.join(unknown)}" if unknown else "and value has to be there"
            raise SqlError(
                f"{self._topic} is a topic, and takes the columns {', '.join(_RECORD)} by their "
                f"names, {wrong}: use AS; to_json(struct(...)) AS value makes one of several"
            )
        wanted = []
        types = StructType.fromDDL(", ".join(f"{name} {type_}" for name, type_ in _RECORD.items()))
        assert isinstance(types, StructType)
        for name, given in zip(names, frame.schema.fields, strict=True):
            stays = name in ("key", "value") and isinstance(given.dataType, BinaryType)
            wanted.append(StructField(name, BinaryType()) if stays else types[name])
        topic_id = self._checked_id()
        _check_same(kept, f"the topic {self._topic}", topic_id)
        return _cast(self._session, frame, wanted, self._topic), topic_id

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Starts the query."""
        options = {f"mainstem.{name}": value for name, value in self._producer.items()}
        return writer.format("mainstem").options(**options, topic=self._topic).start()

    def _checked_id(self) -> str:
        """The topic's id, once the gateway that it would be sent to has the same one."""
        mine = self._topics.topic_id(self._topic)
        servers = self._producer.get("bootstrap.servers", "")
        if not servers:
            raise SqlError(
                f"{self._topic} is a topic, whose records go through a gateway: name it in "
                "bootstrap.servers"
            )
        with AdminClient(connection_of(self._producer)) as admin:
            try:
                its = admin.describe_topic(self._topic).topic_id
            except UnknownTopicError:
                its = ""
        if mine != its:
            raise SqlError(
                f"the gateway at {servers} is not one of this warehouse: its topic {self._topic} "
                "is another one, or is not there; name a gateway of this warehouse"
            )
        return its


def _names(frame: DataFrame, insert: Insert) -> list[str]:
    """What the columns of the SELECT are called: as the INSERT says, or as they are."""
    names = [*(insert.columns or frame.columns)]
    if len(names) != len(frame.columns):
        raise SqlError(
            f"the INSERT names {len(names)} columns and the SELECT has {len(frame.columns)}"
        )
    twice = {name for name in names if [one.lower() for one in names].count(name.lower()) > 1}
    if twice:
        raise SqlError(f"there would be two columns {', '.join(sorted(twice))}: use AS")
    return names


def _cast(
    session: SparkSession, frame: DataFrame, wanted: Sequence[StructField], target: str
) -> DataFrame:
    """The columns, in their order, as these; what one has no room for is refused now, not at the
    first record.
    """
    from pyspark.sql import functions as F

    plain = frame.toDF(*(f"c{index}" for index in range(len(wanted))))
    jvm: Any = session._jvm
    cast = getattr(jvm, "org.apache.spark.sql.catalyst.expressions.Cast")
    types = getattr(jvm, "org.apache.spark.sql.types.DataType")
    for field, given in zip(wanted, plain.schema.fields, strict=True):
        if not cast.canANSIStoreAssign(
            types.fromJson(given.dataType.json()), types.fromJson(field.dataType.json())
        ):
            raise SqlError(
                f"the column {field.name} of {target} is {field.dataType.simpleString()},"
                f" and the SELECT gives {given.dataType.simpleString()}: use CAST"
            )
    return plain.select(
        *(
            F.col(f"c{index}").cast(field.dataType).alias(field.name)
            for index, field in enumerate(wanted)
        )
    )


def _check_same(kept: KeptStream, what: str, found_id: str) -> None:
    """A target of the same name that is another one would lack what was written before."""
    if kept.table_id and kept.table_id != found_id:
        raise StreamError(
            f"{what} is another one than stream {kept.name} wrote to: "
            f"`mainstem sql --stream --forget {kept.name}`, and it begins anew"
        )


def _is_gone(kept: KeptStream, what: str) -> StreamError:
    return StreamError(
        f"{what}, to which stream {kept.name} wrote, is gone: "
        f"`mainstem sql --stream --forget {kept.name}`, and it begins anew"
    )
