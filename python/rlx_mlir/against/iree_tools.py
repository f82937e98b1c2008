# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""IREE's compiler, in a process of its own: two copies of MLIR's bindings don't fit into one."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from rlx_mlir.errors import UnsupportedError

_FLAGS = ("--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host")


def iree_compile(text: str, flags: Sequence[str], *, install: str) -> bytes:
    """A module for this machine.

    Args:
        text: of MLIR.
        flags: further ones of `iree-compile`.
        install: the command that installs it.

    Raises UnsupportedError where it isn't there, or refuses the text.
    """
    command = [tool("iree-compile", "iree-base-compiler"), "-", *_FLAGS, *flags]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    except FileNotFoundError:
        raise UnsupportedError(f"iree-compile isn't there: {install}") from None
    if done.returncode:
        raise UnsupportedError(f"iree-compile fails: {done.stderr.decode(errors='replace').strip()[:500]}")
    return done.stdout


def tool(name: str, package: str) -> str:
    """A command of a package, which PATH need not name: where the package was installed, or beside this interpreter."""
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts")), Path(sys.prefix) / "bin"]
    try:
        own = metadata.distribution(package)
        folders = [Path(str(own.locate_file(file))).parent for file in own.files or () if file.name == name] + folders
    except metadata.PackageNotFoundError:  # it may have been put there otherwise
        pass
    return next((str(folder / name) for folder in folders if (folder / name).is_file()), name)


__all__ = ["iree_compile", "tool"]
