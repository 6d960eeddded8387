"""Generates the Python code of the `.proto` files: `make proto`.

protoc names modules after the proto path (`mainstem/v1`); ours live in `mainstem.protocol.v1`, so
the one import line between generated modules is rewritten.

Usage: python ingest_gateway/proto/generate.py [OUTPUT_ROOT]   (default: platform)
"""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

PROTO_ROOT = Path(__file__).resolve().parent
REPOSITORY = PROTO_ROOT.parents[1]
PACKAGE = Path("mainstem/protocol/v1")


def generate(output_root: Path) -> list[Path]:
    """Writes `mainstem/protocol/v1/*_pb2.py`, `*.pyi` and `*_pb2_grpc.py` below `output_root`."""
    sources = sorted(path.relative_to(PROTO_ROOT) for path in PROTO_ROOT.rglob("*.proto"))
    target = output_root / PACKAGE
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        include = files("grpc_tools") / "_proto"
        arguments = [
            "protoc",
            f"-I{PROTO_ROOT}",
            f"-I{include}",
            f"--python_out={scratch}",
            f"--pyi_out={scratch}",
            f"--grpc_python_out={scratch}",
            *map(str, sources),
        ]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc failed, see above")
        written = []
        for module in sorted(Path(scratch, "mainstem/v1").iterdir()):
            text = re.sub(
                r"^from mainstem\.v1 import",
                "from mainstem.protocol.v1 import",
                module.read_text(),
                flags=re.MULTILINE,
            )
            (target / module.name).write_text(text)
            written.append(target / module.name)
    return written


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "platform"
    for path in generate(root):
        print(path)
