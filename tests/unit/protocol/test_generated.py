"""The generated code in the tree is what the `.proto` files say now."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

PACKAGE = Path("mainstem/protocol/v1")


def test_the_generated_code_is_current(repo_root: Path, tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    generator = runpy.run_path(str(repo_root / "ingest_gateway/proto/generate.py"))
    written = generator["generate"](tmp_path)
    assert len(written) >= 6
    committed = {
        path.name: path.read_text()
        for path in (repo_root / "platform" / PACKAGE).iterdir()
        if "_pb2" in path.name
    }
    generated = {path.name: path.read_text() for path in written}
    assert set(committed) == set(generated)
    stale = sorted(name for name in committed if committed[name] != generated[name])
    assert not stale, f"run `make proto`: {stale} differ from the .proto files"
