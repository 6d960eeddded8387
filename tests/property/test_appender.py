"""The appender against a model log: crashes, other leaders, maintenance, roll-ups, answers that are
lost.

The model is what a producer knows: which records it sent, which were acknowledged, and where. After
every restart the log must agree with it: nothing acknowledged is missing, nothing is there twice,
offsets are dense, a producer's records are in the order of their sequences, and the table verifies.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.length import FULL
from tests.unit.delta_log.crashing_log import CrashingLog
from tests.unit.delta_log.faults import FaultyStore, unavailable, unknown

from mainstem.delta_log import LocalStore, OpenTopic, Topics
from mainstem.delta_log.format import Action, DataFile, Register, Remove, registers
from mainstem.delta_log.table import Committed, Committer, TableCommit
from mainstem.delta_log.topics import altered_config

FAULTS: dict[str, Callable[[], Exception]] = {"unknown": unknown, "unavailable": unavailable}


class _Faults:
    """Which puts fail, before or after they are done, and who commits in between."""

    def __init__(self) -> None:
        self.queue: list[tuple[str, bool]] = []
        self.foreign: list[Callable[[], None]] = []
        #: Happen before the next commit after a roll-up has written its file.
        self.overtaking: list[Callable[[], None]] = []
        self.starts: set[str] = set()
        self.lock = threading.Lock()

    def before(self, call: str, path: str) -> None:
        if call == "put":
            start = path.split("-")[0]  # of a file that is there already: this one replaces it
            if start in self.starts and self.overtaking:
                self.foreign.insert(0, self.overtaking.pop())
            self.starts.add(start)
        if call == "put_if_absent" and self.foreign and "_delta_log" in path:
            self.foreign.pop(0)()
        self._fail(call, is_after=False)

    def after(self, call: str, path: str) -> None:
        self._fail(call, is_after=True)

    def _fail(self, call: str, *, is_after: bool) -> None:
        if call != "put_if_absent" or not self.queue or self.queue[0][1] != is_after:
            return
        name, _ = self.queue.pop(0)
        raise FAULTS[name]()


class AppenderMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32), roll_up_files=st.sampled_from([2, 3, 0]))
    def start(self, seed: int, roll_up_files: int) -> None:
        shared = Path("/dev/shm")
        self.directory = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self.faults = _Faults()
        self.log = CrashingLog(
            self.directory, random.Random(seed), wrap=self._faulty, roll_up_files=roll_up_files
        )

    def _faulty(self, opened: OpenTopic) -> OpenTopic:
        store: Any = FaultyStore(opened.store, self.faults.before, self.faults.after)
        return OpenTopic(opened.topic, store, opened.state)

    def _commit(self, actions: Callable[[OpenTopic], list[Action]]) -> None:
        """What another process commits at the next version, while ours is about to."""
        store = LocalStore(Path(self.log.disk.root) / "warehouse")
        opened = Topics(store).open("t")
        one = TableCommit.of("OTHER", actions(opened), timestamp_ms=0)
        version = opened.state.version + 1
        assert Committer(opened.store).commit(version, one) == Committed(version)
        store.close()

    @rule(kind=st.sampled_from(sorted(FAULTS)), is_after=st.booleans())
    def a_put_fails(self, kind: str, is_after: bool) -> None:
        """Before it is done, or after: then it landed, and its answer was lost."""
        if len(self.faults.queue) < 2:
            self.faults.queue.append((kind, is_after))

    @rule(codec=st.sampled_from(["zstd", "lz4", "none"]))
    def settings_are_changed(self, codec: str) -> None:
        def changed(opened: OpenTopic) -> list[Action]:
            return [altered_config(opened.state, {"compression.type": codec}, [])]

        self.faults.foreign.append(lambda: self._commit(changed))

    @rule(overtaking=st.booleans())
    def files_are_compacted(self, overtaking: bool) -> None:
        """As a compaction commits: the records stay, their file gets another name. One that
        overtakes a roll-up takes the newest files, which that wants as well."""

        def swapped(opened: OpenTopic) -> list[Action]:
            found: list[Action] = []
            for partition in range(opened.state.partition_count):
                files = opened.state.files(partition).sorted()
                for file in files[-4:] if overtaking else files[:1]:
                    path = f"{file.path}.compacted"
                    opened.store.put(path, opened.store.read(file.path))
                    found.append(Remove(file.path, partition, file.size_bytes, 0, False))
                    found.append(_moved(file, path))
            return found or [Register("another/application", 1)]

        where = self.faults.overtaking if overtaking else self.faults.foreign
        where.append(lambda: self._commit(swapped))

    @rule()
    def another_takes_the_lead(self) -> None:
        """And does nothing with it: the next restart takes it back."""

        def epoch(opened: OpenTopic) -> list[Action]:
            return [Register(registers.EPOCH, opened.state.epoch + 1)]

        self.faults.foreign.append(lambda: self._commit(epoch))

    @rule(fails_at=st.integers(1, 300), requests=st.integers(1, 25))
    def the_power_goes(self, fails_at: int, requests: int) -> None:
        self._live(fails_at, requests)

    @rule(requests=st.integers(1, 25))
    def the_process_goes(self, requests: int) -> None:
        self._live(-1, requests)

    def _live(self, fails_at: int, requests: int) -> None:
        found = len(self.log.findings)
        self.log.crash(fails_at, requests)
        self.faults.foreign.clear()
        self.faults.starts.clear()
        # A gateway that was deposed, or could not start, says so: that is no fault of the log.
        self.log.findings[found:] = [
            one
            for one in self.log.findings[found:]
            if "FencedError" not in one and "StoreUnavailableError" not in one
        ]

    @invariant()
    def nothing_was_found(self) -> None:
        if hasattr(self, "log"):
            assert self.log.findings == []

    def teardown(self) -> None:
        if not hasattr(self, "log"):
            return
        try:
            self.faults.queue.clear()
            self.faults.foreign.clear()
            assert self.log.settle() == []
        finally:
            shutil.rmtree(self.directory)


def _moved(file: DataFile, path: str) -> DataFile:
    return replace(file, path=path, data_change=False)


TestAppender = AppenderMachine.TestCase
TestAppender.settings = settings(
    max_examples=25 if FULL else 10, stateful_step_count=12, deadline=None
)
