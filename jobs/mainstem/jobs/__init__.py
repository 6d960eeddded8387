"""Spark's part: a session that is set up right, topics as SQL tables, and SQL over them."""

from mainstem.errors import extra_of

with extra_of("mainstem.jobs"):
    from mainstem.jobs.session import SparkUnavailableError, session_settings, spark_session
    from mainstem.jobs.sql import SqlError, SqlResult, run_sql
    from mainstem.jobs.tables import register_topics, sql_name

__all__ = [
    "SparkUnavailableError",
    "SqlError",
    "SqlResult",
    "register_topics",
    "run_sql",
    "session_settings",
    "spark_session",
    "sql_name",
]
