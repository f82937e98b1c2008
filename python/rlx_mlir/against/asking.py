# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Who asks another library: of each operation of a module, or of each node of an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from rlx_mlir import checks, ir
from rlx_mlir.against.comparison import Comparison, Difference, Verdict, moved_operands, prepared
from rlx_mlir.against.rivals import Rival, rival_of
from rlx_mlir.errors import InputError, RlxError, StageError
from rlx_mlir.hir import GraphModule
from rlx_mlir.locations import describe_operation
from rlx_mlir.place import located
from rlx_mlir.verify.tolerance import operation_error


@located
def check_against(
    module: GraphModule | str | os.PathLike[str],
    rival: str = "jax",
    *,
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
    factor: float = 1.0,
) -> Verdict:
    """Compares compiled code with what another library computes, operation by operation.

    Args:
        module: at stage hir or mir; for `onnxruntime` the path of an ONNX file, of which each node is compared.
        rival: `jax`, `torch`, `iree` or `onnxruntime`; each has to be installed.
        sizes: of symbols, 8 where nothing is said.
        inputs: arrays of inputs and parameters by name; the others are random numbers, integers zeros.
        seed: of these.
        factor: so many times the error that rounding explains is allowed.

    Raises InputError for arguments that can't be, UnsupportedError where the rival isn't installed or can't be asked,
    and what `compile` and `from_onnx` raise.
    """
    if checks.real("factor", factor) <= 0:
        raise InputError(f"'factor' is above 0, but got {factor}")
    rival = checks.text("rival", rival)
    if rival == "onnxruntime" and isinstance(module, str | os.PathLike):
        from rlx_mlir.against.onnx_nodes import check_file

        return check_file(module, sizes=sizes, inputs=inputs, seed=seed, factor=factor)
    if not isinstance(module, GraphModule):
        raise InputError(f"what is compared is a GraphModule, but got {checks.shown(module)}")
    if module.stage not in ("hir", "mir"):
        raise StageError(f"a module is compared at stage hir or mir, but '{module.name}' is at stage {module.stage}")
    asked = rival_of(rival)
    lowered, values = prepared(module, sizes, inputs, seed)
    return _Operations(lowered, asked, rival, values, factor).run()


class _Operations(Comparison):
    """A comparison with who computes single operations."""

    def __init__(
        self, module: GraphModule, rival: Rival, name: str, values: Mapping[str, np.ndarray], factor: float
    ) -> None:
        super().__init__(module, name, values, factor)
        self._rival = rival

    def run(self) -> Verdict:
        """The first operation that differs, by itself or else in what is compiled as a whole."""
        known = self.known
        compared, skipped = 0, dict[tuple[str, str], int]()
        for op in self.ops:
            if op.name == "mir.constant":
                continue
            reason = self._rival.refusal(op)
            theirs: list[np.ndarray] = []
            if not reason:
                try:
                    theirs = self._rival.run(op, [known[value] for value in op.operands])
                except RlxError as error:
                    reason = str(error)
            if reason:
                skipped[op.name, reason] = skipped.get((op.name, reason), 0) + 1
                continue
            compared += 1
            found = self._differs(op, [known[value] for value in op.operands], theirs)
            if found is not None:
                return Verdict(self._name, compared, skipped, found)
        return Verdict(self._name, compared, skipped, self.whole())

    def _differs(
        self, op: ir.Operation, operands: Sequence[np.ndarray], theirs: Sequence[np.ndarray]
    ) -> Difference | None:
        """The element of an operation's results that is farthest beyond what rounding explains."""
        ours = [self.known[value] for value in op.results]
        error = operation_error(op, operands, ours)
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):

            def again(number: int = number) -> np.ndarray:
                return self._rival.run(op, moved_operands(operands))[number]

            found = self.beyond(mine, other, error, again)
            if found is not None:
                return Difference(op.name, describe_operation(op), found.got, found.want, found.index, found.allowed)
        return None


__all__ = ["check_against"]
