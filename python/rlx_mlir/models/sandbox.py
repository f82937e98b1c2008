# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Jinja for programs of strangers: nothing that one does takes more than the budgets of templates.

Jinja's immutable sandbox keeps a template away from the interpreter; it bounds neither time nor memory. Here the code
that Jinja makes of a template counts as it runs: every block of statements its nodes and its text, every operator,
filter and call what it reads and what it makes. Two numbers come of it, which don't depend on the machine:

- *steps* (budget `template_steps`): about a microsecond of work each, such as four nodes of a block, or 1024 characters
  that are read;
- *characters made* (budget `template_output`): of every text that is written, or made on the way; an element of a list
  counts as 16. What may be large is checked before it is made.

Not there, because chat templates have no use for it and it is hard to bound: `autoescape`, `lipsum`, the filters
`pprint`, `striptags`, `urlize`, `wordwrap` and `xmlattr`, and methods of strings and numbers beyond those listed here.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEscapeFormatter, SandboxedFormatter
from jinja2.utils import Namespace

from .. import budgets
from ..errors import ChatTemplateError

ELEMENT = 16
"""Characters that an element of a list counts as."""

_CALL = 4  # steps of calling a function, a filter or a test
_TOKEN = 40  # steps that a token of the source takes to compile
_READ = 10  # a step is 2^10 characters that are read
_REPR = 10  # times that `repr` can lengthen a text
_ESCAPED = 6  # times that escaping for HTML can
_CONTAINERS: tuple[type, ...] = (
    list,
    tuple,
    dict,
    set,
    frozenset,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)


class Meter:
    """What rendering one template has taken, and may still take.

    Attributes:
        steps, room: steps and characters that are left.
    """

    def __init__(self, what: str) -> None:
        """Budgets are those of now; `what` names the template."""
        limits = budgets.current()
        self._what, self._deepest, self._bits = what, limits.nesting, 4 * limits.digits
        self.steps, self.room = limits.template_steps, limits.template_output
        self._longest_range = limits.template_steps
        self._known: dict[int, tuple[object, int, int]] = {}

    def step(self, count: int = 1) -> None:
        """Takes steps."""
        self.steps -= count
        if self.steps < 0:
            raise budgets.exceeded("template_steps", self._what)

    def fits(self, count: int) -> None:
        """Checks that so many characters may be made; called before they are."""
        if count > self.room:
            raise budgets.exceeded("template_output", self._what)

    def make(self, count: int) -> None:
        """Takes characters."""
        self.fits(count)
        self.room -= count

    def made(self, value: object, *sources: object) -> object:
        """Takes what a new value is; nothing for one of its sources."""
        if any(value is each for each in sources):
            return value
        if isinstance(value, str | bytes):
            self.make(len(value))
        elif isinstance(value, list | tuple | dict | set | frozenset):
            self.make(ELEMENT * (len(value) + 4))
        elif isinstance(value, int):
            self.check_bits(value.bit_length())
        return value

    def check_bits(self, bits: int) -> None:
        """Checks that an integer may have so many bits."""
        if bits > self._bits:
            raise budgets.exceeded("digits", self._what)

    def check_range(self, length: int) -> None:
        """Checks that a range may have so many numbers."""
        if length > self._longest_range:
            raise budgets.exceeded("template_steps", self._what, length)

    def weigh(self, value: object) -> tuple[int, int]:
        """Characters that a value is when written as a tree, about, and its depth.

        Lists that hold one list many times are far larger as a tree than in memory; printing, comparing and hashing
        them walks the tree. Templates can't change containers, so that each is weighed once.
        """
        if isinstance(value, str | bytes):
            return len(value), 0
        if isinstance(value, int):
            return value.bit_length() >> 3, 0
        if not isinstance(value, _CONTAINERS):
            return ELEMENT, 0
        assert isinstance(value, Collection)
        known = self._known.get(id(value))
        if known is not None:
            return known[1:]
        self.step(len(value) >> 3)
        weight, depth = ELEMENT, 0
        parts: Collection[object] = (*value.keys(), *value.values()) if isinstance(value, dict) else value
        for each in parts:
            own, below = self.weigh(each)
            weight, depth = weight + own + ELEMENT, max(depth, below)
        if depth >= self._deepest:
            raise budgets.exceeded("nesting", self._what)
        self._known[id(value)] = value, weight, depth + 1
        return weight, depth + 1

    def read(self, value: object) -> object:
        """Takes the steps of reading all of a value."""
        self.step(self.weigh(value)[0] >> _READ)
        return value

    def text(self, value: object) -> str:
        """A value as Jinja writes it."""
        if isinstance(value, str):
            return value
        if isinstance(value, _CONTAINERS):
            self.read(value)
            self.fits(_REPR * self.weigh(value)[0])
        return str(value)

    def counted(self, items: Iterable[object]) -> Iterator[object]:
        """The items, a step each."""
        for each in items:
            self.step()
            yield each

    def listed(self, value: object) -> object:
        """The items of an iterator as a list; any other value as it is."""
        return self.made(list(self.counted(value))) if isinstance(value, Iterator) else value

    def search(self, text: str, other: object) -> None:
        """Takes the steps of searching from the end, or of stripping: each place by each character of the other."""
        if isinstance(other, str):
            self.step(len(text) * min(len(other), len(text)) >> (_READ + 2))


