"""States of tables for tests of pure code: no file behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainstem.delta_log import TableState
from mainstem.delta_log.format import DataFile, Metadata, Protocol, Register, registers


def data_file(
    base_offset: int,
    record_count: int,
    *,
    partition: int = 0,
    size_bytes: int = 100,
    timestamp_ms: int = 0,
    modified_ms: int = 0,
) -> DataFile:
    """A file with consecutive offsets whose records all have one timestamp."""
    return DataFile(
        path=f"partition={partition}/{base_offset:020d}-x.parquet",
        partition=partition,
        base_offset=base_offset,
        last_offset=base_offset + record_count - 1,
        record_count=record_count,
        size_bytes=size_bytes,
        timestamp_ms_min=timestamp_ms,
        timestamp_ms_max=timestamp_ms,
        modified_ms=modified_ms,
    )


def state_with(
    files: Sequence[DataFile],
    settings: Mapping[str, object] | None = None,
    *,
    partition_count: int = 1,
    ends: Mapping[int, int] | None = None,
) -> TableState:
    """The state of a topic with these files; `ends` are log end offsets beyond the last file's."""
    configuration = {"mainstem.partitions": str(partition_count)}
    configuration |= {f"mainstem.{name}": str(value) for name, value in (settings or {}).items()}
    leos = {file.partition: 0 for file in files}
    for file in files:
        leos[file.partition] = max(leos[file.partition], file.last_offset + 1)
    state = TableState("t")
    state.apply(
        0,
        [
            Protocol(),
            Metadata("t", 0, configuration),
            *files,
            *(Register(registers.leo(p), end) for p, end in {**leos, **(ends or {})}.items()),
        ],
    )
    return state


def state_of(runs: Sequence[tuple[int, int]], end: int | None = None) -> TableState:
    """One partition with a file for each (base offset, record count)."""
    files = [data_file(base, count) for base, count in runs]
    return state_with(files, ends=None if end is None else {0: end})
