# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiled modules of a model: two that it is loaded with, others that are made when they are first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from .. import budgets
from ..checks import Option
from ..errors import TimeLimitError, UnsupportedError
from ..runtime.artifact import Artifact, CompiledModule
from ..runtime.description import RunArray
from ..runtime.prepare import Prepared
from . import decoder
from .config import ModelConfig

MAX_OUTPUTS = 128
"""Positions of one call that get logits, at most: the head's result is by far the largest there is."""
MAX_SEQUENCES = 64
"""Sequences that `batch` processes at once, at most."""


class Executable(Protocol):
    """What a model needs of compiled code."""

    def zeros(self, shape: Sequence[int], dtype: np.dtype) -> RunArray:
        """Zeros for a cache."""

    def set_params(self, params: Mapping[str, np.ndarray], /, *, shared: dict[str, Prepared]) -> object:
        """Binds the weights; ``shared`` holds packed copies for other programs too."""

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        /,
        *,
        outputs: Mapping[str, np.ndarray] | None = None,
        donate: Collection[str] = (),
    ) -> Mapping[str, np.ndarray]:
        """One call; ``donate`` names inputs whose memory the tied results take."""

    def bind(
        self, inputs: Mapping[str, np.ndarray], /, *, outputs: Mapping[str, np.ndarray], donate: Collection[str]
    ) -> Callable[[], object]:
        """A call that can be repeated, with what is in the same arrays then."""


def maxima(config: ModelConfig, program: str, *, context: int, chunk: int) -> dict[str, int]:
    """The largest size of each symbolic dimension of a module; those without caches have no `context`."""
    sizes = {"seq": chunk, "batch": MAX_SEQUENCES}
    if program == "settle":  # which has states alone
        return {"seq": decoder.EXTENDED}
    if program in ("prefill", "predict"):
        sizes["outputs"] = min(chunk, MAX_OUTPUTS)
    named = {size for size in decoder.SHAPES[program] if isinstance(size, str)} | {"outputs"}
    named |= {"context"} if config.attentive else set()
    return {name: size for name, size in {"context": context, **sizes}.items() if name in named}


def compile_program(
    config: ModelConfig, program: str, *, time_limit: float | None = None, **options: Option
) -> Executable:
    """Compiles a module of the model, or finds it compiled; the graph is built only if it has to be.

    Args:
        config: of the model.
        program: the module, one of `decoder.SHAPES`.
        time_limit: seconds that it may take.
        options: ``context`` and ``chunk``, see `maxima`; ``candidates`` and ``ranks``, those of `decoder.build`; and
            those of `rlx_mlir.compiler.compile_cached`: threads, activations, target, cpu, cache.

    Raises TimeLimitError after ``time_limit`` seconds; BudgetError after those of the budget ``compile_seconds`` where
    no limit is given.
    """
    from ..compiler import compile_cached

    compiled: Executable = _compiled(compile_cached, config, program, time_limit, **options)
    return compiled


def program_artifact(
    config: ModelConfig, program: str, *, time_limit: float | None = None, **options: Option
) -> Artifact:
    """As `compile_program`, for a machine that need not be this one; ``options`` has no ``threads``."""
    from ..compiler import cached_artifact

    artifact: Artifact = _compiled(cached_artifact, config, program, time_limit, **options)
    return artifact


def _compiled(
    compile: Callable[..., CompiledModule],
    config: ModelConfig,
    program: str,
    time_limit: float | None,
    *,
    context: int,
    chunk: int,
    candidates: int = 0,
    ranks: Mapping[str, int] | None = None,
    **options: Option,
) -> CompiledModule:
    try:
        return compile(
            decoder.describe(config, program, candidates, ranks),
            partial(decoder.build, config, program, candidates, ranks),
            maxima=maxima(config, program, context=context, chunk=chunk),
            time_limit=budgets.current().compile_seconds if time_limit is None else time_limit,
            **options,
        )
    except TimeLimitError as error:
        if time_limit is None:
            raise budgets.exceeded("compile_seconds", f"{error}, which") from error
        raise


class Programs:
    """The modules of one model, with its weights.

    Attributes:
        prefill, decode: those that it is loaded with.
    """

    def __init__(
        self, prefill: Executable, decode: Executable, more: Callable[[str], Executable] | None = None
    ) -> None:
        """Takes the two, and what makes others by their names, with the weights bound."""
        self.prefill = prefill
        self.decode = decode
        self._more = more
        self._made: dict[str, Executable] = {"prefill": prefill, "decode": decode}
        self._turn = threading.Lock()

    def get(self, name: str) -> Executable:
        """A module by its name, one of `decoder.SHAPES`; compiled, or found compiled, where it wasn't used before.

        Raises UnsupportedError where only the first two are there; what `compile_program` raises.
        """
        with self._turn:
            if name not in self._made:
                if self._more is None:
                    raise UnsupportedError(f"'{name}', by which several tokens are decoded at once, is for CPUs only")
                self._made[name] = self._more(name)
            return self._made[name]


__all__ = [
    "MAX_OUTPUTS",
    "MAX_SEQUENCES",
    "Executable",
    "Programs",
    "compile_program",
    "maxima",
    "program_artifact",
]
