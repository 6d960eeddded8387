"""Members that are paused, killed and restarted, and so is their gateway: no group loses its place.

`make test` brings faults for 10 s; `make test-fault` sets MAINSTEM_TEST_FAULTS=full: 10 minutes of
faults, and every canary. MAINSTEM_TEST_SEED repeats the faults of a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import pytest
from tests.fault.consumer_loop import ConsumerLoop, ConsumerReport, run_consumer_loop
from tests.fault.consumer_members import ConsumerSpec
from tests.fault.consumer_onlooker import SQLITE_GROUP
from tests.length import FULL

pytestmark = [pytest.mark.end_to_end, pytest.mark.fault, pytest.mark.slow]

SIZE = ConsumerLoop(600.0) if FULL else ConsumerLoop(10.0)


@pytest.mark.timeout(1_500 if FULL else 600)
def test_every_record_reaches_every_group_and_no_committed_offset_goes_back(
    tmp_path: Path, seed: int, report: Callable[[object], None]
) -> None:
    result = run_consumer_loop(tmp_path, seed, SIZE)
    report(result)
    assert result.judgement.ok, str(result)
    assert result.delivered[SQLITE_GROUP] > 0
    assert result.commits > 0


#: So many that some go on while others are paused.
FEW = (
    *(ConsumerSpec(f"automatic-{number}", "few", "automatic") for number in range(3)),
    ConsumerSpec("singly", "few", "automatic singly"),
    ConsumerSpec("manual", "few", "manual"),
)

TAKES_ANY_COMMIT = """
from mainstem.consumers.assignors import Partition
from mainstem.consumers.coordinator import Coordinator
Coordinator.check_commit = lambda *arguments: None
Coordinator.committable = lambda self, group, member, topic, topic_id, partition: (
    Partition(topic, topic_id, partition)
)
"""

ANSWERS_FIRST = """
import asyncio
from mainstem.consumers.offsets_table import OffsetsTable
write = OffsetsTable.write

def write_later(self, rows):
    loop = asyncio.get_running_loop()
    loop.call_later(1.0, write, self, rows)
    done = loop.create_future()
    done.set_result(None)
    self._live.show(rows, 0)
    return done

OffsetsTable.write = write_later
"""

COMMITS_AHEAD = """
from mainstem.client.consumer.commits import Commits

def all_that_was_fetched(self, tps, *, done):
    found = {tp: self.partitions.assigned.get(tp) for tp in tps}
    return {tp: (p.fetch_offset, "") for tp, p in found.items() if p and p.fetch_offset > 0}

Commits.done_offsets = all_that_was_fetched
"""

#: Code that breaks a promise, in which program, which faults show it, and the findings of those.
CANARIES = {
    "a gateway that takes commits of former members": (
        TAKES_ANY_COMMIT, "gateway", ("long pauses",), {"offset went back"},
    ),
    "a gateway that answers a commit before it is durable": (
        ANSWERS_FIRST, "gateway", ("gateway kills",), {"offset went back", "lost commit"},
    ),
    "a client that commits what it has only fetched": (
        COMMITS_AHEAD, "consumer_process", ("kills",), {"undelivered"},
    ),
}  # fmt: skip

_HOOK = """
import sys
if any("{program}" in argument for argument in sys.orig_argv):
"""


@pytest.mark.skipif(not FULL, reason="`make test-fault` only")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("canary", CANARIES)
def test_code_that_breaks_a_promise_is_found_out(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, canary: str
) -> None:
    code, program, kinds, findings = CANARIES[canary]
    (tmp_path / "sitecustomize.py").write_text(_HOOK.format(program=program) + indent(code, "    "))
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    results: list[ConsumerReport] = []
    while len(results) < 5:  # whether a fault meets the code is up to its moment
        work = tmp_path / str(len(results))
        work.mkdir()
        size = ConsumerLoop(10.0, (1.0, 2.5), kinds, FEW, reads_all=False)
        results.append(run_consumer_loop(work, seed + len(results), size))
        counts = results[-1].judgement.verdict.counts
        if any(counts[kind] for kind in findings):
            return
    raise AssertionError("\n".join(map(str, results)))
