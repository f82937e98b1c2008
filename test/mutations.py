# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plants random small faults in kernels, patterns and plans, and says whether quick tests find them, or slow ones.

``python test/mutations.py --count 20`` changes one place of one file at a time, in a copy of the package: an operator
becomes another, or its operands change places, a comparison includes its bound or leaves it out, a number is one more
(one with a fraction twice as large), a condition is its opposite, and a guard, which returns, raises or goes on, is
dropped. It runs the quick tests of that file's code up to the first that fails, and where they find nothing, the wide
ones of the same files, and then the slow ones. What only these find says that too few cases are quick; what none finds
says that a test is missing, or that the change means nothing. ``--seed`` draws other faults, ``--only TEXT`` takes
sources whose path has that text, ``--skip 50`` goes on after as many, ``--to quick`` leaves out wide and slow tests,
which take most of the time, ``--to wide`` the slow ones.

``--results FILE`` appends a line of JSON for each fault, and takes from there what became of faults before, so that a
run may end at any time, after ``--minutes`` say, and go on later: faults that quick tests didn't find are left to the
others then.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import random
import re
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from planted import ROOT, Copy
from run import QUICK, WIDE

PACKAGE = "python/rlx_mlir/"
#: Sources by pattern, and the files of tests that are to know them, the cheapest first; after `lit:` comes a part of
#: the names of lit's tests. What only some processors run isn't among them.
TARGETS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("codegen/cpu/attention_[bdp]*.py", ("cpu_attention",)),
    ("codegen/attention.py", ("cpu_attention", "gpu_attention")),
    ("codegen/cpu/gemm.py", ("cpu_gemm", "cpu_gemm_rows")),
    ("codegen/cpu/gemm_[bip]*.py", ("cpu_gemm", "cpu_gemm_batched", "cpu_gemm_bytes", "infinite_operands")),
    ("codegen/cpu/norm.py", ("cpu_norm",)),
    ("codegen/cpu/rows.py", ("cpu_rows",)),
    ("codegen/cpu/conv.py", ("cpu_conv",)),
    ("codegen/cpu/panels.py", ("cpu_gemm",)),
    ("codegen/cpu/conv2d*.py", ("cpu_conv2d", "cpu_conv2d_channels", "cpu_conv2d_panels", "cpu_conv2d_winograd")),
    ("codegen/cpu/pool.py", ("cpu_pool",)),
    ("codegen/cpu/fft.py", ("cpu_fft",)),
    ("codegen/cpu/gather.py", ("cpu_gather",)),
    ("codegen/cpu/copies.py", ("cpu_copies",)),
    ("codegen/moves.py", ("cpu_copies", "gpu_moves")),
    ("codegen/cpu/top_k.py", ("cpu_top_k",)),
    ("codegen/gpu/attention_*.py", ("gpu_attention",)),
    ("codegen/gpu/gemv*.py", ("gpu_gemv", "gpu_float8", "gpu_choices", "gpu_tune")),
    ("codegen/gpu/norm.py", ("gpu_norm",)),
    ("codegen/gpu/reduce.py", ("gpu_reduce",)),
    ("codegen/gpu/recurrence*.py", ("gpu_sequence",)),
    ("codegen/gpu/top_k.py", ("gpu_top_k",)),
    ("codegen/gpu/gemm_[fmq]*.py", ("gpu_gemm", "gpu_gemm_fma", "gpu_gemm_mma", "gpu_gemm_quant", "gpu_float8")),
    ("codegen/gpu/gather.py", ("gpu_gather",)),
    ("codegen/gpu/pointwise.py", ("gpu_pointwise", "gpu_broadcast")),
    ("codegen/gpu/transpose.py", ("gpu_moves",)),
    ("codegen/gpu/conv2d.py", ("gpu_conv2d",)),
    ("rewriting/*.py", ("lit:remarks", "rewriting", "own_passes")),
    ("lowering/raising/*.py", ("lit:raise-blocks", "raise_blocks")),
    ("lowering/fold_constants.py", ("lit:fold-constants", "fold_constants")),
    ("lowering/split.py", ("lit:split-kernels", "split_kernels")),
    ("lowering/bind_dims.py", ("lit:bind-dims", "bind_dims")),
    ("lowering/parameters.py", ("lit:hoist-params", "lit:pack-weights", "prepare", "compile_ops")),
    ("lowering/quantization.py", ("lit:quant", "lit:qdq", "quantize")),
    ("lowering/fuse*.py", ("lit:fuse", "roundings", "compile_ops", "compile_block")),
    ("lowering/hir_to_mir.py", ("lit:hir-to-mir", "verify_numeric", "llama", "families", "mtp_head", "compile_block")),
    ("lowering/plan.py", ("dynamic_sizes", "resume", "donation", "compile_ops")),
    ("lowering/lir.py", ("lit:lir-plan", "control_kernels", "donation", "compile_ops")),
    ("lowering/plan_[rt]*.py", ("lit:lir-plan", "control_kernels", "dynamic_sizes")),
    ("lowering/donation.py", ("lit:lir-plan-ties", "recurrence", "donation")),
    ("lowering/outline.py", ("lit:outline", "prepare", "split_kernels", "donation", "compile_ops")),
    ("mir/[a-z]*.py", ("mir_reference", "mir_linalg", "float8", "splats", "compile_ops")),
)
_BINARY = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.LShift: ">>",
    ast.BitAnd: "|",
}
#: Whose operands may change places: what that gives has a meaning, and another one.
_ORDERED = (ast.Sub, ast.FloorDiv, ast.Mod)
_BOOLEAN = {ast.And: "or", ast.Or: "and"}
_COMPARE = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
#: Levels of tests, each of which is asked where those before find nothing: what pytest selects, what becomes of a
#: change that its tests find, and of one that they don't, where no further ones are asked.
LEVELS = {
    "quick": (QUICK, "found", "not by quick"),
    "wide": (f"wide and {WIDE}", "by wide tests", "not by wide"),
    "slow": ("slow and not network", "by slow tests", "not found"),
}
#: Seconds for tests; a change after which they don't end is found.
SECONDS = 900.0


