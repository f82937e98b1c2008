# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fuzzer of model files: damages one in its structure or its bytes, and reads all that it offers.

Only errors of ours may come of it, in little time, and with no more memory than the file justifies: the process that
reads may take 512 MiB beside what its libraries have. What is read means what the format says, see `gguf_meaning`.

Tasks: `{seed, index, file, source?}` writes a file and reads it; `{file}` reads one that is there.
"""

from __future__ import annotations

import functools
import json
import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rlx_mlir.attributes import PythonValue
from rlx_mlir.errors import RlxError
from rlx_mlir.frontends.gguf_split import part_name
from rlx_mlir.fuzz.pool import Outcome, Task

_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
#: Largest tensor that is decoded, in elements: it takes four bytes for each.
_DECODED = 1 << 20
#: Bytes of a source that are changed; what follows are weights, whose values mean nothing here.
_HEADER = 16 << 20

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Field:
    """A part of a header: a number or some bytes, and what it is.

    Attributes:
        role: such as `key length` or `dimension`.
        group: number of the entry or tensor that it belongs to; negative for the file's own.
        data: its bytes.
    """

    role: str
    group: int
    data: bytes

    @property
    def number(self) -> int | None:
        """The value of a field that is a number."""
        return int.from_bytes(self.data, "little") if self.role[0] == "#" else None


def split(data: bytes) -> tuple[list[Field], bytes]:
    """The fields of a well-formed file's header, and the rest of the file."""
    fields: list[Field] = []
    position, group = 0, -1

    def take(role: str, size: int) -> int:
        nonlocal position
        fields.append(Field(role, group, data[position : position + size]))
        position += size
        return int.from_bytes(fields[-1].data, "little")

    def text(role: str) -> None:
        take(role, take(f"#{role} length", 8))

    take("magic", 4)
    take("#version", 4)
    tensors, entries = take("#tensor count", 8), take("#entry count", 8)
    for group in range(entries):
        text("key")
        kind = take("#value type", 4)
        count = 1
        if kind == _ARRAY:
            kind = take("#element type", 4)
            count = take("#array count", 8)
        if kind == _STRING:
            if count > 64:  # in one piece: each string as a field of its own would take long
                start = position
                for _ in range(count):
                    (length,) = struct.unpack_from("<Q", data, position)
                    position += 8 + length
                fields.append(Field("strings", group, data[start:position]))
            else:
                for _ in range(count):
                    text("string")
        else:
            take("#value" if count == 1 else "values", count * _SCALAR_BYTES[kind])
    for group in range(entries, entries + tensors):  # noqa: B007  (`take` reads it)
        text("name")
        for _ in range(take("#rank", 4)):
            take("#dimension", 8)
        take("#tensor type", 4)
        take("#offset", 8)
    return fields, data[position:]


# -- mutations -------------------------------------------------------------------------------------------------------

_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 255, 256, 65535, 65536, 1_000_000, (1 << 31) - 1, 1 << 31,
            (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 61, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 32,
            (1 << 64) - 1)  # fmt: skip
_TEXTS = (
    b"",
    b"\0",
    b"\xff\xfe",
    "é\u2028".encode(),
    b"a" * 70_000,
    b"general.alignment",
    b"{% for x in y %}",
    b"llama",
)

Fields = list[Field]


def _set_number(rng: np.random.Generator, fields: Fields) -> str:
    chosen = [i for i, f in enumerate(fields) if f.number is not None]
    i = chosen[int(rng.integers(len(chosen)))]
    old, size = fields[i], len(fields[i].data)
    value = int(_NUMBERS[int(rng.integers(len(_NUMBERS)))])
    if rng.random() < 0.35:
        value = (old.number or 0) + int(rng.choice([-32, -1, 1, 2, 32, 256]))
    elif rng.random() < 0.1:
        value = (old.number or 0) * int(rng.choice([2, 3, 16, 1 << 20]))
    if "type" in old.role and rng.random() < 0.8:
        value = int(rng.integers(0, 45 if "tensor" in old.role else 14))
    fields[i] = replace(old, data=(value % (1 << (8 * size))).to_bytes(size, "little"))
    return f"{old.role} of {old.group}: {old.number} -> {value}"


