"""The Spark data source `mainstem`: `spark.read.format("mainstem")` and
`spark.readStream.format("mainstem")`.

Spark finds it by itself, by the name of this module, and imports it in every planning process: keep
this light.
"""

from mainstem.errors import extra_of

with extra_of("pyspark_mainstem"):
    from pyspark_mainstem._source import DefaultSource

__all__ = ["DefaultSource"]
