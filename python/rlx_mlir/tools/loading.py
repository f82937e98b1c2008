# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options by which commands that measure a model load it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_type_hints

from rlx_mlir.tools.options import (
    Activations,
    ActivationsOption,
    CacheTypeOption,
    ChunkOption,
    ContextOption,
    Device,
    DeviceOption,
    ModelArgument,
    ThreadsOption,
)

if TYPE_CHECKING:
    from rlx_mlir.models.model import Model


@dataclasses.dataclass(frozen=True)
class Loading:
    """Which model, and how it is compiled; each field is an option of the command line."""

    model: ModelArgument
    device: DeviceOption = Device.cpu
    threads: ThreadsOption = None
    activations: ActivationsOption = Activations.auto
    context: ContextOption = None
    chunk: ChunkOption = 512
    kv_cache: CacheTypeOption = "f32"

    def load(self, say: Callable[[str], None] | None) -> Model:
        """The model; raises what `load_model` raises."""
        from rlx_mlir.models.loading import load_model

        return load_model(
            self.model,
            threads=self.threads,
            activations=self.activations.value,
            context=self.context,
            chunk=self.chunk,
            kv_dtype=self.kv_cache,
            target=self.device.value,
            progress=say,
        )


def loads_model(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer of a function that takes a `Loading` first: its options are those of both."""
    shared = [field.name for field in dataclasses.fields(Loading)]
    _, *own = inspect.signature(command).parameters.values()
    hints = {**get_type_hints(command, include_extras=True), **get_type_hints(Loading, include_extras=True)}
    loading = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in ((name, inspect.signature(Loading).parameters[name].default) for name in shared)
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(Loading(**{name: given.pop(name) for name in shared}), **given)

    parameters = [
        loading[0],
        *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name]) for p in own),
        *loading[1:],
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    return run
