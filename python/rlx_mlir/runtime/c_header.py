# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The header of a library without Python: its functions by name, their sizes as constants, and with typed arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlx_mlir.dtypes import DTYPES
from rlx_mlir.errors import InputError
from rlx_mlir.runtime.artifact import Artifact, BufferSpec
from rlx_mlir.runtime.sizes import Derived, Terms, evaluate, symbols_of
from rlx_mlir.version import __version__

#: The functions of `include/rlx.h`, which each library has under its own prefix.
FUNCTIONS = (
    *("abi_version", "load", "free", "error", "threads"),
    *("function_count", "function_name", "find_function"),
    *("symbol_count", "describe_symbol", "buffer_count", "describe_buffer", "find_buffer"),
    *("measure", "set_parameter", "run"),
)

#: With more inputs and outputs than this, a list of them is clearer than as many arguments.
MOST_ARGUMENTS = 24

_C_TYPES = {
    "f32": "float",
    "f64": "double",
    "complex<f32>": "float",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "ui16": "uint16_t",
    "ui32": "uint32_t",
}
#: Of C and C++, and macros that compilers define.
_RESERVED = frozenset(
    (
        *("alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch"),
        *("char", "class", "compl", "const", "constexpr", "const_cast", "continue", "decltype", "default", "delete"),
        *("do", "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for"),
        *("friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not"),
        *("not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "register"),
        *("reinterpret_cast", "restrict", "return", "short", "signed", "sizeof", "static", "static_assert"),
        *("static_cast", "struct", "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef"),
        *("typeid", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while"),
        *("xor", "xor_eq", "linux", "unix"),
    )
)


@dataclass(frozen=True)
class Described:
    """A function of a library.

    Attributes:
        name: by which callers find it.
        artifact: what it was compiled to.
        symbols: names and largest sizes of its symbols, in order.
        sizes: of each kind of buffers, of each buffer, its sizes as polynomials of these symbols.
        given: names of the parameters that callers give.
    """

    name: str
    artifact: Artifact
    symbols: tuple[tuple[str, int], ...]
    sizes: tuple[tuple[tuple[Terms, ...], ...], ...]
    given: frozenset[str] = frozenset()

    @property
    def buffers(self) -> tuple[tuple[BufferSpec, ...], ...]:
        """Inputs, the plan's parameters, and outputs."""
        return self.artifact.inputs, self.artifact.plan_parameters, self.artifact.outputs


def check_prefix(name: str) -> str:
    """A library's name, which its functions begin with; InputError where that is no identifier of C, or ours."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or name in _RESERVED or name.lower() == "rlx":
        raise InputError(
            f"a library's name begins its functions' names: letters, digits and '_', from a letter on, no word of C, "
            f"and not 'rlx', but it is {name!r}"
        )
    return name


def header(prefix: str, functions: Sequence[Described]) -> str:
    """The text of the header."""
    upper = prefix.upper()
    taken = set(FUNCTIONS)
    parts = []
    for number, own in enumerate(functions):
        (name,) = _identifiers([own.name], taken)
        taken.add(name)
        parts += [_constants(f"{upper}_{name.upper()}", number, own), _typed(prefix, name, number, own)]
    return "\n".join(
        [
            f"/* Written by rlx-mlir {__version__} for the library '{prefix}': its functions are those of rlx.h, with",
            f" * {prefix}_ before their names, and those below. */",
            f"#ifndef {upper}_H",
            f"#define {upper}_H",
            "",
            f"#define RLX_PREFIX {prefix}",
            '#include "rlx.h"',
            "",
            *parts,
            f"#endif /* {upper}_H */",
            "",
        ]
    )


def _identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Words that C takes, for names that may be anything, each another one."""
    used = set(taken)
    found = []
    for name in names:
        word = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "x"
        if word[0].isdigit():
            word = f"x{word}"
        own, number = word, 2
        while own in used or own in _RESERVED:
            own, number = f"{word}_{number}", number + 1
        used.add(own)
        found.append(own)
    return found


def _upper_identifiers(names: Iterable[str]) -> list[str]:
    """The same, for constants: names that differ in case alone are told apart."""
    return _identifiers(name.upper() for name in names)


def _constants(prefix: str, number: int, own: Described) -> str:
    """The function's number, those of its buffers, and sizes."""
    names = [f"/* '{_comment(own.name)}' */", f"#define {prefix} {number}"]
    maxima = [maximum for _, maximum in own.symbols]
    for index, word in enumerate(_upper_identifiers(name for name, _ in own.symbols)):
        names += [f"#define {prefix}_SYMBOL_{word} {index}", f"#define {prefix}_SYMBOL_{word}_MAX {maxima[index]}"]
    for kind, specs, sizes in zip(("INPUT", "PARAMETER", "OUTPUT"), own.buffers, own.sizes, strict=True):
        names.append(f"#define {prefix}_{kind}_COUNT {len(specs)}")
        words = _upper_identifiers(spec.name for spec in specs)
        for index, (word, spec, dims) in enumerate(zip(words, specs, sizes, strict=True)):
            if kind == "PARAMETER" and spec.name not in own.given:
                continue
            names.append(f"/* {_comment(str(spec))} */")
            names.append(f"#define {prefix}_{kind}_{word} {index}")
            largest = [evaluate(dim, maxima) for dim in dims]
            for axis, (dim, size) in enumerate(zip(dims, largest, strict=True)):
                if not symbols_of(dim):
                    names.append(f"#define {prefix}_{kind}_{word}_SIZE_{axis} {size}")
            elements = math.prod(max(size, 0) for size in largest)
            if elements < 1 << 63:
                names.append(f"#define {prefix}_{kind}_{word}_MOST {elements} /* elements at the largest sizes */")
    return "\n".join(names) + "\n"


def _typed(prefix: str, name: str, number: int, own: Described) -> str:
    """The function that runs it, with an argument for each symbol, input and output."""
    inputs, _, outputs = own.buffers
    if len(inputs) + len(outputs) > MOST_ARGUMENTS:
        return f"/* {prefix}_run runs it: it has {len(inputs)} inputs and {len(outputs)} outputs. */\n"
    words = _identifiers(
        [*(n for n, _ in own.symbols), *(spec.name for spec in inputs), *(spec.name for spec in outputs)],
        ("model", "sizes_", "inputs_", "outputs_"),
    )
    symbols = words[: len(own.symbols)]
    first = len(symbols)
    second = first + len(inputs)
    arguments = [f"int64_t {word}" for word in symbols]
    arguments += [f"const {_c_type(s)} *{word}" for s, word in zip(inputs, words[first:second], strict=True)]
    arguments += [f"{_c_type(s)} *{word}" for s, word in zip(outputs, words[second:], strict=True)]
    lines = [
        f"static inline rlx_status {prefix}_{name}({', '.join(['rlx_model *model', *arguments])}) {{",
        *_list("int64_t", "sizes_", symbols),
    ]
    for kind, label, specs, given in (
        (0, "input", inputs, words[first:second]),
        (2, "output", outputs, words[second:]),
    ):
        entries = [
            f"{{{word}, (size_t)({_bytes(spec, dims, symbols)})}}"
            for word, spec, dims in zip(given, specs, own.sizes[kind], strict=True)
        ]
        lines += _list(f"rlx_{label}", f"{label}s_", entries)
    lists = [
        f"{list_ if count else 'NULL'}, {count}"
        for list_, count in (("sizes_", len(symbols)), ("inputs_", len(inputs)), ("outputs_", len(outputs)))
    ]
    call = f"{prefix}_run(model, {number}, {lists[0]},"
    lines += [f"  return {call}", f"    {lists[1]}, {lists[2]});", "}", ""]
    return "\n".join(lines)


def _list(kind: str, name: str, entries: Sequence[str]) -> list[str]:
    if not entries:
        return []
    body = ",\n".join(f"    {entry}" for entry in entries)
    return [f"  const {kind} {name}[] = {{", f"{body}}};"]


def _c_type(spec: BufferSpec) -> str:
    return _C_TYPES.get(spec.dtype, "uint16_t" if DTYPES[spec.dtype].itemsize == 2 else "uint8_t")


def _bytes(spec: BufferSpec, dims: Sequence[Terms], symbols: Sequence[str]) -> str:
    """The bytes of a buffer, in numbers without a sign: sizes that a library refuses may be anything."""
    factors = [f"UINT64_C({DTYPES[spec.dtype].itemsize})", *(_expression(dim, symbols) for dim in dims)]
    return " * ".join(factors)


def _expression(size: Terms, symbols: Sequence[str]) -> str:
    terms = []
    for coefficient, factors in size:
        words = [f"(uint64_t){symbols[own]}" if isinstance(own, int) else _derived(own, symbols) for own in factors]
        number = f"(uint64_t)INT64_C({coefficient})" if coefficient < 0 else f"UINT64_C({coefficient})"
        terms.append(" * ".join([*([number] if coefficient != 1 or not words else []), *words]))
    text = " + ".join(terms) or "UINT64_C(0)"
    return f"({text})" if len(terms) > 1 else text


def _derived(own: Derived, symbols: Sequence[str]) -> str:
    function = "rlx_floordiv" if own.kind == "floordiv" else "rlx_max"
    return f"(uint64_t){function}((int64_t)({_expression(own.size, symbols)}), INT64_C({own.number}))"


def _comment(text: str) -> str:
    """A name inside of a comment, which it can't end, nor a line."""
    return re.sub(r"[^\x20-\x7e]|\*/|/\*|\\", "?", text)


__all__ = ["FUNCTIONS", "Described", "check_prefix", "header"]