def _set_bytes(rng: np.random.Generator, fields: Fields) -> str:
    """Other content; half the time the length in front of it agrees."""
    chosen = [i for i, f in enumerate(fields) if f.number is None and f.role != "magic"]
    i = chosen[int(rng.integers(len(chosen)))]
    old = fields[i]
    data = bytearray(old.data)
    if rng.random() < 0.5 or not data:
        data = bytearray(_TEXTS[int(rng.integers(len(_TEXTS)))])
    else:
        for _ in range(int(rng.integers(1, 5))):
            data[int(rng.integers(len(data)))] = int(rng.choice([0, 1, 0x20, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))
    fields[i] = replace(old, data=bytes(data))
    if rng.random() < 0.7 and i and fields[i - 1].role == f"#{old.role} length":
        fields[i - 1] = replace(fields[i - 1], data=struct.pack("<Q", len(data)))
    return f"{old.role} of {old.group}: {len(old.data)} bytes -> {len(data)}"


def _groups(fields: Fields) -> list[int]:
    return sorted({f.group for f in fields if f.group >= 0})


def _change_groups(rng: np.random.Generator, fields: Fields) -> str:
    """An entry or a tensor goes, comes twice, or changes places; half the time the counts agree."""
    groups = _groups(fields)
    if len(groups) < 2:
        return "nothing"
    first, second = (groups[int(i)] for i in rng.permutation(len(groups))[:2])
    parts = {g: [f for f in fields if f.group == g] for g in groups}
    how = str(rng.choice(["drop", "double", "swap", "replace"]))
    order = list(groups)
    if how == "drop":
        order.remove(first)
    elif how == "double":
        order.insert(order.index(second), first)
    elif how == "swap":
        i, j = order.index(first), order.index(second)
        order[i], order[j] = order[j], order[i]
    else:
        order[order.index(first)] = second
    own = [f for f in fields if f.group < 0]
    if rng.random() < 0.7:
        tensors = sum(any(f.role == "#rank" for f in parts[g]) for g in order)
        counts = {"#tensor count": tensors, "#entry count": len(order) - tensors}
        own = [replace(f, data=struct.pack("<Q", counts[f.role])) if f.role in counts else f for f in own]
    fields[:] = own + [f for g in order for f in parts[g]]
    return f"{how} {first} {second}"


def _change_type(rng: np.random.Generator, fields: Fields) -> str:
    """A metadata value of another type, well-formed: what reads it expects the type that it had."""
    chosen = [i for i, f in enumerate(fields) if f.role == "#value type"]
    if not chosen:
        return "nothing"
    i = chosen[int(rng.integers(len(chosen)))]
    group = fields[i].group
    end = max(j for j, f in enumerate(fields) if f.group == group)
    kind = int(rng.integers(0, 13))
    data = b""
    if kind == _ARRAY:
        element = int(rng.choice([0, 4, 5, 6, 7, 8, 12]))
        count = int(rng.choice([0, 1, 2, 300]))
        item = struct.pack("<Q", 1) + b"x" if element == _STRING else bytes(_SCALAR_BYTES[element])
        data = struct.pack("<IQ", element, count) + item * count
    elif kind == _STRING:
        text = _TEXTS[int(rng.integers(len(_TEXTS)))]
        data = struct.pack("<Q", len(text)) + text
    else:
        numbers = [0, 1, -1 % (1 << 64), 1 << 62, 0x7FC00000, 0x7FF8000000000000, 0x7F800000, 64, 300]
        size = _SCALAR_BYTES[kind]
        data = (int(numbers[int(rng.integers(len(numbers)))]) % (1 << (8 * size))).to_bytes(size, "little")
    fields[i : end + 1] = [replace(fields[i], data=struct.pack("<I", kind)), Field("value", group, data)]
    return f"value of {group} gets type {kind}"


def _leave_out(rng: np.random.Generator, fields: Fields) -> str:
    """Entries that have defaults go, half of them; the count agrees."""
    from rlx_mlir.fuzz.gguf_meaning import OPTIONAL

    gone = set()
    for own in fields:
        if own.role == "key":
            key = own.data.decode(errors="replace")
            if (key in OPTIONAL or key.partition(".")[2] in OPTIONAL) and rng.random() < 0.5:
                gone.add(own.group)
    left = [f for f in fields if f.group not in gone]
    count = struct.pack("<Q", sum(f.role == "key" for f in left))
    fields[:] = [replace(f, data=count) if f.role == "#entry count" else f for f in left]
    return f"without {sorted(gone)}"


_STRUCTURAL: tuple[Callable[[np.random.Generator, Fields], str], ...] = (
    _set_number, _set_number, _set_number, _set_bytes, _change_groups, _change_type, _change_type,
    _leave_out,
)  # fmt: skip


def _change_bytes(rng: np.random.Generator, data: bytearray, other: bytes) -> str:
    how = str(rng.choice(["flip", "flip", "truncate", "splice", "insert", "repeat"]))
    at = int(rng.integers(len(data))) if data else 0
    size = int(rng.integers(1, 40))
    if how == "flip":
        for _ in range(int(rng.integers(1, 6))):
            data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    elif how == "truncate":
        del data[at:]
    elif how == "splice":
        start = int(rng.integers(len(other)))
        data[at : at + size] = other[start : start + size]
    elif how == "insert":
        data[at:at] = bytes(rng.integers(0, 256, size, np.uint8))
    else:
        data[at:at] = data[at : at + size]
    return f"{how} at {at}"


def mutate(data: bytes, rng: np.random.Generator, length: int) -> tuple[bytes, int, list[str]]:
    """A damaged file: its first bytes, its length (zeros follow), and what was done.

    Args:
        data: the file from its start, with at least the header.
        length: of the whole file.
    """
    done: list[str] = []
    if rng.random() < 0.7:
        fields, rest = split(data)
        before = sum(len(f.data) for f in fields)
        for _ in range(int(rng.integers(1, 4))):
            done.append(_STRUCTURAL[int(rng.integers(len(_STRUCTURAL)))](rng, fields))
        head = b"".join(f.data for f in fields)
        if rng.random() < 0.8:  # what follows stands where it is expected
            alignment = 32
            rest = bytes(-len(head) % alignment) + rest[-before % alignment :]
        length += len(head) + len(rest) - len(data)
        data = head + rest
    changed = bytearray(data)
    if rng.random() < 0.4 or not done:
        done.append(_change_bytes(rng, changed, data))
        length += len(changed) - len(data)
        if done[-1].startswith("truncate"):
            length = len(changed)
    return bytes(changed), max(length, len(changed)), done


# -- sources ---------------------------------------------------------------------------------------------------------


def _vocabulary(kind: str) -> dict[str, object]:
    """Metadata of a vocabulary of 300 tokens."""
    if kind == "gpt2":
        from rlx_mlir.models.tokenizer import byte_alphabet

        tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_alphabet(), "<|eom_id|>"]
        more = {"tokenizer.ggml.merges": ["t h", "th e", "Ġ the"], "tokenizer.ggml.pre": "smollm"}
        tokens += ["th", "the", "Ġthe"]
        types = [3] * 3 + [1] * (len(tokens) - 3)
    else:
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "\u2581a", "a", "b"]
        types = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
        more = {}
    fill = 300 - len(tokens)
    tokens += [f"<|unused_{i}|>" for i in range(fill)]
    types += [5] * fill
    scores = {"tokenizer.ggml.scores": np.arange(0, -300, -1, dtype=np.float32)} if kind == "llama" else {}
    return {
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": 7,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}",
        **scores,
        **more,
    }


