# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What builders need of the graph that they append operations to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from rlx_mlir import ir
from rlx_mlir.hir.checked import keywords_known
from rlx_mlir.hir.types import DTypeLike, ShapeLike
from rlx_mlir.hir.values import Value


class Emitting:
    """A graph, or a view of one, that appends operations; `Graph._emit` says how."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        keywords_known(cls)

    @property
    @abstractmethod
    def _context(self) -> ir.Context: ...

    @abstractmethod
    def constant(self, value: object, dtype: DTypeLike | None = None, *, name: str | None = None) -> Value: ...

    @abstractmethod
    def _emit(
        self,
        op: str,
        operands: Mapping[str, object],
        attributes: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        shape: ShapeLike | None = None,
        result: ir.Type | list[ir.Type] | None = None,
        regions: Sequence[ir.Block | None] = (),
    ) -> tuple[Value, ...]: ...
