"""What the application is told of a record that ran out of time."""

from __future__ import annotations

from mainstem.errors import DeliveryTimeoutError, MainstemError


def timeout_error(
    topic: str, delivery_timeout_ms: int, why: MainstemError | None, *, sent: bool, tried: bool
) -> DeliveryTimeoutError:
    """The error of a record.

    Args:
        why: The last error; None: there was none.
        sent: It was sent, and may be stored.
        tried: It was not stored, though it was tried.
    """
    if sent:
        fate = "it was sent and may still be in the log"
    elif tried:
        fate = "no gateway took it: it is not in the log"
    else:
        fate = "it was never sent"
    error = DeliveryTimeoutError(
        f"a record of topic {topic} was not acknowledged within delivery.timeout.ms "
        f"({delivery_timeout_ms} ms): {fate}" + (f"; the last error was: {why}" if why else ""),
        topic=topic,
        delivery_timeout_ms=delivery_timeout_ms,
        sent=sent,
    )
    if why is not None:
        error.facts["cause"] = why.code
    return error
