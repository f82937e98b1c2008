# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose modules run by the interpreter instead of compiled code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from rlx_mlir import interpret
from rlx_mlir.hir import GraphModule
from rlx_mlir.models import decoder
from rlx_mlir.models.adapter import Adapter
from rlx_mlir.models.config import ModelConfig
from rlx_mlir.models.model import Model
from rlx_mlir.models.opening import open_model
from rlx_mlir.runtime.prepare import Prepared


class Interpreted:
    """What compiled code offers, by the operations' definitions. Counts its calls."""

    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.params = module.params
        self.arrays: dict[str, np.ndarray] = {}
        self.calls: list[int] = []

    def zeros(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        return np.zeros(shape, dtype)

    def set_params(self, params: Mapping[str, np.ndarray], *, shared: dict[str, Prepared] | None = None) -> None:
        self.arrays = {spec.name: params[spec.name] for spec in self.params}

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        *,
        outputs: Mapping[str, np.ndarray] | None = None,
        donate: Collection[str] = (),
    ) -> dict[str, np.ndarray]:
        assert set(donate) <= set(inputs)
        if "tokens" in inputs:
            self.calls.append(inputs["tokens"].shape[1])
        results = interpret(self.module, {**inputs, **self.arrays})
        for name, array in (outputs or {}).items():
            assert array.shape == results[name].shape
            array[...] = results[name]
            results[name] = array
        for name in donate:  # results are named as what they are tied to
            np.copyto(inputs[name], results[name])
            results[name] = inputs[name]
        return results

    def bind(
        self, inputs: Mapping[str, np.ndarray], *, outputs: Mapping[str, np.ndarray], donate: Collection[str]
    ) -> Callable[[], object]:
        return partial(self.run, inputs, outputs=outputs, donate=donate)


def load_interpreted(
    path: Path, *, stage: str = "hir", context: int = 64, chunk: int = 16, adapter: Adapter | None = None
) -> Model:
    """The model of a file or a folder, with its modules at the given stage interpreted."""
    file = open_model(path)
    config = ModelConfig.from_gguf(file)
    params = decoder.parameters(config, file, context) | ({} if adapter is None else adapter.params())
    ranks = None if adapter is None else adapter.ranks
    executables = {}
    for program in decoder.PROGRAMS:
        module = decoder.build(config, program, ranks=ranks)
        executables[program] = Interpreted(module.lower() if stage == "mir" else module)
        executables[program].set_params(params)
    return Model(file, config, context=context, chunk=chunk, **executables)


def compile_interpreted(
    config: ModelConfig, program: str, *, ranks: Mapping[str, int] | None = None, **_options: object
) -> Interpreted:
    """Stands in for `rlx_mlir.models.programs.compile_program`."""
    return Interpreted(decoder.build(config, program, ranks=ranks))
