"""Compiles what the client runs once a record, for wheels and for editable installations.

Without a compiler, or without Python's headers, both are made all the same: the client then runs
`plain.py`, which does the same in Python. MAINSTEM_PURE_PYTHON=1 asks for that.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MODULE: Final = "mainstem.client.per_record._compiled"
_SOURCE: Final = "platform/mainstem/client/per_record/_compiled.pyx"


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's `custom` hook."""

    _folder = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles: for an editable installation beside the source, else into the wheel only."""
        if self.target_name != "wheel":
            return
        source = Path(self.root, _SOURCE)
        name = f"_compiled{sysconfig.get_config_var('EXT_SUFFIX')}"
        editable = version == "editable"
        if editable:
            source.with_name(name).unlink(missing_ok=True)  # of an older source
        if os.environ.get("MAINSTEM_PURE_PYTHON"):
            return
        self._folder = tempfile.mkdtemp(prefix="mainstem-build-")
        try:
            built = _compile(source, self._folder)
        except (Exception, SystemExit) as failure:
            self.app.display_warning(
                "the client is installed without its compiled part, and takes more time for each "
                f"record: {type(failure).__name__}: {failure}"
            )
            return
        if editable:
            # Into its place at once: a program may be importing.
            staged = source.with_name(f"{name}.new")
            shutil.copyfile(built, staged)
            staged.replace(source.with_name(name))
        else:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(built)] = f"mainstem/client/per_record/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what was made on the way."""
        del version, build_data, artifact_path
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _compile(source: Path, folder: str) -> Path:
    """Makes the library, in the folder; raises what Cython and setuptools do, SystemExit too."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    # As the interpreter is compiled; symbols for debuggers are ten times the rest.
    flags = [] if os.name == "nt" else ["-g0", "-fwrapv"]
    extension = Extension(_MODULE, [str(source)], extra_compile_args=flags)
    distribution = Distribution(
        {"ext_modules": cythonize([extension], build_dir=folder, quiet=True)}
    )
    command: Any = distribution.get_command_obj("build_ext")
    command.build_lib = command.build_temp = folder
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath(_MODULE))
