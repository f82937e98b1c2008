# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The public API of Python, as signatures and docstrings have it: docs/api.md."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

import rlx_mlir as rlx

INTRODUCTION = """# The API of Python

Written by docs/generate.py from docstrings: change those, then run it.

Every public name of `import rlx_mlir as rlx`. Sizes in shapes are numbers or symbols; `[..., K]` stands for any
dimensions before the last. Builders of one operation also take `name=` (of the block that the operation belongs to,
inside of the current scope) and `shape=` (what the caller believes the first result's shape to be), written `**options`
here. Commands are in the [README](../README.md), and operations of the IR in [hir.md](hir.md) and [mir.md](mir.md).
"""

#: Every public name, by what it is for, in the order of the page; "module" has those of a submodule.
GROUPS: dict[str, tuple[str, ...]] = {
    "Graphs": ("GraphModule", "Value"),
    "Compiling and looking inside": ("compile", "CompileOptions", "emit", "inspect", "draw", "interpret", "tune"),
    "Running": ("Executable", "CudaExecutable", "DeviceArray", "as_dlpack"),
    "Files": ("Artifact", "load", "save_shared"),
    "Models": (
        *("load_model", "Model", "Session", "Engine", "Request", "bundle"),
        *("load_encoder", "Encoder"),
    ),
    "Front ends, and other compilers": (
        *("from_torch", "from_onnx", "from_jax", "from_stablehlo", "to_stablehlo", "check_against"),
    ),
    "Derivatives and batches": (
        *("grad", "grad_with_loss", "value_and_grad", "vjp", "jvp", "hvp", "jacfwd", "jacrev", "hessian", "vmap"),
    ),
    "Training": ("Trainer", "training", "optim"),
    "Operations and kernels of your own": (
        *("register_op", "unregister_op", "TensorSpec", "register_generator", "unregister_generator"),
    ),
    "Limits": ("budget", "Budgets"),
    "Errors": ("errors",),
}

#: Classes of what public functions give, which aren't made by callers: by the module that has them.
GIVEN = {
    "rlx_mlir.hir.edit": ("Node",),
    "rlx_mlir.reports.fusion": ("FusionReport",),
    "rlx_mlir.reports.ranges": ("RangeReport",),
    "rlx_mlir.reports.memory": ("MemoryEstimate",),
    "rlx_mlir.reports.drawing": ("Drawing",),
    "rlx_mlir.runtime.artifact": ("BufferSpec",),
    "rlx_mlir.runtime.dispatch": ("DispatchReport",),
    "rlx_mlir.runtime.executable": ("BoundCall",),
    "rlx_mlir.models.generation": ("Generation", "Stats"),
    "rlx_mlir.pytorch.program": ("TorchProgram", "TorchExecutable"),
    "rlx_mlir.frontends.onnx.model": ("OnnxModel",),
    "rlx_mlir.frontends.stablehlo.model": ("StablehloModel",),
    "rlx_mlir.frontends.stablehlo.functions": ("JaxProgram",),
    "rlx_mlir.against.comparison": ("Verdict",),
    "rlx_mlir.runtime.memory": ("MemoryReport",),
    "rlx_mlir.models.choosing": ("TokenLogprob",),
    "rlx_mlir.models.bundling": ("BundleReport",),
    "rlx_mlir.measure.tune": ("ProgramTuning",),
    "rlx_mlir.optim.steps": ("TrainStep",),
}

#: What the parts of `GraphModule` hold, by the module that defines them, in the order of the page.
PARTS = {
    "module": "Making modules, stages and text",
    "graph": "Arguments and outputs",
    "edit": "Reading and editing",
    "segments": "Operations by name, and parts of graphs",
    "blocks": "Blocks",
    "primitives": "Functions of elements, products, norms and attention",
    "elementwise": "Functions of elements, by name",
    "chains": "Chains of functions of elements",
    "shapes": "Positions and shapes",
    "algebra": "Contractions, systems of equations, experts, losses",
    "control": "Choices and loops",
    "scans": "Loops over sequences by the names of their uses",
    "custom": "Operations of your own",
    "images": "Images",
    "spectra": "Fourier transforms",
    "complexes": "Complex numbers",
    "quantization": "Tensors of 8 bits",
    "draws": "Random numbers",
    "backward": "Gradients",
    "splats": "Gaussian splats",
}

_LONGEST = 100


def api_reference() -> str:
    """The page."""
    listed = [name for names in GROUPS.values() for name in names]
    if sorted(listed) != rlx.__all__:
        wrong = sorted({*listed} ^ {*rlx.__all__}) or "a name stands twice"
        raise SystemExit(f"docs/generate.py: GROUPS of docs/api_reference.py isn't the public API: {wrong}")
    lines = [INTRODUCTION]
    for group, names in GROUPS.items():
        linked = ", ".join(f"[`{name}`](#rlx{name.lower()})" for name in names)
        lines.append(f"- {group}: {linked}")
    given = ", ".join(f"[`{name}`](#{name.lower()})" for names in GIVEN.values() for name in names)
    lines += [f"- What functions give: {given}", ""]
    for group, names in GROUPS.items():
        lines += [f"## {group}", ""]
        for name in names:
            lines += entry(f"rlx.{name}", getattr(rlx, name))
    lines += ["## What functions give", ""]
    for module, names in GIVEN.items():
        for name in names:
            lines += entry(name, getattr(importlib.import_module(module), name))
    return "\n".join(lines).rstrip() + "\n"


