# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx profile`: which kernels take the time, and how near each comes to what the machine can do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.activations import way_of
from rlx_mlir.paths import write_output
from rlx_mlir.tools.loading import Loading, takes_options
from rlx_mlir.tools.modules import is_module_file, read_module
from rlx_mlir.tools.options import (
    JsonOption,
    OptionError,
    by_symbol,
    check_output,
    print_json,
    progress,
    refuse,
    writing,
)

if TYPE_CHECKING:
    from rlx_mlir.measure.files import FileProfile
    from rlx_mlir.measure.profile import Profile, ProgramProfile


@takes_options
def profile(
    loading: Loading,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 128,
    decode: Annotated[int, typer.Option(min=0, help="Tokens after each prompt, one by one.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Prompts or calls to measure; figures are medians.")] = 5,
    trace: Annotated[
        Path | None, typer.Option(help="Write a timeline for ui.perfetto.dev or chrome://tracing.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a roofline plot: .html, or .png where matplotlib is installed.")
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(help="SYMBOL=NUMBER: size at which calls of a .mlir or .rlx file are measured; the maximum."),
    ] = None,
    maximum: Annotated[
        list[str] | None,
        typer.Option(help="SYMBOL=NUMBER: largest size of a symbol of a .mlir file, as `maxima` of rlx.compile."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure each kernel of a model: time, bytes, operations, and the part of the machine's limits that it reaches.

    Of one module, in a .mlir, .onnx or Python file (file.py:name: a GraphModule or a function that gives one), or in an
    artefact, a .rlx file, the same on random numbers.
    """
    from rlx_mlir.measure.plot import check_plot
    from rlx_mlir.measure.profile import profile_model

    if plot is not None:
        check_plot(plot)
    check_output(trace)
    check_output(plot)
    if is_module_file(loading.model) or _is_artifact(loading.model):
        found_file = _profile_file(loading, by_symbol("size", size or []), by_symbol("maximum", maximum or []), rounds)
        if trace is not None or plot is not None:
            _write_pictures(found_file.profile, trace, plot)
        if as_json:
            print_json(found_file.to_dict())
        else:
            typer.echo(format_file_profile(found_file))
            _say_written(trace, plot)
        return
    refuse("a model", {"size": size, "maximum": maximum})
    with progress() as say:
        found = profile_model(
            loading.load(say), prompt_tokens=prompt_tokens, decode=decode, rounds=rounds, progress=say
        )
    _write_pictures(found, trace, plot)
    if as_json:
        print_json(found.to_dict())
        return
    typer.echo(format_profile(found))
    _say_written(trace, plot)


def _write_pictures(found: Profile, trace: Path | None, plot: Path | None) -> None:
    """A timeline and a plot of a profile, where they are asked for."""
    from rlx_mlir.measure.plot import write_plot
    from rlx_mlir.measure.trace import trace as timeline

    if trace is not None:
        with writing(trace):
            write_output(trace, json.dumps(timeline(found), separators=(",", ":")))
    if plot is not None:
        with writing(plot):
            write_plot(found, plot)


def _say_written(trace: Path | None, plot: Path | None) -> None:
    for what, path in (("timeline", trace), ("plot", plot)):
        if path is not None:
            typer.echo(f"{what} in {path}", err=True)


def _is_artifact(model: str) -> bool:
    """Whether a file is an artefact, and not a bundle."""
    from rlx_mlir.runtime.artifact import MAGIC

    path = Path(model)
    if path.suffix != ".rlx" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _profile_file(
    loading: Loading, sizes: dict[str, list[int]], maxima: dict[str, list[int]], rounds: int
) -> FileProfile:
    from rlx_mlir.measure.files import profile_executable, profile_module
    from rlx_mlir.runtime.loading import load

    if loading.device.value != "cpu":
        raise OptionError(f"'--device' expects cpu for {loading.model}, but got {loading.device.value}")
    chosen = {symbol: own[-1] for symbol, own in sizes.items()}
    if is_module_file(loading.model):
        own = read_module(loading.model)
        return profile_module(
            own.module,
            threads=loading.threads,
            activations=way_of(loading.activations.value, loading.device.value),
            maxima={symbol: numbers[-1] for symbol, numbers in maxima.items()},
            params=own.params,
            sizes=chosen,
            rounds=rounds,
        )
    refuse("an artefact, which is compiled already", {"maximum": maxima})
    return profile_executable(load(loading.model, threads=loading.threads), sizes=chosen, rounds=rounds)


def format_file_profile(found: FileProfile) -> str:
    """The profile of one module as text: its kernels beside the machine's limits, where these are known."""
    if found.program is None:
        return str(found)
    at = ", ".join(f"{symbol} = {size}" for symbol, size in found.sizes.items())
    lines = _program(found.program, f"{found.name}{f' at {at}' if at else ''}: one call")
    return "\n".join([f"machine: {found.program.roofline}", "", *lines])


def format_profile(found: Profile) -> str:
    """The profile as text: a table for each module."""
    lines = [f"machine: {found.roofline}"]
    for program in found.programs:
        lines += ["", *_program(program)]
    return "\n".join(lines)


def _program(program: ProgramProfile, what: str = "") -> list[str]:
    """A module as lines; ``what`` ran, where that isn't tokens of a model."""
    from rlx_mlir.stages import table

    seconds, work = program.seconds, program.total
    noise = f"; these figures say little: {seconds.noise}" if seconds.noise else ""
    tokens = "1 token" if program.tokens == 1 else f"{program.tokens} tokens"
    rate = "" if what else f"{program.tokens / seconds.median:.1f} tokens/s, "
    lines = [
        f"{what or f'{program.name}: {tokens}'} in {seconds.median * 1e3:.3g} ms (spread {seconds.spread:.0%}, "
        f"{len(program.runs)} runs), {rate}{program.in_kernels:.0%} of it in kernels{noise}",
        f"  {work.bytes / 1e6:.1f} MB, {work.flops / 1e9:.3f} GFLOP: {program.fraction:.0%} of what "
        f"{program.bound} allows",
    ]
    rows = [
        (
            kernel.name,
            kernel.calls,
            f"{kernel.seconds * 1e6:.1f}",
            f"{kernel.share:.1%}",
            f"{kernel.work.bytes / 1e6:.2f}",
            f"{kernel.work.flops / 1e6:.2f}",
            f"{kernel.bandwidth / 1e9:.1f}",
            f"{kernel.flops / 1e9:.1f}",
            f"{kernel.fraction:.0%}",
            kernel.bound,
            kernel.template,
            kernel.where,
        )
        for kernel in program.kernels
    ]
    head = ("kernel", "calls", "us", "share", "MB", "MFLOP", "GB/s", "GFLOP/s", "limit", "bound", "template", "from")
    return [*lines, *table(head, rows, right="calls us share MB MFLOP GB/s GFLOP/s limit")]
