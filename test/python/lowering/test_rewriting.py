# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes and patterns in Python: what goes wrong in one is an error with its name and place, and never an abort."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.errors import CompileError, InputError, PassError, RlxError
from rlx_mlir.rewriting import (
    Option,
    PatternSet,
    RewriteError,
    Rewriter,
    apply_patterns,
    compiler_pass,
    erase_dead,
    operations,
    registry,
    run_pipeline,
)
from rlx_mlir.rewriting.steps import run_and_verify

CHAIN = """
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = mir.silu %x : tensor<4xf32> loc("first"("model.py":7:3))
  %1 = mir.exp %0 : tensor<4xf32> loc("second"("model.py":8:3))
  return %1 : tensor<4xf32>
}
"""
Register = Callable[..., str]
_numbers = itertools.count()


@pytest.fixture
def register() -> Iterator[Register]:
    """Registers a pass under a name of its own, until the test ends."""
    names = []

    def add(run: Callable[..., None], *, anchor: str = "func.func", **options: Any) -> str:
        names.append(f"test-rewriting-{next(_numbers)}")
        run.__doc__ = run.__doc__ or "A pass of a test."
        compiler_pass(names[-1], anchor=anchor, **options)(run)
        return names[-1]

    yield add
    for name in names:
        del registry.PASSES[name]


def parse(text: str = CHAIN, context: ir.Context | None = None) -> ir.Module:
    return ir.Module.parse(text, context or ir.new_context())


def names_of(module: ir.Module) -> list[str]:
    """The operations of MIR in the module."""
    return [op.name for op in operations(module) if op.name.startswith("mir.")]


def isolated(code: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a process of its own: it may hang, or take the process down."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def rlx_opt(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlx_mlir.tools.opt", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# Threads ------------------------------------------------------------------------------------------

MANY = """
import threading
from rlx_mlir import ir
from rlx_mlir.dialects import mir
from rlx_mlir.rewriting import PatternSet, apply_patterns, compiler_pass, run_pipeline

patterns = PatternSet()
seen = set()

@patterns.pattern(mir.SiluOp)
def to_relu(op, rewriter):
    seen.add(threading.get_ident())
    rewriter.replace(op, mir.relu(op.x))

@compiler_pass("test-many", anchor="func.func")
def many(function):
    "Rewrite on the pass manager's threads."
    apply_patterns(function, patterns)

text = "".join(
    f"func.func @f{i}(%x: tensor<4xf32>) -> tensor<4xf32> {{"
    "%0 = mir.silu %x : tensor<4xf32> return %0 : tensor<4xf32> }" for i in range(100)
)
context = ir.new_context()
context.enable_multithreading(True)
module = ir.Module.parse(text, context)
run_pipeline(module, "func.func(test-many)")
print(str(module).count("mir.relu"), str(module).count("mir.silu"), threading.get_ident() in seen, len(seen))
"""


def test_passes_on_functions_run_on_threads_and_do_not_deadlock() -> None:
    """The main thread waits for the pass manager without the interpreter lock, which the threads need."""
    result = isolated(MANY)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[:2] == ["100", "0"]


@pytest.mark.parametrize("shared", [False, True], ids=["own contexts", "one context"])
def test_pipelines_run_on_several_threads(shared: bool) -> None:
    context = ir.new_context() if shared else None
    modules = [parse(CHAIN, context) for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda module: run_pipeline(module, "func.func(canonicalize,cse),mir-outline-kernels"), modules))
    assert all(str(module) == str(modules[0]) for module in modules)
    assert "call @silu_exp_0" in str(modules[0])


@pytest.mark.parametrize("shared", [False, True], ids=["own contexts", "one context"])
def test_threads_get_their_own_errors(register: Register, shared: bool) -> None:
    """Errors of pipelines that run at one time, of equal text too, reach the caller of each."""

    def fail(function: ir.Operation) -> None:
        raise ZeroDivisionError("same text")

    name = register(fail)
    context = ir.new_context() if shared else None

    def run(module: ir.Module) -> BaseException | None:
        with pytest.raises(PassError, match="same text") as caught:
            run_pipeline(module, f"func.func({name})")
        return caught.value.__cause__

    with ThreadPoolExecutor(4) as pool:
        causes = list(pool.map(run, [parse(CHAIN, context) for _ in range(8)]))
    assert all(isinstance(cause, ZeroDivisionError) for cause in causes)
    assert len(set(map(id, causes))) == 8