METER: ContextVar[Meter] = ContextVar("rlx_template_meter")
"""That of the template that is being compiled or rendered in this context."""


@contextmanager
def metered(what: str) -> Iterator[Meter]:
    """What a template does inside is counted, from zero on."""
    token = METER.set(Meter(what))
    try:
        yield METER.get()
    finally:
        METER.reset(token)


# -- what is made, before it is --------------------------------------------------------------------------------------


def _replaced(meter: Meter, text: object, old: object, new: object, count: object = None) -> None:
    if isinstance(text, str) and isinstance(old, str) and isinstance(new, str):
        found = text.count(old)
        if isinstance(count, int) and count >= 0:
            found = min(found, count)
        meter.fits((len(text) + found * max(0, len(new) - len(old))) * _markup(text, new))


def _markup(*values: object) -> int:
    """Times that an operation with these can lengthen a text: with markup it escapes what isn't."""
    return _ESCAPED if any(hasattr(each, "__html__") for each in values) else 1


def _padded(meter: Meter, text: object, width: object = 80, *_: object, **__: object) -> None:
    if isinstance(width, int):
        meter.fits(width)


_CONVERSION = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d+)?(?:\.(\*|\d+))?")


def _formatted(meter: Meter, text: str, values: object) -> None:
    """`text % values`."""
    listed = (
        list(values.values())
        if isinstance(values, Mapping)
        else list(values)
        if isinstance(values, tuple)
        else [values]
    )
    sizes = [len(each) if isinstance(each, str) else _REPR * meter.weigh(each)[0] for each in listed]
    found = [match.groups() for match in _CONVERSION.finditer(text)]
    meter.step(len(found) + sum(sizes) >> _READ)
    largest = max((abs(each) for each in listed if isinstance(each, int)), default=0)
    widths = sum(largest if word == "*" else int(word[:12]) for groups in found for word in groups if word)
    total = len(found) * max(sizes, default=0) if isinstance(values, Mapping) else sum(sizes)
    meter.fits((len(text) + widths + total) * _markup(text))


def _joined(meter: Meter, separator: object, items: list[object]) -> None:
    total = 0
    for each in items:
        total += len(each) if isinstance(each, str) else _REPR * meter.weigh(each)[0]
    length = len(separator) if isinstance(separator, str) else _REPR * meter.weigh(separator)[0]
    meter.fits((total + length * max(0, len(items) - 1)) * _markup(separator, *items[:1]))


_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


# -- filters ---------------------------------------------------------------------------------------------------------

_WITHOUT = ("pprint", "striptags", "urlize", "wordwrap", "xmlattr")
#: Filters that don't look into what they are given, or only at one element at a time.
_LAZY = frozenset(
    {"attr", "count", "d", "default", "first", "items", "last", "length", "list", "map", "random"}
    | {"reject", "rejectattr", "select", "selectattr"}
)


def _indented(meter: Meter, text: object, width: object = 4, *_: object, **__: object) -> None:
    if isinstance(width, str | int):  # what fills a line is made before the text is looked at, whatever that is
        own = len(width) if isinstance(width, str) else width
        words = text if isinstance(text, str) else ""
        lines = sum(words.count(end) for end in _LINE_ENDS) + 2
        meter.fits((len(words) + own * lines) * _markup(text))


