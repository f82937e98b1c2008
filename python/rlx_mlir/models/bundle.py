# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundles: one file with all that running a model takes: code for some CPUs, weights as that code reads them, texts.

A bundle is a container (`rlx_mlir.runtime.container`) of these sections:

| section | what it has |
|---|---|
| `artifact/<module>/<level>` | the code of a module for a CPU |
| `artifact/decode_threads/<level>` | of large models: what `decode_threads` measures a machine with |
| `weights/<number>` | prepared parameters, each at a multiple of 64 bytes; what several levels read is there once |
| `metadata` | of a language model: what its file said beside tensors, vocabulary and chat template among it, as GGUF |
| `text` | of a language model: vocabulary and chat template as programs without Python read them: `text_section` |
| `tokenizer` | of an encoder: its tokenizer, as the library `tokenizers` writes it |
| `manifest` | JSON: what all this is of, and which parameters are where |

Opening reads the manifest and compares its digest, and those of code when that is loaded. Weights are mapped: their
digests are compared by who asks for it (`Bundle.verify`), since to read them all would take as long as a start does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import budgets
from ..dtypes import DTYPES
from ..errors import ExecutionError, InputError, ModelFileError, reason_of, shortened
from ..files import Json, kind_of
from ..frontends.documents import Document, parse_json
from ..runtime import processor
from ..runtime.artifact import Artifact
from ..runtime.container import MAGIC, Container, is_container
from ..runtime.executable import Executable

VERSION = 1
"""Of the manifest."""
KINDS = ("decoder", "encoder")
"""What a bundle may be of."""

NATIVE = "native"
"""The CPU that code is for where nothing else is said: that of the machine that compiles it."""
THREADS = "decode_threads"
"""Code beside the modules of a large language model: what `decode_threads` measures with."""
MANIFEST = "manifest"
METADATA = "metadata"
TEXT = "text"
TOKENIZER = "tokenizer"
ALIGNMENT = 64
"""Where parameters begin in their sections."""

#: More levels than there are kinds of CPUs that differ in instructions.
_MOST_LEVELS = 64


def code_section(module: str, level: str) -> str:
    """The section with the code of a module."""
    return f"artifact/{module}/{level}"


def weights_section(number: int) -> str:
    """A section of parameters."""
    return f"weights/{number}"


@dataclass(frozen=True)
class Level:
    """A CPU that a bundle has code for.

    Attributes:
        name: by which it was asked for, such as ``x86-64-v3``.
        triple, cpu, features: what the code is for, in LLVM's terms; of features those that are instructions.
    """

    name: str
    triple: str
    cpu: str
    features: str

    @property
    def instructions(self) -> int:
        """How many features there are: of two CPUs that a machine can stand for, the one with more has faster code."""
        return self.features.count("+")

    def missing(self) -> str:
        """What this machine lacks for the code, in words; empty where nothing."""
        return processor.missing(self.triple, self.features)


@dataclass(frozen=True)
class Place:
    """Where a parameter is: the number of its section, the first byte in that, element type and shape."""

    section: int
    offset: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def bundle_at(path: str | os.PathLike[str]) -> Path | None:
    """The path of a bundle, where one is there; None for what is something else, or nothing.

    Raises ModelFileError where a file that is named like one can't be read, InputError where it isn't one.
    """
    found = Path(path).expanduser() if isinstance(path, str) else Path(path)
    named = found.suffix == ".rlx"
    try:
        if not found.is_file():
            if named:
                what = f"it is {kind_of(found.stat().st_mode)}" if found.exists() else "there is no such file"
                raise ModelFileError(f"a bundle is a regular file, but {what}", path=found)
            return None
        with found.open("rb") as file:
            start = file.read(len(MAGIC))
    except (OSError, ValueError) as error:
        if named:
            raise ModelFileError(f"cannot be read: {reason_of(error)}", path=found) from None
        return None
    if is_container(start):
        return found
    if named:
        raise InputError(
            f"{found}: not a bundle of a model: it starts with {start!r} instead of {MAGIC!r}; an artefact of one "
            "module is for rlx_mlir.load, rlx artifact and rlx profile"
        )
    return None