def test_a_pass_cannot_run_a_pipeline_in_its_own_context(register: Register) -> None:
    """It would change what its context allows, while other passes run in it."""

    def nested(function: ir.Operation) -> None:
        run_pipeline(ir.Module.parse(CHAIN, ir.new_context()), "cse")
        run_pipeline(ir.Module.parse(CHAIN), "cse")

    with pytest.raises(PassError, match="a pass can't run a pipeline in its own context"):
        run_pipeline(parse(), f"func.func({register(nested)})")


# Errors -------------------------------------------------------------------------------------------


def test_an_exception_in_a_pattern_names_pattern_operation_and_location(register: Register) -> None:
    patterns = PatternSet()

    @patterns.pattern(mir.ExpOp)
    def divide(op: mir.ExpOp, rewriter: Rewriter) -> None:
        raise ZeroDivisionError("by zero")

    name = register(lambda function: apply_patterns(function, patterns) and None)
    with pytest.raises(PassError) as caught:
        run_pipeline(parse(), f"func.func({name})")
    message = str(caught.value)
    assert message.startswith(f"pass '{name}': ")
    assert "error: " not in message, "that goes without saying; 'note: ' doesn't"
    assert "'mir.exp' in block 'second' (model.py:8): pattern 'divide': ZeroDivisionError: by zero" in message
    assert caught.value.pass_name == name
    assert isinstance(caught.value.__cause__, RewriteError)
    assert isinstance(caught.value.__cause__.__cause__, ZeroDivisionError)


def test_our_own_error_in_a_pattern_is_not_named_twice() -> None:
    patterns = PatternSet()

    @patterns.pattern("mir.silu")
    def refuse(op: Any, rewriter: Rewriter) -> None:
        raise InputError("no")

    module = parse()
    with (
        module.context,
        pytest.raises(RewriteError, match=r"'mir\.silu' in block 'first' \(model\.py:7\): pattern 'refuse': no$"),
    ):
        apply_patterns(module, patterns)


def test_a_bug_in_a_pass_leaves_its_traceback(register: Register) -> None:
    def broken(function: ir.Operation) -> None:
        {}["key"]

    name = register(broken)
    with pytest.raises(PassError) as caught:
        run_pipeline(parse(), f"func.func({name})")
    assert "KeyError: 'key'" in str(caught.value)
    assert caught.value.reproducer is not None
    assert "in broken" in Path(caught.value.reproducer).read_text()
    assert isinstance(caught.value.__cause__, KeyError)


def test_every_error_is_one_of_ours(register: Register) -> None:
    def interrupted(function: ir.Operation) -> None:
        raise KeyboardInterrupt

    for pipeline in (f"func.func({register(interrupted)})", "no-such-pass", "cse{", "func.func(lir-plan)"):
        with pytest.raises(RlxError):
            run_pipeline(parse(), pipeline)


def test_invalid_ir_names_the_pass_by_its_operation(register: Register) -> None:
    def break_it(function: ir.Operation) -> None:
        first = next(operations(function))
        first.results[0].set_type(ir.RankedTensorType.get([5], ir.F32Type.get()))

    with pytest.raises(PassError, match=r"first.*'mir\.silu' op failed to verify") as caught:
        run_pipeline(parse(), f"func.func({register(break_it)})")
    assert caught.value.reproducer is not None


def test_of_passes_that_are_verified_together_the_one_to_blame_is_named(register: Register) -> None:
    """Though a pass before it ran well, and one after it runs well on what it left."""

    def break_it(function: ir.Operation) -> None:
        first = next(operations(function))
        first.results[0].set_type(ir.RankedTensorType.get([5], ir.F32Type.get()))

    def leave_it(function: ir.Operation) -> None:
        pass

    breaks = register(break_it)
    pipeline = f"cse,func.func({breaks}),func.func({register(leave_it)})"
    with pytest.raises(PassError, match=r"first.*'mir\.silu' op failed to verify") as caught:
        run_and_verify(parse(), pipeline)
    assert caught.value.pass_name == breaks
    assert caught.value.reproducer is not None
    assert breaks in Path(caught.value.reproducer).read_text().splitlines()[0]