@dataclass(frozen=True)
class Mutation:
    """A change of the text between two offsets of a file.

    Attributes:
        file: of the project.
        digest: of the source, so that offsets mean the same.
        line: where it stands, for people.
        begin: the first character that changes.
        end: the first one after these.
        text: what takes their place.
        tests: files of tests, without `test_` and `.py`, or `lit:` and a part of names.
    """

    file: str
    digest: int
    line: int
    begin: int
    end: int
    text: str
    tests: tuple[str, ...]

    def apply(self, source: str) -> str:
        """The source with the change."""
        return source[: self.begin] + self.text + source[self.end :]


def mutations_of(file: str, source: str, tests: tuple[str, ...]) -> list[Mutation]:
    """Every change of a file that this script knows, in functions alone."""
    digest = zlib.crc32(source.encode())
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def offset(line: int, column: int) -> int:
        begin = starts[line - 1]
        return begin + len(source[begin : starts[line]].encode()[:column].decode())

    def span(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)

    found = []

    def change(line: int, begin: int, end: int, text: str) -> None:
        found.append(Mutation(file, digest, line, begin, end, text, tests))

    def between(left: ast.expr, right: ast.expr, word: str) -> None:
        """The operator between two operands; brackets stay."""
        begin, end = span(left)[1], span(right)[0]
        own = source[begin:end].strip(" \n()")
        if own and "#" not in own:
            at = source.index(own, begin)
            change(left.lineno, at, at + len(own), word)

    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for node in {inner: None for function in functions for part in function.body for inner in ast.walk(part)}:
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                if not isinstance(left, ast.Constant | ast.JoinedStr) or isinstance(getattr(left, "value", 0), int):
                    between(left, right, _BINARY[type(op)])
                    if isinstance(op, _ORDERED):
                        (first, middle), (last, end) = span(left), span(right)
                        change(left.lineno, first, end, source[last:end] + source[middle:last] + source[first:middle])
            case ast.BoolOp(op=op, values=[left, right]):
                between(left, right, _BOOLEAN[type(op)])
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                between(left, right, _COMPARE[type(op)])
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                change(node.lineno, *span(node), str(value + 1))
            case ast.Constant(value=float() as value):
                change(node.lineno, *span(node), repr(2 * value or 1.0))
            case ast.IfExp(test=test) | ast.If(test=test):
                begin, end = span(test)
                change(test.lineno, begin, end, f"not ({source[begin:end]})")
                if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue):
                    change(test.lineno, begin, end, f"False and ({source[begin:end]})")
    return found


def drawn(seed: int, count: int, only: str) -> list[Mutation]:
    """So many changes: of each pattern of sources about as many, of a file as its places are."""
    rng = random.Random(seed)
    pools = []
    for pattern, tests in TARGETS:
        files = sorted(path for path in (ROOT / PACKAGE).glob(pattern) if only in str(path))
        sources = [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in files]
        if pool := [mutation for file, source in sources for mutation in mutations_of(file, source, tests)]:
            pools.append(pool)
    if not pools:
        raise SystemExit(f"no source has '{only}' in its path")
    rng.shuffle(pools)
    return [rng.choice(pools[number % len(pools)]) for number in range(count)]