def _rows(meter: Meter, _value: object, count: object, *_: object, **__: object) -> None:
    if isinstance(count, int):
        meter.fits(ELEMENT * count)


def _rounded(meter: Meter, _value: object, precision: object = 0, *_: object, **__: object) -> None:
    if isinstance(precision, int):
        meter.check_bits(4 * abs(precision))


def _parsed(meter: Meter, value: object, *_: object, **__: object) -> None:
    if isinstance(value, str):
        meter.check_bits(4 * len(value))


def _lengthened(times: int) -> Callable[..., None]:
    def check(meter: Meter, value: object, *_: object, **__: object) -> None:
        size = len(value) if isinstance(value, str) else _REPR * meter.weigh(value)[0]
        meter.fits(times * size)

    return check


def _sorted(meter: Meter, value: object, *_: object, **__: object) -> None:
    meter.step(meter.weigh(value)[0] >> (_READ - 4))
    if isinstance(value, str):
        meter.fits(ELEMENT * len(value))


def _summed(meter: Meter, value: object, *_: object, **__: object) -> None:
    if isinstance(value, Sequence):  # of lists, each is copied as often as others follow
        meter.step(len(value) * meter.weigh(value)[0] >> _READ)
        meter.fits(meter.weigh(value)[0])


def _enumerated(meter: Meter, value: object, *_: object, **__: object) -> None:
    if isinstance(value, str | range):
        meter.step(len(value) >> 3)
        meter.fits(ELEMENT * len(value))


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own filter, leaves non-ASCII and HTML characters as they are: models were trained on that."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _serialized(
    meter: Meter,
    value: object,
    ensure_ascii: object = False,
    indent: object = None,
    separators: object = None,
    *_: object,
    **__: object,
) -> None:
    weight, depth = meter.weigh(value)
    own = indent if isinstance(indent, int) else meter.weigh(indent)[0] if indent is not None else 0
    between = meter.weigh(separators)[0] if separators is not None else 0
    meter.fits(weight * (12 if ensure_ascii else 6) + (max(own, 0) * (depth + 1) + between) * (weight // ELEMENT + 1))


_FILTERS: dict[str, Callable[..., None]] = {
    "batch": _rows,
    "center": _padded,
    "dictsort": _sorted,
    "e": _lengthened(_ESCAPED),
    "escape": _lengthened(_ESCAPED),
    "forceescape": _lengthened(_ESCAPED),
    "format": lambda meter, text, *args, **kwargs: _formatted(meter, meter.text(text), kwargs or args),
    "groupby": _sorted,
    "indent": _indented,
    "int": _parsed,
    "list": _enumerated,
    "max": _sorted,
    "min": _sorted,
    "replace": lambda meter, text, old, new, count=None: _replaced(
        meter, meter.text(text), meter.text(old), meter.text(new), count
    ),
    "round": _rounded,
    "slice": _rows,
    "sort": _sorted,
    "sum": _summed,
    "tojson": _serialized,
    "title": _lengthened(ELEMENT),
    "trim": lambda meter, text, chars=None: meter.search(meter.text(text), chars),
    "unique": _sorted,
    "urlencode": _lengthened(12),
    "wordcount": _lengthened(ELEMENT),
}

#: Tests that look into what they are given.
_COMPARING = (
    "eq", "==", "equalto", "ne", "!=", "lt", "lessthan", "<", "gt", "greaterthan", ">", "ge", ">=", "le", "<=", "in",
    "divisibleby", "lower", "upper",
)  # fmt: skip


def _metered(name: str, function: Callable[..., object], *, lazy: bool = False) -> Callable[..., object]:
    """A filter or test that counts. It takes the context, so that Jinja doesn't compute it while compiling."""
    kind = getattr(getattr(function, "jinja_pass_arg", None), "name", None)
    check = _FILTERS.get(name)

    @pass_context
    def counted(context: Context, /, *args: object, **kwargs: object) -> object:
        meter = METER.get()
        meter.step(_CALL)
        if not lazy:
            args = (meter.listed(args[0]), *args[1:])
            for each in (*args, *kwargs.values()):
                meter.read(each)
        elif name == "list" and isinstance(args[0], Iterator):
            args = (meter.counted(args[0]), *args[1:])
        if name == "join":
            args = _join_arguments(meter, *args, **kwargs)
            kwargs = {each: value for each, value in kwargs.items() if each == "attribute"}
        if check is not None:
            check(meter, *args, **kwargs)
        passed = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}
        own = (passed[kind],) if kind in passed else ()
        return meter.made(function(*own, *args, **kwargs), *args)

    return counted


def _join_arguments(
    meter: Meter, value: object, d: object = "", attribute: object = None, **_: object
) -> tuple[object, ...]:
    if isinstance(value, Iterable):
        if isinstance(value, str):
            meter.fits(ELEMENT * len(value))
        value = list(value)
        _joined(meter, d, value)
    return (value, d) if attribute is None else (value, d, attribute)


# -- methods ---------------------------------------------------------------------------------------------------------

_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        {"capitalize", "casefold", "center", "count", "endswith", "find", "format", "index", "isalnum", "isalpha"}
        | {"isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "ljust"}
        | {"lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust"}
        | {"rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title"}
        | {"upper", "zfill"}
    ),
    dict: frozenset(["copy", "get", "items", "keys", "values"]),
    list: frozenset(["copy", "count", "index"]),
    tuple: frozenset(["count", "index"]),
    int: frozenset({"bit_length"}),
    float: frozenset({"is_integer"}),
    range: frozenset(),
    bytes: frozenset(),
    bytearray: frozenset(),
    complex: frozenset(),
    set: frozenset(),
    frozenset: frozenset(),
    type: frozenset(),
}
"""Methods of builtin types that a template may call."""


