# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `rlx check-gpu`: whether this machine's NVIDIA GPU computes what it should, class by class of kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.errors import InputError, NoDeviceError
from rlx_mlir.tools.options import JsonOption, print_json

if TYPE_CHECKING:
    from rlx_mlir.fuzz.pool import Outcome, Worker

#: The module whose `handle` runs checks in a child process.
_CHECKS = "rlx_mlir.gpu_check.checks"


def check_gpu(
    only: Annotated[str, typer.Option(help="Checks whose names begin like this, with commas; all of them.")] = "",
    number: Annotated[int, typer.Option(min=0, help="The GPU's number.")] = 0,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that a check may take, compilation included.")] = 120,
    as_json: JsonOption = False,
) -> None:
    """Run small modules of every class of kernels on the GPU, and compare with the CPU.

    Says of each what ran, by which schedule, and how far results are from numpy's, which is allowed as much as the
    operations round. Each is run alone, and as a CUDA graph. A check that fails, hangs or faults doesn't end the
    others. The exit status is 1 where anything is wrong.
    """
    from rlx_mlir.fuzz.pool import Worker
    from rlx_mlir.gpu_check.cases import NAMES

    words = [word.strip() for word in only.split(",") if word.strip()]
    chosen = [name for name in NAMES if not words or any(name.startswith(word) for word in words)]
    if not chosen:
        raise InputError(f"no check begins with '{only}': there are {', '.join(NAMES)}")
    worker = Worker(_CHECKS, seconds=timeout)
    rows = []
    try:
        found = worker.run({"device": number})
        if found.get("status") == "finding":
            raise NoDeviceError(f"no GPU can be used: {_said(found)}")
        if not as_json:
            typer.echo(_heading(found))
        for row in run_checks(worker, chosen, number):
            rows.append(row)
            if not as_json:
                typer.echo(format_row(row))
    finally:
        worker.close()
    failed = [row["name"] for row in rows if not row["ok"]]
    if as_json:
        print_json({"about": found, "rows": rows})
    else:
        typer.echo(f"\n{len(rows)} checks, {len(failed)} failed" + (f": {'; '.join(failed)}" if failed else ""))
    if failed:
        raise typer.Exit(1)


def run_checks(worker: Worker, names: Sequence[str], number: int) -> Iterator[Outcome]:
    """A row for each check (see `rlx_mlir.gpu_check.checks.Row`).

    After a fault, or where a process ended without an answer, the next check has a process of its own; the one that
    faulted runs once more, each launch waited for, so that the message names the kernel.
    """
    for name in names:
        task = {"check": name, "device": number, "wait": False}
        row = worker.run(task)
        if row.get("status") == "finding":
            worker.close()
            row = {"name": name, "ok": False, "kernels": [], "message": _said(row)}
        elif row["fault"]:
            worker.close()
            again = worker.run({**task, "wait": True})
            worker.close()
            if again.get("fault"):
                row["message"] = again["message"]
            else:
                row["message"] += "; waiting for each launch, it doesn't fault"
        yield row


def _said(finding: Outcome) -> str:
    """What became of a process, in one line."""
    if finding["kind"] == "hang":
        return f"hangs: {finding['message']}"
    return str(finding["message"]).strip()


def _heading(about: Outcome) -> str:
    driver = os.environ.get("RLX_CUDA_DRIVER") or "libcuda.so.1"
    gib = 1 << 30
    return (
        f"driver {driver}, for {about['driver']}\n"
        f"GPU {about['number']}: {about['gpu']}, compute capability {about['compute_capability']}, "
        f"{about['multiprocessors']} multiprocessors, {about['shared_bytes'] >> 10} KB of shared memory a block, "
        f"{about['free_bytes'] / gib:.1f} of {about['total_bytes'] / gib:.1f} GB free\n"
        f"kernels are compiled for {about['chip']}; their PTX by the driver\n"
    )


def format_row(row: Outcome) -> str:
    """A row as text: one line, and one more for what is wrong."""
    kernels = ", ".join(dict.fromkeys(kernel.partition(": ")[2] for kernel in row["kernels"]))
    error = "" if row.get("error") is None else f"error {row['error']:.1e} of {row['allowed']:.1e}"
    line = f"{'ok' if row['ok'] else 'FAIL':<5} {row['name']:<34} {error:<25} {kernels}".rstrip()
    return line if row["ok"] else f"{line}\n      {row['message']}"
