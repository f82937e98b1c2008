# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derivatives of whole modules: each transformation gives a new module, to print, to transform again, to compile.

What is differentiated are the inputs and parameters of some names, `wrt`: by default the parameters of floats, or the
inputs where the module has no such parameter. New arguments and outputs are named after what they belong to, with `d_`
for cotangents and gradients, `t_` for tangents; the prefix stands twice where the name is taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from rlx_mlir import checks, ir
from rlx_mlir.autodiff.differentiate import differentiate
from rlx_mlir.autodiff.work import chosen, copy_of
from rlx_mlir.errors import GradientWarning
from rlx_mlir.hir import GraphModule, place

Names = Sequence[str] | str | None


def _changed(module: GraphModule, mode: str, wrt: Names, recompute: Names = ()) -> GraphModule:
    """A copy of a module that computes derivatives."""
    here = place.caller()

    def unreached(location: ir.Location, text: str) -> None:
        warnings.warn_explicit(text, GradientWarning, here.file, here.line)

    copy = copy_of(module)
    with place.checking():
        several = () if recompute is None else recompute
        patterns = [several] if isinstance(several, str) else checks.names("recompute", several)
        return differentiate(copy.ir_module, mode, wrt, unreached, patterns)


def vjp(module: GraphModule, wrt: Names = None, *, recompute: Names = ()) -> GraphModule:
    """Reverse mode: the outputs of a module, and the product of cotangents with its matrix of derivatives.

    The new module has further inputs `d_<output>` like the outputs of floats, and further outputs `d_<name>`: the sum
    over all outputs y of d_y dy/d<name>. Gradients by complex numbers x + i y are dL/dx + i dL/dy.

    Args:
        module: at stage hir or mir; it isn't changed.
        wrt: names of inputs and parameters.
        recompute: names of blocks, as scopes gave them, with `*` for any text: what they compute isn't kept for the
            gradients, but computed again from what they read. "layer*" is each layer by itself.

    A gradient that no output depends on is zeros, with a GradientWarning. Raises BuildError where a name isn't an
    argument of floats, no block has a name that is wanted, or an operation on the way has no rule, which it names with
    the line that built it; StageError where the module is past stage mir.
    """
    return _changed(module, "vjp", wrt, recompute)


def value_and_grad(module: GraphModule, wrt: Names = None, *, recompute: Names = ()) -> GraphModule:
    """The outputs of a module, of which the first is a loss, and the gradient of that by arguments.

    Args:
        module: its first output is one element of floats; others are given out as they are.
        wrt, recompute: as of `vjp`.

    The new module has the outputs of the old one, then `d_<name>` for each of `wrt`. Raises as `vjp` does, and
    BuildError where the first output isn't one element of floats.
    """
    return _changed(module, "value_and_grad", wrt, recompute)


def grad_with_loss(module: GraphModule, wrt: Names = None, *, recompute: Names = ()) -> GraphModule:
    """Another name of `value_and_grad`."""
    return value_and_grad(module, wrt, recompute=recompute)


def grad(module: GraphModule, wrt: Names = None, *, recompute: Names = ()) -> GraphModule:
    """The gradient of a module's only output, one element of floats, by arguments: an output `d_<name>` for each.

    Args:
        module, wrt, recompute: as of `vjp`.

    Raises as `value_and_grad` does, and BuildError where the module has several outputs.
    """
    return _changed(module, "grad", wrt, recompute)


def jvp(module: GraphModule, wrt: Names = None) -> GraphModule:
    """Forward mode: the outputs of a module, and how they change along a direction.

    The new module has further inputs `t_<name>` like the arguments of `wrt`, and further outputs `t_<output>` for those
    of floats: the sum over all names of d<output>/d<name> t_<name>.

    Args:
        module, wrt: as of `vjp`.

    Raises as `vjp` does.
    """
    return _changed(module, "jvp", wrt)


def hvp(module: GraphModule, wrt: Names = None) -> GraphModule:
    """The product of a loss's matrix of second derivatives with a vector: forward mode of the gradient.

    The new module has further inputs `t_<name>`, the vector, and the outputs `h_<name>`.

    Args:
        module, wrt: as of `grad`.

    Raises as `grad` does.
    """
    copy = copy_of(module)
    with place.checking():
        names = chosen(copy.ir_module, wrt)
    both = jvp(grad(copy, names), names)
    products = list(both.outputs.values())[len(names) :]
    both.set_outputs({f"h_{name}": value for name, value in zip(names, products, strict=True)})
    both.erase_dead()
    return both
