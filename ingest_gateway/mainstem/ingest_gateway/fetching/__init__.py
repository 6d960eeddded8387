"""From the state of a topic to the bytes of an answer to a reader.

Plans of fetches and their records in memory and in files. It knows nothing of calls:
`services.fetch` uses it.
"""

from mainstem.ingest_gateway.fetching.answer import FetchAnswer, FetchPlan, build_answer
from mainstem.ingest_gateway.fetching.arrivals import Arrivals
from mainstem.ingest_gateway.fetching.columns import columns_asked
from mainstem.ingest_gateway.fetching.followers import Followers
from mainstem.ingest_gateway.fetching.history import History
from mainstem.ingest_gateway.fetching.offset_answers import OffsetLookup, answer_query, look_up
from mainstem.ingest_gateway.fetching.planning import PLANS_AT_ONCE, FetchPlanner, not_open
from mainstem.ingest_gateway.fetching.refusals import check_count
from mainstem.ingest_gateway.fetching.room import FetchRoom
from mainstem.ingest_gateway.fetching.tail_cache import TailCache
from mainstem.ingest_gateway.fetching.waiters import FetchWaiters

__all__ = [
    "PLANS_AT_ONCE",
    "Arrivals",
    "FetchAnswer",
    "FetchPlan",
    "FetchPlanner",
    "FetchRoom",
    "FetchWaiters",
    "Followers",
    "History",
    "OffsetLookup",
    "TailCache",
    "answer_query",
    "build_answer",
    "check_count",
    "columns_asked",
    "look_up",
    "not_open",
]
