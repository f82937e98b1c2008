# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compilations that end early: by their time limit, by Ctrl-C, or because one beside them failed."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rlx_mlir as rlx
from rlx_mlir import GraphModule, ir, limits
from rlx_mlir.compiler import Compilation, CompileOptions
from rlx_mlir.errors import CompileError, InputError, TimeLimitError
from rlx_mlir.rewriting import compiler_pass, registry, run_pipeline

_numbers = itertools.count()


def norm(name: str = "norm") -> GraphModule:
    m = GraphModule.hir(name)
    m.set_outputs({"y": m.rms_norm(m.input("x", ["rows", 24]), m.param("gamma", [24]))})
    return m


@pytest.fixture
def slow_pass() -> Iterator[Callable[[str], str]]:
    """Registers a pass that takes half a minute unless it is ended, on the operations of the given name."""
    names = []

    def add(anchor: str) -> str:
        names.append(f"test-limits-{next(_numbers)}")  # MLIR forgets no pass

        def run(op: ir.Operation) -> None:
            """Wait, but not for the entry function of `norm`."""
            own = ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else ""
            end = time.monotonic() + (0 if own == "norm" else 30)
            while time.monotonic() < end and not ir.native.is_over():
                time.sleep(0.005)

        compiler_pass(names[-1], anchor=anchor)(run)
        return names[-1]

    yield add
    for name in names:
        del registry.PASSES[name]


# Time limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, -1.0, float("inf"), float("nan"), "5", True])
def test_limits_that_are_none(limit: Any) -> None:
    with pytest.raises(InputError, match=r"'time_limit' expects a positive number of seconds, or None, but got"):
        rlx.compile(norm(), time_limit=limit)


def test_a_limit_that_holds_changes_nothing() -> None:
    limited, free = (rlx.compile(norm(), cache=False, time_limit=limit).artifact for limit in (60, None))
    assert limited.code == free.code


def test_the_error_names_pass_kernel_and_reproducer(slow_pass: Callable[[str], str]) -> None:
    name = slow_pass("func.func")
    passes = {"before:rlx-generic-kernels": f"func.func({name})"}
    begin = time.monotonic()
    with pytest.raises(TimeLimitError) as caught:
        rlx.compile(norm(), cache=False, time_limit=2.5, passes=passes)
    assert time.monotonic() - begin < 10
    error = caught.value
    assert (error.seconds, error.pass_name, error.kernel) == (2.5, name, "rms_norm_0")
    assert f"compiling 'norm' isn't done within its time limit of 2.5 s: pass '{name}' was running on kernel" in str(
        error
    )
    assert f"most of the time went to pass '{name}'" in str(error)
    assert error.reproducer is not None
    first, *_ = Path(error.reproducer).read_text().splitlines()
    assert first.startswith("// rlx-opt %s --pass-pipeline=")
    assert name in first


@pytest.mark.parametrize("begun", ["optimising", "generating"])
def test_code_generation_is_stopped(begun: str) -> None:
    """By the limit, whenever it comes: LLVM skips what is left, and the reproducer is for LLVM's tools."""
    compilation = Compilation(norm(), CompileOptions(time_limit=1000))
    compilation.run()
    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        compilation.code("OBJECT")
        taken.append(time.perf_counter() - begin)
    compilation.watch = limits.Watch("norm", min(taken) * (0.02 if begun == "optimising" else 0.3))
    compilation.watch.kernels = ("rms_norm_0",)
    with pytest.raises(TimeLimitError, match="compiling 'norm' isn't done within its time limit") as caught:
        compilation.code("OBJECT")
    assert caught.value.reproducer is not None
    text = Path(caught.value.reproducer).read_text()
    assert caught.value.reproducer.endswith(".ll")
    assert text.startswith("; opt -O2 %s | llc -relocation-model=pic --mcpu=")
    assert "define void @rms_norm_0(" in text


def test_functions_lose_their_bodies_where_code_generation_is_stopped() -> None:
    """After LLVM's optimisations: what is left to generate is nothing, and no code comes out."""
    compilation = Compilation(norm(), CompileOptions())
    compilation.run()
    watch = ir.native.Watch()
    watch.stop()
    machine = compilation.options.machine()
    for level in (0, 2):
        with pytest.raises(ValueError, match="code generation was stopped"):
            ir.native.emit_code(compilation.module.operation, *machine, level, ir.native.CodeKind.OBJECT, watch)
    assert ir.native.emit_code(compilation.module.operation, *machine, 2, ir.native.CodeKind.OBJECT)


def test_work_is_counted_by_pass_and_function() -> None:
    compilation = Compilation(norm(), CompileOptions())
    compilation.run()
    compilation.code("OBJECT")
    places = dict(compilation.watch.native.work)
    assert ("hir-to-mir", "") in places
    assert ("InstCombinePass", "rms_norm_0") in places
    assert ("code generation", "rms_norm_0") in places
    assert all(seconds >= 0 for seconds in places.values())
    assert compilation.watch.culprit() == "rms_norm_0"


