"""Spark's part: a session that is set up right, topics as SQL tables, and SQL over them."""

from mainstem.errors import missing_extra

try:
    from mainstem.jobs.session import SparkUnavailableError, session_settings, spark_session
    from mainstem.jobs.sql import SqlError, SqlResult, run_sql
    from mainstem.jobs.tables import register_topics, sql_name
except ModuleNotFoundError as error:
    if (missing := missing_extra(error)) is None:
        raise
    raise ModuleNotFoundError(f"mainstem.jobs: {missing}", name=error.name) from error

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