def test_a_pass_that_fails_is_named_where_passes_are_verified_together(register: Register) -> None:
    def broken(function: ir.Operation) -> None:
        raise InputError("not like that")

    name = register(broken)
    with pytest.raises(PassError, match="not like that") as caught:
        run_and_verify(parse(), f"cse,func.func({name})")
    assert caught.value.pass_name == name
    assert isinstance(caught.value.__cause__, InputError)


def test_passes_that_are_verified_together_fail_once_where_they_fail_once(register: Register) -> None:
    times = itertools.count()

    def broken(function: ir.Operation) -> None:
        if next(times) == 0:
            raise InputError("not the first time")

    with pytest.raises(PassError, match=r"failed once, and not again: .*not the first time"):
        run_and_verify(parse(), f"func.func({register(broken)})")


UNDECLARED = """
import sys
from rlx_mlir import ir
from rlx_mlir.rewriting import compiler_pass, operations, registry

@compiler_pass("test-undeclared", anchor="func.func", dependent=sys.argv[3].split())
def undeclared(function):
    "Create an operation."
    with ir.InsertionPoint(next(operations(function))):
        if sys.argv[2] == "tensor.empty":
            from mlir.dialects import tensor
            tensor.empty([4], ir.F32Type.get())
        else:
            ir.Operation.create(sys.argv[2])

registry.register_all()
pipeline = "--pass-pipeline=builtin.module(func.func(test-undeclared))"
sys.exit(ir.native.opt_main(["rlx-opt", sys.argv[1], pipeline], lambda source: ""))
"""


def undeclared(tmp_path: Path, op: str, dependent: str) -> subprocess.CompletedProcess[str]:
    """Runs a pass that creates an operation, in rlx-opt: its context has loaded no more than the text needs."""
    (tmp_path / "chain.mlir").write_text(CHAIN)
    return isolated(UNDECLARED, str(tmp_path / "chain.mlir"), op, dependent)


@pytest.mark.parametrize("op", ["tensor.empty", "foreign.op"])
@pytest.mark.quick(1)
def test_an_operation_of_an_undeclared_dialect_is_an_error(tmp_path: Path, op: str) -> None:
    """MLIR would abort: the dialect isn't loaded, or isn't known at all."""
    result = undeclared(tmp_path, op, "")
    assert result.returncode == 1, result.stderr
    assert f"it created '{op}', but doesn't depend on dialect '{op.partition('.')[0]}'" in result.stderr


def test_a_declared_dialect_is_loaded(tmp_path: Path) -> None:
    result = undeclared(tmp_path, "tensor.empty", "tensor")
    assert result.returncode == 0, result.stderr
    assert "tensor.empty()" in result.stdout


def test_an_unknown_dependent_dialect_is_an_error(tmp_path: Path) -> None:
    result = undeclared(tmp_path, "tensor.empty", "tensor nonsense")
    assert result.returncode == 1, result.stderr
    assert "pass 'test-undeclared' depends on dialect 'nonsense', which isn't loaded" in result.stderr


def test_an_undeclared_dialect_leaves_the_context_as_it_was(register: Register) -> None:
    """Operations may be unregistered while a pipeline runs, and not a moment longer."""

    def foreign(function: ir.Operation) -> None:
        with ir.InsertionPoint(next(operations(function))):
            ir.Operation.create("foreign.op")

    context = ir.new_context()
    with pytest.raises(PassError, match=r"it created 'foreign\.op', but doesn't depend on dialect 'foreign'"):
        run_pipeline(parse(CHAIN, context), f"func.func({register(foreign)})")
    assert not context.allow_unregistered_dialects
    with pytest.raises(ir.MLIRError):
        parse('"foreign.op"() : () -> ()', context)


