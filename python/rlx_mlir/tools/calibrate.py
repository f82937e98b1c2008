# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx calibrate`: the ranges of what a module's products read and give, over a data set."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.tools.modules import read_module
from rlx_mlir.tools.options import OutputOption, check_output, progress, read_arrays, write_text

if TYPE_CHECKING:
    import numpy as np


class Method(str, Enum):
    """How a range follows from what was seen."""

    minmax = "minmax"
    percentile = "percentile"
    entropy = "entropy"


def calibrate(
    module: Annotated[Path, typer.Argument(help="A .mlir file at stage hir or mir, or an .onnx file.")],
    data: Annotated[list[Path], typer.Argument(help=".npz files, each with the inputs of one call by name.")],
    params: Annotated[
        Path | None, typer.Option(help="A .npz file with the parameters by name.", show_default=False)
    ] = None,
    method: Annotated[
        Method,
        typer.Option(help="minmax takes every number; percentile and entropy leave a few large ones out."),
    ] = Method.minmax,
    percentile: Annotated[
        float, typer.Option(min=0, max=100, help="What --method percentile takes, of a hundred magnitudes.")
    ] = 99.99,
    least_ratio: Annotated[
        float, typer.Option(help="Decibels over the noise of 8 bits, below which a product stays of f32.")
    ] = 0.0,
    quantize: Annotated[
        bool, typer.Option("--quantize", help="Print products of 8 bits in place of those with ranges.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Compile a module, run it over a data set, and print it with the ranges of its products."""
    from rlx_mlir.calibration import calibrate as find_ranges

    check_output(output)
    own = read_module(module)
    with progress() as say:

        def batches() -> Iterator[dict[str, np.ndarray]]:
            for number, path in enumerate(data, 1):
                if say is not None:
                    say(f"{path} ({number} of {len(data)})")
                yield read_arrays(path)

        found = find_ranges(
            own.module,
            batches(),
            params=own.params if params is None else read_arrays(params),
            method=method.value,
            percentile=percentile,
            least_ratio=least_ratio,
        )
    if quantize:
        found = found.transform("mir-insert-qdq,mir-quant-propagate")
    write_text(found.to_text(), output)
