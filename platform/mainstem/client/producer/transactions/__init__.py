"""A producer's transactions: which call fits when (`state`, pure), what is asked of the coordinator
(`calls`), and the calls of the application, which bring both together with the producer's engine
(`transactions`)."""

from mainstem.client.producer.transactions.calls import coordinator_calls
from mainstem.client.producer.transactions.transactions import Transactions, places_of

__all__ = ["Transactions", "coordinator_calls", "places_of"]