def entry(name: str, what: Any) -> Iterator[str]:
    """A function, a class with its members, or a submodule with its names."""
    yield from (f"### `{name}`", "")
    if inspect.ismodule(what):
        yield from (prose(inspect.getdoc(what) or ""), "")
        for own, value in module_names(what):
            yield from member(f"{name}.{own}", value)
    elif inspect.isclass(what):
        short = name.rpartition(".")[2]
        yield from described(short, what)
        for title, names in members(what):
            if title:
                yield from (f"#### {title}", "")
            for own in names:
                yield from member(f"{short}.{own}", inspect.getattr_static(what, own), "#####" if title else "####")
    else:
        yield from described(name, what)


def module_names(module: Any) -> Iterator[tuple[str, Any]]:
    """The public names of a module, in the order in which it has them."""
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if not name.startswith("_") and inspect.isclass(value)
    ]
    for name in names:
        value = getattr(module, name)
        if getattr(value, "__module__", "").startswith(rlx.__name__):
            yield name, value


def members(owner: type) -> Iterator[tuple[str, list[str]]]:
    """The public members of a class as (title, names): by the modules that define them, in the order there."""
    found: dict[str, list[tuple[int, str]]] = {}
    fields = {own.name for own in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set()
    for name in dir(owner):
        value = inspect.getattr_static(owner, name)
        function = unwrapped(value)
        if name.startswith("_") or name in fields or not inspect.isfunction(function):
            continue
        found.setdefault(function.__module__.rpartition(".")[2], []).append((function.__code__.co_firstlineno, name))
    parts = PARTS if owner is rlx.GraphModule else dict.fromkeys(sorted(found), "")
    if missing := [part for part in found if part not in parts]:
        raise SystemExit(f"docs/generate.py: PARTS of docs/api_reference.py lacks {', '.join(missing)}")
    for part, title in parts.items():
        yield title, [name for _, name in sorted(found.get(part, []))]


def unwrapped(value: Any) -> Any:
    """The function behind a method, a property or a decorator."""
    value = getattr(value, "fget", None) or getattr(value, "func", None) or value
    return inspect.unwrap(getattr(value, "__func__", value))


def member(name: str, value: Any, level: str = "####") -> Iterator[str]:
    """A method, a property, or a name of a submodule."""
    yield from (f"{level} `{name}`", "")
    yield from described(name, value)


def described(name: str, value: Any) -> Iterator[str]:
    """Signature and docstring."""
    if isinstance(value, property | functools.cached_property):
        function = unwrapped(value)
        kind = annotation(inspect.signature(function).return_annotation)
        yield from (f"A property: `{kind}`." if kind else "A property.", "")
    elif not (inspect.isclass(value) and issubclass(value, Exception)):
        yield from ("```py", signature(name, value), "```", "")
    text = inspect.getdoc(value if inspect.isclass(value) else unwrapped(value))
    if not text:
        raise SystemExit(f"docs/generate.py: '{name}' has no docstring")
    yield from (prose(text), "")


def annotation(value: object) -> str:
    """An annotation as it stands in the source; '' for none."""
    if value is inspect.Parameter.empty:
        return ""
    return value if isinstance(value, str) else getattr(value, "__name__", str(value))


def signature(name: str, value: Any) -> str:
    """`name(parameters) -> result`, in lines where one would be long."""
    is_class = inspect.isclass(value)
    own = inspect.signature(value if is_class else unwrapped(value))
    is_whole = is_class or isinstance(value, staticmethod) or name.startswith("rlx.")  # there is no `self`
    parameters = list(parameter_words(list(own.parameters.values())[0 if is_whole else 1 :]))
    result = "" if is_class else annotation(own.return_annotation)
    end = f") -> {result}" if result and result != "None" else ")"
    line = f"{name}({', '.join(parameters)}{end}"
    if len(line) <= _LONGEST:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in parameters), end])


def parameter_words(parameters: Sequence[inspect.Parameter]) -> Iterator[str]:
    """Parameters as they are written, with the marks of those that are given by name or by position alone."""
    kinds = [own.kind for own in parameters]
    for i, own in enumerate(parameters):
        if own.kind is own.KEYWORD_ONLY and (i == 0 or kinds[i - 1] is own.POSITIONAL_OR_KEYWORD):
            yield "*"
        stars = {own.VAR_POSITIONAL: "*", own.VAR_KEYWORD: "**"}.get(own.kind, "")
        kind = "" if own.kind is own.VAR_KEYWORD else annotation(own.annotation)
        typed = f"{stars}{own.name}" + (f": {kind}" if kind else "")
        if own.default is not own.empty:
            typed += f" = {shown(own.default)}" if kind else f"={shown(own.default)}"
        yield typed


def shown(default: object) -> str:
    """A default, as its `repr` has it; what a dataclass makes anew is written as dots."""
    text = repr(default)
    return "..." if text.startswith("<") else text


def prose(text: str) -> str:
    """A docstring as Markdown: entries of `Args:` and the like become lists."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if re.fullmatch(r"(Args|Attributes|Returns|Raises|Yields):", line):
            lines += [f"*{line}*", ""]
            inside = True
        elif not line or (inside and not line.startswith(" ")):
            inside = inside and not line
            lines.append(line)
        elif inside and (entry := re.match(r"    (\*{0,2}\w[\w, *]*): (.*)", line)):
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        elif inside:
            lines.append(line[4:] if lines[-1] == "" or not lines[-1].startswith(("- ", "  ")) else f"  {line.strip()}")
        else:
            lines.append(line)
    return re.sub(r"(?<![`\w<])complex<f32>", "`complex<f32>`", "\n".join(lines).replace("``", "`").rstrip())