def test_the_command_has_a_limit(tiny_llama: Path, fresh_cache: Path) -> None:
    command = [sys.executable, "-m", "rlx_mlir.tools.cli", "compile", str(tiny_llama), "--time-limit", "0.05"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 1
    assert "rlx: error: compiling 'prefill' isn't done within its time limit of 0.05 s" in done.stderr
    assert "Traceback" not in done.stderr


# Interrupted --------------------------------------------------------------------------------------


ENDLESS = """
func.func @f(%x: i32) -> i32 {
  return %x : i32
}
"""

_INTERRUPTED = """
import os, signal, sys, threading, time
from rlx_mlir import ir
from rlx_mlir.rewriting import compiler_pass, run_pipeline

@compiler_pass("test-waits", anchor=sys.argv[2])
def waits(op):
    "Wait for what never comes."
    started.set()
    while not ir.native.is_over():
        time.sleep(0.005)

def interrupt():
    started.wait()
    time.sleep(0.1)
    times.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background it is ignored
times, started = [], threading.Event()
module = ir.Module.parse(sys.argv[1], ir.new_context())
threading.Thread(target=interrupt, daemon=True).start()
try:
    run_pipeline(module, ",".join(["test-waits" if "module" in sys.argv[2] else "func.func(test-waits)"] * 20))
except KeyboardInterrupt:
    print(time.monotonic() - times[0])
run_pipeline(module, "canonicalize")
"""


@pytest.mark.parametrize("anchor", ["builtin.module", "func.func"])
@pytest.mark.quick(1)
def test_ctrl_c_ends_a_pipeline(anchor: str) -> None:
    """The pass that runs, wherever it does, asks; those that are left don't run; and the process goes on."""
    command = [sys.executable, "-c", _INTERRUPTED, ENDLESS, anchor]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 3


def test_one_failure_ends_what_runs_beside_it(slow_pass: Callable[[str], str]) -> None:
    name = slow_pass("builtin.module")
    ended: list[BaseException] = []

    def compiles() -> None:
        watch = limits.Watch("other")
        try:
            with limits.watched(watch):
                run_pipeline(ir.Module.parse(ENDLESS, ir.new_context()), ",".join([name] * 20))
        except CompileError as error:
            ended.append(error)
            raise

    def fails() -> None:
        time.sleep(0.1)
        raise InputError("no such thing")

    begin = time.monotonic()
    with pytest.raises(InputError, match="no such thing"):
        limits.in_threads([compiles, fails])
    assert time.monotonic() - begin < 5
    assert [str(error) for error in ended] == ["compiling 'other' was stopped"]


def test_results_of_threads_are_in_order() -> None:
    assert limits.in_threads([lambda: time.sleep(0.02) or 1, lambda: 2]) == [1, 2]  # type: ignore[func-returns-value]


_OPT = """
import sys, threading
from rlx_mlir.rewriting import registry
from rlx_mlir.tools import opt

registry.register_all()
threading.Timer(0.5, lambda: print("ready", flush=True)).start()
sys.argv = ["rlx-opt", "-"]
opt.main()
"""


def test_rlx_opt_ends_at_once() -> None:
    """It is killed, as mlir-opt is: MLIR's main never returns to Python while it works, here to read its input."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", _OPT], **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=5) == -signal.SIGINT
        finally:
            process.kill()


# Operations that depend on themselves ---------------------------------------------------------------

CYCLES = {
    "itself": "%c = arith.constant 0 : i32\n%0 = arith.addi %c, %0 : i32",
    "another": "%c = arith.constant 0 : i32\n%0 = arith.addi %c, %1 : i32\n%1 = arith.addi %c, %0 : i32",
    "unreachable": "func.func @f() {\nreturn\n^other:\n%c = arith.constant 0 : i32\n"
    "%0 = arith.addi %c, %0 : i32\ncf.br ^other\n}",
    "nested": '"test.graph"() ({\n%c = arith.constant 0 : i32\n%0 = arith.addi %c, %0 : i32\n}) : () -> ()',
}


@pytest.mark.parametrize("text", CYCLES.values(), ids=CYCLES)
def test_operations_that_depend_on_themselves_are_refused(text: str) -> None:
    """On which MLIR's canonicalizer doesn't end, or ends the process."""
    context = ir.new_context()
    context.allow_unregistered_dialects = True
    module = ir.Module.parse(text, context)
    with pytest.raises(CompileError, match=r"'arith\.addi' op depends on its own result"):
        run_pipeline(module, "canonicalize")
    command = [sys.executable, "-m", "rlx_mlir.tools.opt", "--allow-unregistered-dialect", "--canonicalize"]
    if text == CYCLES["itself"]:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert "'arith.addi' op depends on its own result" in done.stderr


def test_values_may_be_used_before_they_are_defined() -> None:
    module = ir.Module.parse("%1 = arith.addi %0, %0 : i32\n%0 = arith.constant 1 : i32", ir.new_context())
    run_pipeline(module, "canonicalize")
