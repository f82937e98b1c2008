# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads PTX text: functions, their registers and variables, and instructions with parsed operands.

What is read is the PTX that LLVM writes, and what inline assembly puts into it: blocks in braces with registers and
labels of their own. Directives for debuggers and assemblers are passed over.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ptx_emulator.errors import EmulationError

#: Bytes of each element type of a variable or an access.
TYPE_BYTES = {f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)} | {
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "f64": 8,
    "f16x2": 4,
    "bf16x2": 4,
    "tf32": 4,
    "b128": 16,
    "pred": 1,
}


@dataclass(frozen=True)
class Reg:
    """A register: number in its function, and width in bits (1 for predicates)."""

    number: int
    bits: int
    name: str


@dataclass(frozen=True)
class Imm:
    """A constant: an integer, or the bits of a float whose width `bits` is 32 or 64 (0 for integers)."""

    value: int
    bits: int = 0


@dataclass(frozen=True)
class Special:
    """A special register such as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Symbol:
    """The address of a variable or parameter, plus an offset in bytes; or a label, or a function."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """`[base + offset]`, or `[base + offset, {coordinates}]`."""

    base: Any
    offset: int = 0
    coordinates: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Vector:
    """`{a, b, ...}`"""

    items: tuple[Any, ...]


@dataclass(frozen=True)
class Pair:
    """`a|b`: two results."""

    first: Any
    second: Any


@dataclass(frozen=True)
class Not:
    """`!p`"""

    operand: Any


@dataclass(frozen=True)
class Sink:
    """`_`: a result that nobody reads."""


@dataclass
class Instruction:
    """One instruction. `words` are its opcode and modifiers, `targets` the positions of labels in its operands."""

    words: tuple[str, ...]
    operands: list[Any]
    predicate: Reg | None
    negated: bool
    line: int
    text: str
    targets: list[int] = field(default_factory=list)

    @property
    def opcode(self) -> str:
        """The first word."""
        return self.words[0]


@dataclass
class Variable:
    """A variable of a state space, or a parameter; `offset` is its place in the space."""

    name: str
    space: str
    size: int
    align: int
    initial: bytes = b""
    offset: int = 0
    external: bool = False


@dataclass
class Function:
    """An entry or a function.

    Attributes:
        registers: bits of each register.
        parameter_bytes: size of all parameters at their offsets.
        limits: numbers of directives such as ``maxntid`` and ``reqnctapercluster``.
    """

    name: str
    entry: bool
    parameters: dict[str, Variable]
    registers: list[int] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    shared: dict[str, Variable] = field(default_factory=dict)
    local: dict[str, Variable] = field(default_factory=dict)
    limits: dict[str, tuple[int, ...]] = field(default_factory=dict)
    local_bytes: int = 0

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the block of parameters."""
        return max((p.offset + p.size for p in self.parameters.values()), default=0)


@dataclass
class Text:
    """A PTX file: version, target, variables outside functions, functions by name."""

    version: str
    target: str
    variables: dict[str, Variable]
    functions: dict[str, Function]


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = r"[A-Za-z_$%][\w$]*"
_TOKEN = re.compile(r"\s*(?:(?P<label>[A-Za-z_$][\w$]*)\s*:(?!:)|(?P<brace>[{}])|(?P<dot>\.)|(?P<other>[^\s]))")
_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})$|0[dD]([0-9a-fA-F]{16})$")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?$")
_DECIMAL = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?$")
_VARIABLE = re.compile(
    r"\.(?P<space>global|const|shared|local|param)\s+(?P<attributes>(?:\.\w+(?:\s+\d+)?\s+)*?)(?:\.(?P<vector>v[248])\s+)?"
    r"\.(?P<type>[a-z]\w*)\s+(?P<ptr>(?:\.ptr\s+)?(?:\.(?:global|shared|local|const)\s+)?(?:\.align\s+\d+\s+)?)"
    rf"(?P<name>{_NAME})\s*(?P<extent>(?:\[\s*\d*\s*\])*)\s*(?:=\s*(?P<initial>.*))?$",
    re.DOTALL,
)
_BRACKET = re.compile(r"[\[{(]")
_GUARD = re.compile(rf"@(!?)({_NAME})\s*")
_SUM = re.compile(rf"({_NAME}(?:\.[xyzw])?)\s*(?:([+-])\s*(-?\w+))?$")
_WORD = re.compile(r"\S")
_SPECIAL = re.compile(
    r"%(?:(?:tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyzw]|laneid|warpid|nwarpid|smid|"
    r"nsmid|gridid|clock(?:64|_hi)?|globaltimer(?:_lo|_hi)?|lanemask_(?:eq|le|lt|ge|gt)|dynamic_smem_size|"
    r"total_smem_size|cluster_ctarank|cluster_nctarank|is_explicit_cluster|aggr_smem_size|envreg\d+|"
    r"reserved_smem_\w+|current_graph_exec)$"
)


