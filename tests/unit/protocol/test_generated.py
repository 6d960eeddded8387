"""The generated code in the tree is what the `.proto` files say now, for the oldest runtimes."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

PACKAGE = Path("platform/mainstem/protocol/v1")
NAMES = ("admin", "groups", "log", "security", "transactions")


def described(repo_root: Path, directory: Path) -> dict[str, Any]:
    """What protoc reads in the `.proto` files, by name."""
    protoc = pytest.importorskip("grpc_tools.protoc")
    root = repo_root / "ingest_gateway/proto"
    out = directory / "set"
    include = files("grpc_tools") / "_proto"
    sources = [str(path.relative_to(root)) for path in sorted(root.rglob("*.proto"))]
    arguments = [f"-I{root}", f"-I{include}", f"--descriptor_set_out={out}", *sources]
    assert protoc.main(["protoc", *arguments]) == 0
    found: Any = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return {Path(file.name).stem: file for file in found.file}


def without_json_names(message: Any) -> Any:
    """protoc gives each field its name in JSON, which generated code leaves out."""
    for field in message.field if hasattr(message, "field") else ():
        field.ClearField("json_name")
    for inner in [*getattr(message, "message_type", ()), *getattr(message, "nested_type", ())]:
        without_json_names(inner)
    return message


def test_the_generated_code_is_current(repo_root: Path, tmp_path: Path) -> None:
    found = described(repo_root, tmp_path)
    assert set(found) == set(NAMES)
    for name, file in found.items():
        module: Any = import_module(f"mainstem.protocol.v1.{name}_pb2")
        generated = descriptor_pb2.FileDescriptorProto()
        generated.ParseFromString(module.DESCRIPTOR.serialized_pb)
        same = without_json_names(generated) == without_json_names(file)
        assert same, f"run `make proto`: {name}.proto has changed"
        grpc_code = (repo_root / PACKAGE / f"{name}_pb2_grpc.py").read_text()
        stub = (repo_root / PACKAGE / f"{name}_pb2.pyi").read_text()
        for service in file.service:
            for method in service.method:
                assert f"/{file.package}.{service.name}/{method.name}'" in grpc_code, name
        for message in file.message_type:
            assert f"class {message.name}(" in stub, name
            for field in message.field:
                assert re.search(rf"\b{field.name}: ", stub), f"{message.name}.{field.name}"


def test_the_generated_code_takes_the_oldest_runtimes_that_may_be_installed(
    repo_root: Path,
) -> None:
    requirements = tomllib.loads((repo_root / "pyproject.toml").read_text())
    base = " ".join(requirements["project"]["dependencies"])
    for name in NAMES:
        code = (repo_root / PACKAGE / f"{name}_pb2.py").read_text()
        (protobuf,) = re.findall(r"^# Protobuf Python Version: (\d+\.\d+)", code, re.MULTILINE)
        assert f"protobuf>={protobuf}," in base, "run `make proto`"
        code = (repo_root / PACKAGE / f"{name}_pb2_grpc.py").read_text()
        (grpcio,) = re.findall(r"^GRPC_GENERATED_VERSION = '(.+)'", code, re.MULTILINE)
        assert f"grpcio>={grpcio}," in base, "run `make proto`"
