# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose weights are quantised while they are loaded: matrices of f32, f16 and bf16 become blocks of few bits.

What it gives is kept in the cache as a GGUF file, with the same weights by the same names, which later starts map; of
one model and one type there is one. Metadata stay those of the model.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import CacheError, InputError, RlxError, reason_of
from ..formats import FORMATS_BY_ID, get_format
from ..formats.pieces import encoded_pieces
from ..frontends.gguf import GGUFFile, Tensor, write_gguf
from ..frontends.model_file import ModelFile, ModelMetadata, TensorInfo
from ..paths import cache_dir, check_private, make_private
from ..runtime import prepared_cache
from .config import VECTOR_TYPES, WEIGHT_TYPES, ModelConfig
from .weights import raw_rows, replaced_weights

NEEDS_IMPORTANCE = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs")
"""Types of so few bits that matrices are of use only where errors count by an importance matrix."""

QUANTISED = tuple(
    fmt.name
    for fmt in FORMATS_BY_ID.values()
    if fmt.name in WEIGHT_TYPES and fmt.encodable and fmt.name not in NEEDS_IMPORTANCE
)
"""Types that matrices can be quantised to."""

_WIDER = {
    **{"q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0", "q8_k": "q8_0"},
    **{"tq1_0": "q4_0", "tq2_0": "q4_0", "q1_0": "q4_0"},
    **dict.fromkeys((*NEEDS_IMPORTANCE, "iq3_s", "iq4_xs"), "iq4_nl"),
}
"""What a matrix becomes whose rows aren't a multiple of the type's blocks: a type of blocks of 32, with more bits."""

_ROUTERS = "ffn_gate_inp.weight"
"""The end of the names of matrices that choose experts: they stay as they are, as a choice has no small errors."""


def quantised_type(kind: str, k: int) -> str | None:
    """The type of a matrix with rows of ``k`` elements where ``kind`` is asked for; None where it stays as it is.

    Where rows aren't a multiple of the type's blocks, it is a wider type with blocks of 32; where they aren't a
    multiple of these either, none.
    """
    own: str | None = kind
    while own is not None and k % get_format(own).block:
        own = _WIDER.get(own)
    return own


def check_quantize(kind: str) -> str:
    """The type; InputError for one that matrices can't be quantised to."""
    if kind in NEEDS_IMPORTANCE:
        raise InputError(f"'quantize' can't be {kind!r}, which needs an importance matrix: `rlx quantize` takes one")
    if kind not in QUANTISED:
        raise InputError(f"'quantize' must be one of {', '.join(sorted(QUANTISED))}, but is {kind!r}")
    return kind


class QuantisedFile(ModelFile):
    """A model whose weights are in another file.

    Attributes:
        source: the model, whose metadata this has.
    """

    def __init__(self, source: ModelFile, weights: GGUFFile) -> None:
        self.source, self._weights = source, weights
        self.path: str | None = source.path
        self.metadata: ModelMetadata = source.metadata
        self.tensors: Mapping[str, TensorInfo] = weights.tensors
        self.statuses = weights.statuses

    @property
    def paths(self) -> tuple[str | None, ...]:
        """See `ModelFile`."""
        return self._weights.paths

    @property
    def mappings(self) -> tuple[mmap.mmap, ...]:
        """See `ModelFile`."""
        return self._weights.mappings

    def fingerprint(self) -> str:
        """See `ModelFile`."""
        return self._weights.fingerprint()

    def release(self) -> None:
        """See `ModelFile`."""
        self._weights.release()

    def close(self) -> None:
        """See `ModelFile`."""
        self._weights.close()
        self.source.close()

    def _bytes(self, info: TensorInfo) -> npt.NDArray[np.uint8]:
        """See `ModelFile`."""
        return self._weights._bytes(info)