@pytest.mark.parametrize("in_opt", [False, True], ids=["run_pipeline", "rlx-opt"])
def test_a_pattern_that_emits_an_error_fails_its_pass(tmp_path: Path, in_opt: bool) -> None:
    """Left alone, the pass would succeed, rlx-opt exit with 0, and a caller never know."""
    (tmp_path / "chain.mlir").write_text(CHAIN)
    code = """
    import sys
    from rlx_mlir import ir
    from rlx_mlir.errors import PassError
    from rlx_mlir.rewriting import PatternSet, apply_patterns, compiler_pass, registry, run_pipeline

    patterns = PatternSet()

    @patterns.pattern("mir.exp")
    def emit(op, rewriter):
        op.location.emit_error("from a pattern")

    @compiler_pass("test-emits", anchor="func.func")
    def emits(function):
        "Emit an error."
        apply_patterns(function, patterns)

    registry.register_all()
    if sys.argv[2] == "True":
        pipeline = "--pass-pipeline=builtin.module(func.func(test-emits))"
        sys.exit(ir.native.opt_main(["rlx-opt", sys.argv[1], pipeline], lambda source: ""))
    try:
        run_pipeline(ir.Module.parse(open(sys.argv[1]).read(), ir.new_context()), "func.func(test-emits)")
    except PassError as error:
        sys.exit(f"PassError: {error}")
    """
    result = isolated(code, str(tmp_path / "chain.mlir"), str(in_opt))
    assert result.returncode == 1, result.stderr
    assert "from a pattern" in result.stderr
    assert "pass 'test-emits'" in result.stderr
    assert "it reported an error, but didn't raise one" in result.stderr


# The driver ---------------------------------------------------------------------------------------


def apply(patterns: PatternSet, text: str = CHAIN, **options: Any) -> tuple[ir.Module, Any]:
    module = parse(text)
    with module.context:
        report = apply_patterns(module, patterns, **options)
    assert module.operation.verify()
    return module, report


def test_new_operations_have_the_location_of_the_matched_one() -> None:
    patterns = PatternSet()

    @patterns.pattern(mir.SiluOp)
    def split(op: mir.SiluOp, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.mul(op.x, mir.sigmoid(op.x)))

    module, report = apply(patterns)
    assert names_of(module) == ["mir.sigmoid", "mir.mul", "mir.exp"]
    locations = {op.name: str(op.location) for op in operations(module)}
    assert locations["mir.sigmoid"] == locations["mir.mul"] == 'loc("first"("model.py":7:3))'
    assert report.applied == {"split": 1}


def test_patterns_apply_until_none_matches_and_misses_are_of_the_last_round() -> None:
    patterns = PatternSet()

    @patterns.pattern(mir.SiluOp)
    def first(op: mir.SiluOp, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.relu(op.x))

    @patterns.pattern(mir.ReluOp)
    def second(op: mir.ReluOp, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.tanh(op.x))

    @patterns.pattern(mir.TanhOp)
    def third(op: mir.TanhOp, rewriter: Rewriter) -> None:
        rewriter.no_match("because")

    module, report = apply(patterns)
    assert names_of(module) == ["mir.tanh", "mir.exp"]
    assert report.applied == {"first": 1, "second": 1}
    assert [(miss.pattern, miss.op, miss.reason) for miss in report.misses] == [("third", "mir.tanh", "because")]
    assert report.misses[0].location == 'loc("first"("model.py":7:3))'


def test_what_a_pattern_made_is_no_miss_of_its_own() -> None:
    """An operation that it declines at the same place is one, and so is what another pattern made."""
    text = CHAIN.replace("mir.exp %0", "mir.silu %0")
    with ir.new_context():
        module = ir.Module.parse(text.replace('"second"("model.py":8:3)', '"wide"("model.py":8:3)'))
        once = {"done": False}

        def mark(op: mir.NegOp, rewriter: Rewriter) -> None:
            rewriter.no_match("of another pattern")

        def twice(op: mir.SiluOp, rewriter: Rewriter) -> None:
            if once["done"]:
                rewriter.no_match("of its own, or wide")
            else:
                once["done"] = True
                rewriter.replace(op, mir.silu(mir.neg(op.x)))

        own = PatternSet()
        own.pattern(mir.SiluOp)(twice)
        own.pattern(mir.NegOp)(mark)
        report = apply_patterns(module, own)
    assert sorted((miss.pattern, miss.location.partition('"')[2].partition('"')[0]) for miss in report.misses) == [
        ("mark", "first"),
        ("twice", "wide"),
    ]


@pytest.mark.parametrize("limit", [None, 50])
def test_a_pattern_that_reproduces_itself_stops(limit: int | None) -> None:
    patterns = PatternSet()

    @patterns.pattern(mir.SiluOp)
    def again(op: mir.SiluOp, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.silu(op.x))

    with pytest.raises(RewriteError, match=r"rewriting doesn't end: .* exceed the limit of .*by pattern 'again'"):
        apply(patterns, limit=limit)


