# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of the sizes that users have, with random weights: what times depend on, without a download.

A file is a whole GGUF model that other implementations load too: matrices of the types that llama.cpp's quantiser
mixes, norms of ones, and a synthetic byte-level vocabulary. What it writes means nothing, but its activations are of
order 1 in every layer: elements of a matrix of K columns have mean 0 and standard deviation 1 / sqrt(K).

Blocks of weights are drawn, with replacement, from some thousands that were quantised from normal numbers: a file is
written about as fast as the disk takes it, and its bytes depend on the shape and the seed alone.
"""

from __future__ import annotations

import math
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase

import numpy as np

from rlx_mlir.errors import GGUFError, InputError
from rlx_mlir.formats import encode, get_format
from rlx_mlir.frontends.gguf import GGUFFile, Tensor, write_gguf
from rlx_mlir.frontends.model_file import MetadataValue
from rlx_mlir.models.mixes import Rules, is_quantised, named_mix
from rlx_mlir.models.tokenizer import TokenType, byte_alphabet
from rlx_mlir.paths import cache_dir, make_private
from rlx_mlir.runtime.shown import size_text

#: Elements from which blocks are drawn, of each format and number of columns.
_POOL = 1 << 21
#: Bytes of one piece of a tensor, about.
_PIECE = 8 << 20
#: Changes with what is written for a shape and a seed, so that files of before aren't taken for those of now.
_REVISION = 2
#: In a file's metadata: what it was made from.
_ORIGIN = "rlx.shape"

_SPECIAL = ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>")
_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|eot_id|>{% endfor %}"

#: Told what is done, in a few words.
Say = Callable[[str], None]


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder of the architecture `llama`, and the types of its matrices.

    Attributes:
        name: such as 7b-q4_0.
        layers, hidden, ffn, heads, kv_heads, vocab: as in `ModelConfig`; heads have hidden / heads elements.
        mix: of types, one of `MIXES`.
        experts, used: feed-forward networks of a layer, and those that a token has; 0 where it has one network.
        tied: the embedding table is the output matrix too.
        rope_base: of rotations.
        context: positions.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    mix: str
    tied: bool = False
    rope_base: float = 10000.0
    context: int = 131072
    experts: int = 0
    used: int = 0

    def matrices(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The type and shape, [rows, columns], of each matrix by name, in the order of the file; those of experts are
        [experts, rows, columns]."""
        kv = self.hidden // self.heads * self.kv_heads
        table = (self.vocab, self.hidden)
        found: dict[str, tuple[int, ...]] = {"token_embd.weight": table}
        if not self.tied:
            found["output.weight"] = table
        suffix, outer = ("_exps", (self.experts,)) if self.experts else ("", ())
        router = {"ffn_gate_inp": (self.experts, self.hidden)} if self.experts else {}
        for layer in range(self.layers):
            own = {
                "attn_q": (self.hidden, self.hidden),
                "attn_k": (kv, self.hidden),
                "attn_v": (kv, self.hidden),
                "attn_output": (self.hidden, self.hidden),
                **router,
                f"ffn_gate{suffix}": (*outer, self.ffn, self.hidden),
                f"ffn_up{suffix}": (*outer, self.ffn, self.hidden),
                f"ffn_down{suffix}": (*outer, self.hidden, self.ffn),
            }
            found |= {f"blk.{layer}.{name}.weight": shape for name, shape in own.items()}
        rules = self._rules()

        def kind(name: str, k: int) -> str:
            return rules.type_of(name, k) if is_quantised(name, 2) else "f32"

        return {name: (kind(name, shape[-1]), shape) for name, shape in found.items()}

    def _rules(self) -> Rules:
        grouped = self.heads // self.kv_heads
        return Rules(named_mix(self.mix), self.layers, grouped, self.experts, tied=self.tied)

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices; the file has few more."""
        return sum(math.prod(rows) * get_format(kind).row_bytes(k) for kind, (*rows, k) in self.matrices().values())


MIXES = ("q4_0", "q8_0", "q4_k_m")
"""Of `rlx_mlir.models.mixes`, those that shapes are made of."""


#: Shapes by the sizes that their models are called by; the name of a file adds the mix.
SIZES = {
    "1b": Shape("1b", 16, 2048, 8192, 32, 8, 128256, "", tied=True, rope_base=500000.0),
    "7b": Shape("7b", 32, 4096, 11008, 32, 32, 32000, ""),
    "8b": Shape("8b", 32, 4096, 14336, 32, 8, 128256, "", rope_base=500000.0),
    "8x1b": Shape("8x1b", 16, 2048, 8192, 32, 8, 128256, "", tied=True, rope_base=500000.0, experts=8, used=2),
}


def named(name: str, layers: int | None = None) -> Shape:
    """A shape by its name, a size and a mix such as 7b-q4_0; with fewer layers where that is asked for.

    Raises InputError where there is none, or its layers are fewer.
    """
    size, _, mix = name.lower().partition("-")
    if size not in SIZES or mix not in MIXES:
        raise InputError(
            f"'shape' expects a size ({', '.join(SIZES)}), '-' and a mix ({', '.join(MIXES)}), such as 7b-q4_0, but "
            f"got '{name}'"
        )
    shape = replace(SIZES[size], name=f"{size}-{mix}", mix=mix)
    if layers is None:
        return shape
    if not 1 <= layers <= shape.layers:
        raise InputError(f"'layers' must be from 1 to those of {shape.name}, {shape.layers}, but is {layers}")
    return replace(shape, name=f"{shape.name}-{layers}-layers", layers=layers)


# Writing ----------------------------------------------------------------------------------------------


def write_shape(path: str | os.PathLike[str], shape: Shape, *, seed: int = 0, progress: Say | None = None) -> Path:
    """Writes a model of a shape; the file appears whole or not at all, and takes no more memory than a few pieces.

    Args:
        path: where to.
        shape: what it is like.
        seed: of the weights.
        progress: told how far it is.

    Returns the path. Raises InputError where the disk has too little room, or the vocabulary too few tokens; OSError.
    """
    target, size = Path(path), shape.nbytes
    free = shutil.disk_usage(target.absolute().parent).free
    if free < size:
        raise InputError(f"'{target}' needs {size_text(size)}, but its disk has {size_text(free)} left")
    done = 0

    def pieces(name: str, kind: str, rows: int, k: int) -> Iterator[np.ndarray]:
        nonlocal done
        for piece in _pieces(name, kind, rows, k, seed):
            yield piece
            done += piece.nbytes
            if progress is not None:
                progress(f"writing {target.name}, {done / size:.0%} of {size_text(size)}")

    ones = np.ones(shape.hidden, np.float32)
    tensors: dict[str, Tensor] = {"output_norm.weight": ones}
    for layer in range(shape.layers):
        tensors |= {f"blk.{layer}.{norm}.weight": ones for norm in ("attn_norm", "ffn_norm")}
    for name, (kind, (*rows, k)) in shape.matrices().items():
        tensors[name] = (kind, pieces(name, kind, math.prod(rows), k), (*rows, k))
    write_gguf(target, {**_metadata(shape), _ORIGIN: _origin(shape, seed)}, tensors)
    _pool.cache_clear()
    return target


def shape_file(shape: Shape, folder: Path | None = None, *, seed: int = 0, say: Say, progress: Say | None) -> Path:
    """The file of a shape in a folder, by default of the cache; written where it isn't there, or is another one's.

    Args:
        shape, seed: what it holds.
        folder: made where it isn't there.
        say: told the size before it is written.
        progress: told how far it is.

    Raises what `write_shape` raises.
    """
    folder = cache_dir() / "shapes" if folder is None else folder
    make_private(folder)
    path = folder / f"{shape.name}.gguf"
    try:
        with GGUFFile(path) as file:
            if file.metadata.get(_ORIGIN) == _origin(shape, seed):
                return path
    except GGUFError:  # not there, or cut off
        pass
    say(f"writing {path}: {size_text(shape.nbytes)} of random weights, kept for later runs")
    return write_shape(path, shape, seed=seed, progress=progress)


def _origin(shape: Shape, seed: int) -> str:
    return f"revision {_REVISION}, seed {seed}, {shape}"


def _pieces(name: str, kind: str, rows: int, k: int, seed: int) -> Iterator[np.ndarray]:
    """The rows of a matrix, uint8 [some rows, bytes of a row] at a time."""
    pool = _pool(kind, k, seed)
    per_row = k // get_format(kind).block
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    step = max(1, _PIECE // (per_row * pool.itemsize))
    for start in range(0, rows, step):
        count = min(step, rows - start)
        yield pool[random.integers(0, len(pool), (count, per_row), np.uint32)].view(np.uint8).reshape(count, -1)


@cache
def _pool(kind: str, k: int, seed: int) -> np.ndarray:
    """Quantised blocks of normal numbers for matrices of k columns, one element each."""
    fmt = get_format(kind)
    random = np.random.default_rng([seed, k, zlib.crc32(kind.encode())])
    values = random.standard_normal((_POOL // k if k < _POOL else 1, k), np.float32) / np.float32(math.sqrt(k))
    return encode(kind, values).view(np.dtype((np.void, fmt.nbytes))).reshape(-1)


def _metadata(shape: Shape) -> dict[str, MetadataValue]:
    numbers = {
        "block_count": shape.layers,
        "context_length": shape.context,
        "embedding_length": shape.hidden,
        "feed_forward_length": shape.ffn,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": shape.hidden // shape.heads,
        "rope.freq_base": shape.rope_base,
        "vocab_size": shape.vocab,
        **({"expert_count": shape.experts, "expert_used_count": shape.used} if shape.experts else {}),
    }
    return {
        "general.architecture": "llama",
        "general.name": shape.name,
        "general.type": "model",
        "general.file_type": named_mix(shape.mix).number,
        "general.quantization_version": 2,
        **{f"llama.{key}": value for key, value in numbers.items()},
        **_vocabulary(shape.vocab),
    }


def _vocabulary(size: int) -> dict[str, MetadataValue]:
    """A byte-level BPE vocabulary: bytes, pairs of letters, pairs of pairs as far as there is room, special tokens."""
    least = len(byte_alphabet()) + len(_SPECIAL)
    if size < least:
        raise InputError(f"'vocab' must be at least {least}, the bytes and special tokens, but is {size}")
    letters = ("\u0120", *ascii_lowercase)  # the first is how a space is written
    pairs = list(product(letters, ascii_lowercase))
    later = product(("".join(pair) for pair in pairs), ("".join(pair) for pair in pairs[len(ascii_lowercase) :]))
    merges = list(islice((pair for some in (pairs, later) for pair in some), size - least))
    tokens = [*byte_alphabet(), *(first + second for first, second in merges)]
    unused = [f"<|unused_{number}|>" for number in range(size - len(tokens) - len(_SPECIAL))]
    types = [TokenType.NORMAL] * len(tokens) + [TokenType.UNUSED] * len(unused) + [TokenType.CONTROL] * len(_SPECIAL)
    first = size - len(_SPECIAL)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": [*tokens, *unused, *_SPECIAL],
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.merges": [f"{first} {second}" for first, second in merges],
        "tokenizer.ggml.bos_token_id": first,
        "tokenizer.ggml.eos_token_id": first + 1,
        "tokenizer.ggml.eot_token_id": first + 2,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": _TEMPLATE,
    }


__all__ = ["MIXES", "SIZES", "Shape", "named", "shape_file", "write_shape"]
