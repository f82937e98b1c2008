# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of users' own: what `register_op` is told of them, and how it is used. Needs no MLIR.

docs/own-operations.md is for whoever writes one. In modules they are `mir.custom`.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import re
import threading
from _ctypes import CFuncPtr  # the class of functions of C, which ctypes doesn't name
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeAlias

import numpy as np

from rlx_mlir import checks
from rlx_mlir.dtypes import DTYPES, word_of
from rlx_mlir.errors import ExecutionError, InputError, RlxError, did_you_mean

#: What a parameter may be; lists of these, too.
Scalar = bool | int | float | str
Parameter: TypeAlias = Scalar | list[Scalar]
Parameters: TypeAlias = dict[str, Parameter]

#: A size of an operand or result: a number, or what `infer` is given of a dynamic one, which computes as numbers do.
Size: TypeAlias = Any

#: A part of an operation, which its user wrote: `register_op` says what each of them takes and gives.
Function: TypeAlias = Callable[..., Any]

_NAME = re.compile(r"(?!(?:mir|hir)\.)[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
_FUNCTIONS = ("infer", "reference", "lowering", "kernel", "vjp", "jvp", "batching", "sample")
#: In what ctypes notes of a function: it is called with the interpreter's lock.
_NEEDS_LOCK = 4
#: What builders take beside parameters.
_RESERVED = ("name", "shape")


@dataclass(frozen=True)
class TensorSpec:
    """Shape and element type of an operand or a result.

    Attributes:
        shape: for each dimension a number, or where it is dynamic what is known of it: a symbol, or what is computed of
            symbols. Both add, subtract, multiply with each other, and take `//` and `%` by numbers.
        dtype: a word of IR text, such as `f32`; numpy's types are taken, too.
    """

    shape: tuple[Size, ...]
    dtype: str

    def __post_init__(self) -> None:
        if isinstance(self.shape, str) or not isinstance(self.shape, Sequence):
            raise InputError(f"the shape of a TensorSpec is a sequence of sizes, but got {checks.shown(self.shape)}")
        object.__setattr__(self, "shape", tuple(self.shape))
        word = self.dtype
        if not isinstance(word, str) or word not in DTYPES:
            found = checks.element_type("dtype", word)
            known = word_of(found)
            if known is None:
                raise InputError(f"the dtype of a TensorSpec is one of {', '.join(DTYPES)}, but got {word!r}")
            object.__setattr__(self, "dtype", known)

    @staticmethod
    def of(array: np.ndarray) -> TensorSpec:
        """That of an array."""
        return TensorSpec(array.shape, word_of(array.dtype) or array.dtype.name)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, eq=False)