def test_two_patterns_that_undo_each_other_stop() -> None:
    patterns = PatternSet()

    @patterns.pattern(mir.SiluOp)
    def there(op: mir.SiluOp, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.relu(op.x))

    @patterns.pattern(mir.ReluOp)
    def back(op: mir.ReluOp, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.silu(op.x))

    with pytest.raises(RewriteError, match=r"by pattern '(there|back)'"):
        apply(patterns)


def test_operations_that_a_pattern_erased_are_not_visited() -> None:
    """The driver has handles of all operations, and a pattern erases some that come later."""
    patterns = PatternSet()
    visited = []

    @patterns.pattern(mir.SiluOp)
    def swallow(op: mir.SiluOp, rewriter: Rewriter) -> None:
        user = next(iter(op.result.uses)).owner
        rewriter.replace(user, mir.relu(op.x))
        rewriter.erase(op)

    @patterns.pattern(mir.ExpOp)
    def visit(op: mir.ExpOp, rewriter: Rewriter) -> None:
        visited.append(op)

    module, _ = apply(patterns)
    assert names_of(module) == ["mir.relu"]
    assert not visited


def test_operations_inside_of_an_erased_one_are_not_visited() -> None:
    patterns = PatternSet()
    visited = []

    @patterns.pattern("scf.for")
    def unwrap(op: Any, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.relu(op.operands[3]))

    @patterns.pattern(mir.SiluOp)
    def visit(op: mir.SiluOp, rewriter: Rewriter) -> None:
        visited.append(str(op))

    text = """
    func.func @f(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
      %y = scf.for %i = %n to %n step %n iter_args(%a = %x) -> (tensor<4xf32>) {
        %b = mir.silu %a : tensor<4xf32>
        scf.yield %b : tensor<4xf32>
      }
      return %y : tensor<4xf32>
    }
    """
    module, _ = apply(patterns, text)
    assert names_of(module) == ["mir.relu"]
    assert not visited


def test_the_matched_operation_stays_the_place_for_new_ones_after_it_is_replaced() -> None:
    patterns = PatternSet()

    @patterns.pattern(mir.SiluOp)
    def late(op: mir.SiluOp, rewriter: Rewriter) -> None:
        x = op.x
        rewriter.replace(op, mir.relu(x))
        mir.tanh(x)

    module, _ = apply(patterns)
    assert names_of(module) == ["mir.relu", "mir.tanh", "mir.exp"]
    with module.context:
        assert erase_dead(module) == 1
    assert names_of(module) == ["mir.relu", "mir.exp"]


def rewriting(action: Callable[[mir.SiluOp, Rewriter], None]) -> None:
    """Runs the action as a pattern on the first operation of the chain."""
    patterns = PatternSet()
    patterns.pattern(mir.SiluOp)(action)
    apply(patterns)


def test_erasing_what_is_used_raises() -> None:
    """MLIR aborts the process."""
    with pytest.raises(RewriteError, match=r"'mir\.silu' still has uses and can't be erased"):
        rewriting(lambda op, rewriter: rewriter.erase(op))


@pytest.mark.parametrize("handle", [lambda op: op, lambda op: op.operation], ids=["view", "operation"])
def test_a_pass_that_erases_what_is_used_fails(register: Register, handle: Callable[[Any], Any]) -> None:
    """Without a rewriter: MLIR aborts the process. The module is as it was."""

    def careless(function: Any) -> None:
        handle(next(op for op in operations(function) if op.name == "mir.silu").opview).erase()

    name = register(careless)
    with ir.new_context():
        module = ir.Module.parse(CHAIN)
        before = str(module)
        with pytest.raises(PassError) as caught:
            run_pipeline(module, f"func.func({name})")
        assert str(module) == before
    assert caught.value.pass_name == name
    assert re.search(
        r"""'mir\.silu' at loc\("first"\("model\.py":7:3\)\) still has uses and can't be erased: 'mir\.exp' at """
        r"""loc\("second"\("model\.py":8:3\)\) reads its result""",
        str(caught.value),
    )


