# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes written in Python: registration in MLIR's own registry, options, and running of pipelines."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rlx_mlir import ir, limits
from rlx_mlir.errors import InputError
from rlx_mlir.rewriting.failure import pass_error, write_reproducer
from rlx_mlir.rewriting.pipelines import PIPELINES
from rlx_mlir.rewriting.recording import running


@dataclass(frozen=True)
class Option:
    """An option of a pass: its meaning, its default, and how its text is read.

    Attributes:
        help: one line for `--help`.
        default: the value where the option isn't given; its type decides how the text is read (bool, int, str).
        choices: the words allowed, for a text option; empty where any word is.
        least: of an integer, where not any is allowed.
        most: of an integer, likewise.
    """

    help: str
    default: bool | int | str
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None

    def parse(self, name: str, text: str) -> bool | int | str:
        """The value of the text; raises InputError that names the option, the rule and the text."""
        if isinstance(self.default, bool):
            if text not in ("true", "false"):
                raise InputError(f"option '{name}' expects true or false, but got '{text}'")
            return text == "true"
        if isinstance(self.default, int):
            return self._integer(name, text)
        if self.choices and text not in self.choices:
            raise InputError(f"option '{name}' expects one of {', '.join(self.choices)}, but got '{text}'")
        return text

    def _integer(self, name: str, text: str) -> int:
        least = -math.inf if self.least is None else self.least
        most = math.inf if self.most is None else self.most
        with contextlib.suppress(ValueError):
            if least <= (value := int(text)) <= most:
                return value
        bounds = (
            "" if self.least is None else f" of at least {least}" if self.most is None else f" from {least} to {most}"
        )
        raise InputError(f"option '{name}' expects an integer{bounds}, but got '{text}'")


@dataclass(frozen=True)
class ValueChange:
    """That a pass changes values on purpose: why, and by how much at most.

    Attributes:
        reason: what changes them, for reports.
        tolerance: root mean square of the difference, relative to that of a result's values.
    """

    reason: str
    tolerance: float


@dataclass(frozen=True)
class PythonPass:
    """A registered pass. `run` takes the operation and the options as keyword arguments."""

    argument: str
    summary: str
    anchor: str
    run: Callable[..., None]
    dependent: tuple[str, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict)
    changes_values: ValueChange | None = None


#: Whose import registers passes and pipelines: by name, since nothing here depends on which there are.
_HOMES = (
    "rlx_mlir.autodiff.batched_modules",
    "rlx_mlir.autodiff.differentiate",
    "rlx_mlir.lowering",
    "rlx_mlir.hir.conv_to_matmul",
    "rlx_mlir.hir.custom_lowering",
    "rlx_mlir.hir.decompose",
    "rlx_mlir.hir.dot_to_matmul",
    "rlx_mlir.verify.verify_numerics",
)

#: From this level of optimisation on Python drops docstrings.
_NO_DOCSTRINGS = 2
PASSES: dict[str, PythonPass] = {}
_lock = threading.Lock()
_registered: set[str] = set()
#: What passes raised, with its text, by the context (of the running pipelines, few at a time).
_raised: dict[int, list[tuple[str, Exception]]] = {}