_TYPES = (
    ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q6_k", "f16"),
    ("iq4_nl", "iq4_xs", "mxfp4", "q1_0", "tq1_0", "tq2_0", "nvfp4", "q8_k"),
    ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "q3_k"),
)
"""Types of the matrices of small models."""


def _small_model(
    path: Path, kind: str, *, types: Sequence[str] = _TYPES[0], misnamed: int = 0, part: int | None = None
) -> None:
    """A model of one layer, complete, whose weights have ``types``.

    With ``misnamed``, one of as many layers, each of whose tensors has nearly the right name: errors compare names.
    With ``part``, one of two files of the model, 0 or 1: only the first has the metadata.
    """
    from rlx_mlir import formats
    from rlx_mlir.frontends.gguf import write_gguf

    hidden, ffn = 256, 256
    metadata: dict[str, object] = {
        "general.architecture": "llama",
        "general.name": "small",
        "general.alignment": 32,
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.embedding_length": hidden,
        "llama.feed_forward_length": ffn,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.attention.key_length": 128,  # not what its absence means
        "llama.attention.value_length": 128,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": 128,
        "llama.rope.scaling.type": "linear",
        "llama.rope.scaling.factor": 4.0,
        "llama.vocab_size": 300,
        **_vocabulary(kind),
    }
    shapes = {
        "token_embd": (300, hidden),
        "blk.0.attn_q": (hidden * 2, hidden),
        "blk.0.attn_k": (hidden, hidden),
        "blk.0.attn_v": (hidden, hidden),
        "blk.0.attn_output": (hidden, hidden * 2),
        "blk.0.ffn_gate": (ffn, hidden),
        "blk.0.ffn_up": (ffn, hidden),
        "blk.0.ffn_down": (hidden, ffn),
    }
    tensors: dict[str, np.ndarray | tuple[str, np.ndarray, Sequence[int]]] = {}
    for (name, shape), scheme in zip(shapes.items(), types, strict=True):
        fmt = formats.get_format(scheme)
        data = np.zeros((shape[0], fmt.row_bytes(shape[1])), np.uint8)
        tensors[f"{name}.weight"] = (scheme, data, shape)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        tensors[f"{name}.weight"] = np.ones(hidden, np.float32)
    if misnamed:
        metadata["llama.block_count"] = misnamed
        names = [f"blk.{i}.{name.removeprefix('blk.0.')}s" for i in range(misnamed) for name in tensors]
        tensors = {name: np.zeros(1, np.float32) for name in names}
    if part is not None:
        total = len(tensors)
        tensors = dict(list(tensors.items())[part::2])
        metadata = metadata if part == 0 else {}
        metadata |= {"split.no": np.uint16(part), "split.count": np.uint16(2), "split.tensors.count": np.int32(total)}
    write_gguf(path, metadata, tensors)


