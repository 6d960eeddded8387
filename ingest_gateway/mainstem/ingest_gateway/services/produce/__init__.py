"""Producing: from a call to a batch with offsets, and from its commit to the answer.

The calls are in `service`; `stream` keeps the order of one ProduceStream, `acceptance` goes from a
request over its topic and its payload to the appender, and `answers` says what became of it.
"""

from mainstem.ingest_gateway.services.produce.service import ProduceService

__all__ = ["ProduceService"]
