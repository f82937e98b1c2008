# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx bench`: models and kernels of ours beside others', measured in turns on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.errors import ExecutionError, InputError
from rlx_mlir.tools.options import Activations, Device, DeviceOption, JsonOption, positive_numbers, print_json, progress

if TYPE_CHECKING:
    from rlx_mlir.measure.bench import Request, Row


def bench(
    model: Annotated[
        str, typer.Option(help="A .gguf file, or the name of a known model; kernels are measured without one.")
    ] = "",
    vs: Annotated[
        str, typer.Option(help="Rivals, with commas: llama.cpp (models); torch,onnxruntime,iree,jax,numpy (kernels).")
    ] = "",
    threads: Annotated[str, typer.Option(help="Numbers of threads, with commas; all that may be used.")] = "",
    prompt: Annotated[str, typer.Option(help="Lengths of prompts, with commas.")] = "16,128,512",
    decode: Annotated[int, typer.Option(min=0, help="Tokens to decode, one by one; 0 for none.")] = 48,
    kernels: Annotated[str, typer.Option(help="Workloads by the beginnings of their names, with commas.")] = "",
    activations: Annotated[
        list[Activations] | None, typer.Option(help="Of our model; may be repeated.", show_default="int8")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of everything in turns; figures are medians.")] = 7,
    device: DeviceOption = Device.cpu,
    as_json: JsonOption = False,
) -> None:
    """Measure ours beside others in turns: tokens per second of a model, or times of kernels.

    Figures are medians with their spread. A comparison that noise hides is called inconclusive. Nothing is installed.
    On a GPU ours are beside its limits alone, and times of kernels are those of events.
    """
    from rlx_mlir import native
    from rlx_mlir.measure.bench import Request
    from rlx_mlir.measure.rivals import INSTALL, RIVALS, rivals_of
    from rlx_mlir.measure.workloads import chosen

    if model and kernels:
        raise InputError("'--kernels' names workloads, which are measured without '--model'")
    if device is Device.cuda:
        native.CudaDevice()  # or the error that says what is missing, before anything is made
        if vs or threads:
            raise InputError(
                f"'--{'vs' if vs else 'threads'}' is for CPUs: benchmarks/gpu compares with others on a GPU"
            )
    fitting = [r for r in RIVALS.values() if (r.prepare is None) == bool(model) and device is Device.cpu]
    wanted = rivals_of(vs) if vs else fitting
    for rival in wanted:
        if rival not in fitting:
            kind = "a model" if model else "kernels"
            names = ", ".join(own.name for own in fitting)
            raise InputError(f"'{rival.name}' has nothing to compare with {kind}: those that have are {names}")
    missing = {rival.name: rival.missing for rival in wanted if rival.missing}
    words = [word.strip() for word in kernels.split(",") if word.strip()]
    counts = positive_numbers("threads", threads) or [1 if device is Device.cuda else native.default_threads()]
    requests = [
        Request(
            threads=count,
            vs=tuple(rival.name for rival in wanted if not rival.missing),
            model=model,
            kernels=() if model else tuple(chosen(words)),
            prompts=tuple(positive_numbers("prompt", prompt)),
            decode=decode,
            activations=tuple(own.value for own in activations or [Activations.int8]),
            rounds=rounds,
            device=device.value,
        )
        for count in counts
    ]
    if not as_json:
        for name, modules in missing.items():
            typer.echo(f"{name} isn't there ({', '.join(modules)}): {INSTALL}", err=True)
    about: dict[str, str] = {}
    rows: list[Row] = []
    with progress() as say:
        for request in requests:
            found, own = run_apart(request, say)
            about |= found
            rows += own
    if as_json:
        print_json({"about": about, "missing": missing, "rows": rows})
        return
    typer.echo(format_bench(about, rows))


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
        texts.append(
            (
                row["what"] + (f" {row['activations']}" if "activations" in row else ""),
                row["threads"],
                f"{ours['median']:.4g}",
                f"{ours['spread']:.0%}",
                f"{row['roofline']:.0%} {row['bound']}",
                row["vs"] or "",
                "" if theirs is None else f"{theirs['median']:.4g}",
                "" if theirs is None else f"{theirs['spread']:.0%}",
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