def compiler_pass(
    argument: str,
    *,
    anchor: str = "builtin.module",
    dependent: Sequence[str] = (),
    options: Mapping[str, Option] | None = None,
    changes_values: ValueChange | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a function as a pass; the first line of its docstring is the pass's description.

    Args:
        argument: name in textual pipelines, `<dialect>-<verb>-<what>`.
        anchor: operation that the pass runs on. Passes on `func.func` run on several threads of the pass manager.
        dependent: dialects whose operations the pass creates, where they may be new to the context.
        options: by name in the pipeline's spelling; `-` becomes `_` in the function's keyword.
        changes_values: that results change by more than rounding; numeric verification allows for it.
    """

    def register(run: Callable[..., None]) -> Callable[..., None]:
        summary = (inspect.getdoc(run) or "").partition("\n")[0].rstrip(".")
        if not summary and sys.flags.optimize < _NO_DOCSTRINGS:
            raise ValueError(f"pass '{argument}' has no docstring")
        if argument in PASSES:
            raise ValueError(f"pass '{argument}' is registered already")
        PASSES[argument] = PythonPass(
            argument, summary, anchor, run, tuple(dependent), dict(options or {}), changes_values
        )
        return run

    return register


def _invoke(registered: PythonPass, op: ir.Operation, values: Sequence[tuple[str, str]]) -> str:
    """Runs a pass for the pass manager: what it raises becomes the text of the pass's error."""
    try:
        options = {name.replace("-", "_"): option.default for name, option in registered.options.items()}
        for name, text in values:
            options[name.replace("-", "_")] = registered.options[name].parse(name, text)
        with op.context, op.location, running(registered.argument):
            registered.run(op, **options)
    except Exception as error:
        text = f"{type(error).__name__}: {error}" if not str(error) or _is_bug(error) else str(error)
        with _lock:
            _raised.setdefault(_root(op), []).append((text, error))
        return text
    return ""


def _root(op: ir.Operation) -> int:
    """A number of the module that holds the operation, or of the outermost operation."""
    while (parent := op.parent) is not None:
        op = parent.operation
    return int(ir.native.identity(op))


def _is_bug(error: Exception) -> bool:
    """Whether the error's class says what happened: ours say it in their text."""
    return not type(error).__module__.startswith("rlx_mlir")


def register_all() -> None:
    """Registers every pass and pipeline that Python has and MLIR doesn't know yet."""
    for home in _HOMES:
        importlib.import_module(home)
    ir.register_native_passes()
    with _lock:
        for registered in [p for p in PASSES.values() if p.argument not in _registered]:
            _registered.add(registered.argument)
            options = [(name, _describe(option)) for name, option in registered.options.items()]
            ir.native.register_pass(
                registered.argument,
                registered.summary,
                registered.anchor,
                options,
                list(registered.dependent),
                functools.partial(_invoke, registered),
            )
        for pipeline in [p for p in PIPELINES.values() if p.name not in _registered]:
            _registered.add(pipeline.name)
            taken = list(pipeline.options.items())
            ir.native.register_pipeline(pipeline.name, pipeline.summary, pipeline.text, taken)


def _describe(option: Option) -> str:
    default = str(option.default).lower() if isinstance(option.default, bool) else str(option.default)
    choices = f" ({'|'.join(option.choices)})" if option.choices else ""
    return f"{option.help}{choices}; default: {default or 'empty'}"


def run_pipeline(
    op: ir.AnyModule,
    pipeline: str,
    *,
    verify: bool = True,
    print_changed: bool = False,
    timing: bool = False,
) -> str:
    """Runs a textual pipeline on a module; other threads of Python go on meanwhile.

    Args:
        op: the module, or its operation; changed in place.
        pipeline: passes and named pipelines, such as `hir-to-mir{policy=direct},cse`.
        verify: verify the IR after every pass.
        print_changed: log the IR after each pass that changed it.
        timing: log the time of each pass.

    Returns:
        The log: what printing and timing wrote.

    Raises:
        PassError: with the pass, every diagnostic, and the path of a file that reproduces the failure.
        TimeLimitError: the time limit of the compilation that this thread is at, if it has one, is over.
    """
    register_all()
    operation = op.operation
    watch = limits.current()
    run = functools.partial(
        ir.native.run_pipeline,
        operation,
        pipeline,
        verify=verify,
        print_changed=print_changed,
        timing=timing,
        watch=watch.native,
    )
    result = limits.interruptible(run, watch)
    if result.succeeded:
        return str(result.log)
    with _lock:
        raised = _raised.pop(_root(operation), [])
    if watch.native.is_over:
        raise watch.error(write_reproducer(result.reproducer))
    cause = next((error for text, error in raised if any(text in d.message for d in result.diagnostics)), None)
    raise pass_error(pipeline, str(operation.location), result, cause) from cause