def test_erasing_an_argument_that_is_used_raises() -> None:
    with ir.new_context():
        module = ir.Module.parse(CHAIN)
        block = module.body.operations[0].regions[0].blocks[0]
        message = "argument 0 of a block of 'func.func' still has uses and can't be erased: 'mir.silu' at"
        with pytest.raises(CompileError, match=message):
            block.erase_argument(0)
        for op in reversed(list(operations(module.body.operations[0]))):
            op.erase()  # from the last one on, nothing is used
        block.erase_argument(0)
        assert len(block.arguments) == 0


def test_erasing_twice_raises() -> None:
    def twice(op: mir.SiluOp, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.relu(op.x))
        rewriter.erase(op)

    with pytest.raises(RewriteError, match=r"pattern 'twice': 'mir\.silu' is erased already"):
        rewriting(twice)


def test_a_handle_of_an_erased_operation_raises() -> None:
    def stale(op: mir.SiluOp, rewriter: Rewriter) -> None:
        other = mir.relu(op.x).owner
        rewriter.erase(other)
        rewriter.erase(other)

    with pytest.raises(RewriteError, match=r"pattern 'stale': .*invalidated"):
        rewriting(stale)


def test_replacing_by_another_number_of_values_raises() -> None:
    with pytest.raises(RewriteError, match=r"'mir\.silu' has 1 results, but 2 values replace them"):
        rewriting(lambda op, rewriter: rewriter.replace(op, op.x, op.x))


def test_replacing_by_another_type_is_found_by_the_verifier(register: Register) -> None:
    patterns = PatternSet()

    @patterns.pattern(mir.SiluOp)
    def wider(op: mir.SiluOp, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.concat([op.x, op.x], axis=0))

    name = register(lambda function: apply_patterns(function, patterns) and None)
    with pytest.raises(PassError, match=r"'mir\.exp' op failed to verify"):
        run_pipeline(parse(), f"func.func({name})")


def test_a_pattern_that_fails_to_build_an_operation_says_why() -> None:
    def build(op: mir.SiluOp, rewriter: Rewriter) -> None:
        rewriter.replace(op, mir.narrow(op.x, axis=0, start=3, length=4))

    with pytest.raises(RewriteError, match=r"(?s)pattern 'build': .*'mir\.narrow' op expects a range"):
        rewriting(build)


def test_tags_select_patterns() -> None:
    patterns = PatternSet()
    patterns.pattern(mir.SiluOp)(lambda op, rewriter: None)
    patterns.pattern(mir.SiluOp, "a")(lambda op, rewriter: None)
    patterns.pattern(mir.SiluOp, "b", "c")(lambda op, rewriter: None)
    assert [len(patterns.select(*tags)) for tags in ((), ("a",), ("c",), ("a", "b"))] == [1, 2, 2, 3]
    assert len(list(patterns)) == 3


# Options ------------------------------------------------------------------------------------------

OPTIONS = {
    "on": Option("a switch", False),
    "number": Option("a number", 3, least=-7, most=64),
    "count": Option("a number", 0, least=0),
    "word": Option("a word", "red", ("red", "green")),
    "any-text": Option("a text", ""),
}


def options_of(register: Register, pipeline_options: str) -> dict[str, Any]:
    """What a pass gets for the options of a pipeline."""
    given: list[dict[str, Any]] = []
    name = register(lambda function, **options: given.append(options), options=OPTIONS)
    run_pipeline(parse(), f"func.func({name}{pipeline_options})")
    return given[0]


def test_options_have_defaults(register: Register) -> None:
    expected = {"on": False, "number": 3, "count": 0, "word": "red", "any_text": ""}
    assert options_of(register, "") == expected


def test_options_are_read_by_their_types(register: Register) -> None:
    given = options_of(register, "{on=true number=-7 count=1000 word=green any-text=x:1,y:2}")
    assert given == {"on": True, "number": -7, "count": 1000, "word": "green", "any_text": "x:1,y:2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("on=yes", "option 'on' expects true or false, but got 'yes'"),
        ("number=many", "option 'number' expects an integer from -7 to 64, but got 'many'"),
        ("number=-8", "option 'number' expects an integer from -7 to 64, but got '-8'"),
        ("number=65", "option 'number' expects an integer from -7 to 64, but got '65'"),
        ("count=-1", "option 'count' expects an integer of at least 0, but got '-1'"),
        ("word=blue", "option 'word' expects one of red, green, but got 'blue'"),
    ],
)
def test_an_option_that_cannot_be_read_is_named_with_its_value(register: Register, text: str, message: str) -> None:
    with pytest.raises(PassError, match=re.escape(message)) as caught:
        options_of(register, f"{{{text}}}")
    assert "Traceback" not in str(caught.value)  # The user's mistake, not ours.
    assert isinstance(caught.value.__cause__, InputError)


