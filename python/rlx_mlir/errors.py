# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every exception that rlx_mlir raises on purpose; all derive from `RlxError`.

A message names what failed, where (op, block, Python line; or file, tensor, byte offset), the rule that was broken
and both values, in lower case and without a full stop. Errors about a value that a caller passed are `ValueError`s too.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Mapping

#: Names that a word is compared with at most, and characters of a name that are compared: comparing takes time that
#: grows with all of these, and names may be a stranger's.
_MOST_COMPARED = 64
_LONGEST_COMPARED = 100


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The known word that is most like another one; '' where none is like it, or the word is long.

    Of many known words, those are compared that share the longest start or the longest end with it.
    """
    import difflib

    if not 0 < len(word) <= _LONGEST_COMPARED:
        return ""
    names = [name for name in map(str, known) if len(name) <= _LONGEST_COMPARED]
    if len(names) > _MOST_COMPARED:
        reversed_names = _around(word[::-1], [name[::-1] for name in names])
        names = _around(word, names) + [name[::-1] for name in reversed_names]
    return next(iter(difflib.get_close_matches(word, names, 1, cutoff)), "")


def _around(word: str, names: list[str]) -> list[str]:
    """The names that come just before and after a word in order: none has a longer start in common with it."""
    ordered = sorted(names)
    place, half = bisect.bisect(ordered, word), _MOST_COMPARED // 4
    return ordered[max(0, place - half) : place + half]


def shortened(value: object, length: int = 80) -> str:
    """A value as messages show it: at most about so many characters of its `repr`, whatever it is."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str):
        text = repr(value[:length])
        return text if len(value) <= length else f"{text[:-1]}…{text[-1]}"
    try:
        text = repr(value)
    except Exception:
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= length else f"{text[:length]}…"


