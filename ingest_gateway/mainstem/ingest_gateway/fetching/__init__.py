"""From the state of a topic to the bytes of an answer to a reader.

Plans of fetches and their records in memory and in files. It knows nothing of calls:
`services.fetch` uses it.
"""

from mainstem.ingest_gateway.fetching.answer import FetchAnswer, FetchPlan, build_answer
from mainstem.ingest_gateway.fetching.arrivals import Arrivals
from mainstem.ingest_gateway.fetching.columns import columns_asked
from mainstem.ingest_gateway.fetching.history import History
from mainstem.ingest_gateway.fetching.offset_answers import OffsetLookup, answer_query, look_up
from mainstem.ingest_gateway.fetching.refusals import as_ours, check_count, partition_refusal
from mainstem.ingest_gateway.fetching.tail_cache import TailCache
from mainstem.ingest_gateway.fetching.waiters import FetchWaiters

__all__ = [
    "Arrivals",
    "FetchAnswer",
    "FetchPlan",
    "FetchWaiters",
    "History",
    "OffsetLookup",
    "TailCache",
    "answer_query",
    "as_ours",
    "build_answer",
    "check_count",
    "columns_asked",
    "look_up",
    "partition_refusal",
]
