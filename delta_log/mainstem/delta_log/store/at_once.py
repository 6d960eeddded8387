"""Several calls of a store that is far away, at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What the calls return, in their order, when all of them have ended: the first one in this
    thread, each other in one of its own.

    Raises:
        What the first of them has raised that has raised something.
    """
    answers: list[Any] = [None] * len(calls)
    failures: list[BaseException | None] = [None] * len(calls)

    def run(index: int) -> None:
        try:
            answers[index] = calls[index]()
        except BaseException as failure:
            failures[index] = failure

    threads = []
    for index in range(1, len(calls)):
        thread = threading.Thread(target=run, args=(index,), name="store-call")
        try:
            thread.start()
        except RuntimeError:  # there can be no more threads
            run(index)
        else:
            threads.append(thread)
    if calls:
        run(0)
    for thread in threads:
        thread.join()
    for failure in failures:
        if failure is not None:
            raise failure
    return answers
