"""Headers as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mainstem.errors import InvalidConfigError
from mainstem.jobs.streams.parsed import check_columns, columns_of


def flatten_headers(
    records: DataFrame,
    names: Sequence[str] | Mapping[str, str] | None = None,
    *,
    binary: bool = False,
) -> DataFrame:
    """Makes a column of each header, in place of `headers`. Where a record has several headers of a
    name, the last one counts, as with Kafka's `lastHeader`.

    Args:
        records: Rows of the source, with `includeHeaders`.
        names: Of the headers; or by the name, how its column is called. A record without the header
            has null there. Default: all of them, in one column `headers`, a map by name.
        binary: Their values as bytes. Default: as text, which is null where it is not UTF-8.

    Raises:
        InvalidConfigError: There is no column `headers`, or a column would be there twice.
    """
    check_columns(records, ["headers"])
    some = F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>"))
    headers = F.filter(some, lambda header: header["key"].isNotNull())
    if names is None:
        keys = F.array_distinct(F.transform(headers, lambda header: header["key"]))
        values = F.transform(keys, lambda key: _last(headers, key, binary))
        # Not map_from_entries: two headers of one name would stop the query.
        return records.withColumn("headers", F.map_from_arrays(keys, values))
    columns = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    wanted = [*(columns_of(records) or ()), *columns.values()]
    twice = sorted({name for name in wanted if wanted.count(name) > 1})
    if twice:
        raise InvalidConfigError(
            f"there would be two columns {', '.join(twice)}: give names as a mapping, of headers "
            "to columns"
        )
    return records.withColumns(
        {column: _last(headers, F.lit(name), binary) for name, column in columns.items()}
    ).drop("headers")


def _last(headers: Column, name: Column, binary: bool) -> Column:
    value = F.try_element_at(F.filter(headers, lambda header: header["key"] == name), F.lit(-1))[
        "value"
    ]
    return value if binary else F.try_validate_utf8(value.cast("string"))
