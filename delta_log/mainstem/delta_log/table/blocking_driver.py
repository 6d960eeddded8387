"""Runs a commit loop to its end on a store, in the caller's thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from mainstem.delta_log.store import ObjectStore
from mainstem.delta_log.table.commit_loop import (
    Attempt,
    Loop,
    Read,
    Reload,
    StoreFailed,
    Told,
    Wait,
    topic_deleted_error,
)
from mainstem.delta_log.table.committer import Committer
from mainstem.delta_log.table.snapshot import load_table
from mainstem.errors import StoreUnavailableError, UnknownTopicError

T = TypeVar("T")


def run_blocking(
    loop: Loop[T],
    store: ObjectStore,
    topic: str,
    sleep: Callable[[float], None] = time.sleep,
    committer: Committer | None = None,
) -> T:
    """Runs a loop to its end on a topic's store, in this thread.

    Args:
        committer: One that has seen the table before; None: a new one.
    """
    committer = committer or Committer(store)
    told: Told = None
    while True:
        try:
            step = loop.send(told)
        except StopIteration as ended:
            result: T = ended.value
            return result
        if isinstance(step, Wait):
            sleep(step.seconds)
            told = None
        else:
            told = take_step(store, topic, committer, step)


def take_step(
    store: ObjectStore, topic: str, committer: Committer, step: Attempt | Read | Reload
) -> Told:
    """Does what a loop asks for. Blocks."""
    try:
        match step:
            case Attempt():
                try:
                    return committer.commit(step.version, step.commit, step.after_id)
                except StoreUnavailableError as error:
                    return StoreFailed(error)
            case Read(count=1):
                return committer.read(step.version, step.after_id)
            case Read():
                return committer.read_run(step.version, step.after_id, step.count)
            case Reload():
                try:
                    return load_table(store)
                except StoreUnavailableError as error:
                    return StoreFailed(error)
    except UnknownTopicError as error:
        raise topic_deleted_error(topic) from error
