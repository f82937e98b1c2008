# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plants random small faults in kernels, patterns and plans, and says whether quick tests find them, or slow ones.

``python test/mutations.py --count 20`` changes one place of one file at a time, in a copy of the package: an operator
becomes another, a comparison includes its bound or leaves it out, a number is one more, a condition its opposite. It
runs the quick tests of that file's code up to the first that fails, and where they find nothing, the slow ones of the
same files too. What only slow tests find says that too few cases are quick; what none finds says that a test is
missing, or that the change means nothing. ``--seed`` draws other faults, ``--only TEXT`` takes sources whose path has
that text, ``--skip 50`` goes on after as many, ``--quick`` leaves out the slow tests, which take most of the time.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from planted import ROOT, Copy

PACKAGE = "python/rlx_mlir/"
#: Sources by pattern, and the files of tests that are to know them, the cheapest first; after `lit:` comes a part of
#: the names of lit's tests. What only some processors run isn't among them.
TARGETS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("codegen/cpu/attention_[bdp]*.py", ("cpu_attention",)),
    ("codegen/attention.py", ("cpu_attention", "gpu_attention")),
    ("codegen/cpu/gemm.py", ("cpu_gemm",)),
    ("codegen/cpu/gemm_[bip]*.py", ("cpu_gemm", "cpu_gemm_batched", "cpu_gemm_bytes", "infinite_operands")),
    ("codegen/cpu/norm.py", ("cpu_norm",)),
    ("codegen/cpu/rows.py", ("cpu_rows",)),
    ("codegen/cpu/conv.py", ("cpu_conv",)),
    ("codegen/cpu/panels.py", ("cpu_gemm",)),
    ("codegen/gpu/attention_*.py", ("gpu_attention",)),
    ("codegen/gpu/gemv*.py", ("gpu_gemv", "gpu_float8", "gpu_choices", "gpu_tune")),
    ("codegen/gpu/norm.py", ("gpu_norm",)),
    ("codegen/gpu/reduce.py", ("gpu_reduce",)),
    ("codegen/gpu/recurrence*.py", ("gpu_sequence",)),
    ("codegen/gpu/top_k.py", ("gpu_top_k",)),
    ("lowering/fuse*.py", ("lit:fuse", "roundings", "compile_ops", "compile_block")),
    ("lowering/hir_to_mir.py", ("lit:hir-to-mir", "llama", "families", "mtp_head", "compile_block")),
    ("lowering/plan.py", ("dynamic_sizes", "donation", "compile_ops")),
    ("lowering/outline.py", ("lit:outline", "split_kernels", "donation", "compile_ops")),
    ("mir/[a-z]*.py", ("mir_reference", "mir_linalg", "float8", "compile_ops")),
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
_COMPARE = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
#: Seconds for tests; a change after which they don't end is found.
SECONDS = 900.0


@dataclass(frozen=True)
class Mutation:
    """A change of the text between two offsets of a file.

    Attributes:
        file: of the project.
        line: where it stands, for people.
        begin: the first character that changes.
        end: the first one after these.
        text: what takes their place.
        tests: files of tests, without `test_` and `.py`, or `lit:` and a part of names.
    """

    file: str
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
        found.append(Mutation(file, line, begin, end, text, tests))

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
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                between(left, right, _COMPARE[type(op)])
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                change(node.lineno, *span(node), str(value + 1))
            case ast.IfExp(test=test) | ast.If(test=test):
                begin, end = span(test)
                change(test.lineno, begin, end, f"not ({source[begin:end]})")
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


def checks(tests: Sequence[str], *, quick: bool) -> Iterator[tuple[str, str]]:
    """What to run for such tests, one after the other, and what a failure of each says."""
    for name in tests:
        if name.startswith("lit:"):
            yield f"lit --filter {name.partition(':')[2]}", "found"
    names = [name for name in tests if not name.startswith("lit:")]
    found = [next(ROOT.glob(f"test/python/*/test_{name}.py")) for name in names]
    files = " ".join(path.relative_to(ROOT).as_posix() for path in found)
    yield f"pytest -m 'not slow and not network' {files}", "found"
    if not quick:
        yield f"pytest -m 'slow and not network' {files}", "by slow tests"


def run(mutations: Sequence[Mutation], copy: Copy, *, quick: bool) -> Iterator[tuple[Mutation, str, float]]:
    """What became of each change: found, by slow tests, which `quick` leaves out, or not found."""
    for mutation in mutations:
        source = (ROOT / mutation.file).read_text(encoding="utf-8")
        copy.write({mutation.file: mutation.apply(source)})
        begin, status = time.monotonic(), "not found"
        for check, word in checks(mutation.tests, quick=quick):
            code, _ = copy.run(check, SECONDS)
            if code not in (0, 5):  # 5: there are none
                status = word
                break
        yield mutation, status, time.monotonic() - begin
        copy.write({mutation.file: source})


def main() -> int:
    """The exit status: 1 where only slow tests find something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="faults")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--only", default="", metavar="TEXT", help="of sources whose path has this")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="not the first N of them")
    parser.add_argument("--quick", action="store_true", help="run quick tests alone")
    parser.add_argument("--list", action="store_true", help="show the faults")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    mutations = drawn(options.seed, options.count, options.only)[options.skip :]
    totals: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="rlx-mutations-") as name:
        results = (
            ((one, "", 0.0) for one in mutations)
            if options.list
            else run(mutations, Copy(Path(name)), quick=options.quick)
        )
        for mutation, status, seconds in results:
            totals[status] += 1
            source = (ROOT / mutation.file).read_text(encoding="utf-8")
            before = source[mutation.begin : mutation.end]
            if options.json:
                print(
                    json.dumps({**asdict(mutation), "before": before, "status": status, "seconds": seconds}), flush=True
                )
                continue
            place = f"{mutation.file.removeprefix(PACKAGE)}:{mutation.line}"
            print(f"{status:13} {seconds:6.1f} s  {place}: {before} -> {mutation.text}", flush=True)
    if not options.list and not options.json:
        print(", ".join(f"{count} {status}" for status, count in totals.most_common()))
    return 1 if totals["by slow tests"] else 0


if __name__ == "__main__":
    sys.exit(main())
