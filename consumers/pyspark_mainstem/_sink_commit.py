"""The driver's decision about what the tasks of an epoch have prepared."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from mainstem.client import AdminClient
from mainstem.client.backoff import backoff_s
from mainstem.client.connection_security import connection_of
from mainstem.errors import MainstemError
from pyspark_mainstem._sink_options import SinkOptions

_RETRY_FIRST_S: Final = 0.1
_RETRY_LONGEST_S: Final = 2.0

#: A coordinator has so long for its answer at first, then twice as long each time: one that hangs
#: is left early, and a large commit has the time that it takes.
_ANSWER_S: Final = 3.0


def complete(
    options: SinkOptions,
    name: str,
    epoch: int,
    tokens: Sequence[str],
    *,
    commit: bool,
    one_off: bool,
    timeout_s: float,
) -> bool:
    """Commits all of them as one transaction, or aborts them; again and again for `timeout_s`,
    which does no harm: an epoch is committed once.

    Returns:
        Whether the epoch, or a later one, was committed before, and this call has written nothing.

    Raises:
        TransactionAbortedError: Some of them had waited for too long. None is written.
        MainstemError: It is not known whether they are written; the same epoch may be run again.
    """
    ends_at = time.monotonic() + timeout_s
    failures = 0
    with AdminClient(connection_of(options.producer)) as admin:
        while True:
            left_s = max(ends_at - time.monotonic(), 0.001)
            answer_s = min(_ANSWER_S * 2.0 ** min(failures, 10), left_s)
            try:
                return admin.complete_transactions(
                    name, epoch, tokens, commit, one_off=one_off, timeout=answer_s
                ).already_committed
            except MainstemError as error:
                wait_s = backoff_s(_RETRY_FIRST_S, _RETRY_LONGEST_S, failures)
                if not error.retriable or time.monotonic() + wait_s > ends_at:
                    raise
            failures += 1
            time.sleep(wait_s)
