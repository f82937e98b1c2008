# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx bench`: models and kernels of ours beside others', measured in turns on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.errors import ExecutionError, InputError
from rlx_mlir.tools.options import (
    CacheTypeOption,
    Device,
    DeviceOption,
    JsonOption,
    OptionError,
    positive_numbers,
    print_json,
    progress,
    refuse,
    writing,
)

if TYPE_CHECKING:
    from rlx_mlir.measure.bench import Request, Row
    from rlx_mlir.measure.rivals import Rival


_ShapeOption = Annotated[
    str,
    typer.Option(help="A model of random weights: a size (1b, 7b, 8b, 8x1b) and a mix (q4_0, q4_k_m, q8_0): 7b-q4_0."),
]
_FolderOption = Annotated[
    Path | None, typer.Option(help="Where the file of --shape is kept; by default the cache.", show_default=False)
]
_RivalsOption = Annotated[
    str,
    typer.Option(
        help="Rivals, with commas: llama.cpp,llama.cpp-q8_0 (its cache),openvino (models); "
        "torch,onnxruntime,iree,jax,numpy (kernels)."
    ),
]


def bench(
    model: Annotated[
        str, typer.Option(help="A .gguf file, or the name of a known model; kernels are measured without one.")
    ] = "",
    shape: _ShapeOption = "",
    layers: Annotated[int | None, typer.Option(min=1, help="Of --shape, in place of all.", show_default=False)] = None,
    folder: _FolderOption = None,
    vs: _RivalsOption = "",
    threads: Annotated[str, typer.Option(help="Numbers of threads, with commas; all that may be used.")] = "",
    prompt: Annotated[str, typer.Option(help="Lengths of prompts, with commas.")] = "16,128,512",
    decode: Annotated[int, typer.Option(min=0, help="Tokens to decode, one by one; 0 for none.")] = 48,
    context: Annotated[
        str, typer.Option(help="Decode behind so many cached positions, too; numbers with commas.")
    ] = "",
    sequences: Annotated[
        str, typer.Option(help="Decode so many sequences together, too: tokens per second of all; with commas.")
    ] = "",
    kernels: Annotated[str, typer.Option(help="Workloads by the beginnings of their names, with commas.")] = "",
    activations: Annotated[
        list[str] | None,
        typer.Option(help="Of our model: modes with commas; may be repeated.", show_default="as models are loaded"),
    ] = None,
    kv_cache: CacheTypeOption = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of everything in turns; figures are medians.")] = 7,
    device: DeviceOption = Device.cpu,
    as_json: JsonOption = False,
) -> None:
    """Measure ours beside others in turns: tokens per second of a model, or times of kernels.

    Figures are medians with their spread, and shares of what the machine allows, measured in the same rounds. A
    comparison that noise hides is called inconclusive. Nothing is installed. On a GPU ours are beside its limits alone,
    and times of kernels are those of events.
    """
    from rlx_mlir import native
    from rlx_mlir.measure.bench import Request
    from rlx_mlir.measure.workloads import chosen

    _check_kind(
        model, shape, {"layers": layers, "folder": folder}, kernels, {"context": context, "sequences": sequences}
    )
    if device is Device.cuda:
        _check_gpu(vs, threads)
    wanted = _rivals(vs, of_models=bool(model or shape), device=device)
    words = [word.strip() for word in kernels.split(",") if word.strip()]
    counts = positive_numbers("threads", threads) or [1 if device is Device.cuda else native.default_threads()]
    request = Request(
        threads=counts[0],
        vs=tuple(rival.name for rival in wanted if not rival.missing),
        model=model,
        kernels=() if model or shape else tuple(chosen(words)),
        prompts=tuple(positive_numbers("prompt", prompt)),
        decode=decode,
        contexts=tuple(positive_numbers("context", context)),
        sequences=_sequences(sequences, decode, device),
        activations=_modes(activations, device),
        kv_dtype=kv_cache,
        rounds=rounds,
        device=device.value,
    )
    missing = [rival for rival in wanted if rival.missing]
    for rival in missing if not as_json else ():
        typer.echo(f"{rival.name} isn't there ({', '.join(rival.missing)}): {rival.install}", err=True)
    about: dict[str, str] = {}
    rows: list[Row] = []
    with progress() as say:
        if shape:
            request = replace(request, model=_file_of(shape, layers, folder, say))
        for count in counts:
            found, own = run_apart(replace(request, threads=count), say)
            about |= found
            rows += own
    if as_json:
        print_json({"about": about, "missing": {rival.name: rival.missing for rival in missing}, "rows": rows})
        return
    typer.echo(format_bench(about, rows))


