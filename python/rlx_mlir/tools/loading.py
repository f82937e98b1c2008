# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options that several commands have in common, as records: how a model is loaded, and what its commands ask of it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, get_type_hints

from rlx_mlir.tools.options import (
    Activations,
    ActivationsOption,
    CacheTypeOption,
    ContextOption,
    CpuOption,
    Device,
    DeviceOption,
    LoadedChunkOption,
    LoraOption,
    ModelArgument,
    NonfiniteOption,
    NoPreparedCacheOption,
    QuantizeOption,
    ThreadsOption,
)

if TYPE_CHECKING:
    from rlx_mlir.checks import Option
    from rlx_mlir.models.model import Model


@dataclasses.dataclass(frozen=True)
class Loading:
    """Which model, and how it is compiled; each field is an option of the command line."""

    model: ModelArgument
    device: DeviceOption = Device.cpu
    threads: ThreadsOption = None
    activations: ActivationsOption = Activations.auto
    context: ContextOption = None
    chunk: LoadedChunkOption = None
    kv_cache: CacheTypeOption = None
    cpu: CpuOption = ""

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
            cpu=self.cpu,
            progress=say,
            **self.more(),
        )

    def more(self) -> dict[str, Option]:
        """Further arguments of `load_model`."""
        return {}


@dataclasses.dataclass(frozen=True)
class LoadingToGenerate(Loading):
    """The same where a model is used, and not measured."""

    nonfinite: NonfiniteOption = None
    quantize: QuantizeOption = None
    lora: LoraOption = None
    no_prepared_cache: NoPreparedCacheOption = False

    def more(self) -> dict[str, Option]:
        """Further arguments of `load_model`."""
        return {
            "nonfinite": None if self.nonfinite is None else self.nonfinite.value,
            "quantize": self.quantize,
            "lora": self.lora,
            "prepared_cache": not self.no_prepared_cache,
        }


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer of a function that takes records first: options of these are the command's, too."""
    hints = get_type_hints(command, include_extras=True)
    parameters = list(inspect.signature(command).parameters.values())
    records = [hints[each.name] for each in parameters if dataclasses.is_dataclass(hints[each.name])]
    own = [_option(each, hints) for each in parameters[len(records) :]]
    shared = [
        [_option(each, inner) for each in inspect.signature(record).parameters.values()]
        for record, inner in ((record, get_type_hints(record, include_extras=True)) for record in records)
    ]

    @functools.wraps(command)
    def run(**given: object) -> None:
        made = [
            record(**{option.name: given.pop(option.name) for option in options})
            for record, options in zip(records, shared, strict=True)
        ]
        command(*made, **given)

    # The model is the first argument, and how it is loaded comes after what the command itself is about.
    ordered = [option for options in (*shared, own) for option in options if option.default is option.empty]
    ordered += [option for options in (own, *shared[::-1]) for option in options if option.default is not option.empty]
    run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in ordered} | {"return": None}
    return run


def _option(parameter: inspect.Parameter, hints: Mapping[str, object]) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
