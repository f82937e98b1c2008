# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much errors of a matrix's columns count: mean squares of what they are multiplied by, over a text.

An error e of a weight changes a product by e times the input of its column, so that the sum of squares of what rounding
changes is, on average over tokens, the sum of e^2 times the mean square of the input. They are collected by running a
model over a text, or read from the files of llama.cpp's tool `imatrix`, of both forms.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from rlx_mlir import checks
from rlx_mlir.checks import Option
from rlx_mlir.errors import ExecutionError, InputError, ModelFileError
from rlx_mlir.files import check_regular, open_regular, read_bytes, read_text
from rlx_mlir.frontends.gguf import MAGIC, GGUFFile
from rlx_mlir.frontends.model_file import MetadataValue, ModelFile, TensorInfo
from rlx_mlir.models.config import ModelConfig, check_context
from rlx_mlir.models.json_tokenizer import tokenizer_of

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule, Value
    from rlx_mlir.runtime.executable import Executable

Floats = npt.NDArray[np.float32]

_LENGTH = 512
"""Tokens that are run at once, each time from a first one on."""

_SUM, _COUNT = ".in_sum2", ".counts"


@dataclass(frozen=True)
class Importance:
    """Mean squares of inputs.

    Attributes:
        squares: by the names of weights, f32 [matrices, inputs]: one row, or one for each expert.
        origin: what they are from: a file, or a text.
        chunks: how many runs.
    """

    squares: Mapping[str, Floats]
    origin: str
    chunks: int

    def has(self, name: str) -> bool:
        """Whether they say anything of a weight."""
        found = self.squares.get(name)
        return found is not None and bool(found.any())

    def of(self, name: str, matrices: int, k: int) -> Floats | None:
        """Those of a weight, [matrices, k]; None where there are none, or all are 0."""
        if not self.has(name):
            return None
        found = self.squares[name]
        return np.broadcast_to(found, (matrices, k)) if len(found) == 1 else found

    def check(self, tensors: Mapping[str, TensorInfo]) -> None:
        """InputError where they aren't those of a model with these tensors."""
        for name, own in self.squares.items():
            info = tensors.get(name)
            if info is None:
                raise InputError(f"{self.origin} is of another model: it has '{name}', which the model lacks")
            matrices = info.shape[0] if len(info.shape) == 3 else 1
            if own.shape[1] != info.k or len(own) not in (1, matrices):
                raise InputError(
                    f"{self.origin} is of another model: it has {list(own.shape)} numbers for '{name}', but the "
                    f"tensor has {matrices} of {info.k} columns"
                )
        if not self.squares:
            raise InputError(f"{self.origin} has no matrix")

    def metadata(self) -> dict[str, MetadataValue]:
        """What files that are made with them say."""
        return {
            "quantize.imatrix.file": self.origin,
            "quantize.imatrix.entries_count": len(self.squares),
            "quantize.imatrix.chunks_count": self.chunks,
        }


# Files ------------------------------------------------------------------------------------------------


def read_importance(path: str | os.PathLike[str]) -> Importance:
    """Reads a file of llama.cpp's tool: a GGUF file of the type `imatrix`, or the form of before.

    Raises GGUFError, ModelFileError for files that are malformed, InputError for a GGUF file of something else.
    """
    with open_regular(path) as file:
        magic = file.read(len(MAGIC))
    return _from_gguf(path) if magic == MAGIC else _from_dat(path)


def _from_gguf(path: str | os.PathLike[str]) -> Importance:
    with GGUFFile(path) as file:
        if (kind := file.metadata.get("general.type")) != "imatrix":
            raise InputError(f"{path} has no importance matrix: its 'general.type' must be 'imatrix', but is {kind!r}")
        squares = {}
        for name in file.tensors:
            if not name.endswith(_SUM):
                continue
            weight = name.removesuffix(_SUM)
            sums, counts = file.dequantize(name), file.dequantize(weight + _COUNT)
            sums = sums.reshape(-1, sums.shape[-1])
            counts = counts.reshape(-1, 1)
            if len(counts) != len(sums):
                raise ModelFileError(
                    f"'{weight + _COUNT}' must have {len(sums)} numbers, those of '{name}', but has {len(counts)}",
                    path=os.fspath(path),
                )
            squares[weight] = _means(sums, counts)
        chunks = file.metadata.get("imatrix.chunk_count", 0)
    return Importance(squares, os.fspath(path), int(chunks))


def _means(sums: np.ndarray, counts: np.ndarray) -> Floats:
    """Sums by how many they are of; ones where an expert saw nothing, which says nothing of it."""
    means = np.divide(sums, counts, out=np.ones(sums.shape, np.float64), where=np.broadcast_to(counts > 0, sums.shape))
    found: Floats = means.astype(np.float32)
    return found