class OwnOp:
    """A registered operation; `register_op` says what each part is."""

    name: str
    infer: Function
    reference: Function
    lowering: Function | None = None
    kernel: Function | None = None
    vjp: Function | None = None
    jvp: Function | None = None
    batching: Function | None = None
    sample: Function | None = None
    _signature: inspect.Signature = field(default_factory=inspect.Signature, repr=False)

    @property
    def is_native(self) -> bool:
        """Whether the kernel is a function of C."""
        return isinstance(self.kernel, CFuncPtr)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The parameters, which are what `infer` takes by keyword."""
        return tuple(p.name for p in self._signature.parameters.values() if p.kind is p.KEYWORD_ONLY)

    @property
    def operand_count(self) -> int | None:
        """How many operands there are; None where `infer` takes any number."""
        return _operand_count(self._signature)

    def parameters(self, given: Mapping[str, object]) -> Parameters:
        """All parameters: those that are given, the others by the defaults of `infer`.

        Raises InputError for one that is unknown, missing, or none that IR text can hold.
        """
        known = self.parameter_names
        for name in given:
            if name not in known:
                listed = ", ".join(known) or "none"
                raise InputError(f"'{self.name}' has no parameter '{name}'{did_you_mean(name, known)}; it has {listed}")
        values = {}
        for name in known:
            value = given.get(name, self._signature.parameters[name].default)
            if value is inspect.Parameter.empty:
                raise InputError(f"'{self.name}' needs a value for its parameter '{name}'")
            values[name] = _parameter(self.name, name, value)
        return values

    def results(self, operands: Sequence[TensorSpec], parameters: Mapping[str, object]) -> tuple[TensorSpec, ...]:
        """What `infer` says; InputError, which names the operation, where it raises or gives something else."""
        count = self.operand_count
        if count is not None and len(operands) != count:
            raise InputError(f"'{self.name}' has {count} operands, but got {len(operands)}")
        try:
            found = self.infer(*operands, **self.parameters(parameters))
        except RlxError as error:
            raise InputError(f"'{self.name}': {error}") from None
        except Exception as error:
            listed = ", ".join(map(str, operands))
            raise InputError(
                f"'infer' of '{self.name}' raised {type(error).__name__}: {error}, for operands {listed}"
            ) from error
        specs = tuple(found) if isinstance(found, list | tuple) else (found,)
        if not specs or not all(isinstance(spec, TensorSpec) for spec in specs):
            raise InputError(
                f"'infer' of '{self.name}' gives a TensorSpec, or a tuple with one for each result, but gave "
                f"{checks.shown(found)}"
            )
        return specs

    def evaluate(self, arrays: Sequence[np.ndarray], parameters: Mapping[str, object]) -> tuple[np.ndarray, ...]:
        """The results by the reference, which have to be as `infer` says; ExecutionError otherwise."""
        return self._computed("reference", self.reference, arrays, parameters)

    def call_kernel(self, arrays: Sequence[np.ndarray], parameters: Mapping[str, object]) -> tuple[np.ndarray, ...]:
        """The results by the kernel, a function of Python; see `evaluate`."""
        assert self.kernel is not None
        return self._computed("kernel", self.kernel, arrays, parameters)

    def _computed(
        self, what: str, function: Function, arrays: Sequence[np.ndarray], parameters: Mapping[str, object]
    ) -> tuple[np.ndarray, ...]:
        expected = self.results([TensorSpec.of(array) for array in arrays], parameters)
        try:
            found = function(*arrays, **self.parameters(parameters))
        except Exception as error:
            raise ExecutionError(f"'{what}' of '{self.name}' raised {type(error).__name__}: {error}") from error
        results = tuple(found) if isinstance(found, list | tuple) else (found,)
        given = [_described(result) for result in results]
        if given != [str(spec) for spec in expected]:
            raise ExecutionError(
                f"'{what}' of '{self.name}' gave {', '.join(given) or 'nothing'}, but 'infer' says "
                f"{', '.join(map(str, expected))}"
            )
        return tuple(np.asarray(result) for result in results)

    @property
    def digest(self) -> str | None:
        """What identifies the parts that decide about compiled code; None where their source can't be told.

        A function is told by its file, place, code and defaults. What it gets from its surroundings, or an object with
        a method `__call__`, isn't in the file, so it isn't told.
        """
        own = [function_digest(part) for part in (self.infer, self.lowering, None if self.is_native else self.kernel)]
        if None in own:
            return None
        return hashlib.sha256("\n".join([self.name, str(self.is_native), *map(str, own)]).encode()).hexdigest()


_lock = threading.Lock()
_registered: dict[str, OwnOp] = {}


def register_op(
    name: str,
    *,
    infer: Function | None = None,
    reference: Function | None = None,
    lowering: Function | None = None,
    kernel: Function | None = None,
    vjp: Function | None = None,
    jvp: Function | None = None,
    batching: Function | None = None,
    sample: Function | None = None,
    **unknown: object,
) -> OwnOp:
    """Makes an operation known to builders, the interpreter, verification, the compiler and the fuzzer.

    Args:
        name: two or more words with dots between them, such as `my.gelu2`.
        infer: `(*operands, **parameters)`, of which operands are `TensorSpec`s: the `TensorSpec` of the result, or a
            tuple of several. What it takes by keyword only are the operation's parameters: booleans, numbers, texts or
            lists of these.
        reference: the same with arrays of numpy: what the operation means. Its results are as `infer` says.
        lowering: `(m, *operands, **parameters)`, of which operands are values of the GraphModule m: builds what takes
            the operation's place, and returns its results. For CPUs and GPUs.
        kernel: what compiled code for CPUs calls: a function of numpy like `reference`, whose arrays are good for the
            call only and mustn't be written to; or a function of C, from `ctypes`. With both, CPUs take the kernel.
        vjp: `(m, operands, results, cotangents, **parameters)`: builds a cotangent for each operand, in a tuple, of its
            type, or None for zeros. There is a cotangent for each result, None where that has no derivative.
        jvp: `(m, operands, results, tangents, **parameters)`: builds a tangent for each result; those of operands are
            None for zeros. Without it forward mode is the transpose of `vjp`; without both, derivatives go through what
            `lowering` builds.
        batching: `(m, operands, batched, **parameters)`: builds the results of a batch, which is their first dimension,
            and that of the operands for which `batched` says so. Without it a batch is one of what `lowering` builds,
            or calls of the kernel one after the other.
        sample: `(rng)`, of which rng is a numpy Generator: ([operands], {parameters}) for the fuzzer to draw, with a
            `TensorSpec` for each operand.

    Returns the record. Raises InputError, which names all that is missing or wrong.
    """
    given = {"infer": infer, "reference": reference, "lowering": lowering, "kernel": kernel}
    given |= {"vjp": vjp, "jvp": jvp, "batching": batching, "sample": sample}
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            "an operation's name is two or more words of letters, digits and '_' with dots between them, such as "
            f"'my.op', and not of mir or hir, but got {checks.shown(name)}"
        )
    for word in unknown:
        raise InputError(
            f"operation '{name}' has no '{word}'{did_you_mean(word, _FUNCTIONS)}; it has {', '.join(_FUNCTIONS)}"
        )
    missing = [word for word in ("infer", "reference") if given[word] is None]
    missing += ["lowering or kernel"] if lowering is None and kernel is None else []
    if missing:
        raise InputError(f"operation '{name}' lacks {', '.join(missing)}")
    for word, function in given.items():
        if function is not None and not callable(function):
            raise InputError(f"'{word}' of '{name}' is a function, but got {checks.shown(function)}")
    _check_native(name, kernel)
    assert infer is not None
    assert reference is not None
    own = OwnOp(name, infer, reference, lowering, kernel, vjp, jvp, batching, sample, _checked_signature(name, given))
    with _lock:
        if name in _registered:
            raise InputError(f"operation '{name}' is registered already; unregister_op forgets it")
        _registered[name] = own
    return own


def unregister_op(name: str) -> None:
    """Forgets an operation: modules that have it can't be compiled any more. Executables that are loaded go on.

    Raises InputError where there is none of that name.
    """
    find_op(name)
    with _lock:
        _registered.pop(name, None)


def find_op(name: str) -> OwnOp:
    """The record of an operation; InputError where none is registered under the name."""
    checks.text("op", name, "the name of an operation")
    with _lock:
        own = _registered.get(name)
        known = sorted(_registered)
    if own is None:
        listed = ", ".join(known) or "none is"
        raise InputError(
            f"no operation '{name}' is registered{did_you_mean(name, known)}; registered: {listed}; register_op "
            "registers one, and the commands' options --load and --rlx-load run a file that does"
        )
    return own


def registered_ops() -> list[OwnOp]:
    """The operations that are registered, by name."""
    with _lock:
        return [_registered[name] for name in sorted(_registered)]


def native_parameters(own: OwnOp, parameters: Mapping[str, object]) -> list[float]:
    """What a kernel of C gets of the parameters: numbers as f64, by name; InputError where one is no number."""
    values = []
    for name, value in sorted(parameters.items()):
        if not isinstance(value, bool | int | float):
            raise InputError(f"the kernel of '{own.name}' is of C and takes numbers, but '{name}' is {value!r}")
        values.append(float(value))
    return values


def _check_native(name: str, kernel: object) -> None:
    """Raises InputError where a function of C can't be called by compiled code."""
    if not isinstance(kernel, CFuncPtr):
        return
    if not ctypes.cast(kernel, ctypes.c_void_p).value:
        raise InputError(f"'kernel' of '{name}' is a function of C at no address")
    if kernel._flags_ & _NEEDS_LOCK:
        raise InputError(
            f"'kernel' of '{name}' is a function of a ctypes.PyDLL, which needs the interpreter's lock, but compiled "
            "code has given it up: take it from a ctypes.CDLL"
        )