def test_an_unknown_option_is_an_error(register: Register) -> None:
    with pytest.raises(PassError, match=r"(?s)no such option onn.*test-rewriting"):
        options_of(register, "{onn=true}")


def test_help_lists_passes_options_and_pipelines() -> None:
    text = rlx_opt("--help").stdout
    for name, registered in registry.PASSES.items():
        if not name.startswith("test-"):
            assert re.search(rf"--{name} +-", text), name
            for option in registered.options:
                assert re.search(rf"--{option}=<string>", text), (name, option)
    for name in registry.PIPELINES:
        assert re.search(rf"--{name} +-", text), name


def test_a_pass_has_a_description_and_a_name_of_its_own(register: Register) -> None:
    def undocumented(function: ir.Operation) -> None: ...

    with pytest.raises(ValueError, match="pass 'test-undocumented' has no docstring"):
        compiler_pass("test-undocumented")(undocumented)
    name = register(lambda function: None)
    undocumented.__doc__ = "Documented."
    with pytest.raises(ValueError, match=f"pass '{name}' is registered already"):
        compiler_pass(name)(undocumented)


def test_every_step_of_a_pipeline_says_why_it_stands_there() -> None:
    for pipeline in registry.PIPELINES.values():
        assert all(reason for _, reason in pipeline.steps), pipeline.name


# Logs and reproducers -----------------------------------------------------------------------------


def test_the_log_has_the_passes_that_changed_something() -> None:
    log = run_pipeline(parse(), "func.func(canonicalize),mir-outline-kernels,cse", print_changed=True)
    assert re.findall(r"IR Dump After ([\w-]+)", log) == ["mir-outline-kernels"]
    assert "call @silu_exp_0" in log


def test_printing_leaves_threads_on() -> None:
    module = parse()
    run_pipeline(module, "canonicalize", print_changed=True)
    assert run_pipeline(module, "canonicalize") == ""


def test_the_log_has_the_time_of_each_pass(register: Register) -> None:
    name = register(lambda function: None)
    log = run_pipeline(parse(), f"func.func({name}),cse", timing=True)
    assert "Total Execution Time" in log
    assert re.search(rf"\d\.\d+ .*{name}", log)
    assert re.search(r"\d\.\d+ .*CSE", log)


def test_a_failed_pipeline_writes_a_file_that_reproduces_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_REPRODUCER_DIR", str(tmp_path / "new" / "folder"))
    text = """
    func.func @f(%w: tensor<16x8xf32>) -> tensor<1x512xi8, #mir.packed<f32, k = 8, n = 16, layout = panels>> {
      %0 = mir.repack %w : tensor<16x8xf32> loc("block"("model.py":9:1))
      return %0 : tensor<1x512xi8, #mir.packed<f32, k = 8, n = 16, layout = panels>>
    }
    """
    with pytest.raises(PassError, match=r"found 1 mir\.repack") as caught:
        run_pipeline(parse(text), "cse,func.func(mir-to-linalg)")
    path = caught.value.reproducer
    assert path is not None
    assert str(tmp_path) in path
    assert f"reproducer: {path}" in str(caught.value)
    first = Path(path).read_text().splitlines()[0]
    command = re.fullmatch(r"// rlx-opt %s (--pass-pipeline)='(.*)'", first)
    assert command is not None
    assert command[2] == "builtin.module(cse,func.func(mir-to-linalg))"
    result = rlx_opt(path, f"{command[1]}={command[2]}")
    assert result.returncode == 1
    assert "pass 'mir-to-linalg': expects no MIR operation to be left" in result.stderr
    assert re.search(r'loc\("block"\(', Path(path).read_text())


def test_a_pipeline_fails_where_no_file_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, register: Register
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLX_REPRODUCER_DIR", str(tmp_path / "file"))

    def fail(function: ir.Operation) -> None:
        raise InputError("no")

    with pytest.raises(PassError, match="no") as caught:
        run_pipeline(parse(), f"func.func({register(fail)})")
    assert caught.value.reproducer is None
