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
    """A context manager that runs its block to the end, and raises KeyboardInterrupt after it if
    one came meanwhile.

    Python may raise it after any call, also when a lock was just taken and nobody would let go of
    it, or when records have left one place and are not in the next. Only the main thread gets it,
    and only of the handler that Python installs: another one is the application's, and stays. The
    block waits for locks that are held for moments, and for nothing else.
    """

    __slots__ = ("_came", "_frame", "_holds")

    def __init__(self) -> None:
        self._holds = False
        self._came = False
        self._frame: FrameType | None = None

    def __enter__(self) -> None:
        if (
            threading.get_ident() == threading.main_thread().ident
            and _handler(signal.SIGINT) is signal.default_int_handler
        ):
            try:
                _set_handler(signal.SIGINT, self._note)
            except ValueError:
                return  # a subinterpreter has no signals
            self._holds = True

    def __exit__(self, *_: object) -> None:
        if self._holds:
            _set_handler(signal.SIGINT, signal.default_int_handler)
            if self._came:
                signal.default_int_handler(signal.SIGINT, self._frame)

    def _note(self, _: int, frame: FrameType | None) -> None:
        self._came = True
        self._frame = frame
