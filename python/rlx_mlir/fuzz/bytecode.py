# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fuzzer of IR as bytes: damaged bytecode, brackets nested without end, numbers of many digits.

A module that a stranger sent comes through `GraphModule.from_bytecode` and `from_text`: all that may come of it is
an error of ours, within the time and memory of a case.

Tasks: `{seed, index, file, corpus?}` writes a case and reads it; `{file}` reads one. A file that starts as bytecode
does is read as that, any other one as text.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from rlx_mlir import ir
from rlx_mlir.errors import RlxError
from rlx_mlir.fuzz import text as text_fuzzer
from rlx_mlir.fuzz.pool import Outcome, Task
from rlx_mlir.hir import GraphModule

_MAGIC = b"ML\xefR"
#: Values of bytes that are lengths, ends and signs of variable-length integers.
_BYTES = (0x00, 0x01, 0x02, 0x03, 0x7F, 0x80, 0xFE, 0xFF)
#: What may stand within itself without end: what opens it, what closes it, where the nest is put.
_NESTS = (
    ("tuple<", ">", "func.func private @nest({0}i1{1})\n"),
    ("(", ")", "func.func private @nest() attributes {{a = {0}{1}}}\n"),
    ("[", "]", "module attributes {{a = {0}{1}}} {{}}\n"),
    ("{a = ", "}", "module attributes {{a = {0}1{1}}} {{}}\n"),
    ("module {", "}", "{0}{1}\n"),
    ("() -> (", ")", "func.func private @nest({0}i1{1})\n"),
    ("dense<[", "]>", "module attributes {{a = {0}1{1} : tensor<1xi32>}} {{}}\n"),
    ("loc(fused[", "])", 'module {{}} loc({0}"a"{1})\n'),
)
_NUMBERS = (
    "func.func private @f() attributes {{a = {0} : i64}}\n",
    "func.func private @f() attributes {{a = {0}.5 : f32}}\n",
    "func.func private @f(tensor<{0}xf32>)\n",
    "func.func private @f(i{0})\n",
    'func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {{\n  return %x : tensor<4xf32>\n}} loc("a":{0}:1)\n',
    'func.func @f(%x: tensor<?xf32> {{mir.dims = ["{0}*a"]}}) -> tensor<?xf32> {{\n  return %x : tensor<?xf32>\n}}\n',
)


def prepare() -> None:
    """Loads what every case needs."""
    text_fuzzer.prepare()


def handle(task: Task) -> Outcome:
    """Runs one task."""
    path = Path(task["file"])
    if "seed" in task:
        rng = np.random.default_rng([task["seed"], task["index"]])
        folders = tuple(task.get("corpus") or text_fuzzer.default_folders())
        path.write_bytes(random_case(rng, folders))
    answer = check(path.read_bytes())
    if answer["status"] != "finding" and "seed" in task:
        path.unlink()
    return answer


def check(data: bytes) -> Outcome:
    """Reads a module from bytes, as what they look like, and prints it where that went well."""
    try:
        if data.startswith(_MAGIC):
            module = GraphModule.from_bytecode(data)
        else:
            module = GraphModule.from_text(data.decode(errors="replace"))
        module.verify()
        module.to_text()
    except RlxError:
        return {"status": "refused"}
    return {"status": "ok"}


def random_case(rng: np.random.Generator, folders: tuple[str, ...]) -> bytes:
    """Damaged bytecode, or text of a depth or length that no module has."""
    how = rng.random()
    if how < 0.1:
        opening, closing, place = _NESTS[int(rng.integers(len(_NESTS)))]
        depth = int(rng.choice([10, 300, 20_000, 200_000]))
        return place.format(opening * depth, closing * (depth if rng.random() < 0.7 else 0)).encode()
    if how < 0.15:
        digits = int(rng.choice([19, 25, 5_000, 100_000]))
        return _NUMBERS[int(rng.integers(len(_NUMBERS)))].format("9" * digits).encode()
    texts = text_fuzzer.corpus(folders)
    for _ in range(20):
        data = _bytecode(texts[int(rng.integers(len(texts)))])
        if data is not None:
            return damaged(data, rng)
    raise AssertionError("most modules of the corpus are valid")


def _bytecode(text: str) -> bytes | None:
    """The module as bytecode, with or without debug information; None where the text isn't valid."""
    try:
        context = ir.new_context()
        with ir.single_threaded(context):
            module = ir.Module.parse(text, context)
    except (ir.MLIRError, ValueError):
        return None
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes after one to eight changes: other values, pieces that go, come twice or from elsewhere, an early end."""
    content = bytearray(data)
    for _ in range(int(rng.choice([1, 1, 2, 4, 8]))):
        if len(content) < 8:
            break
        at = int(rng.integers(4 if rng.random() < 0.97 else 0, len(content)))
        length = int(rng.integers(1, 9))
        how = int(rng.integers(6))
        if how == 0:
            content[at] ^= 1 << int(rng.integers(8))
        elif how == 1:
            content[at] = _BYTES[int(rng.integers(len(_BYTES)))]
        elif how == 2:
            del content[at : at + length]
        elif how == 3:
            content[at:at] = content[at : at + length]
        elif how == 4:
            start = int(rng.integers(len(content)))
            content[at : at + length] = content[start : start + length]
        else:
            del content[at:]
    return bytes(content)


__all__ = ["check", "damaged", "handle", "prepare", "random_case"]
