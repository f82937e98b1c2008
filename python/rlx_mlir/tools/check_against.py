# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx check-against`: the first operation whose compiled code differs from another library's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.tools.options import ChunkOption, ContextOption, JsonOption, Program, any_module, one_size, print_json

if TYPE_CHECKING:
    import numpy as np

    from rlx_mlir.hir import GraphModule

SizeOption = Annotated[list[str] | None, typer.Option(help="SYMBOL=NUMBER: the size of a symbol; 8 by default.")]


def check_against(
    rival: Annotated[str, typer.Argument(help="Who is asked: jax, torch, iree, or onnxruntime of .onnx files.")],
    model: Annotated[
        str, typer.Argument(help="A .mlir file, of this compiler or of StableHLO, a .onnx file, or a model.")
    ],
    function: Annotated[Program, typer.Option(help="Which module of a model.")] = Program.prefill,
    context: ContextOption = None,
    chunk: ChunkOption = 512,
    size: SizeOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random numbers that inputs and parameters are.")] = 0,
    factor: Annotated[float, typer.Option(min=0, help="Allow so many times the error that rounding explains.")] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Compare each operation of a module, as it is compiled, with what another library computes.

    JAX, PyTorch and IREE are asked about operations, ONNX Runtime about the nodes of a file of its own.

    Names the first one that differs, with both numbers and the line that built it. Exit status 1 where one does.
    """
    from rlx_mlir.against import check_against as compare

    sizes = one_size("size", size or [])
    if rival == "onnxruntime" and Path(model).suffix == ".onnx":
        verdict = compare(model, rival, sizes=sizes, seed=seed, factor=factor)
    else:
        module, arrays = _module(model, function.value, context, chunk)
        verdict = compare(module, rival, sizes=sizes, inputs=arrays, seed=seed, factor=factor)
    if as_json:
        print_json(verdict.to_dict())
    else:
        typer.echo(str(verdict))
    if verdict.difference is not None:
        raise typer.Exit(1)


def _module(model: str, function: str, context: int | None, chunk: int) -> tuple[GraphModule, dict[str, np.ndarray]]:
    """A module, and the arrays that come with it."""
    path = Path(model)
    if path.suffix == ".onnx":
        from rlx_mlir.frontends.onnx import from_onnx

        found = from_onnx(path)
        return found.module, dict(found.params)
    if path.suffix == ".mlir" and path.is_file() and _is_stablehlo(path):
        from rlx_mlir.frontends.stablehlo import from_stablehlo

        read = from_stablehlo(path)
        return read.module, dict(read.params)
    return any_module(model, function, context, chunk)[0], {}


def _is_stablehlo(path: Path) -> bool:
    """Whether a file of IR has operations of StableHLO."""
    from rlx_mlir.frontends.stablehlo.source import has_stablehlo
    from rlx_mlir.sources import check_file

    check_file(path)
    return has_stablehlo(path.read_bytes())


__all__ = ["SizeOption", "check_against"]
