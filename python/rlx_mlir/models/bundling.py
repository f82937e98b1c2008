# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writing of bundles: modules of a model are compiled for some CPUs, and its parameters prepared once for all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np

from .. import checks
from ..activations import AUTO
from ..checks import Option
from ..dtypes import DTYPES
from ..errors import InputError
from ..files import Json
from ..limits import in_threads
from ..paths import check_place
from ..place import located
from ..runtime.artifact import Artifact
from ..runtime.container import ContainerWriter, SectionWriter, write_container
from ..runtime.prepare import Prepared, place_source, prepare
from ..version import __version__
from . import decoder, embedding, encoder
from .bundle import (
    ALIGNMENT,
    MANIFEST,
    METADATA,
    NATIVE,
    TEXT,
    THREADS,
    TOKENIZER,
    VERSION,
    Level,
    Place,
    bundle_at,
    code_section,
    weights_section,
)
from .bundled_file import described_tensors, metadata_section
from .decode_threads import LEAST_BYTES, product_artifact
from .hub import ENCODERS, is_encoder_folder
from .programs import program_artifact
from .source import Source, check_options, open_source
from .text_section import text_section
from .weights import replaced_weights

Progress = Callable[[str], None]

#: Bytes of parameters after which it is said how many there are.
_SAID = 16 << 20
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.+-]{0,31}")