class _Words:
    """Numbers of a file of the earlier form, one after the other."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.data, self.at = os.fspath(path), read_bytes(path), 0

    def take(self, size: int, what: str) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise ModelFileError(
                f"no importance matrix, or a part of one: at byte {self.at}, {what} needs {size} bytes, but there are "
                f"{len(self.data) - self.at}",
                path=self.path,
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, what: str) -> int:
        return int(struct.unpack("<i", self.take(4, what))[0])


def _from_dat(path: str | os.PathLike[str]) -> Importance:
    words = _Words(path)
    squares = {}
    for _ in range(words.number("the number of entries")):
        name = words.take(words.number("the length of a name"), "a name").decode("utf-8", "replace")
        calls, count = words.number("a number of calls"), words.number("a number of columns")
        values = np.frombuffer(words.take(4 * count, f"the numbers of '{name}'"), "<f4")
        squares[name] = _means(values[None].astype(np.float64), np.full((1, 1), calls))
    has_more = words.at < len(words.data)
    return Importance(squares, os.fspath(path), words.number("the number of chunks") if has_more else 0)


# Collecting -------------------------------------------------------------------------------------------


def collect_importance(
    file: ModelFile,
    text: str,
    *,
    origin: str = "text",
    length: int | None = None,
    chunks: int | None = None,
    threads: int | None = None,
    cache: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Importance:
    """Runs a model over a text, and gives the mean squares of what the products of its layers multiply.

    Args:
        file: the model.
        text: in which no special tokens are recognised. It is cut into runs of `length` tokens; what is left of it
            counts only where it is all there is. Each begins with the token that begins texts, in place of its first
            one, where the vocabulary asks for that.
        origin: what the text is called.
        length: 512, or the model's context where that is shorter.
        chunks: runs at most; all by default.
        threads, cache: see `rlx.compile`.
        progress: is told how many runs are done, and how many there are.

    Raises InputError where the text has no two tokens, ExecutionError where squares aren't finite, and what opening a
    tokenizer, compiling and running raise.
    """
    from rlx_mlir.compiler import compile_cached
    from rlx_mlir.models import decoder

    checks.text("text", text)
    config = ModelConfig.from_gguf(file)
    tokenizer = tokenizer_of(file.metadata, origin=file.path or "")
    ids = tokenizer.tokenize(text)
    if len(ids) < 2:
        raise InputError(f"an importance matrix is of a text of two tokens at least, but {origin} has {len(ids)}")
    size = min(check_context(config, length, _LENGTH), len(ids))
    runs = [list(ids[at : at + size]) for at in range(0, len(ids) - size + 1, size)][:chunks]
    if tokenizer.add_bos and tokenizer.bos_id is not None:
        for run in runs:
            run[0] = tokenizer.bos_id
    described = {"program": "quantizing.importance", "length": size, **decoder.described(config)}
    executable = cast(
        "Executable",
        compile_cached(described, partial(_graph, config, size), threads=threads, cache=cache, activations="exact"),
    )
    executable.set_params(decoder.parameters(config, file, size))
    sums: dict[str, np.ndarray] = {}
    for number, run in enumerate(runs):
        if progress is not None:
            progress(number, len(runs))
        for name, found in executable.run({"tokens": np.array([run], np.int32)}).items():
            sums[name] = sums.get(name, 0) + found.astype(np.float64)
    if progress is not None:
        progress(len(runs), len(runs))
    return Importance(_by_weight(sums, size * len(runs)), origin, len(runs))


def _by_weight(sums: Mapping[str, np.ndarray], tokens: int) -> dict[str, Floats]:
    """Mean squares by the names of weights, of the sums that the graph gives."""
    squares = {}
    for name, own in sums.items():
        if name.endswith(_COUNT):
            continue
        if not np.isfinite(own).all():
            raise ExecutionError(f"inputs of '{name}' aren't finite: their squares say nothing")
        counts = sums[name + _COUNT][:, None] if name + _COUNT in sums else np.full((1, 1), tokens)
        squares[f"{name}.weight"] = _means(own.reshape(-1, own.shape[-1]), counts)
    return squares


def _graph(config: ModelConfig, length: int) -> GraphModule:
    """Sums of squares of the inputs of all products, f32 [inputs], or [experts, inputs] and how many rows each saw."""
    from rlx_mlir.models.observed import Watch, build_observed

    seen: list[tuple[str, Value]] = []
    routed: list[tuple[str, Value, Value]] = []
    watch = Watch(
        operand=lambda name, x: seen.append((name, x)),
        routed=lambda name, x, experts: routed.append((name, x, experts)),
    )
    graph = build_observed(config, length, watch, name="importance")
    outputs: dict[str, Value] = {}
    made: list[tuple[Value, Value]] = []
    for name, x in seen:
        found = next((total for value, total in made if value is x), None)
        if found is None:  # queries, keys and values multiply the same
            rows = graph.reshape(x, [-1, x.shape[-1]], name="squares")
            found = graph.sum(graph.mul(rows, rows, name="squares"), 0, name="squares")
            made.append((x, found))
        outputs[name] = found
    for name, x, experts in routed:
        numbers = graph.reshape(graph.iota([config.experts], 0, "i32"), [config.experts, 1], name="squares")
        own = graph.cast(graph.eq(numbers, experts, name="squares"), "f32", name="squares")
        outputs[name] = graph.matmul(own, graph.mul(x, x, name="squares"), name="squares")
        outputs[name + _COUNT] = graph.sum(own, 1, name="squares")
    graph.set_outputs(outputs)
    return graph


def is_matrix(path: Path) -> bool:
    """Whether a file is taken for an importance matrix, by its name, and not for a text."""
    return path.suffix in (".gguf", ".dat")


def importance_of(given: str | os.PathLike[str], file: ModelFile, **options: Option) -> Importance:
    """An importance matrix, of a file that has one, or else of a text that the model is run over.

    Args:
        given: a GGUF file, one whose name ends in .dat, or a text in UTF-8.
        file: the model.
        options: those of `collect_importance`.
    """
    path = Path(given)
    check_regular(path)
    if is_matrix(path):
        return read_importance(path)
    return collect_importance(file, read_text(path), origin=path.name, **options)


__all__ = ["Importance", "collect_importance", "importance_of", "is_matrix", "read_importance"]