def _crafted() -> list[bytes]:
    """Tiny files that aborted other readers."""
    head = struct.Struct("<4sIQQ")
    tensor = struct.pack("<Q1sIQIQ", 1, b"t", 1, 1, 0, 0)
    entry = struct.pack("<Q1sIB", 1, b"k", 0, 7)
    return [
        head.pack(b"GGUF", 3, 0, 1) + entry,
        head.pack(b"GGUF", 3, 1, 0) + tensor + bytes(64),
        head.pack(b"GGUF", 3, 1, 1) + entry + tensor + bytes(64),
    ]


@dataclass(frozen=True)
class Source:
    """A file to start from; of a model in two files the other one, too, and which of them this is."""

    data: bytes
    other: bytes | None = None
    number: int = 0

    def path(self, file: Path, number: int) -> Path:
        """Where one of the files goes: the name of a split model's says which it is."""
        return file if self.other is None else file.with_name(part_name(file.stem, number, 2))


@functools.cache
def sources() -> tuple[Source, ...]:
    """The files to start from, where the caller names none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.gguf"

        def made(kind: str, **options: PythonValue) -> bytes:
            _small_model(path, kind, **options)
            return path.read_bytes()

        found = [Source(data) for data in _crafted()]
        found += [Source(made(kind, types=types)) for kind in ("gpt2", "llama") for types in _TYPES]
        found.append(Source(made("gpt2", misnamed=60)))
        first, second = (made("gpt2", part=part) for part in (0, 1))
        found += [Source(first, second, 0), Source(second, first, 1)]
    return tuple(found)


@functools.lru_cache(maxsize=2)
def _head(path: str) -> tuple[bytes, int]:
    source = Path(path)
    with source.open("rb") as file:
        return file.read(_HEADER), source.stat().st_size


# -- what is done with a file ----------------------------------------------------------------------------------------


def prepare() -> None:
    """Loads what reading needs, so that its memory doesn't count."""
    import sentencepiece  # noqa: F401
    import tokenizers  # noqa: F401

    from rlx_mlir.fuzz import gguf_meaning  # noqa: F401
    from rlx_mlir.models import chat, config, tokenizer  # noqa: F401
    from rlx_mlir.models import description as inspect  # noqa: F401

    sources()