def _call_of_text(
    meter: Meter, method: Callable[..., Any], text: str, args: tuple[object, ...], kwargs: dict[str, object]
) -> object:
    """Calls a method of a text."""
    name = method.__name__
    if name not in ("startswith", "endswith"):
        meter.read(text)
    if name == "join" and args:
        args = (meter.listed(args[0]), *args[1:])
        if isinstance(args[0], Iterable):
            items = list(args[0])
            _joined(meter, text, items)
            args = (items, *args[1:])
    for each in (*args, *kwargs.values()):
        meter.read(each)
    if name in ("center", "ljust", "rjust", "zfill"):
        _padded(meter, text, *args)
    elif name == "replace":
        if len(args) > 1:
            _replaced(meter, text, *args[:2], *args[2:3], **kwargs)
    elif name == "splitlines":
        meter.fits(ELEMENT * sum(text.count(end) for end in _LINE_ENDS))
    elif name in ("strip", "lstrip", "rstrip", "rfind", "rindex", "rpartition", "rsplit") and args:
        meter.search(text, args[0])
    if name in ("split", "rsplit") and len(args) < 3:
        return _split(meter, method, *args, **kwargs)
    return method(*args, **kwargs)


def _split(meter: Meter, method: Callable[..., Any], sep: object = None, maxsplit: object = -1) -> object:
    most = meter.room // ELEMENT
    if isinstance(maxsplit, int) and not 0 <= maxsplit <= most:
        parts = method(sep, most)
        meter.fits(ELEMENT * len(parts))
        return parts
    return method(sep, maxsplit)


class _Bounded(SandboxedFormatter):
    """`str.format`, whose widths are counted."""

    def format_field(self, value: object, format_spec: str) -> Any:
        meter = METER.get()
        meter.step()
        size = len(value) if isinstance(value, str) else _REPR * meter.weigh(value)[0]
        meter.make((size + sum(int(word[:12]) for word in re.findall(r"\d+", format_spec))) * _markup(value))
        return super().format_field(value, format_spec)

    def convert_field(self, value: object, conversion: str | None) -> object:
        meter = METER.get()
        if conversion:
            meter.make(_REPR * meter.weigh(value)[0])
        return super().convert_field(value, conversion)


class _BoundedEscape(_Bounded, SandboxedEscapeFormatter):
    pass


# -- the environment -------------------------------------------------------------------------------------------------


