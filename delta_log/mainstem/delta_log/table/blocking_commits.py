"""Commits to an open table by somebody who does not lead it: a job, a claim of the lead."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from mainstem.delta_log.table.blocking_driver import run_blocking
from mainstem.delta_log.table.commit_loop import (
    BESIDE_LEADER,
    CLAIM,
    Build,
    Landed,
    Loop,
    RetryPolicy,
    beside_leader_loop,
    commit_loop,
)
from mainstem.delta_log.table.followed import OpenTopic


def commit_beside_leader(
    opened: OpenTopic,
    build: Build,
    *,
    attempts_max: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Landed | None:
    """Commits what `build` makes of the table's newest state, which a gateway may be appending to
    at the same time. Blocks.

    `opened.state` is brought up to date, so it must not be one that an appender uses.

    Args:
        build: See `commit_loop`.
        attempts_max: Attempts before giving up; None: as `BESIDE_LEADER` has it.

    Returns:
        None: `build` had nothing to commit.

    Raises: As `commit_loop`.
    """
    policy = BESIDE_LEADER
    if attempts_max is not None:
        policy = replace(policy, losses_max=attempts_max)
    loop = beside_leader_loop(opened.state, build, topic=opened.topic, policy=policy)
    return _run(loop, opened, sleep)


def commit_under(
    opened: OpenTopic,
    build: Build,
    policy: RetryPolicy,
    sleep: Callable[[float], None] = time.sleep,
) -> Landed | None:
    """Commits what `build` makes of `opened.state`, which is as new as the caller knows, and
    becomes what it is with the commit. Blocks. Returns and raises: As `commit_loop`.
    """
    loop = commit_loop(opened.state, build, topic=opened.topic, policy=policy)
    return _run(loop, opened, sleep)


def claim_lead(
    opened: OpenTopic, build: Build, sleep: Callable[[float], None] = time.sleep
) -> Landed:
    """Commits a claim of the lead. Blocks. Raises: As `commit_loop`."""
    landed = commit_under(opened, build, CLAIM, sleep)
    assert landed is not None
    return landed


def _run(
    loop: Loop[Landed | None], opened: OpenTopic, sleep: Callable[[float], None]
) -> Landed | None:
    landed = run_blocking(loop, opened.store, opened.topic, sleep)
    if landed is not None:
        opened.state = landed.state
    return landed