def _check_gpu(vs: str, threads: str) -> None:
    """Raises what says that there is no GPU, before anything is made; InputError for options that are for CPUs."""
    from rlx_mlir import native

    native.CudaDevice()
    if vs or threads:
        raise OptionError(f"'--{'vs' if vs else 'threads'}' is for CPUs: benchmarks/gpu compares with others on a GPU")


def _check_kind(
    model: str, shape: str, of_shapes: Mapping[str, object], kernels: str, of_models: Mapping[str, object]
) -> None:
    """Raises InputError for options of models, of shapes and of kernels that don't go together."""
    if model and shape:
        raise OptionError(f"'--shape' makes a model, so '--model' can't name one, but they are '{shape}' and '{model}'")
    if (model or shape) and kernels:
        raise OptionError("'--kernels' names workloads, which are measured without '--model'")
    if not shape:
        refuse("what isn't a '--shape'", of_shapes)
    if not (model or shape):
        refuse("kernels", of_models)


def _rivals(vs: str, *, of_models: bool, device: Device) -> list[Rival]:
    """The rivals that are named, or all usual ones that fit; InputError for one that doesn't."""
    from rlx_mlir.measure.rivals import RIVALS, rivals_of

    fitting = [r for r in RIVALS.values() if (r.load is not None) == of_models and device is Device.cpu]
    wanted = rivals_of(vs) if vs else [rival for rival in fitting if rival.usual]
    for rival in wanted:
        if rival not in fitting:
            kind = "a model" if of_models else "kernels"
            names = ", ".join(own.name for own in fitting)
            raise InputError(f"'{rival.name}' has nothing to compare with {kind}: those that have are {names}")
    return wanted


def _sequences(text: str, decode: int, device: Device) -> tuple[int, ...]:
    """Numbers of sequences that are decoded together."""
    from rlx_mlir.models.programs import MAX_SEQUENCES

    counts = positive_numbers("sequences", text)
    if counts and device is Device.cuda:
        raise OptionError("'--sequences' is for CPUs: on GPUs a model decodes one sequence at a time")
    if counts and not decode:
        raise OptionError("'--sequences' decodes, but '--decode' is 0")
    if counts and max(counts) > MAX_SEQUENCES:
        raise OptionError(f"'--sequences' must be at most {MAX_SEQUENCES}, but is {max(counts)}")
    return tuple(dict.fromkeys(counts))


def _modes(given: list[str] | None, device: Device) -> tuple[str, ...]:
    """Ways of activations, each once; none where the model is to be loaded as models usually are."""
    from rlx_mlir.activations import ACTIVATIONS, way_of

    modes = [way_of(word.strip(), device.value) for text in given or () for word in text.split(",")]
    for mode in modes:
        if mode not in ACTIVATIONS:
            raise OptionError(f"'--activations' expects some of {', '.join(ACTIVATIONS)}, but got '{mode}'")
    return tuple(dict.fromkeys(modes))


def _file_of(shape: str, layers: int | None, folder: Path | None, say: Callable[[str], None] | None) -> str:
    """The file of a shape, written where it isn't there."""
    from rlx_mlir.measure.shapes import named, shape_file

    wanted = named(shape, layers)
    with writing(folder or Path("the file of a shape")):
        return str(shape_file(wanted, folder, say=partial(typer.echo, err=True), progress=say))