def quantised(
    file: ModelFile,
    config: ModelConfig,
    kind: str,
    *,
    nonfinite: str = "refuse",
    cache: bool = True,
    say: Callable[[str], object] = lambda text: None,
) -> tuple[ModelFile, ModelConfig]:
    """A model with its matrices quantised, and its configuration; the same ones where none is of f32, f16 or bf16.

    Args:
        file, config: the model.
        kind: one of `QUANTISED`; see `quantised_type`.
        nonfinite: see `load_model`.
        cache: keep the weights for later starts, and use them; else they are in a temporary file without a name.
        say: is told what is done.

    Raises InputError for another type, and for weights that it can't hold; GGUFError for weights that aren't finite;
    CacheError where the file can't be written.
    """
    check_quantize(kind)
    types = {name: own for name, info in config.weights.items() if (own := _type_of(name, info, kind)) is not None}
    if not types:
        return file, config
    if cache:
        path = _place(file, kind, nonfinite)
        if (stored := _kept(path, config)) is None:
            _write(path, file, config, types, nonfinite, say)
            for other in path.parent.glob(f"{path.name.partition('-')[0]}-*.gguf"):
                if other != path:  # of what the model was before
                    other.unlink(missing_ok=True)
            stored = GGUFFile(path)
    else:
        with tempfile.TemporaryDirectory(prefix="rlx-quantised-") as folder:
            stored = GGUFFile(_write(Path(folder) / "weights.gguf", file, config, types, nonfinite, say))
        stored.statuses = {}  # nobody finds it again
    file.release()
    return QuantisedFile(file, stored), replace(config, weights={name: stored.tensors[name] for name in config.weights})


def _type_of(name: str, info: TensorInfo, kind: str) -> str | None:
    """The type that a weight becomes; None where it stays as it is."""
    if len(info.shape) < 2 or info.type not in VECTOR_TYPES or name.endswith((_ROUTERS, ".bias")):
        return None
    own = quantised_type(kind, info.k)
    return None if own == info.type else own


def _place(file: ModelFile, kind: str, nonfinite: str) -> Path:
    """The file of the cache: the first word is for the model and the type, the second for what is in the model."""
    paths = [os.path.abspath(path) for path in file.paths if path is not None]
    system = [prepared_cache.system_identity(status) for status in file.statuses.values()]
    words = ([paths, kind, nonfinite], [file.fingerprint(), system, _code()])
    digests = (hashlib.sha256(json.dumps(word).encode()).hexdigest()[:24] for word in words)
    return cache_dir() / "models" / "quantised" / f"{'-'.join(digests)}.gguf"


def _code() -> str:
    """A digest of what quantises."""
    home = Path(__file__).resolve().parent.parent
    files = [Path(__file__), *sorted((home / "formats").glob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _kept(path: Path, config: ModelConfig) -> GGUFFile | None:
    """The file, where there is one that can be used."""
    try:
        if not path.is_file():
            return None
        check_private(path.parent)
        stored = GGUFFile(path)
    except (OSError, RlxError):
        return None
    shapes = {name: info.shape for name, info in stored.tensors.items()}
    return stored if shapes == {name: info.shape for name, info in config.weights.items()} else None


def _write(
    path: Path,
    file: ModelFile,
    config: ModelConfig,
    types: Mapping[str, str],
    nonfinite: str,
    say: Callable[[str], object],
) -> Path:
    """Writes all weights, some of them quantised."""
    tensors: dict[str, Tensor] = {}
    for name, info in config.weights.items():
        pieces = _pieces(file, info, types.get(name), nonfinite, say)
        tensors[name] = types.get(name, info.type), pieces, info.shape
    try:
        make_private(path.parent)
        return write_gguf(path, {"general.architecture": config.architecture}, tensors)
    except OSError as error:
        raise CacheError(f"quantised weights can't be written to {path}: {reason_of(error)}") from error


def _pieces(
    file: ModelFile, info: TensorInfo, kind: str | None, nonfinite: str, say: Callable[[str], object]
) -> Iterator[np.ndarray]:
    """The bytes of a weight, some rows at a time."""
    found = replaced_weights(file, iter([info]), nonfinite)
    rows = found[info.name] if info.name in found else raw_rows(file, info)
    if kind is None:
        yield rows
        return
    say(f"quantising {info.name}")
    dense = get_format(info.type_id).dense
    assert dense is not None
    values = rows.view(dense)
    try:
        yield from encoded_pieces(kind, lambda start, stop: values[start:stop].astype(np.float32), info.rows, info.k)
    except InputError as error:
        raise InputError(f"tensor '{info.name}' can't be quantised to {kind}: {error}") from None
    file.release()


__all__ = ["QUANTISED", "QuantisedFile", "check_quantize", "quantised", "quantised_type"]
