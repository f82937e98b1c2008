# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `rlx ops` shows: every operation of MIR, and what computes it."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rlx_mlir.autodiff.table import ways
from rlx_mlir.compiler import Compilation, CompileOptions
from rlx_mlir.errors import InputError, UnsupportedError
from rlx_mlir.hir import GraphModule
from rlx_mlir.hir.decompose import FUNCTION
from rlx_mlir.mir.registry import COMPOSITIONS, PLANNED, PREPARE_ONLY, REFERENCES, TERMINATORS, TO_LINALG
from rlx_mlir.semantics.ops import operation_classes
from rlx_mlir.tools.reference_api import OPERATIONS

if TYPE_CHECKING:
    from rlx_mlir.checks import Option

_EXAMPLE = re.compile(r"^ *```mlir\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
#: For which the table names templates and schedules, wherever it is made.
_CPU: dict[str, Option] = {"triple": "x86_64-linux-gnu", "cpu": "x86-64-v3"}
_GPU: dict[str, Option] = {"target": "nvptx", "chip": "sm_80"}


@dataclass(frozen=True)
class Row:
    """What is known of an operation.

    Attributes:
        name: of the operation.
        family: the module that has its reference.
        stands_for: names in the reference API.
        computed: `kernels` of its own, `parts` that it is made of, both, or `preparation`, once for each set of
            parameters.
        reference: the numpy function that is its meaning.
        classes: of the kernels that its documented example becomes.
        cpu, gpu: templates for these kernels; `loops` where one has none.
        vjp, jvp, batching: how it is differentiated and batched, as of `autodiff.table.Ways`.
    """

    name: str
    family: str
    stands_for: tuple[str, ...]
    computed: str
    reference: str
    classes: tuple[str, ...]
    cpu: tuple[str, ...]
    gpu: tuple[str, ...]
    vjp: str
    jvp: str
    batching: str

    def to_dict(self) -> dict[str, object]:
        """The row as plain data."""
        return asdict(self)


def operation_names() -> list[str]:
    """The operations that graphs have: none that end regions or stand in plans."""
    return sorted(n for n in operation_classes() if n.startswith("mir.") and n not in TERMINATORS | PLANNED)


def matching(text: str) -> list[str]:
    """The operations that have a text in their names; InputError where none has."""
    names = [name for name in operation_names() if text in name]
    if not names:
        raise InputError(f"no operation has {text!r} in its name")
    return names


def row(name: str) -> Row:
    """What is known of an operation."""
    reference = REFERENCES[name]
    own = ways(name)
    return Row(
        name,
        reference.__module__.rpartition(".")[2],
        stands_for(name),
        computed(name),
        f"{reference.__module__}.{reference.__name__}",
        *codes(name),
        own.vjp,
        own.jvp,
        own.batching,
    )


def stands_for(name: str) -> tuple[str, ...]:
    """The operations of the reference API for which an operation stands."""
    listed = {theirs: ours.split() for family in OPERATIONS.values() for theirs, ours in family.items()}
    return tuple(theirs for theirs, ours in listed.items() if name in ours)


def computed(name: str) -> str:
    """How an operation is computed, in a word or two."""
    if name in PREPARE_ONLY:
        return "preparation"
    with_kernels, with_parts = name in {pattern.root for pattern in TO_LINALG}, name in {FUNCTION, *COMPOSITIONS}
    return " or ".join([*["kernels"] * with_kernels, *["parts"] * with_parts]) or "registered"


def example(name: str) -> str:
    """The documented example of an operation; '' where there is none."""
    found = _EXAMPLE.findall(operation_classes()[name].__doc__ or "")
    return str(found[0]) if found else ""


def codes(name: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Classes, templates for CPUs and schedules for GPUs of the kernels that an operation's example becomes."""
    text = example(name)  # Python that drops docstrings has none
    if computed(name) not in ("kernels", "parts", "kernels or parts") or not text:
        return (), (), ()
    module = GraphModule.from_text(text, stage="mir")
    found: list[tuple[str, ...]] = []
    for target in (_CPU, _GPU):
        try:
            compilation = Compilation(module, CompileOptions(**target))
            compilation.run(until="cpu" if target is _CPU else "gpu")
        except UnsupportedError:
            found.append(("refused",))
            continue
        if target is _CPU:
            found.append(tuple(dict.fromkeys(compilation.kinds.values())))
        words = (text.partition(":")[0] for text in compilation.templates.values())
        found.append(tuple(dict.fromkeys("loops" if word == "generic" else word for word in words)))
    classes, cpu, gpu = found
    return classes, cpu, gpu


#: Columns of the table that people read.
HEAD = ("operation", "family", "stands for", "computed by", "kernels", "CPU", "GPU", "vjp", "jvp", "batching")


def cells(row: Row) -> tuple[str, ...]:
    """A row as the columns of the table."""
    return (
        row.name.removeprefix("mir."),
        row.family,
        ", ".join(row.stands_for),
        row.computed,
        " ".join(row.classes),
        " ".join(row.cpu),
        " ".join(row.gpu),
        row.vjp,
        row.jvp,
        row.batching,
    )
