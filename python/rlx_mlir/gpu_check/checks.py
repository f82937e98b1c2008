# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether an NVIDIA GPU computes what it should, class by class of kernels: what a machine is asked first.

Each check compiles a small module for the GPU, runs it a few times, once by itself, then as a CUDA graph, and compares
with the numpy references of its operations on the CPU. Results have to be the same bits in all runs.

`rlx check-gpu` runs the checks in child processes (`prepare`, `handle`), so that one that hangs, or faults, after which
a process can't use the GPU any more, leaves the others as they are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rlx_mlir import native
from rlx_mlir.errors import DeviceFaultError, InputError, RlxError
from rlx_mlir.files import Json
from rlx_mlir.gpu_check.cases import CASES, COPIES, STEPS, Case, decode_step
from rlx_mlir.runtime.device import DeviceArray
from rlx_mlir.verify.inputs import Sample, samples
from rlx_mlir.verify.numerics import evaluate_outputs, module_arguments
from rlx_mlir.verify.tolerance import SAFETY, Expected, difference

if TYPE_CHECKING:
    from rlx_mlir.hir import GraphModule
    from rlx_mlir.runtime.cuda import CudaExecutable
    from rlx_mlir.semantics.function import Argument

#: Runs of a check: by itself, captured, replayed.
RUNS = 3
#: Steps that are repeated by one call, and how often: those of one graph are captured the second time.
_STEPS, _BATCHES = 4, 3


@dataclass
class Row:
    """What became of a check.

    Attributes:
        name: of the check.
        ok: whether nothing is wrong.
        kernels: class and schedule of each kernel that it has, such as `gemm: gemm_hopper`.
        error: the largest difference, relative to the largest element expected; None where nothing was compared.
        allowed: of that, by how the operations round.
        seconds: that it took, compilation included.
        message: what is wrong.
        fault: the process can't use the GPU any more.
    """

    name: str
    ok: bool = True
    kernels: list[str] = field(default_factory=list)
    error: float | None = None
    allowed: float | None = None
    seconds: float = 0.0
    message: str = ""
    fault: bool = False


def about(device: int = 0) -> dict[str, object]:
    """The driver and the GPU; raises DeviceError where there is none that can be used."""
    from rlx_mlir.chips import chip_of

    own = native.CudaDevice(device)
    free, total = own.memory()
    major, minor = own.compute_capability
    version = native.cuda_driver_version()
    return {
        "driver": f"CUDA {version // 1000}.{version % 1000 // 10}",
        "gpu": own.name,
        "number": own.ordinal,
        "compute_capability": f"{major}.{minor}",
        "chip": chip_of(major, minor),
        "multiprocessors": own.multiprocessors,
        "shared_bytes": own.max_shared_bytes,
        "free_bytes": free,
        "total_bytes": total,
    }


def check(name: str, device: int = 0) -> Row:
    """Runs one check, of those in `CHECKS`; what goes wrong is in the row."""
    if name not in CHECKS:
        raise InputError(f"there is no check '{name}': known are {', '.join(CHECKS)}")
    row, begin = Row(name), time.perf_counter()
    try:
        CHECKS[name](row, device)
    except DeviceFaultError as error:
        row.ok, row.fault, row.message = False, True, str(error)
    except (RlxError, ArithmeticError, LookupError, TypeError, ValueError, AssertionError) as error:
        row.ok, row.message = False, f"{type(error).__name__}: {error}"
    row.seconds = time.perf_counter() - begin
    return row


def _copies(row: Row, device: int) -> None:
    """Memory to the GPU, there, and back."""
    values = np.random.default_rng(0).integers(0, 256, 5_000_003, np.uint8)
    there = DeviceArray.from_numpy(values, device=device)
    again = DeviceArray.zeros(values.shape, np.uint8, device=device)
    again.write(there)
    wrong = int(np.count_nonzero(again.numpy() != values))
    if wrong:
        row.ok, row.message = False, f"{wrong} of {values.size} bytes came back as others"


def _compiled(row: Row, graph: GraphModule, device: int) -> CudaExecutable:
    """The module for a GPU; notes its kernels."""
    from rlx_mlir.chips import chip_of
    from rlx_mlir.compiler import compile as compile_module
    from rlx_mlir.runtime.cuda import CudaExecutable

    chip = chip_of(*native.CudaDevice(device).compute_capability)
    # As for target `cuda`, but for a GPU of any number: the driver compiles the PTX.
    artifact = compile_module(graph, target="nvptx", chip=chip, cubin="never")
    row.kernels = [
        f"{artifact.kinds.get(name, '?')}: {template}" for name, template in sorted(artifact.templates.items())
    ]
    return CudaExecutable(artifact, device=device)


def _sample(graph: GraphModule, values: Mapping[str, np.ndarray]) -> tuple[Sample, Sequence[Argument]]:
    known = module_arguments(graph.ir_module)
    found = next(iter(samples(known)))
    return Sample(found.name, {**found.values, **values}), known


