# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The console script `rlx-opt`: mlir-opt with our dialects and passes, those written in Python too.

Three options are added. `--rlx-load=FILE.py` runs a file that registers passes. `--rlx-verify-numerics`, with passes
as options of their own or with `--pass-pipeline`, checks after every pass that the module computes what it did before.
`--rlx-remarks` says in remarks what the passes fused, what they nearly did, and why not; `--rlx-remarks=REGEX` does so
for the patterns of other passes, by the passes' names.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence

LOAD = "--rlx-load"
VERIFY = "--rlx-verify-numerics"
REMARKS = "--rlx-remarks"
_PIPELINE = "--pass-pipeline"


def main() -> None:
    """Runs rlx-opt on the command line's arguments and exits with its status."""
    from rlx_mlir import ir
    from rlx_mlir.errors import InputError
    from rlx_mlir.limits import end_at_interrupts
    from rlx_mlir.rewriting import registry
    from rlx_mlir.sources import problem

    end_at_interrupts()

    try:
        given = with_loaded(sys.argv[1:])
        registry.register_all()
        arguments = with_numeric_checks(with_remarks(given))
        check_names(arguments)
    except InputError as error:
        sys.exit(f"rlx-opt: {error}")
    sys.stdout.flush()
    status = ir.native.opt_main(["rlx-opt", *arguments], problem)
    # Its context is gone: modules that passes left to the garbage collector, such as those in frames of an error, can't
    # be freed any more.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def with_loaded(arguments: Sequence[str]) -> list[str]:
    """The arguments without `--rlx-load`, whose files are run; raises InputError where one can't be."""
    from rlx_mlir.errors import InputError
    from rlx_mlir.rewriting.plugins import load_passes

    kept = []
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if name != LOAD:
            kept.append(argument)
        elif not equals:
            raise InputError(f"{LOAD} expects a file, as in {LOAD}=my_passes.py")
        else:
            load_passes(path)
    return kept


def check_names(arguments: Sequence[str]) -> None:
    """Raises InputError for an option that begins as passes on HIR do, but is none.

    LLVM reads such a word as its option `-h`, prints the help, and exits with status 0.
    """
    from rlx_mlir.errors import InputError, did_you_mean
    from rlx_mlir.rewriting.pipelines import PIPELINES
    from rlx_mlir.rewriting.registry import PASSES

    known = [name for name in (*PASSES, *PIPELINES) if name.startswith("hir-")]
    for argument in arguments:
        option = argument.partition("=")[0]
        name = option.removeprefix("-").removeprefix("-")
        if option.startswith("-") and name.startswith("hir-") and name not in known:
            raise InputError(f"unknown option '{option}'{did_you_mean(name, known)}")


def with_remarks(arguments: Sequence[str]) -> list[str]:
    """The arguments without `--rlx-remarks`, which is switched on where it is there.

    Raises InputError where it isn't given a regular expression.
    """
    from rlx_mlir.rewriting.recording import FUSION, set_remarks

    kept = []
    for argument in arguments:
        name, equals, passes = argument.partition("=")
        if name == REMARKS:
            set_remarks(passes if equals else FUSION)
        else:
            kept.append(argument)
    return kept


def with_numeric_checks(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--rlx-verify-numerics` worked into the pipeline; as they are without that option.

    Raises InputError where there are neither passes nor a pipeline.
    """
    if VERIFY not in arguments:
        return list(arguments)
    from rlx_mlir.errors import InputError
    from rlx_mlir.rewriting.pipelines import split

    kept = [argument for argument in arguments if argument != VERIFY]
    for number, argument in enumerate(kept):
        name, equals, text = argument.partition("=")
        if name.replace("--", "-", 1) != _PIPELINE[1:]:
            continue
        if not equals and number + 1 == len(kept):
            break
        text, after = (text, number + 1) if equals else (kept[number + 1], number + 2)
        passes = ["rlx-verify-numerics{begin=true}"]
        for step in split(text):
            passes += [step, f"rlx-verify-numerics{{after='{step}'}}"]
        return [*kept[:number], f"{_PIPELINE}=builtin.module({','.join(passes)})", *kept[after:]]
    steps = [step_of(argument) for argument in kept]
    if passes := [step for step in steps if step]:
        others = [argument for argument, step in zip(kept, steps, strict=True) if not step]
        return with_numeric_checks([*others, f"{_PIPELINE}=builtin.module({','.join(passes)})", VERIFY])
    raise InputError(f"{VERIFY} expects passes, such as --hir-to-mir, or {_PIPELINE}='builtin.module(...)'")


def step_of(argument: str) -> str:
    """The step of a pipeline that an option such as `--hir-to-mir=policy=fusable` is; '' where it is no pass.

    Passes on functions alone are nested, as mlir-opt nests them.
    """
    from mlir.passmanager import PassManager

    from rlx_mlir import ir

    name, equals, options = argument.partition("=")
    if not name.startswith("-") or not (name := name.removeprefix("-").removeprefix("-")):
        return ""
    step = f"{name}{{{options}}}" if equals else name
    with ir.new_context():
        for nested in (step, f"func.func({step})"):
            try:
                PassManager.parse(f"builtin.module({nested})")
            except (ir.MLIRError, ValueError):
                continue
            return nested
    return ""


if __name__ == "__main__":
    main()
