"""What a fake gateway can be told to do wrong."""

from __future__ import annotations

import enum


class Fault(enum.Enum):
    """What `on_produce` may answer beside an error."""

    #: The stream ends, and the request is not stored.
    BREAK = "break"
    #: The request is stored, and the stream ends before its answer.
    BREAK_AFTER = "break after"
    #: The request is stored, and is never answered, nor is what follows of its topic on its stream.
    SILENCE = "silence"