def _case(case: Case) -> Callable[[Row, int], None]:
    def run(row: Row, device: int) -> None:
        graph = case.build()
        executable = _compiled(row, graph, device)
        sample, known = _sample(graph, case.values)
        expected = evaluate_outputs(graph.ir_module, sample, known, conditioning=False)
        executable.set_params({spec.name: sample.values[spec.name] for spec in executable.params})
        given = {spec.name: sample.values[spec.name] for spec in executable.inputs}
        first = executable.run(given)
        compare(row, expected, first)
        for number in range(2, RUNS + 1):
            for name, array in executable.run(given).items():
                if array.tobytes() != first[name].tobytes():
                    how = "captured as a CUDA graph" if number == 2 else "replayed as a CUDA graph"
                    _wrong(row, f"output '{name}' of run {number} ({how}) isn't that of the first, bit for bit")

    return run


def compare(row: Row, expected: Mapping[str, Expected], found: Mapping[str, np.ndarray]) -> None:
    """Notes how far results are from what was expected, and what is beyond its tolerance."""
    worst = 0.0
    for name, own in expected.items():
        array = np.asarray(found[name])
        gap = difference(own, array)
        if gap is not None:
            at = f" at {list(gap.index)}" if gap.index else ""
            text = gap.text or f"{gap.got:.7g}, but {gap.want:.7g} is expected, within {gap.allowed:.2g}"
            _wrong(row, f"output '{name}'{at}: {text}")
        with np.errstate(all="ignore"):
            want, got = own.array.astype(np.float64), array.astype(np.float64)
            scale = float(np.max(np.abs(want), initial=0.0, where=np.isfinite(want))) or 1.0
            if want.shape != got.shape or not want.size:
                continue
            off = np.where(want == got, 0.0, np.abs(want - got))
            error = float(np.max(np.where(np.isnan(off), np.inf, off))) / scale
            allowed = SAFETY * (own.relative * 1.1 + own.absolute / scale)
        share = error / allowed if allowed else (np.inf if error else 0.0)
        if row.error is None or share > worst:
            worst, row.error, row.allowed = share, error, allowed


def _wrong(row: Row, message: str) -> None:
    row.ok = False
    row.message = f"{row.message}; {message}" if row.message else message


def _loop(row: Row, device: int) -> None:
    """Steps that the GPU repeats by itself, one by one and as one graph, choose the tokens of the CPU's references."""
    from rlx_mlir.interpreter import interpret

    graph = decode_step()
    executable = _compiled(row, graph, device)
    count = _BATCHES * _STEPS
    sample, _ = _sample(graph, {})
    values = dict(sample.values)
    start = {
        "token": np.array([[3]], np.int32),
        "pos": np.zeros(1, np.int32),
        "seen": np.zeros_like(values["seen"]),
        "controls": np.array([[0, 1, 1]], np.float32),  # the largest logit
        "draws": np.full_like(values["draws"], 0.5),
        "chosen": np.zeros_like(values["chosen"]),
    }
    weights = {spec.name: values[spec.name] for spec in executable.params}
    state = dict(start)
    for _ in range(count):
        out = interpret(graph, {**weights, **state})
        state |= {"token": out["next_token"], "pos": out["next_pos"]}
        state |= {"seen": out["seen_out"], "chosen": out["chosen_out"]}
    executable.set_params(weights)
    for joined in (False, True):
        there = {name: DeviceArray.from_numpy(array, device=device) for name, array in start.items()}
        other = {name: executable.zeros(there[name].shape, there[name].dtype) for name in ("token", "pos")}
        known = np.full(1, count - 1, np.int32)
        ends = (there, {**there, **other})
        calls = [
            executable.bind(
                ends[own],
                outputs={"next_token": ends[1 - own]["token"], "next_pos": ends[1 - own]["pos"]},
                donate=["seen", "chosen"],
                known={"pos": known},
            )
            for own in range(2)
        ]
        loop = executable.loop(calls)
        for _ in range(_BATCHES):
            run = loop(_STEPS, joined=joined)
        run.wait()
        tokens = there["chosen"].numpy()[0, :count]
        wanted = np.asarray(state["chosen"])[0, :count]
        if (tokens != wanted).any():
            how = "as one graph" if joined else "one graph a step"
            _wrong(row, f"steps {how} chose {tokens.tolist()}, but the references {wanted.tolist()}")


#: Every check by its name.
CHECKS: dict[str, Callable[[Row, int], None]] = {
    COPIES: _copies,
    **{case.name: _case(case) for case in CASES},
    STEPS: _loop,
}


def prepare() -> None:
    """Of a child process: loads what every check needs."""
    import rlx_mlir.compiler  # noqa: F401


def handle(task: dict[str, Json]) -> dict[str, object]:
    """Of a child process: runs the check that a task names, or says what the GPU is."""
    if "check" not in task:
        return about(task["device"])
    if task["wait"]:
        os.environ["RLX_CUDA_SYNC"] = "1"  # each launch is waited for: an error names its kernel
    return vars(check(task["check"], task["device"]))


__all__ = ["CHECKS", "RUNS", "Row", "about", "check", "compare", "handle", "prepare"]