def checks(tests: Sequence[str], level: str) -> Iterator[str]:
    """What to run of such tests at a level, one after the other."""
    if level == "quick":
        yield from (f"lit --filter {name.partition(':')[2]}" for name in tests if name.startswith("lit:"))
    names = [name for name in tests if not name.startswith("lit:")]
    found = [next(ROOT.glob(f"test/python/*/test_{name}.py")) for name in names]
    files = " ".join(path.relative_to(ROOT).as_posix() for path in found)
    yield f"pytest -m '{LEVELS[level][0]}' {files}"


def levels_left(before: str, last: str) -> list[str]:
    """The levels that are to be asked of a change, up to the last, where such has become of it; all where it is ""."""
    names, ends = list(LEVELS), ["", *(unfound for _, _, unfound in LEVELS.values())]
    return names[ends.index(before) : names.index(last) + 1] if before in ends else []


def failing(output: str) -> str:
    """The first test of pytest's or lit's that failed; nothing where none is named, as where a process died."""
    named = re.search(r"^(?:FAILED|ERROR) (\S+?\.py\S*)|^  \S+ :: (\S+)$", output, re.MULTILINE)
    return (named[1] or named[2]) if named else ""


def result_of(mutation: Mutation, copy: Copy, levels: Sequence[str]) -> tuple[str, str]:
    """What becomes of a change, and the test that finds it; at least one level is asked."""
    source = (ROOT / mutation.file).read_text(encoding="utf-8")
    copy.write({mutation.file: mutation.apply(source)})
    try:
        for level in levels:
            for check in checks(mutation.tests, level):
                status, output = copy.run(check, SECONDS)
                if status not in (0, 5):  # 5: there are none
                    return LEVELS[level][1], failing(output)
        return LEVELS[levels[-1]][2], ""
    finally:
        copy.write({mutation.file: source})


def run(
    mutations: Iterable[Mutation], known: Mapping[Mutation, tuple[str, str]], *, last: str, seconds: float
) -> Iterator[tuple[Mutation, str, str, float]]:
    """Each change, what became of it, by which test, and the seconds that took: 0 of what is known.

    None begins after `seconds`.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rlx-mutations-") as name:
        copy = Copy(Path(name))
        for mutation in mutations:
            begin, (status, test) = time.monotonic(), known.get(mutation, ("", ""))
            levels = levels_left(status, last)
            if not levels:
                yield mutation, status, test, 0.0
            elif begin - start < seconds:
                status, test = result_of(mutation, copy, levels)
                yield mutation, status, test, time.monotonic() - begin


def read_results(path: Path) -> dict[Mutation, tuple[str, str]]:
    """What became of changes, and by which test: the last that is said of each; nothing without the file."""
    if not path.exists():
        return {}
    names = [field.name for field in fields(Mutation)]
    found = {}
    for record in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        values = {name: record[name] for name in names}
        found[Mutation(**{**values, "tests": tuple(values["tests"])})] = record["status"], record["test"]
    return found


def main() -> int:
    """The exit status: 1 where only tests that don't run by default find something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="faults")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--only", default="", metavar="TEXT", help="of sources whose path has this")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="not the first N of them")
    parser.add_argument("--to", choices=LEVELS, default="slow", help="the last tests to ask")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no fault after so many")
    parser.add_argument("--results", type=Path, metavar="FILE", help="of JSON lines; go on after what it has")
    parser.add_argument("--list", action="store_true", help="show the faults")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    mutations = drawn(options.seed, options.count, options.only)[options.skip :]
    known = read_results(options.results) if options.results else {}
    if options.list:
        results: Iterable[tuple[Mutation, str, str, float]] = (
            (one, *known.get(one, ("", "")), 0.0) for one in mutations
        )
    else:
        results = run(mutations, known, last=options.to, seconds=60 * options.minutes)
    totals: Counter[str] = Counter()
    for mutation, status, test, seconds in results:
        totals[status] += 1
        before = (ROOT / mutation.file).read_text(encoding="utf-8")[mutation.begin : mutation.end]
        said = {"before": before, "status": status, "test": test, "seconds": round(seconds, 1)}
        record = json.dumps({**asdict(mutation), **said})
        if options.results and known.get(mutation, ("",))[0] != status:
            with options.results.open("a", encoding="utf-8") as file:
                file.write(record + "\n")
        place = f"{mutation.file.removeprefix(PACKAGE)}:{mutation.line}"
        shown = f"{status:13} {seconds:6.1f} s  {place}: {before} -> {mutation.text}"
        print(record if options.json else shown, flush=True)
    if not options.list and not options.json:
        print(", ".join(f"{count} {status}" for status, count in totals.most_common()), f"of {len(mutations)}")
    return 1 if any(totals[LEVELS[level][1]] for level in ("wide", "slow")) else 0


if __name__ == "__main__":
    sys.exit(main())