def reason_of(error: BaseException, path: str | os.PathLike[str] = "") -> str:
    """What an error says in messages that name its file themselves: of the system's, neither number nor path."""
    return str(getattr(error, "strerror", None) or error).removeprefix(f"{os.fspath(path)}: ")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` where a known word is near to one that isn't known, else nothing."""
    near = nearest(word, known)
    return f" (did you mean '{near}'?)" if near else ""


class RlxError(Exception):
    """Base of all errors of this package: `except RlxError` catches every one of them."""


class BuildError(RlxError):
    """An op could not be built: a type rule or a verifier said no. Starts with the caller's file and line."""


class StageError(RlxError):
    """A module is in another stage than the call needs, such as `run` on a module that was not lowered."""


class CompileError(RlxError):
    """The compiler could not turn a valid module into code; `reproducer` is the file to replay it from, if any."""

    def __init__(self, message: str, *, reproducer: str | os.PathLike[str] | None = None) -> None:
        self.reproducer = None if reproducer is None else os.fspath(reproducer)
        super().__init__(message if reproducer is None else f"{message}\nreproducer: {self.reproducer}")


class PassError(CompileError):
    """One pass of a pipeline failed; `pass_name` is its argument, as in a textual pipeline."""

    def __init__(
        self,
        message: str,
        *,
        pass_name: str | None = None,
        reproducer: str | os.PathLike[str] | None = None,
    ) -> None:
        self.pass_name = pass_name
        super().__init__(message if pass_name is None else f"pass '{pass_name}': {message}", reproducer=reproducer)


class NumericError(CompileError):
    """Numeric verification found that a pass, a kernel or a plan changes values by more than its tolerance.

    Attributes:
        culprit: the pass, or the kernel, or what else changed them.
        sample: the inputs with which it shows.
    """

    def __init__(
        self,
        message: str,
        *,
        culprit: str = "",
        sample: str = "",
        reproducer: str | os.PathLike[str] | None = None,
    ) -> None:
        self.culprit = culprit
        self.sample = sample
        super().__init__(message, reproducer=reproducer)


class TimeLimitError(CompileError):
    """A compilation isn't done within its time limit.

    Attributes:
        seconds: the limit.
        pass_name: the pass of MLIR or LLVM that was running then, or None.
        kernel: the kernel that it was running on, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        seconds: float = 0.0,
        pass_name: str | None = None,
        kernel: str | None = None,
        reproducer: str | os.PathLike[str] | None = None,
    ) -> None:
        self.seconds = seconds
        self.pass_name = pass_name
        self.kernel = kernel
        super().__init__(message, reproducer=reproducer)


class UnsupportedError(CompileError):
    """The input is valid, but uses something that is not implemented for the chosen target or format."""


class OnnxUnsupportedError(UnsupportedError):
    """An ONNX file has nodes that can't be compiled; the message lists all of them.

    Attributes:
        operators: how many nodes of each operator, by its name.
        inputs: names of the model's inputs which, once they are fixed, leave nothing that is refused as undecided.
    """

    def __init__(self, message: str, *, operators: Mapping[str, int] | None = None, inputs: Iterable[str] = ()) -> None:
        self.operators = dict(operators or {})
        self.inputs = tuple(inputs)
        super().__init__(message)


class StablehloUnsupportedError(UnsupportedError):
    """A module of StableHLO has operations that can't be compiled; the message lists all of them.

    Attributes:
        operations: how many there are of each, by its name.
    """

    def __init__(self, message: str, *, operations: Mapping[str, int] | None = None) -> None:
        self.operations = dict(operations or {})
        super().__init__(message)


class ExecutionError(RlxError):
    """Compiled code could not be loaded or run: a missing symbol, a device error, memory that cannot be had."""


class DeviceError(ExecutionError):
    """A GPU, or its driver, could not do what was asked; `code` is the driver's name for why, empty where it has none.

    `CUDA_ERROR_ILLEGAL_ADDRESS` is such a name.
    """

    def __init__(self, message: str, *, code: str = "") -> None:
        self.code = code
        super().__init__(message)


class DriverMissingError(DeviceError):
    """NVIDIA's driver isn't installed, or its library cannot be loaded."""


class NoDeviceError(DeviceError):
    """The driver shows no GPU, or none of the number that was asked for."""


class DriverTooOldError(DeviceError):
    """The driver is too old for this package, or for the version of PTX that the code is in."""


class WrongDeviceError(DeviceError):
    """Code was compiled for another GPU than the one that is there."""


class DeviceMemoryError(DeviceError):
    """There isn't enough memory for a GPU's work; carries bytes: `requested`, and of the GPU `free` and `total`."""

    def __init__(self, message: str, *, code: str = "", requested: int = 0, free: int = 0, total: int = 0) -> None:
        self.requested = requested
        self.free = free
        self.total = total
        super().__init__(message, code=code)


class DeviceFaultError(DeviceError):
    """A kernel went wrong, as by an illegal address. The process cannot use the GPU any more."""


class QueueFullError(ExecutionError):
    """An engine has as many requests waiting as it may have."""


class CacheError(RlxError):
    """A cache folder or entry cannot be used: not writable, or a checksum that does not hold."""


class InputError(RlxError, ValueError):
    """A value given by the caller breaks a rule: shape, element type, range, name."""


class ContextLengthError(InputError):
    """More positions are asked for than the executable was planned for; carries `requested` and `limit`."""

    def __init__(self, message: str, *, requested: int | None = None, limit: int | None = None) -> None:
        self.requested = requested
        self.limit = limit
        super().__init__(message)


class BudgetError(InputError):
    """Something that may be a stranger's needs more than a budget allows; see `rlx_mlir.budgets`.

    Attributes:
        budget: its name.
        limit: its value.
    """

    def __init__(self, message: str, *, budget: str = "", limit: int = 0) -> None:
        self.budget = budget
        self.limit = limit
        super().__init__(message)


class GGUFError(RlxError, ValueError):
    """A GGUF file is malformed, or a tensor in it cannot be read.

    Attributes:
        path: the file, or None for bytes in memory.
        offset: byte offset in the file of what is wrong, or None where the error is not about one place.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str] | None = None,
        offset: int | None = None,
    ) -> None:
        self.path = None if path is None else os.fspath(path)
        self.offset = offset
        where = self.path or ""
        if offset is not None:
            where = f"{where}: byte {offset}" if where else f"byte {offset}"
        super().__init__(f"{where}: {message}" if where else message)


class ModelFileError(RlxError, ValueError):
    """A file of a model's folder is missing or malformed, or doesn't fit the others; `path` is the file."""

    def __init__(self, message: str, *, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else os.fspath(path)
        super().__init__(f"{self.path}: {message}" if self.path else message)


class SafetensorsError(ModelFileError):
    """A safetensors file is malformed, or a tensor in it cannot be read."""


class OnnxError(ModelFileError):
    """An ONNX file is malformed, or a tensor that it names can't be read."""


class StablehloError(ModelFileError):
    """A module of StableHLO is malformed, or can't be read."""


class TokenizerError(RlxError, ValueError):
    """A vocabulary is missing, inconsistent or of a kind that is not supported, or an id is outside of it."""


class ChatTemplateError(RlxError, ValueError):
    """A chat template does not parse, does not render, or refuses the messages it was given."""


class DownloadError(RlxError):
    """A known model could not be fetched, unpacked or verified."""


class GradientWarning(UserWarning):
    """A gradient is zeros because nothing that is differentiated depends on the argument."""


__all__ = [
    "RlxError",
    "BuildError",
    "StageError",
    "CompileError",
    "PassError",
    "NumericError",
    "TimeLimitError",
    "UnsupportedError",
    "OnnxUnsupportedError",
    "StablehloUnsupportedError",
    "ExecutionError",
    "DeviceError",
    "DriverMissingError",
    "NoDeviceError",
    "DriverTooOldError",
    "WrongDeviceError",
    "DeviceMemoryError",
    "DeviceFaultError",
    "QueueFullError",
    "CacheError",
    "InputError",
    "ContextLengthError",
    "BudgetError",
    "GGUFError",
    "ModelFileError",
    "SafetensorsError",
    "OnnxError",
    "StablehloError",
    "TokenizerError",
    "ChatTemplateError",
    "DownloadError",
    "GradientWarning",
]