def handle(task: Task) -> Outcome:
    """Runs one task."""
    path = Path(task["file"])
    if "seed" not in task:
        return {"status": "ok" if read_everything(path) else "refused", "where": ""}
    rng = np.random.default_rng([task["seed"], task["index"]])
    if task.get("source"):
        data, length = _head(task["source"])
        source = Source(data)
    else:
        source = sources()[int(rng.integers(len(sources())))]
        length = len(source.data)
    data, length, done = mutate(source.data, rng, length)
    own, other = (source.path(path, number) for number in (source.number, 1 - source.number))
    with own.open("wb") as file:
        file.write(data)
        file.truncate(length)
    if source.other is not None:
        other.write_bytes(source.other)
    opened = own if rng.random() < 0.5 else other
    answer = {"status": "ok" if read_everything(opened) else "refused", "where": "; ".join(done)}
    for written in {own, other}:
        written.unlink()
    return answer


def _check_places(file: Any) -> None:
    """Tensors of known types make up a file from the first one's place on, but for padding."""
    infos = file.tensors.values()
    if not infos or any(info.nbytes is None for info in infos):
        return
    used = sum(-(-info.nbytes // file.alignment) * file.alignment for info in infos)
    room = Path(file.path).stat().st_size - min(info.offset for info in infos)
    if not used - file.alignment < room <= used:
        raise AssertionError(f"tensors of {used} bytes were found in {room}")


def read_everything(path: Path) -> bool:
    """Reads all that a file offers; whether nothing was refused. Anything but errors of ours goes to the caller."""
    from rlx_mlir.frontends.gguf import GGUFFile
    from rlx_mlir.fuzz.gguf_meaning import check_defaults, check_ends, check_part
    from rlx_mlir.models.chat import ChatTemplate
    from rlx_mlir.models.config import ModelConfig
    from rlx_mlir.models.description import describe_file, format_description
    from rlx_mlir.models.tokenizer import Tokenizer

    refused = 0

    def attempt(action: Callable[[], Answer]) -> Answer | None:
        nonlocal refused
        try:
            return action()
        except RlxError as error:
            if not str(error):
                raise AssertionError(f"{type(error).__name__} without a message") from error
            refused += 1
            return None

    described = attempt(lambda: describe_file(str(path), tensors=True))
    if described is not None:
        format_description(described)
        json.dumps(described)
    alone = attempt(lambda: GGUFFile.single(path))
    if alone is not None:
        with alone:
            _check_places(alone)
            check_part(alone)
    file = attempt(lambda: GGUFFile(path))
    if file is None:
        return False
    with file:
        for key in file.metadata:
            attempt(lambda key=key: file.metadata[key])  # type: ignore[misc]
        for name, info in file.tensors.items():
            attempt(lambda name=name: file.tensor(name))  # type: ignore[misc]
            if info.size <= _DECODED:
                attempt(lambda name=name: file.dequantize(name))  # type: ignore[misc]
        attempt(lambda: ModelConfig.from_gguf(file))
        tokenizer = attempt(lambda: Tokenizer.from_metadata(file.metadata))
        check_part(file)
        check_defaults(file)
        if tokenizer is not None:
            check_ends(file.metadata, tokenizer)
            text = "Hello <|im_start|> the wörld\n\x00 12"
            ids: list[int] = []
            for special in (False, True):
                ids += attempt(partial(tokenizer.tokenize, text, special=special)) or []
            attempt(lambda: tokenizer.detokenize([*ids, 0, tokenizer.vocab_size - 1]))
        template = attempt(lambda: ChatTemplate.from_metadata(file.metadata))
        if template is not None:
            attempt(lambda: template.render([{"role": "user", "content": "Hi"}]))
    return refused == 0