def _operand_count(signature: inspect.Signature) -> int | None:
    kinds = [p.kind for p in signature.parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return None
    return len([kind for kind in kinds if kind is not inspect.Parameter.KEYWORD_ONLY])


def _checked_signature(name: str, given: Mapping[str, Function | None]) -> inspect.Signature:
    """The signature of `infer`; InputError where it isn't one, or another function takes other arguments."""
    infer = given["infer"]
    assert infer is not None
    try:
        signature = inspect.signature(infer)
    except (TypeError, ValueError):
        raise InputError(f"'infer' of '{name}' has no signature, which says what operands and parameters are") from None
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            raise InputError(
                f"'infer' of '{name}' takes any keyword, but its keywords are the parameters that there are"
            )
        if parameter.kind is not parameter.KEYWORD_ONLY and parameter.default is not parameter.empty:
            raise InputError(f"'infer' of '{name}': operand '{parameter.name}' has a default; parameters come after *")
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name in _RESERVED:
            raise InputError(f"'{name}' can't have a parameter '{parameter.name}': builders have that keyword")
    count = _operand_count(signature)
    if count == 0:
        raise InputError(f"'infer' of '{name}' takes no operand, but an operation has one at least")
    keywords = {p.name: None for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
    for word in ("reference", "lowering", "kernel"):
        function = given[word]
        if function is None or isinstance(function, CFuncPtr):
            continue
        operands = [None] * ((2 if count is None else count) + (word == "lowering"))
        try:
            inspect.signature(function).bind(*operands, **keywords)
        except ValueError:  # functions of C, such as those of numpy, have no signature
            continue
        except TypeError as error:
            first = "m, " if word == "lowering" else ""
            raise InputError(
                f"'{word}' of '{name}' takes ({first}{', '.join(map(str, signature.parameters.values()))}) as 'infer' "
                f"does, but is {inspect.signature(function)}: {error}"
            ) from None
    return signature


def _parameter(op: str, name: str, value: object) -> Parameter:
    """A parameter as IR holds it; InputError where it can't."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [_scalar(op, name, each) for each in value]
    return _scalar(op, name, value)


def _scalar(op: str, name: str, value: object) -> Scalar:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | float) or (isinstance(value, int) and -(2**63) <= value < 2**63):
        return value
    if isinstance(value, str) and checks.is_text(value):
        return value
    raise InputError(
        f"parameter '{name}' of '{op}' is a boolean, a number, a text or a list of these, but got {checks.shown(value)}"
    )


def _described(result: object) -> str:
    if not isinstance(result, np.ndarray | np.generic):
        return f"{type(result).__name__} {checks.shown(result)}"
    word = word_of(result.dtype) or result.dtype.name
    return f"{word} [{', '.join(map(str, result.shape))}]"


def function_digest(function: Function | None) -> str | None:
    """What tells a function of Python from others; '' for none, None where its source doesn't tell."""
    if function is None:
        return ""
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType) or plain is not function or plain.__closure__ is not None:
        return None
    try:
        file = Path(inspect.getsourcefile(plain) or "").read_bytes()
    except (OSError, TypeError):
        return None
    named = plain.__kwdefaults__ or {}
    defaults = [*(plain.__defaults__ or ()), *named, *named.values()]
    if not all(value is None or isinstance(value, bool | int | float | str) for value in defaults):
        return None
    code = plain.__code__
    constants = [repr(each) for each in code.co_consts if not isinstance(each, CodeType)]
    where = [plain.__qualname__, str(code.co_firstlineno), code.co_code.hex(), *constants, repr(defaults)]
    return hashlib.sha256(file + "\n".join(where).encode()).hexdigest()


__all__ = [
    "OwnOp",
    "TensorSpec",
    "find_op",
    "function_digest",
    "native_parameters",
    "register_op",
    "registered_ops",
    "unregister_op",
]
