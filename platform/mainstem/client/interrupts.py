"""Ctrl-C in the middle of something that has to be done to its end."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Final

#: What the functions wrap, which make enums of their results: that takes
#: several times as long as what they do.
_handler: Final[Any] = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
_set_handler: Final[Any] = getattr(signal.signal, "__wrapped__", signal.signal)


class held_back:
    """A context manager that runs its block to the end, and has SIGINT handled after it if one came
    meanwhile.

    Python calls the handler, which raises KeyboardInterrupt as a rule, after any call: also when a
    lock was just taken and nobody would let go of it, or when records have left one place and are
    not in the next. It may be Python's own handler, Spark's or the application's. Only the main
    thread gets it. Ctrl-C waits as long as the block does: those of the clients wait for locks that
    are held for moments, and for nothing else.
    """

    __slots__ = ("_came", "_frame", "_later")

    def __init__(self) -> None:
        self._later: Any = None
        self._came = False
        self._frame: FrameType | None = None

    def __enter__(self) -> None:
        if threading.get_ident() == threading.main_thread().ident:
            handler = _handler(signal.SIGINT)
            if callable(handler):
                try:
                    _set_handler(signal.SIGINT, self._note)
                except ValueError:
                    return  # a subinterpreter has no signals
                self._later = handler

    def __exit__(self, *_: object) -> None:
        if self._later is not None:
            _set_handler(signal.SIGINT, self._later)
            if self._came:
                self._later(signal.SIGINT, self._frame)

    def _note(self, _: int, frame: FrameType | None) -> None:
        self._came = True
        self._frame = frame