class _Scope:
    """Registers and labels of one pair of braces."""

    def __init__(self, parent: _Scope | None) -> None:
        self.parent = parent
        self.registers: dict[str, Reg] = {}
        self.labels: dict[str, int] = {}
        self.tables: dict[str, list[str]] = {}

    def find(self, kind: str, name: str) -> Any:
        """What a name means here, or None."""
        scope: _Scope | None = self
        while scope is not None:
            found = getattr(scope, kind).get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None


def split(text: str) -> list[str]:
    """The parts of a list between commas that stand outside brackets."""
    if _BRACKET.search(text) is None:  # most lists
        words = [word.strip() for word in text.split(",")]
        return words if words[-1] else words[:-1]
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        if letter in "[{(":
            depth += 1
        elif letter in ")}]":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def parse_constant(text: str) -> Imm | None:
    """The constant that a word is, or None."""
    if _INTEGER.match(text):
        return Imm(int(text.rstrip("U"), 0))
    if match := _FLOAT.match(text):
        return Imm(int(match[1], 16), 32) if match[1] else Imm(int(match[2], 16), 64)
    if _DECIMAL.match(text):
        return Imm(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    return None


class Reader:
    """Reads one text."""

    def __init__(self, text: str) -> None:
        # Comments become blanks, so that lines keep their numbers.
        self.text = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
        self.position = 0
        self.line = 1
        self.line_position = 0
        self.result = Text("", "", {}, {})
        self.function: Function | None = None
        self.scope = _Scope(None)
        self.pending: list[tuple[Instruction, _Scope]] = []

    def read(self) -> Text:
        """The parsed text; EmulationError where it isn't PTX as expected."""
        while self._skip_blanks():
            statement, line = self._header()
            words = statement.split()
            if words[0] == ".version":
                self.result.version = words[1]
            elif words[0] == ".target":
                self.result.target = statement.removeprefix(".target").strip()
            elif ".entry" in words or ".func" in words:
                self._function(statement, line)
            elif (variable := self._variable(statement, line)) is not None:
                self.result.variables[variable.name] = variable
        return self.result

    def _line_at(self, position: int) -> int:
        self.line += self.text.count("\n", self.line_position, position)
        self.line_position = position
        return self.line

    def _skip_blanks(self) -> bool:
        found = _WORD.search(self.text, self.position)
        self.position = found.start() if found else len(self.text)
        return found is not None

    def _until(self, pattern: str) -> str:
        found = re.compile(pattern).search(self.text, self.position)
        end = found.start() if found else len(self.text)
        text = self.text[self.position : end]
        self.position = found.end() if found else end
        return text

    def _header(self) -> tuple[str, int]:
        """A directive outside functions: up to the end of the line, to a semicolon, or to a function's body."""
        line = self._line_at(self.position)
        first = re.compile(r"\.\w+").match(self.text, self.position)
        word = first[0] if first else ""
        if word in (".version", ".target", ".address_size", ".file"):
            return self._until(r"\n").strip(), line
        if word == ".section":
            return self._until(r"\}").strip(), line
        found = re.compile(r"[;{=]").search(self.text, self.position)
        if found is None:
            raise EmulationError(f"a directive isn't closed: '{self.text[self.position :].strip()[:60]}'", line=line)
        if found[0] == "{":
            text = self.text[self.position : found.start()].strip()
            self.position = found.end()
            return text, line
        return self._until(";").strip(), line

    def _variable(self, statement: str, line: int) -> Variable | None:
        text = re.sub(r"^(?:\.(?:extern|visible|weak|common)\s+)+", "", statement)
        match = _VARIABLE.match(text)
        if match is None:
            if re.match(r"\.(?:global|const|shared|local|param)\b", text):
                raise EmulationError(f"can't read the variable '{statement[:80]}'", line=line)
            return None
        width = TYPE_BYTES.get(match["type"])
        if width is None:
            raise EmulationError(f"a variable has the unknown type '{match['type']}'", line=line)
        width *= int(match["vector"][1:]) if match["vector"] else 1
        count = 1
        extents = re.findall(r"\[\s*(\d*)\s*\]", match["extent"])
        for extent in extents:
            count *= int(extent or 0)
        align = re.search(r"\.align\s+(\d+)", match["attributes"])
        initial = b""
        if match["initial"]:
            if match["type"][0] in "bus":
                numbers = [
                    int(word.rstrip("U"), 0) for word in re.findall(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?", match["initial"])
                ]
                initial = b"".join((n & ((1 << 8 * width) - 1)).to_bytes(width, "little") for n in numbers)
            else:
                words = [parse_constant(word) for word in split(match["initial"].strip().strip("{}"))]
                initial = b"".join((w.value if w else 0).to_bytes(width, "little") for w in words)
        external = ".extern" in statement.split()
        return Variable(
            match["name"], match["space"], width * count, int(align[1]) if align else width, initial, 0, external
        )

    def _function(self, statement: str, line: int) -> None:
        match = re.search(rf"\.(entry|func)\s*(?:\((?P<results>[^)]*)\)\s*)?(?P<name>{_NAME})", statement)
        if match is None:
            raise EmulationError(f"can't read the function '{statement[:80]}'", line=line)
        rest = statement[match.end() :].strip()
        parameters: dict[str, Variable] = {}
        if rest.startswith("("):
            end = rest.index(")")
            offset = 0
            for text in split(rest[1:end]):
                variable = self._variable(text, line)
                if variable is None:
                    raise EmulationError(f"can't read the parameter '{text}'", line=line)
                offset = -(-offset // variable.align) * variable.align
                variable.offset = offset
                offset += variable.size
                parameters[variable.name] = variable
            rest = rest[end + 1 :]
        function = Function(match["name"], match[1] == "entry", parameters)
        for name, numbers in re.findall(r"\.(\w+)((?:\s*,?\s*\d+)*)", rest):
            function.limits[name] = tuple(int(number) for number in re.findall(r"\d+", numbers))
        if self.text[self.position - 1] != "{":
            return  # a declaration
        self.function, self.scope, self.pending = function, _Scope(None), []
        self._body()
        for instruction, scope in self.pending:
            self._resolve(instruction, scope)
        self.result.functions[function.name] = function

    def _body(self) -> None:
        depth = 1
        while depth:
            if not self._skip_blanks():
                raise EmulationError("a function isn't closed", line=self._line_at(self.position))
            line = self._line_at(self.position)
            token = _TOKEN.match(self.text, self.position)
            assert token is not None
            assert self.function is not None
            if token["brace"] == "{":
                self.position, depth, self.scope = token.end(), depth + 1, _Scope(self.scope)
            elif token["brace"] == "}":
                self.position, depth = token.end(), depth - 1
                self.scope = self.scope.parent or self.scope
            elif token["label"]:
                self.position = token.end()
                self.scope.labels[token["label"]] = len(self.function.instructions)
                self._skip_blanks()
                if self.text.startswith(".branchtargets", self.position):
                    names = self._until(";").removeprefix(".branchtargets")
                    self.scope.tables[token["label"]] = split(names)
            elif token["dot"]:
                self._directive(line)
            else:
                self._instruction(self._until(";"), line)

    def _directive(self, line: int) -> None:
        assert self.function is not None
        if re.compile(r"\.loc\b").match(self.text, self.position):
            self._until(r"\n")
            return
        statement = self._until(";").strip()
        if statement.startswith(".reg"):
            self._registers(statement, line)
            return
        variable = self._variable(statement, line)
        if variable is None:
            return
        if variable.space == "shared":
            self.function.shared[variable.name] = variable
        elif variable.space == "local":
            offset = -(-self.function.local_bytes // variable.align) * variable.align
            variable.offset = offset
            self.function.local_bytes = offset + variable.size
            self.function.local[variable.name] = variable
        elif variable.space == "param":
            raise EmulationError("calls of functions aren't emulated", kernel=self.function.name, line=line)
        else:
            self.result.variables[variable.name] = variable

    def _registers(self, statement: str, line: int) -> None:
        assert self.function is not None
        match = re.match(r"\.reg\s+\.(\w+)\s+(.*)$", statement, re.DOTALL)
        if match is None or match[1] not in TYPE_BYTES:
            raise EmulationError(f"can't read the registers '{statement}'", line=line)
        bits = 1 if match[1] == "pred" else TYPE_BYTES[match[1]] * 8
        for word in split(match[2]):
            counted = re.match(r"(.*)<(\d+)>$", word)
            names = [f"{counted[1]}{i}" for i in range(int(counted[2]))] if counted else [word]
            for name in names:
                self.scope.registers[name] = Reg(len(self.function.registers), bits, name)
                self.function.registers.append(bits)

    def _instruction(self, text: str, line: int) -> None:
        assert self.function is not None
        text = " ".join(text.split())
        shown, predicate, negated = text + ";", None, False
        if guard := _GUARD.match(text):
            predicate, negated = self.scope.find("registers", guard[2]), guard[1] == "!"
            if predicate is None:
                raise EmulationError(f"'{guard[2]}' isn't a register", line=line, instruction=shown)
            text = text[guard.end() :]
        opcode, _, rest = text.partition(" ")
        try:
            operands = [self._operand(word) for word in split(rest)]
        except ValueError as error:
            raise EmulationError(str(error), kernel=self.function.name, line=line, instruction=shown) from None
        words = tuple(opcode.split("."))
        if "L2::cache_hint" in words:
            operands.pop()
        instruction = Instruction(words, operands, predicate, negated, line, shown)
        self.function.instructions.append(instruction)
        if instruction.opcode in ("bra", "brx"):
            self.pending.append((instruction, self.scope))

    def _operand(self, word: str) -> Any:
        register = self.scope.find("registers", word)
        if register is not None:  # most operands
            return register
        if word.startswith("["):
            parts = split(word[1:-1])
            base, offset = self._sum(parts[0])
            coordinates: tuple[Any, ...] = ()
            if len(parts) > 1:
                coordinates = tuple(self._operand(part) for part in split(parts[1].strip("{} ")))
            return Address(base, offset, coordinates)
        if word.startswith("{"):
            return Vector(tuple(self._operand(part) for part in split(word[1:-1])))
        if word.startswith("!"):
            return Not(self._operand(word[1:].strip()))
        if word == "_":
            return Sink()
        if "|" in word:
            first, second = word.split("|")
            return Pair(self._operand(first.strip()), self._operand(second.strip()))
        base, offset = self._sum(word)
        if isinstance(base, Symbol) and offset:
            return Symbol(base.name, offset)
        if offset:
            raise ValueError(f"can't read the operand '{word}'")
        return base

    def _sum(self, word: str) -> tuple[Any, int]:
        register = self.scope.find("registers", word)
        if register is not None:
            return register, 0
        constant = parse_constant(word)
        if constant is not None:
            return constant, 0
        match = _SUM.match(word)
        if match is None:
            raise ValueError(f"can't read the operand '{word}'")
        offset = int(match[3].rstrip("U"), 0) if match[3] else 0
        offset = -offset if match[2] == "-" else offset
        name = match[1]
        register = self.scope.find("registers", name)
        if register is not None:
            return register, offset
        if name.startswith("%"):
            if _SPECIAL.match(name):
                return Special(name), offset
            raise ValueError(f"'{name}' isn't a register")
        return Symbol(name), offset

    def _resolve(self, instruction: Instruction, scope: _Scope) -> None:
        """Turns the labels of a branch into positions."""
        symbol = instruction.operands[-1]
        names = [symbol.name]
        if instruction.opcode == "brx":
            names = scope.find("tables", symbol.name) or []
        for name in names:
            target = scope.find("labels", name)
            if target is None:
                raise EmulationError(f"'{name}' isn't a label", line=instruction.line, instruction=instruction.text)
            instruction.targets.append(target)


def parse(text: str) -> Text:
    """Reads PTX; EmulationError where a statement can't be read."""
    return Reader(text).read()


def registers_of(operand: Any) -> Iterator[Reg]:
    """Every register in an operand."""
    if isinstance(operand, Reg):
        yield operand
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from registers_of(item)
    elif isinstance(operand, Address):
        yield from registers_of(operand.base)
        for item in operand.coordinates:
            yield from registers_of(item)
    elif isinstance(operand, Pair):
        yield from registers_of(operand.first)
        yield from registers_of(operand.second)
    elif isinstance(operand, Not):
        yield from registers_of(operand.operand)