def run_apart(request: Request, say: Callable[[str], None] | None) -> tuple[dict[str, str], list[Row]]:
    """Versions and rows of a request, from a process that has as many threads as it asks for.

    Raises InputError for what the process refuses, ExecutionError where it ends early.
    """
    from rlx_mlir.measure.rivals import environment

    command = [sys.executable, "-m", "rlx_mlir.measure.bench"]
    about: dict[str, str] = {}
    rows: list[Row] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(request.threads),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(request.to_json())
        process.stdin.close()
        last = ""
        for text in process.stdout:
            line = _line(text)
            about |= line.get("about", {})
            rows += [line["row"]] if "row" in line else []
            if "error" in line:
                raise InputError(line["error"])
            if "progress" in line:
                last = line["progress"]
                if say is not None:
                    say(last)
        errors = process.stderr.read()
    if process.returncode:
        reason = errors.strip().rpartition("\n")[2] or f"status {process.returncode}"
        raise ExecutionError(f"the measuring process ended during '{last}': {reason}")
    return about, rows


def _line(text: str) -> Row:
    """A line of the process's; libraries may write others to stdout."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def format_bench(about: dict[str, str], rows: Sequence[Row]) -> str:
    """Rows as a table below the versions, with failures after it."""
    from rlx_mlir.stages import table

    lines = [", ".join(f"{name} {version}" for name, version in about.items()), ""]
    good = [row for row in rows if "error" not in row]
    texts = []
    for row in good:
        ours, theirs = row["ours"], row.get("theirs")
        limit = row["bound"] + (f" of {row['products']}" if row["bound"] == "arithmetic" and "products" in row else "")
        texts.append(
            (
                row["what"] + (f" {row['activations']}" if "activations" in row else ""),
                row["threads"],
                f"{ours['median']:.4g}",
                f"{ours['spread']:.0%}",
                f"{row['roofline']:.0%} {limit}",
                row["vs"] or "",
                "" if theirs is None else f"{theirs['median']:.4g}",
                "" if theirs is None else f"{theirs['spread']:.0%}",
                "" if theirs is None else f"{row['their_roofline']:.0%}",
                _conclusion(row),
            )
        )
    if texts:
        unit = good[0]["unit"]
        head = (
            "what",
            "threads",
            unit,
            "spread",
            "of limit",
            "vs",
            f"their {unit}",
            "their spread",
            "of limit, theirs",
            "ours is better by",
        )
        lines += table(head, texts, right=f"threads {unit} spread")
        lines += ["", *_machines(good)]
    lines += [f"{row['what']}, {row['vs']}: {row['error']}" for row in rows if "error" in row]
    return "\n".join(lines)


def _conclusion(row: Row) -> str:
    if row.get("noise"):
        return f"inconclusive: {row['noise']}"
    return f"{row['ratio']:.2f}x" if row.get("ratio") is not None else ""


def _machines(rows: Sequence[Row]) -> list[str]:
    """The best limits that the rounds showed, by number of threads, or of the GPU."""
    best: dict[str, dict[str, float]] = {}
    for row in rows:
        who = row["machine"].get("device") or f"{row['threads']} threads"
        own = best.setdefault(who, {"flops": 0.0, "integer_ops": 0.0, "bandwidth": 0.0})
        for name in own:
            own[name] = max(own[name], row["machine"][name] or 0.0)
    return [
        f"machine, {who}: {own['flops'] / 1e9:.0f} GFLOP/s of f32, "
        + (f"{own['integer_ops'] / 1e9:.0f} Gop/s of int8, " if own["integer_ops"] else "")
        + f"{own['bandwidth'] / 1e9:.1f} GB/s"
        for who, own in best.items()
    ]