@dataclass(frozen=True)
class BundleReport:
    """What a bundle that was written has.

    Attributes:
        path: the file.
        size: its bytes.
        kind: `decoder` or `encoder`.
        levels: the CPUs that there is code for, the best ones first.
        modules: names of the modules.
        code_bytes, weight_bytes: of all levels together.
    """

    path: str
    size: int
    kind: str
    levels: tuple[str, ...]
    modules: tuple[str, ...]
    code_bytes: int
    weight_bytes: int

    def to_dict(self) -> dict[str, object]:
        """As JSON can write it."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.size / 1e6:.1f} MB: code of {', '.join(self.modules)} for {', '.join(self.levels)} "
            f"({self.code_bytes / 1e6:.1f} MB), weights ({self.weight_bytes / 1e6:.1f} MB)"
        )


@located
def bundle(
    path_or_name: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    cpu: str | Sequence[str] = NATIVE,
    activations: str = AUTO,
    context: int | None = None,
    chunk: int | None = None,
    kv_dtype: str | None = None,
    nonfinite: str | None = None,
    quantize: str | None = None,
    lora: str | os.PathLike[str] | None = None,
    batch: int | None = None,
    max_tokens: int | None = None,
    time_limit: float | None = None,
    cache: bool = True,
    download: bool = True,
    progress: Progress | None = None,
) -> BundleReport:
    """Writes a model as one file, which `load_model`, `load_encoder` and the commands run without compiling anything.

    The file has the code of all modules for some CPUs, weights as that code reads them, vocabulary and chat template.
    It appears whole or not at all.

    Args:
        path_or_name: a language model, as `load_model` takes it, or an encoder, as `load_encoder` does.
        path: the file, usually named ``….rlx``.
        cpu: the CPUs that there is code for, as LLVM names them: levels such as ``x86-64-v3`` and ``x86-64-v4``, or
            ``native`` for that of this machine. Where it is loaded, the best one of them that the machine has is taken.
        activations, context, chunk, kv_dtype, nonfinite, quantize, lora: of a language model, see `load_model`; they
            are fixed in the bundle.
        batch, max_tokens: of an encoder, see `load_encoder`: the most that a bundle can do.
        time_limit, cache, download, progress: see `load_model`.

    Raises InputError for bad arguments and for CPUs that LLVM doesn't know, OSError where the file can't be written,
    and what `load_model` and `load_encoder` raise.
    """
    checks.path("path_or_name", path_or_name)
    target = checks.path("path", path)
    levels = _names(cpu)
    check_options(activations=activations, chunk=chunk, kv_dtype=kv_dtype, nonfinite=nonfinite, quantize=quantize)
    checks.flag("cache", cache)
    checks.flag("download", download)
    if progress is not None:
        checks.callback("progress", progress, "text")
    say = progress or (lambda text: None)
    say(f"opening {os.fspath(path_or_name)}")
    if bundle_at(path_or_name) is not None:
        raise InputError(f"'{os.fspath(path_or_name)}' is a bundle already: bundle the model that it was made of")
    check_place(target)  # before anything is compiled
    compiled: dict[str, Option] = {"time_limit": time_limit, "cache": cache}
    if _is_encoder(path_or_name):
        given: dict[str, object] = {"context": context, "chunk": chunk, "kv_dtype": kv_dtype, "nonfinite": nonfinite}
        given |= {"quantize": quantize, "lora": lora, "activations": None if activations == AUTO else activations}
        _refuse(path_or_name, "an encoder", given)
        files = embedding.open_encoder(path_or_name, max_tokens, download=download, progress=progress is not None)
        most = embedding.BATCH if batch is None else checks.whole("batch", batch, 1)
        return _write_encoder(files, most, target, levels, compiled, say)
    _refuse(path_or_name, "a language model", {"batch": batch, "max_tokens": max_tokens})
    source = open_source(
        path_or_name,
        activations=activations,
        context=context,
        chunk=chunk,
        kv_dtype=kv_dtype,
        nonfinite=nonfinite,
        quantize=quantize,
        lora=lora,
        cache=cache,
        download=download,
        progress=progress,
    )
    return _write_source(source, target, levels, compiled, say)


def bundle_source(
    source: Source,
    path: str | os.PathLike[str],
    *,
    cpu: str | Sequence[str] = NATIVE,
    time_limit: float | None = None,
    cache: bool = True,
    progress: Progress | None = None,
) -> BundleReport:
    """Writes the bundle of a language model that is open already; arguments and errors are those of `bundle`."""
    target = checks.path("path", path)
    levels = _names(cpu)
    checks.flag("cache", cache)
    if progress is not None:
        checks.callback("progress", progress, "text")
    check_place(target)
    compiled = {"time_limit": time_limit, "cache": cache}
    return _write_source(source, target, levels, compiled, progress or (lambda text: None))


def _names(cpu: object) -> tuple[str, ...]:
    """The names of levels."""
    given = (cpu,) if isinstance(cpu, str) else checks.names("cpu", cpu)
    for name in given:
        if not _NAME.fullmatch(name):
            raise InputError(
                f"'cpu' is {NATIVE} or a CPU as LLVM names it, such as x86-64-v3, but got {checks.shown(name)}"
            )
    if not given or len(set(given)) != len(given):
        raise InputError(f"'cpu' names one CPU or several, each once, but got {', '.join(given) or 'none'}")
    return tuple(given)


def _is_encoder(path_or_name: str | os.PathLike[str]) -> bool:
    if isinstance(path_or_name, str) and path_or_name.lower() in ENCODERS:
        return True
    folder = Path(path_or_name).expanduser() if isinstance(path_or_name, str) else Path(path_or_name)
    return folder.is_dir() and is_encoder_folder(folder)


def _refuse(model: object, what: str, given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError(f"'{name}' says nothing about '{model}', which is {what}, but is {value!r}")


# Of language models -----------------------------------------------------------------------------------


def _write_source(
    source: Source, path: Path, levels: Sequence[str], compiled: Mapping[str, Option], say: Progress
) -> BundleReport:
    def make(module: str, cpu: str) -> Artifact:
        return program_artifact(
            source.config,
            module,
            context=source.context,
            chunk=source.chunk,
            ranks=source.ranks,
            activations=source.activations,
            cpu=cpu,
            **compiled,
        )

    codes = _compiled(decoder.modules_of(source.config), levels, make, say)
    others: dict[str, Artifact] = {}
    if source.config.read_bytes >= LEAST_BYTES:
        for level in codes:
            cpu = "" if level.name == NATIVE else level.name
            product = product_artifact(source.activations, cpu=cpu, cache=bool(compiled["cache"]))
            others[code_section(THREADS, level.name)] = product
    say("reading weights")
    replaced = replaced_weights(source.file, iter(source.config.weights.values()), source.nonfinite)
    params = decoder.parameters(source.config, source.file, source.context, replaced)
    manifest = {
        "kind": "decoder",
        "options": {
            "context": source.context,
            "chunk": source.chunk,
            "activations": source.activations,
            "kv_dtype": source.config.kv_dtype,
            "nonfinite": source.nonfinite,
            "quantize": source.quantize,
        },
        "identity": source.identity,
        "ranks": dict(source.ranks),
        "tensors": described_tensors(source.config.weights),
    }
    sections = {METADATA: metadata_section(source.file), TEXT: text_section(source.file.metadata)}
    params = {**params, **source.added}
    report = _write(path, manifest, sections, codes, params, say, others=others, release=source.file.release)
    source.file.release()
    return report


# Of encoders ------------------------------------------------------------------------------------------


def _write_encoder(
    files: embedding.EncoderFiles,
    batch: int,
    path: Path,
    levels: Sequence[str],
    compiled: Mapping[str, Option],
    say: Progress,
) -> BundleReport:
    config = files.config

    def make(module: str, cpu: str) -> Artifact:
        from ..compiler import cached_artifact

        artifact: Artifact = cached_artifact(
            encoder.describe(config),
            partial(encoder.build, config),
            maxima=embedding.maxima(config, batch),
            cpu=cpu,
            **compiled,
        )
        return artifact

    codes = _compiled((encoder.PROGRAM,), levels, make, say)
    text, side = files.tokenizer.description
    manifest = {
        "kind": "encoder",
        "options": {"batch": batch, "max_tokens": config.max_tokens},
        "encoder": {**config.numbers(), "texts": asdict(config.texts)},
        "truncation_side": side,
    }
    params = encoder.parameters(config, files.weights)
    return _write(path, manifest, {TOKENIZER: text.encode()}, codes, params, say)


# Of both ----------------------------------------------------------------------------------------------

#: By level, the best ones first: code by module.
_Codes = Mapping[Level, Mapping[str, Artifact]]


def _compiled(
    modules: Sequence[str], levels: Sequence[str], make: Callable[[str, str], Artifact], say: Progress
) -> _Codes:
    """The code of each module for each CPU; several are compiled at a time."""
    found: dict[Level, dict[str, Artifact]] = {}
    for number, name in enumerate(levels):
        say(f"compiling {', '.join(modules)} for {name}, {number + 1} of {len(levels)}")
        calls = [partial(copy_context().run, make, module, "" if name == NATIVE else name) for module in modules]
        artifacts = in_threads(calls)
        found[Level(name, **artifacts[0].target)] = dict(zip(modules, artifacts, strict=True))
    return dict(sorted(found.items(), key=lambda own: -own[0].instructions))


def _write(
    path: Path,
    manifest: Mapping[str, Json],
    sections: Mapping[str, bytes],
    codes: _Codes,
    params: Mapping[str, np.ndarray],
    say: Progress,
    *,
    others: Mapping[str, Artifact] = MappingProxyType({}),
    release: Callable[[], None] = lambda: None,
) -> BundleReport:
    """Writes the file.

    Args:
        path: where.
        manifest: what is of this kind of models alone.
        sections: likewise, by name.
        codes: of the modules.
        params: what callers would set, by name.
        say: is told what is done.
        others: code that has no parameters, by the section.
        release: gives pages of the model's file back that were read.
    """
    with write_container(path) as writer:
        for name, content in sections.items():
            writer.add(name, content)
        for level, modules in codes.items():
            for module, artifact in modules.items():
                writer.add_artifact(code_section(module, level.name), artifact)
        for name, artifact in others.items():
            writer.add_artifact(name, artifact)
        code_bytes = sum(len(artifact.code) for modules in codes.values() for artifact in modules.values())
        weights = _Weights(params, release, say)
        numbers: dict[str, dict[str, list[int]]] = {module: {} for modules in codes.values() for module in modules}
        for number, (level, modules) in enumerate(codes.items()):
            for module, own in weights.write(writer, number, modules).items():
                numbers[module][level.name] = own
        document = {
            "version": VERSION,
            "made_by": __version__,
            **manifest,
            "levels": [asdict(level) for level in codes],
            "modules": numbers,
            "parameters": [[own.section, own.offset, own.dtype, list(own.shape)] for own in weights.places],
        }
        writer.add(MANIFEST, json.dumps(document, separators=(",", ":")).encode())
    return BundleReport(
        str(path),
        path.stat().st_size,
        manifest["kind"],
        tuple(level.name for level in codes),
        tuple(numbers),
        code_bytes,
        sum(place.nbytes for place in weights.places),
    )


class _Weights:
    """Prepares parameters and writes each once, whatever reads it.

    Attributes:
        places: of those that are written.
    """

    def __init__(self, params: Mapping[str, np.ndarray], release: Callable[[], None], say: Progress) -> None:
        self.places: list[Place] = []
        self._params = params
        self._release = release
        self._say = say
        self._shared: dict[str, Prepared] = {}
        self._said = self._written = 0

    def write(self, writer: ContainerWriter, number: int, modules: Mapping[str, Artifact]) -> dict[str, list[int]]:
        """Writes a section with what code reads and no section before has; by module, the numbers of its parameters."""
        with writer.section(weights_section(number)) as section:
            return {module: self._numbers(artifact, section, number) for module, artifact in modules.items()}

    def _numbers(self, artifact: Artifact, section: SectionWriter, number: int) -> list[int]:
        def place(name: str, array: np.ndarray) -> int:
            return self._add(section, number, array)

        preparation = artifact.preparation
        sources = {name: self._params[name] for name in preparation.sources}
        numbers = prepare(preparation, sources, self._shared, place)
        for spec in artifact.plan_parameters:
            if spec.name not in numbers:  # used as it is; bytes of packed weights are signed there
                source = self._params[spec.name].view(DTYPES[spec.dtype])
                numbers[spec.name] = place_source(spec.name, source, self._shared, place, "")
        return [numbers[spec.name] for spec in artifact.plan_parameters]

    def _add(self, section: SectionWriter, number: int, array: np.ndarray) -> int:
        offset = section.align(ALIGNMENT)
        array = np.asarray(array, order="C")
        section.write(array.reshape(-1).view(np.uint8))
        word = next(word for word, kind in DTYPES.items() if kind == array.dtype)
        self.places.append(Place(number, offset, word, array.shape))
        self._release()
        self._written += array.nbytes
        if self._written - self._said >= _SAID:
            self._said = self._written
            self._say(f"writing weights, {self._written / 1e6:.0f} MB so far")
        return len(self.places) - 1


__all__ = ["BundleReport", "bundle", "bundle_source"]