def _weight(found: Iterable[nodes.Node]) -> tuple[int, int]:
    """Steps and characters of running statements once; blocks inside of them count by themselves."""
    count = characters = 0
    stack = list(found)
    while stack:
        node = stack.pop()
        count += 1
        if isinstance(node, nodes.TemplateData):
            characters += len(node.data)
        elif isinstance(node, nodes.List | nodes.Tuple | nodes.Dict):
            characters += ELEMENT * (len(node.items) + 4)
        inside = isinstance(node, nodes.Stmt)
        if isinstance(node, nodes.If):
            stack += [other.test for other in node.elif_]
        for name, value in node.iter_fields():
            if inside and name in ("body", "else_", "elif_"):
                continue
            if isinstance(value, nodes.Node):
                stack.append(value)
            elif isinstance(value, list):
                stack += [each for each in value if isinstance(each, nodes.Node)]
    return 1 + count // 4, characters


class _Generator(CodeGenerator):
    """Makes code that counts."""

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        nodes = list(nodes)
        steps, characters = _weight(nodes)
        self.writeline(f"environment.tick({steps}, {characters})")
        super().blockvisit(nodes, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        if node.test is not None:  # runs for each item, before the block does
            weight = [nodes.Const(number) for number in _weight([node.test])]
            tick = nodes.Call(nodes.EnvironmentAttribute("tick"), weight, [], None, None)
            node.test = nodes.And(tick, node.test)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concatenated((")
        for each in node.nodes:
            self.visit(each, frame)
            self.write(", ")
        self.write("))")

    def _visit_read(self, node: nodes.Expr, frame: Frame) -> None:
        self.write("environment.read(")
        self.visit(node, frame)
        self.write(")")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self.write("(")
        self._visit_read(node.expr, frame)
        for each in node.ops:
            self.visit(each, frame)
        self.write(")")

    def visit_Operand(self, node: nodes.Operand, frame: Frame) -> None:
        from jinja2.compiler import operators

        self.write(f" {operators[node.op]} ")
        self._visit_read(node.expr, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("{")
        for each in node.items:
            self._visit_read(each.key, frame)
            self.write(": ")
            self.visit(each.value, frame)
            self.write(", ")
        self.write("}")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.part(")
        self.visit(node.node, frame)
        for each in (node.arg.start, node.arg.stop, node.arg.step):
            self.write(", ")
            if each is None:
                self.write("None")
            else:
                self.visit(each, frame)
        self.write(")")

    def visit_ScopedEvalContextModifier(self, node: nodes.ScopedEvalContextModifier, frame: Frame) -> None:
        self.fail("'autoescape' isn't there in chat templates", node.lineno)

    def visit_EvalContextModifier(self, node: nodes.EvalContextModifier, frame: Frame) -> None:
        self.fail("'autoescape' isn't there in chat templates", node.lineno)


class _Tokens(Extension):
    """Counts what there is to compile, which takes longer than reading it."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        meter = METER.get()
        for token in stream:
            meter.step(_TOKEN)
            yield token


class _Generation(Extension):
    """``{% generation %} ... {% endgeneration %}`` marks what the assistant says, for training: plain text here."""

    tags = {"generation"}  # noqa: RUF012 - the name and form that jinja2 asks for

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Namespace(Namespace):
    """Jinja's, but what it holds isn't printed: it may be far larger as a text than in memory."""

    def __repr__(self) -> str:
        return "<Namespace>"


@pass_context
def _finalize(context: Context, value: object) -> str:
    meter = METER.get()
    text = meter.text(value)
    meter.make(len(text))
    return text


def _range(*bounds: Any) -> range:
    found = range(*bounds)
    METER.get().check_range(len(found))
    return found


class Environment(ImmutableSandboxedEnvironment):
    """The sandbox. Compiling and rendering with it need a `METER`."""

    code_generator_class = _Generator
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Tokens, _Generation, loopcontrols],
            finalize=_finalize,
            optimized=False,
        )
        self.filters["tojson"] = to_json
        self.filters = {
            name: _metered(name, function, lazy=name in _LAZY)
            for name, function in self.filters.items()
            if name not in _WITHOUT
        }
        for name in _COMPARING:
            test: Any = self.tests[name]
            self.tests[name] = _metered(f"is {name}", test)
        del self.globals["lipsum"]
        self.globals["range"] = _range
        self.globals["namespace"] = _Namespace

    # What the code that is made calls.

    def tick(self, steps: int, characters: int) -> bool:
        """A block of statements runs."""
        meter = METER.get()
        meter.step(steps)
        meter.make(characters)
        return True

    def read(self, value: object) -> object:
        """A value is compared, or hashed."""
        return METER.get().read(value)

    def concatenated(self, values: tuple[object, ...]) -> str:
        """`a ~ b`."""
        meter = METER.get()
        meter.step()
        texts = [meter.text(each) for each in values]
        meter.make(sum(len(each) for each in texts))
        return "".join(texts)

    def part(self, value: Any, start: object, stop: object, step: object) -> object:
        """`value[start:stop:step]`."""
        meter = METER.get()
        meter.step()
        if isinstance(value, str | list | tuple):
            length = len(range(*slice(start, stop, step).indices(len(value))))
            meter.fits(length * (1 if isinstance(value, str) else ELEMENT))
        return meter.made(value[start:stop:step], value)

    # What Jinja asks of a sandbox.

    def getitem(self, obj: object, argument: object) -> object:
        if isinstance(argument, tuple):
            METER.get().read(argument)
        return super().getitem(obj, argument)

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        own = isinstance(value, types.BuiltinMethodType | types.MethodWrapperType) or isinstance(obj, str)
        kinds = [names for kind, names in _METHODS.items() if isinstance(obj, kind)] if own else []
        return not kinds or attr in kinds[0]

    def wrap_str_format(self, value: object) -> Callable[..., str] | None:
        if not isinstance(value, types.MethodType | types.BuiltinMethodType) or value.__name__ != "format":
            return None
        text = value.__self__
        if not isinstance(text, str):
            return None

        def format(*args: object, **kwargs: object) -> str:
            meter = METER.get()
            meter.make(len(text))
            if hasattr(text, "escape"):
                return type(text)(_BoundedEscape(self, escape=text.escape).vformat(text, args, kwargs))
            return _Bounded(self).vformat(text, args, kwargs)

        return format

    def call(self, context: Context, obj: object, /, *args: object, **kwargs: object) -> object:
        meter = METER.get()
        meter.step(_CALL + (len(args) >> 3))
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str) and isinstance(obj, types.BuiltinMethodType | types.MethodType):
            for name in ("_block_vars", "_loop_vars"):  # what Jinja passes to functions that take its context
                kwargs.pop(name, None)
            return meter.made(_call_of_text(meter, obj, owner, args, kwargs), owner, *args)
        if isinstance(obj, types.BuiltinMethodType) and isinstance(owner, list | tuple | dict):
            if obj.__name__ in ("count", "index"):
                meter.read(owner)
            for each in args:
                meter.read(each)
        found = super().call(context, obj, *args, **kwargs)
        return found if isinstance(obj, Macro) and not isinstance(found, str) else meter.made(found, *args)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        meter = METER.get()
        meter.step()
        if isinstance(left, int) and isinstance(right, int):
            one, other = left.bit_length(), right.bit_length()
            meter.check_bits(one * right if operator == "**" and right > 0 else one + other)
        elif operator == "*":
            for value, times in ((left, right), (right, left)):
                if isinstance(value, str | bytes | list | tuple) and isinstance(times, int) and times > 0:
                    meter.fits(len(value) * times * (1 if isinstance(value, str | bytes) else ELEMENT))
        elif operator == "+":
            if isinstance(left, str) and isinstance(right, str):
                meter.fits((len(left) + len(right)) * _markup(left, right))
            elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
                meter.fits(ELEMENT * (len(left) + len(right)))
        elif operator == "%" and isinstance(left, str):
            _formatted(meter, left, right)
        return meter.made(super().call_binop(context, operator, left, right))


_PROBE = "{% for x in y if x %}{{ x ~ x }}{{ x == x }}{{ x[1:] }}{{ x + x }}{{ x() }}{{ {x: x} }}{% endfor %}"
_HOOKS = ("tick", "concatenated", "read", "part", "call_binop", "call", "finalize")


@cache
def environment() -> Environment:
    """The one environment, without functions of its own yet.

    Raises ChatTemplateError with a version of Jinja that makes code of templates in another way: nothing would count.
    """
    made = Environment()
    with metered("a template"):
        code = made.compile(_PROBE, raw=True)
    missing = [name for name in _HOOKS if f"environment.{name}(" not in code]
    if missing:
        import jinja2

        raise ChatTemplateError(
            f"jinja2 {jinja2.__version__} compiles templates in a way that can't be bounded: {missing}"
        )
    return made


__all__ = ["ELEMENT", "METER", "Environment", "Meter", "environment", "metered"]