class Bundle:
    """An open bundle.

    Attributes:
        path: the file.
        size: its bytes.
        kind: one of `KINDS`.
        levels: the CPUs that there is code for, the best ones first.
        document: the manifest.
    """

    def __init__(self, path: Path) -> None:
        """Opens and checks a file.

        Raises CacheError where the container is damaged, cut off or of another version, ModelFileError where the
        manifest makes no sense or the file can't be read, BudgetError.
        """
        self.path = path
        try:
            self._container = Container(path)
            content = self._container.read(MANIFEST)
        except OSError as error:
            raise ModelFileError(f"cannot be read: {reason_of(error)}", path=path) from None
        try:
            self._read(content)
        except BaseException:
            self._container.close()
            raise

    def _read(self, content: bytes) -> None:
        self.size = self._container.size
        found = parse_json(content, self.path)
        if not isinstance(found, dict) or found.get("version") != VERSION:
            version = shortened(found.get("version")) if isinstance(found, dict) else "none"
            raise self.fail(f"its manifest is of version {VERSION}, but this one of {version}: bundle the model again")
        self.document = Document(self.path, "a bundle", found)
        self.kind: str = self.document.get("kind", str)
        if self.kind not in KINDS:
            raise self.document.fail("kind", f"one of {', '.join(KINDS)}", self.kind)
        self.levels = self._levels()
        self._places = self._read_places()
        self.modules = self._modules()
        self._sections: dict[int, np.ndarray] = {}

    def __repr__(self) -> str:
        return f"Bundle({self.path.name}, {self.kind}, {', '.join(level.name for level in self.levels)})"

    def fail(self, text: str) -> ModelFileError:
        """An error that names the file."""
        return ModelFileError(text, path=self.path)

    # Reading the manifest -----------------------------------------------------------------------------

    def _entries(self, key: str, kind: type[list[Json]] | type[dict[str, Json]], budget: str = "tensors") -> Json:
        found = self.document.get(key, kind)
        budgets.check(budget, len(found), f"'{key}' of {self.path}")
        return found

    def _levels(self) -> tuple[Level, ...]:
        found = self._entries("levels", list)
        if not 1 <= len(found) <= _MOST_LEVELS:
            raise self.fail(f"'levels' must be 1 to {_MOST_LEVELS}, but there are {len(found)}")
        levels = []
        for number, own in enumerate(found):
            if not isinstance(own, dict):
                raise self.fail(f"level {number} must be an object, but is {shortened(own)}")
            entry = Document(self.path, "", own)
            levels.append(Level(*(entry.get(key, str) for key in ("name", "triple", "cpu", "features"))))
        if len({level.name for level in levels}) != len(levels):
            raise self.fail(f"a level is named twice: {', '.join(level.name for level in levels)}")
        return tuple(levels)

    def _read_places(self) -> tuple[Place, ...]:
        sizes: dict[int, int] = {}
        places = []
        for number, own in enumerate(self._entries("parameters", list)):
            what = f"parameter {number} of the manifest"
            if not isinstance(own, list) or len(own) != 4:
                raise self.fail(f"{what} must be section, offset, type and shape, but is {shortened(own)}")
            section, offset, dtype, shape = own
            if not all(type(value) is int and 0 <= value < 1 << 48 for value in (section, offset)):
                raise self.fail(f"{what} must have a section and an offset, but they are {shortened(own[:2])}")
            if not isinstance(dtype, str) or dtype not in DTYPES:
                raise self.fail(f"{what} must have a known element type, but it is {shortened(dtype)}")
            if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
                raise self.fail(f"{what} must have sizes, but they are {shortened(shape)}")
            if len(shape) > 32:
                raise self.fail(f"{what} must have at most 32 dimensions, but has {len(shape)}")
            place = Place(section, offset, dtype, tuple(shape))
            if section not in sizes:
                sizes[section] = self._container.section(weights_section(section)).size
            if offset % ALIGNMENT or offset + place.nbytes > sizes[section]:
                raise self.fail(
                    f"{what} must begin at a multiple of {ALIGNMENT} and lie within the {sizes[section]} bytes of "
                    f"'{weights_section(section)}', but is {place.nbytes} bytes at byte {offset}"
                )
            places.append(place)
        return tuple(places)

    def _modules(self) -> Mapping[str, Mapping[str, tuple[int, ...]]]:
        """By module and level, the numbers of the parameters that code reads, in its order."""
        modules: dict[str, dict[str, tuple[int, ...]]] = {}
        for name, own in self._entries("modules", dict).items():
            if not isinstance(own, dict) or own.keys() != {level.name for level in self.levels}:
                raise self.fail(f"module {shortened(name)} must be there for each level, but is {shortened(own)}")
            modules[name] = {}
            for level, numbers in own.items():
                if not isinstance(numbers, list) or not all(
                    type(number) is int and 0 <= number < len(self._places) for number in numbers
                ):
                    raise self.fail(
                        f"module {shortened(name)} for {shortened(level)} must list parameters below "
                        f"{len(self._places)}, but lists {shortened(numbers)}"
                    )
                modules[name][level] = tuple(numbers)
        return modules

    # What it has --------------------------------------------------------------------------------------

    def options(self) -> Mapping[str, Json]:
        """What was fixed when it was made, by the names of `load_model` and `load_encoder`."""
        found: dict[str, Json] = self.document.get("options", dict)
        return found

    def agree(self, **given: object) -> None:
        """Raises InputError for options that were fixed otherwise; None for what isn't asked for."""
        fixed = self.options()
        for name, value in given.items():
            if value is not None and value != fixed.get(name):
                raise InputError(
                    f"'{self.path}' was bundled with '{name}' {fixed.get(name)!r}, but {value!r} is asked for"
                )

    def level(self, cpu: str = "") -> Level:
        """The level to run: the one that is asked for, or the best one that this machine has.

        Raises InputError where there is none of that name, ExecutionError, which says what is missing, where the
        machine can't run it, or any of them.
        """
        known = {level.name: level for level in self.levels}
        if cpu and cpu not in known:
            raise InputError(f"'{self.path}' has code for {', '.join(known)}, but 'cpu' {cpu!r} is asked for")
        asked = (known[cpu],) if cpu else self.levels
        lacking = []
        for level in asked:
            missing = level.missing()
            if not missing:
                return level
            lacking.append(f"{level.name} needs {missing}")
        raise ExecutionError(
            f"'{self.path}' has code for {', '.join(known)}, but this machine can't run "
            f"{'that' if len(asked) == 1 else 'any of them'}: {'; '.join(lacking)}"
        )

    def executable(self, module: str, level: Level, *, threads: int | None = None) -> Executable:
        """A module, with its parameters.

        Raises ModelFileError where there is no such module, or parts don't fit each other, CacheError where the code is
        damaged, ExecutionError where it isn't for this machine.
        """
        if module not in self.modules:
            raise self.fail(f"there is no module '{module}', it has {', '.join(self.modules)}")
        artifact = self._container.artifact(code_section(module, level.name))
        if artifact.chip:
            raise self.fail(f"'{module}' must be for CPUs, but is for a GPU, {shortened(artifact.chip)}")
        executable = Executable(artifact, threads=threads)
        numbers = self.modules[module][level.name]
        try:
            executable.set_prepared([self._array(self._places[number]) for number in numbers])
        except InputError as error:
            raise self.fail(f"'{module}' for {level.name}: {error}") from None
        return executable

    def code(self, name: str, level: Level) -> Artifact | None:
        """Code without parameters, which models need beside their modules; None where there is none of that name.

        Raises CacheError where it is damaged.
        """
        section = code_section(name, level.name)
        return self._container.artifact(section) if section in self._container.sections else None

    def section(self, name: str) -> bytes:
        """The bytes of a section, which have its digest; raises CacheError."""
        return self._container.read(name)

    def verify(self) -> None:
        """Reads every section, weights too, and compares digests; raises CacheError where one is damaged."""
        for name in self._container.sections:
            self._container.check(name)

    def _array(self, place: Place) -> np.ndarray:
        """A parameter, a read-only view of the mapped file."""
        if place.section not in self._sections:
            self._sections[place.section] = self._container.map(weights_section(place.section))
        raw = self._sections[place.section][place.offset : place.offset + place.nbytes]
        return raw.view(DTYPES[place.dtype]).reshape(place.shape)


def open_bundle(path: Path, kind: str) -> Bundle:
    """An open bundle of a kind of model; InputError, which says what it is for, where it is of the other kind."""
    bundle = Bundle(path)
    if bundle.kind != kind:
        uses = {
            "decoder": "a language model: use load_model, or rlx generate",
            "encoder": "an encoder, which makes vectors of texts: use load_encoder, or rlx embed",
        }
        raise InputError(f"'{path}' is a bundle of {uses[bundle.kind]}")
    return bundle


__all__ = [
    "ALIGNMENT",
    "KINDS",
    "MANIFEST",
    "METADATA",
    "NATIVE",
    "TEXT",
    "THREADS",
    "TOKENIZER",
    "VERSION",
    "Bundle",
    "Level",
    "Place",
    "bundle_at",
    "code_section",
    "open_bundle",
    "weights_section",
]
