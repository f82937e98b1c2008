# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fuzzer of IR text: mutates modules, parses and verifies them, and runs random pipelines on what is valid.

It starts from the documented example of every operation, and from the .mlir files of folders (by default those of the
project's tests, where the package lies in a checkout). Diagnostics are fine; what isn't: a crash, a hang, an exception
that isn't one of ours, and valid IR whose text doesn't parse or means something else.

Tasks: `{seed, index, file, corpus?}` writes a case and runs it; `{file}` runs one; `{reduce, folder}` writes smaller
ones.
"""

from __future__ import annotations

import functools
import json
import re
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from rlx_mlir import ir
from rlx_mlir.errors import InputError, PassError, RlxError
from rlx_mlir.fuzz.pool import Outcome, Task
from rlx_mlir.rewriting import registry, run_pipeline
from rlx_mlir.rewriting.pipelines import PIPELINES
from rlx_mlir.semantics.ops import operation_classes
from rlx_mlir.sources import check_source, check_strings

Item = TypeVar("Item")

_MARK = "// fuzz text: "
_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|%[\w$.-]+(?::\d+)?(?:#\d+)?|[@#!^][\w$.-]+|-?\d+\.\d*(?:[eE][-+]?\d+)?|-?\d+(?=x[\d?a-z])|-?\d+'
    r"|[A-Za-z_][\w$]*(?:\.[\w$.]+)?|->|::|\s+|."
)
_TYPE = re.compile(r"tensor<(?:[\dx?*]+x)?\w+>")

#: Words that stand for others of their kind.
_ELEMENTS = (
    "f16",
    "bf16",
    "f32",
    "f64",
    "i1",
    "i8",
    "ui8",
    "i16",
    "i32",
    "i64",
    "index",
    "f8E4M3FN",
    "i4",
    "si8",
    "complex<f32>",
)
_SIZES = (
    "0",
    "1",
    "2",
    "3",
    "?",
    "8",
    "16",
    "31",
    "32",
    "33",
    "-1",
    "4294967296",
    "9223372036854775807",
    "1099511627776",
)
_NUMBERS = ("0", "1", "-1", "2", "-2", "3", "32", "2147483647", "2147483648", "-2147483648", "4294967296", "1.0",
            "-0.0", "0.0", "1.0e-45", "3.4e38", "1.0e39", "0x7FC00000", "0xFF800000", "9223372036854775807",
            "-9223372036854775808", "18446744073709551616", "true")  # fmt: skip
_TYPES = ("tensor<*xf32>", "tensor<f32>", "f32", "i32", "index", "memref<4x8xf32>", "vector<8xf32>", "tensor<?x?xf32>",
          "tensor<0xf32>", "tensor<4x8xf32>", "tensor<4x20xi8, #mir.packed<q4_1, k = 32>>", "none", "tuple<f32>",
          "tensor<16x20xi8, #mir.packed<q4_1, k = 32, n = 5, layout = panels>>", "() -> ()", "tensor<4x4xf32, \"x\">",
          "tensor<1x1x1x1x1x1x1xf32>", "tensor<9223372036854775807x2xf32>")  # fmt: skip
_ATTRIBUTES = ('mir.name = "x"', 'mir.kind = "param"', 'mir.kind = "input"', 'mir.dims = ["a", ""]', "mir.dims = 3",
               'mir.dims = ["a*b"]', 'mir.dims = ["a", "a + 1"]',
               'mir.stage = "kernels"', "mir.stage", 'mir.role = "kernel"', 'hir.policy = "fusable"', 'mir.tied = "x"',
               'mir.ties = {output0 = "arg0"}', 'sym_visibility = "private"', "axis = 7 : i64", "eps = 0.0 : f32",
               "num_heads = 0 : i64", "transpose_rhs", "mir.maximum = 0", 'mir.kernel = "gemm"',
               "operandSegmentSizes = array<i32: 1, 1>")  # fmt: skip
_LINES = (
    "%fuzz = arith.constant dense<1.0> : tensor<4x8xf32>",
    "%fuzz = tensor.empty() : tensor<4x8xf32>",
    "%fuzz = mir.constant dense<0> : tensor<2xi32>",
    "func.func private @other(tensor<4x8xf32>) -> tensor<4x8xf32>",
    "cf.br ^bb1",
    "^bb1:",
    "func.call @f() : () -> ()",
    "func.return",
    '"mir.add"() : () -> ()',
    '%fuzz = "test.unknown"() : () -> tensor<4x8xf32>',
    "module {",
    "}",
)
#: Passes of MLIR that our pipelines use.
_UPSTREAM = ("cse", "canonicalize", "symbol-dce", "inline")


# -- corpus ----------------------------------------------------------------------------------------------------------


def default_folders() -> tuple[str, ...]:
    """The folder of tests beside the package, where there is one."""
    folder = Path(__file__).resolve().parents[3] / "test" / "lit"
    return (str(folder),) if folder.is_dir() else ()


@functools.lru_cache(maxsize=4)
def corpus(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The modules to start from; those that are valid stand several times."""
    found = []
    for _, cls in sorted(operation_classes().items()):
        found += re.findall(r"```mlir\n(.*?)```", cls.__doc__ or "", re.DOTALL)
    for folder in folders:
        paths = sorted(Path(folder).rglob("*.mlir"))
        if not paths:
            raise InputError(f"the corpus {folder} has no file *.mlir")
        for path in paths:
            found += modules_of(path) * (1 if "invalid" in path.name else 4)
    return tuple(text.strip() + "\n" for text in found if text.strip())


def modules_of(path: Path) -> list[str]:
    """The modules of one file, which lines `// -----` part, without its comments."""
    text = re.sub(r"^\s*//(?! -----).*\n", "", path.read_text(errors="replace"), flags=re.MULTILINE)
    return re.split(r"^// -----.*\n", text, flags=re.MULTILINE)


# -- mutations -------------------------------------------------------------------------------------------------------


class _Mutator:
    """Changes a text in one of many ways."""

    def __init__(self, rng: np.random.Generator, texts: Sequence[str]) -> None:
        self._rng, self._texts = rng, texts

    def choose(self, options: Sequence[Item]) -> Item:
        return options[int(self._rng.integers(len(options)))]

    def mutate(self, text: str) -> str:
        """The text after one to three changes, mostly one: most changes make it invalid."""
        ways = (self._token, self._token, self._kind, self._kind, self._kind, self._line, self._type, self._operation,
                self._attribute, self._splice)  # fmt: skip
        for _ in range(int(self._rng.choice([1, 1, 1, 2, 3]))):
            text = self.choose(ways)(text)
        return text

    def _token(self, text: str) -> str:
        """A token goes, comes twice, or takes another's place."""
        tokens = _TOKEN.findall(text)
        solid = [i for i, token in enumerate(tokens) if not token.isspace()]
        if not solid:
            return text
        i, j = self.choose(solid), self.choose(solid)
        how = int(self._rng.integers(4))
        if how == 0:
            tokens[i] = ""
        elif how == 1:
            tokens[i] += " " + tokens[i]
        elif how == 2:
            tokens[i], tokens[j] = tokens[j], tokens[i]
        else:
            tokens[i] = tokens[j]
        return "".join(tokens)

    def _kind(self, text: str) -> str:
        """A number, size, element type, value or string becomes another."""
        tokens = _TOKEN.findall(text)
        kinds: tuple[tuple[str, Sequence[str]], ...] = (
            (r"f16|bf16|f32|f64|i1|ui8|ui16|ui32|i8|i16|i32|i64", _ELEMENTS),
            (r"-?\d+(\.\d*)?(e[-+]?\d+)?", _NUMBERS),
            (r"%[\w$.-]+(:\d+)?(#\d+)?", sorted({t for t in tokens if t.startswith("%")})),
            (
                r"[a-z_0-9]+",
                ("none", "causal", "custom", "q4_1", "q8_k", "half", "sum", "gelu", "panels", "lt", "bhsd"),
            ),
            (r'".*"', ('""', '"a"', '"input"', '"\\FF"', '"mir.add"')),
        )
        pattern, options = kinds[int(self._rng.choice(len(kinds), p=[0.25, 0.3, 0.25, 0.1, 0.1]))]
        fits = [i for i, token in enumerate(tokens) if re.fullmatch(pattern, token)]
        if pattern == kinds[0][0] or (fits and self._rng.random() < 0.3):
            return self._size(text)
        if not fits or not options:
            return text
        tokens[self.choose(fits)] = self.choose(options)
        return "".join(tokens)

    def _size(self, text: str) -> str:
        """A size or the element type of some tensor type changes; often in all types that are equal."""
        types = _TYPE.findall(text)
        if not types:
            return text
        old = self.choose(types)
        parts = old[len("tensor<") : -1].split("x")
        at = int(self._rng.integers(len(parts)))
        parts[at] = self.choose(_ELEMENTS if at == len(parts) - 1 else _SIZES)
        if self._rng.random() < 0.2:
            parts.insert(0, self.choose(_SIZES))
        elif self._rng.random() < 0.2 and len(parts) > 1:
            del parts[0]
        new = f"tensor<{'x'.join(parts)}>"
        if self._rng.random() < 0.6:
            return text.replace(old, new)
        start = self.choose([m.start() for m in re.finditer(re.escape(old), text)])
        return text[:start] + new + text[start + len(old) :]

    def _type(self, text: str) -> str:
        types = _TYPE.findall(text)
        return text.replace(self.choose(types), self.choose(_TYPES)) if types else text

    def _operation(self, text: str) -> str:
        """An operation becomes another one."""
        names = sorted(operation_classes())
        found = [
            m for m in re.finditer(r"\b(?:hir|mir|arith|tensor|linalg)\.[a-z_0-9]+", text) if m.group() != "mir.packed"
        ]
        if not found:
            return text
        match = self.choose(found)
        return text[: match.start()] + self.choose([*names, "arith.addf", "tensor.cast"]) + text[match.end() :]

    def _attribute(self, text: str) -> str:
        """An attribute is added somewhere."""
        attribute = self.choose(_ATTRIBUTES)
        places = [m.end() for m in re.finditer(r"\{(?=[a-z])", text)]
        if places and self._rng.random() < 0.6:
            at = self.choose(places)
            return f"{text[:at]}{attribute}, {text[at:]}"
        places = [m.end() for m in re.finditer(r"tensor<[^,()]*>(?=[,)])|attributes(?= \{)|\)(?= \{\n)", text)]
        if not places:
            return text
        at = self.choose(places)
        return f"{text[:at]}{' attributes' if text[at - 1] == ')' else ''} {{{attribute}}}{text[at:]}"

    def _line(self, text: str) -> str:
        lines = text.splitlines()
        i, j = int(self._rng.integers(len(lines))), int(self._rng.integers(len(lines)))
        how = int(self._rng.integers(4))
        if how == 0:
            del lines[i]
        elif how == 1:
            lines.insert(j, lines[i])
        elif how == 2:
            lines[i], lines[j] = lines[j], lines[i]
        else:
            lines.insert(i, self.choose(_LINES))
        return "\n".join(lines) + "\n" if lines else text

    def _splice(self, text: str) -> str:
        """Lines of another module come in, or that module comes behind."""
        other = self.choose(self._texts)
        if self._rng.random() < 0.5:
            return text + re.sub(r"@(\w+)", r"@\1_other", other)
        lines, more = text.splitlines(), other.splitlines()
        at, start = int(self._rng.integers(len(lines) + 1)), int(self._rng.integers(len(more)))
        lines[at:at] = more[start : start + int(self._rng.integers(1, 4))]
        return "\n".join(lines) + "\n"


def random_pipeline(rng: np.random.Generator) -> str:
    """Some passes in a sensible order or in none, with options at times; empty at times."""
    stages = (
        "hir-to-mir",
        "inline,symbol-dce",
        "rlx-fuse",
        "mir-quantize-activations,cse",
        "rlx-to-kernels",
        "lir-plan",
        "cpu-apply-templates",
        "func.func(mir-to-linalg)",
        "rlx-generic-kernels",
        "rlx-to-llvm",
    )
    how = rng.random()
    if how < 0.15:
        return ""
    if how < 0.55:
        steps = list(stages[int(rng.integers(3)) : int(rng.integers(1, len(stages) + 1))])
        return ",".join(step for step in steps if rng.random() < 0.9)
    names = [*registry.PASSES, *PIPELINES, *_UPSTREAM, *_UPSTREAM]
    return ",".join(_step(rng, str(names[int(rng.integers(len(names)))])) for _ in range(int(rng.integers(1, 5))))


def _step(rng: np.random.Generator, name: str) -> str:
    found = registry.PASSES.get(name)
    if found is None:
        return name
    options = []
    for option, spec in found.options.items():
        if rng.random() < 0.4:
            words = spec.choices or {bool: ("true", "false"), int: ("0", "1", "-1", "64")}.get(type(spec.default))
            words = words or ("", "a:1", "x", "f:0", "all", "gemm")
            options.append(f"{option}={words[int(rng.integers(len(words)))]}")
    text = f"{name}{{{' '.join(options)}}}" if options else name
    return text if found.anchor == "builtin.module" or not found.anchor else f"{found.anchor}({text})"


# -- running ---------------------------------------------------------------------------------------------------------


def prepare() -> None:
    """Loads what every case needs."""
    registry.register_all()
    ir.native.print_stack_traces()
    corpus(default_folders())


def handle(task: Task) -> Outcome:
    """Runs one task."""
    if "reduce" in task:
        return {"status": "ok", "files": _write_candidates(Path(task["reduce"]), Path(task["folder"]), task)}
    path = Path(task["file"])
    if "seed" in task:
        rng = np.random.default_rng([task["seed"], task["index"]])
        texts = corpus(tuple(task.get("corpus") or default_folders()))
        mutator = _Mutator(rng, texts)
        text = mutator.choose(texts)
        if rng.random() < 0.7:  # valid text is what passes see most of
            text = mutator.mutate(text)
        _write(path, random_pipeline(rng), text)
    pipeline, text = _read(path)
    answer = check(text, pipeline)
    if answer["status"] != "finding" and "seed" in task:
        path.unlink()
    return answer


def _write(path: Path, pipeline: str, text: str) -> None:
    # MLIR reads bytes; a mutation may cut a character in two.
    path.write_text(f"// rlx fuzz replay {path.name}\n{_MARK}{json.dumps({'pipeline': pipeline})}\n{text}", "utf-8")


def _read(path: Path) -> tuple[str, str]:
    head, _, text = path.read_text("utf-8").partition(_MARK)
    first, _, rest = text.partition("\n")
    if not first:
        raise InputError(f"{path} isn't a case of the text fuzzer: it has no line '{_MARK}…'")
    del head
    return str(json.loads(first)["pipeline"]), rest


def _finding(kind: str, message: str, where: str = "", **more: object) -> Outcome:
    return {"status": "finding", "kind": kind, "message": message, "where": where, **more}


def check(text: str, pipeline: str) -> Outcome:
    """Parses a module, prints and parses it again, runs the pipeline."""
    try:  # as every door does
        check_source(text.encode(), "the case")
        context = ir.new_context()
        with ir.single_threaded(context):
            try:
                module = ir.Module.parse(text, context)
            except (RuntimeError, ValueError):  # a message with a name that is no text, an operation that is no module
                return {"status": "refused"}
        check_strings(module, "the case")
    except (ir.MLIRError, RlxError):
        return {"status": "refused"}
    with ir.single_threaded(context):
        message = _round_trip(module)
    if message:
        return _finding("roundtrip", message, "parse")
    if not pipeline:
        return {"status": "ok"}
    try:
        run_pipeline(module, pipeline)
    except PassError as error:
        if error.__cause__ is not None and not isinstance(error.__cause__, RlxError):
            trace = "".join(traceback.format_exception(error.__cause__))
            return _finding("exception", str(error), pipeline, details=trace)
        return {"status": "failed"}
    with ir.single_threaded(context):
        message = _round_trip(module)
    if message:
        return _finding("roundtrip", message, pipeline)
    return {"status": "ok"}


def _round_trip(module: ir.Module) -> str | None:
    """What is wrong with a module's text: it must parse, and give the same module."""
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        return f"doesn't verify: {error}"
    for generic in (False, True):
        printed = module.operation.get_asm(print_generic_op_form=generic)
        try:
            again = ir.Module.parse(printed, module.context)
        except ir.MLIRError as error:
            return f"the {'generic' if generic else 'printed'} form doesn't parse: {error}"
        if again.operation.get_asm(print_generic_op_form=generic) != printed:
            return f"the {'generic' if generic else 'printed'} form is another module"
    return None


# -- smaller cases ---------------------------------------------------------------------------------------------------


def _write_candidates(path: Path, folder: Path, task: Task) -> list[str]:
    """Writes cases with fewer passes or lines; returns their files."""
    pipeline, text = _read(path)
    files = []
    for number, (fewer, shorter) in enumerate(_smaller(pipeline, text)):
        target = folder / f"{task.get('prefix', 'candidate')}-{number}.mlir"
        _write(target, fewer, shorter)
        files.append(str(target))
    return files[:200]


def _smaller(pipeline: str, text: str) -> Iterator[tuple[str, str]]:
    steps = re.findall(r"[^,({]+(?:\([^)]*\)|\{[^}]*\})*", pipeline)
    for i in range(len(steps)):
        yield ",".join(steps[:i] + steps[i + 1 :]), text
    lines = text.splitlines()
    size = len(lines) // 2
    while size:
        for start in range(0, len(lines), size):
            yield pipeline, "\n".join(lines[:start] + lines[start + size :]) + "\n"
        size //= 2


__all__ = ["check", "corpus", "default_folders", "handle", "prepare", "random_pipeline"]
