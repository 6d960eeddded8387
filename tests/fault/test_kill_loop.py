"""kill -9 of a real gateway, again and again: nothing acknowledged is lost, nothing comes twice.

`make test` kills 8 times; `make test-fault` sets MAINSTEM_TEST_FAULTS=full: 300 kills and
1,000,000 acknowledged records, and the canaries. MAINSTEM_TEST_SEED repeats the moments of a run.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import indent

import pytest
from tests.fault.kill_loop import (
    GATEWAY_SETTINGS,
    TOPICS,
    KillLoop,
    KillReport,
    run_kill_loop,
)
from tests.fault.workload import PRODUCERS
from tests.fault.wrong_clocks import commit_time_range_s, give_wrong_clocks
from tests.length import FULL
from tests.s3_server import S3Server
from tests.slow_s3 import S3_FAULT_RATE, slow_s3

from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.fault, pytest.mark.slow]

SIZE = KillLoop(300, 1_000_000) if FULL else KillLoop(8, 2_000, life_s=(0.2, 0.8))


@pytest.mark.timeout(3_600 if FULL else 300)
def test_no_kill_loses_or_doubles_or_reorders_what_was_acknowledged(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    result = run_kill_loop(tmp_path, seed, SIZE)
    report(result)
    assert result.judgement.ok, str(result)
    assert result.judgement.acknowledged_count >= SIZE.record_count
    assert result.judgement.verdict.acknowledged_count.keys() == {"0", "1", "all"}


@pytest.mark.timeout(1_800 if FULL else 300)
def test_no_kill_loses_or_doubles_anything_where_the_clocks_jump_by_minutes(
    tmp_path: Path,
    seed: int,
    report: Callable[[object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_wrong_clocks(tmp_path / "hooks", monkeypatch)
    size = KillLoop(100, 200_000) if FULL else KillLoop(4, 1_000, life_s=(0.2, 0.8))
    result = run_kill_loop(tmp_path, seed, size)
    report(result)
    assert result.judgement.ok, str(result)
    assert all(commit_time_range_s(tmp_path / "warehouse", topic) > 300 for topic in TOPICS)


@pytest.mark.timeout(900)
def test_no_kill_loses_or_doubles_anything_in_a_bucket_that_is_slow_and_fails(
    tmp_path: Path,
    versitygw: S3Server,
    seed: int,
    report: Callable[[object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in versitygw.options.items():
        monkeypatch.setenv(name, value)
    with slow_s3(versitygw.url, S3_FAULT_RATE, seed) as proxy:
        settings = {"store.endpoint": proxy.url, "wal.directory": tmp_path / "wal"}
        place = f"s3://{versitygw.make_bucket()}/lake"
        size = KillLoop(10, 2_000, life_s=(1.0, 6.0))
        result = run_kill_loop(
            tmp_path,
            seed,
            size,
            partial(GatewayProcess, start_timeout_s=120.0),
            place=place,
            settings=GATEWAY_SETTINGS | settings,
        )
        happened = proxy.happened()
    report(f"{result}\nfaults                {dict(happened)}")
    assert result.judgement.ok, str(result)
    assert result.judgement.verdict.acknowledged_count.keys() == {"0", "1", "all"}
    assert happened


#: Makes it likely that a kill falls between a commit and its answer.
ANSWERS_LATE = """
commit = appender.TopicCommits.commit

async def answer_late(self, append, registers):
    version = await commit(self, append, registers)
    await asyncio.sleep(0.2)
    return version

appender.TopicCommits.commit = answer_late
"""

ANSWERS_FIRST = """
append = appender.Appender._append

async def answer_first(self):
    for request in self._take().portion.requests:
        if not request.token.future.done():
            version = self.state.version + 1
            request.token.future.set_result(appender.Appended(version, request.runs))
    await asyncio.sleep(0.2)
    await append(self)

appender.Appender._append = answer_first
"""

#: Whatever waits is much.
WRITES_AHEAD = """
appender._WRITE_AHEAD_BYTES = 1
"""

FORGETS_THE_LOG = """
async def find_nothing(*arguments, **options):
    return appender.Recovered(())

appender.recover_topic = find_nothing
"""

KNOWS_NO_REPEATS = """
appender.ProducerStates.check = lambda *arguments: None
"""

#: Code that breaks a promise in the gateway, and the finding that shows it.
CANARIES = {
    "acknowledges before the table commit": ("lost write", ANSWERS_FIRST),
    "does not read its write-ahead log": ("lost write", FORGETS_THE_LOG),
    "takes a batch that comes again for a new one": ("duplicate", ANSWERS_LATE + KNOWS_NO_REPEATS),
}

#: Enough to break each of those promises at almost every kill, and to tell what comes twice from
#: what may.
FEW = tuple(
    spec
    for spec in PRODUCERS
    if spec.name
    in {
        "all-idempotent-batches",
        "all-idempotent-records",
        "all-batches",
        "leader-batches",
        "leader-records",
    }
)

_HOOK = """
import sys
if "gateway" in sys.orig_argv:
    import asyncio
    from mainstem.delta_log.append import appender
"""


@pytest.fixture
def run_with(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, KillLoop], KillReport]:
    """Runs the loop with code that each gateway process executes before anything else."""

    runs = itertools.count()

    def run(code: str, size: KillLoop) -> KillReport:
        number = next(runs)
        hooks = tmp_path / f"hooks-{number}"
        hooks.mkdir()
        (hooks / "sitecustomize.py").write_text(_HOOK + indent(code, "    "))
        path = [str(hooks), *filter(None, [os.environ.get("PYTHONPATH")])]
        with monkeypatch.context() as environment:
            environment.setenv("PYTHONPATH", os.pathsep.join(path))
            work = tmp_path / f"work-{number}"
            work.mkdir()
            return run_kill_loop(work, seed + number, size)

    return run


@pytest.mark.timeout(1_800 if FULL else 300)
def test_no_kill_loses_or_doubles_or_reorders_what_is_written_ahead(
    run_with: Callable[[str, KillLoop], KillReport], report: Callable[[object], None]
) -> None:
    """As under a load that leaves a portion behind each that is committed."""
    size = KillLoop(100, 200_000) if FULL else KillLoop(4, 1_000, life_s=(0.2, 0.8))
    result = run_with(WRITES_AHEAD, size)
    report(result)
    assert result.judgement.ok, str(result)
    assert result.judgement.acknowledged_count >= size.record_count


@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
@pytest.mark.timeout(300)
def test_idempotent_records_are_stored_once_where_many_answers_are_lost(
    run_with: Callable[[str, KillLoop], KillReport], report: Callable[[object], None]
) -> None:
    result = run_with(ANSWERS_LATE, KillLoop(6, 0, (0.6, 1.2), FEW))
    report(result)
    assert result.judgement.ok, str(result)
    assert result.judgement.verdict.duplicate_count > 0, "answers were lost"


@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("canary", CANARIES)
def test_a_gateway_that_breaks_a_promise_is_found_out(
    run_with: Callable[[str, KillLoop], KillReport], canary: str
) -> None:
    kind, code = CANARIES[canary]
    results: list[KillReport] = []
    while len(results) < 5:  # whether a kill meets the fault is up to its moment
        results.append(run_with(code, KillLoop(4, 0, (0.8, 1.2), FEW)))
        if results[-1].judgement.verdict.counts[kind] > 0:
            return
    raise AssertionError("\n".join(map(str, results)))
