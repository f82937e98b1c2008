# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders of compiled programs: what `rlx compile MODEL -o FOLDER` writes, and `load_model(FOLDER)` runs.

A folder has ``prefill.rlx`` and ``decode.rlx``, which are code, and ``model.json``, which says what they were compiled
from, and how. Weights stay where they are, in the model's own file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .. import budgets
from ..boundary import foreign_errors
from ..errors import InputError, ModelFileError, reason_of
from ..files import Json
from ..runtime.artifact import CompiledModule
from . import decoder
from .config import ModelConfig

MANIFEST = "model.json"
_VERSION = 1


@dataclass(frozen=True)
class CompiledFolder:
    """What a folder holds.

    Attributes:
        folder: its path.
        model: the absolute path of the model's file, or its known name.
        context, chunk: positions, and tokens of a prompt at once, at most.
        activations: see `load_model`.
        target: what the code is for, ``cpu``, ``cuda`` or ``nvptx``.
        programs: what each program depends on, see `decoder.describe`.
    """

    folder: Path
    model: str
    context: int
    chunk: int
    activations: str
    target: str
    programs: Mapping[str, Json]

    def save(self) -> None:
        """Writes `MANIFEST`; OSError where that fails."""
        found = {"version": _VERSION, **asdict(self)}
        del found["folder"]
        (self.folder / MANIFEST).write_text(json.dumps(found, indent=2, sort_keys=True), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> CompiledFolder:
        """Reads what `save` wrote; raises ModelFileError where it is malformed, BudgetError where it is too large."""
        path = folder / MANIFEST
        try:
            size = os.stat(path).st_size
        except OSError as error:
            raise ModelFileError(f"cannot be read: {reason_of(error)}", path=path) from None
        budgets.check("json_bytes", size, str(path))
        with foreign_errors("cannot be read", lambda text: ModelFileError(text, path=path)):
            found = json.loads(path.read_text(encoding="utf-8"))
        kinds = {"model": str, "context": int, "chunk": int, "activations": str, "target": str, "programs": dict}
        if not isinstance(found, dict) or found.get("version") != _VERSION:
            raise ModelFileError(f"must be an object of version {_VERSION}, as 'rlx compile -o' writes it", path=path)
        for name, kind in kinds.items():
            if type(found.get(name)) is not kind:
                raise ModelFileError(f"'{name}' must be a {kind.__name__}, but is {found.get(name)!r}"[:300], path=path)
        return cls(folder, **{name: found[name] for name in kinds})

    @property
    def device(self) -> str:
        """What runs the programs, in the words of `load_model`."""
        return "cpu" if self.target == "cpu" else "cuda"

    def load(self, program: str, threads: int | None) -> CompiledModule:
        """A program as an executable.

        Raises CacheError where its file is damaged or of another version, ModelFileError where it can't be read.
        """
        from ..runtime.loading import load

        path = self.folder / f"{program}.rlx"
        try:
            return load(path, threads=threads)
        except OSError as error:
            raise ModelFileError(f"cannot be read: {reason_of(error)}", path=path) from None

    def check(self, config: ModelConfig) -> None:
        """Raises ModelFileError where the model's file isn't one that the programs were compiled for."""
        for program in decoder.PROGRAMS:
            # As JSON reads it, in which no tuple is left.
            if json.loads(json.dumps(decoder.describe(config, program))) != self.programs.get(program):
                raise ModelFileError(
                    f"'{program}' was compiled for another model than '{self.model}' is now, or another 'kv_dtype': "
                    "compile it again",
                    path=self.folder / MANIFEST,
                )

    def agree(self, **given: tuple[object, object]) -> None:
        """Raises InputError for options, other than by default, that the programs weren't compiled with."""
        for name, (value, default) in given.items():
            own = getattr(self, name, default)
            if value not in (default, own):
                raise InputError(f"'{self.folder}' was compiled with '{name}' {own!r}, but {value!r} is asked for")


def compiled_folder(path: str | os.PathLike[str]) -> CompiledFolder | None:
    """The folder of compiled programs at a path; None where it is something else."""
    folder = Path(path).expanduser()
    return CompiledFolder.read(folder) if (folder / MANIFEST).is_file() else None


__all__ = ["MANIFEST", "CompiledFolder", "compiled_folder"]
