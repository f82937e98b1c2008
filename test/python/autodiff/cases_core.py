# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is differentiated: functions of elements, operations that move elements, reductions, entries by indices."""

from __future__ import annotations

import numpy as np
from derivatives import SINGLE, Case, apart, complexes, given, integers, normal, positive

from rlx_mlir.mir.functions import FUNCTIONS, of_arity

#: Functions that jump: a gradient goes through them as it is, or not at all.
STEPS = ("round",)
#: What operands are where others won't do.
OPERANDS = {
    "tan": {"x": normal(2, 3, scale=0.3)},
    "pow": {"x": positive(2, 3), "y": normal(2, 3)},
    "max": {"x": apart(2, 3), "y": given(np.zeros((1, 3)) + 0.1)},
    "min": {"x": apart(2, 3), "y": given(np.zeros((1, 3)) + 0.1)},
    "div": {"x": normal(2, 3), "y": positive(3)},
}
#: Of functions of one complex number: what stays away from its branch cuts.
HALF_PLANE = ("log", "sqrt", "rsqrt")


def _half_plane(b, z):
    return b.complex(b.add(b.abs(b.real(z)), 0.5), b.imag(z))


def _unary(word):
    record = FUNCTIONS[word]
    inputs = OPERANDS.get(word, {"x": positive(2, 3) if record.domain == "positive" else apart(2, 3)})
    return Case(lambda b, x: getattr(b, record.builder_name)(x), inputs, jumps=word in STEPS)


def _binary(word):
    record = FUNCTIONS[word]
    inputs = OPERANDS.get(word, {"x": normal(2, 3), "y": normal(2, 1)})
    return Case(lambda b, x, y: getattr(b, record.builder_name)(x, y), inputs)


def _of_complex(word):
    builder = FUNCTIONS[word].builder_name
    if FUNCTIONS[word].arity == 2:
        return Case(
            lambda b, x, y: getattr(b, builder)(x, _half_plane(b, y)),
            {"x": complexes(2, 2), "y": complexes(2)},
            tolerance=SINGLE,
        )
    if word in HALF_PLANE:
        return Case(lambda b, z: getattr(b, builder)(_half_plane(b, z)), {"z": complexes(2, 2)}, tolerance=SINGLE)
    return Case(lambda b, z: getattr(b, builder)(z), {"z": complexes(2, 2)}, tolerance=SINGLE)


ELEMENTWISE = {
    **{word: _unary(word) for word, own in of_arity(1, "f64").items() if own.derivatives is not None},
    **{word: _binary(word) for word, own in of_arity(2, "f64").items() if own.derivatives is not None},
    **{
        f"{word} of complex": _of_complex(word)
        for word, own in FUNCTIONS.items()
        if own.complexes and own.derivatives is not None
    },
    "add of scalars": Case(lambda b, x, y: b.add(x, y), {"x": normal(), "y": normal(2, 3)}),
    "mul of nothing": Case(lambda b, x, y: b.mul(x, y), {"x": normal(0, 3), "y": normal(3)}),
    "mul of symbols": Case(
        lambda b, x, y: b.mul(x, y), {"x": normal(2, 3).sized("n", 3), "y": normal(2, 1).sized("n", 1)}
    ),
    "mul of one operand": Case(lambda b, x: b.mul(x, x), {"x": normal(3)}),
    "where": Case(lambda b, x, y: b.where(b.gt(x, 0.1), x, y), {"x": apart(2, 3), "y": normal(3)}),
    "where of complex": Case(
        lambda b, c, x, y: b.where(c, x, y),
        {"c": given([True, False], "i1"), "x": complexes(2), "y": complexes(2)},
        tolerance=SINGLE,
    ),
    "cast": Case(lambda b, x: b.cast(b.mul(x, x), "f32"), {"x": normal(3)}, tolerance=SINGLE),
    "cast of integers": Case(lambda b, x, i: b.mul(b.cast(i, "f64"), x), {"x": normal(3), "i": integers(3, below=9)}),
    "compare": Case(lambda b, x: b.mul(x, b.cast(b.lt(x, 0.2), "f64")), {"x": apart(5)}),
    "complex": Case(
        lambda b, x, y: b.complex(x, y), {"x": normal(2, 3, dtype="f32"), "y": normal(3, dtype="f32")}, tolerance=SINGLE
    ),
    "real": Case(lambda b, z: b.real(z), {"z": complexes(3)}, tolerance=SINGLE),
    "imag": Case(lambda b, z: b.imag(z), {"z": complexes(3)}, tolerance=SINGLE),
    "conjugate": Case(lambda b, z: b.conjugate(z), {"z": complexes(3)}, tolerance=SINGLE),
    "complex_norm_sq": Case(lambda b, z: b.complex_norm_sq(z), {"z": complexes(3)}, tolerance=SINGLE),
    "complex_norm_sq_backward": Case(
        lambda b, z, g: b.complex_norm_sq_backward(z, g),
        {"z": complexes(3), "g": normal(3, dtype="f32")},
        tolerance=SINGLE,
    ),
    **{
        f"activation_backward {kind}": Case(
            lambda b, x, dy, kind=kind: b.activation_backward(kind, x, dy), {"x": apart(5), "dy": normal(5)}
        )
        for kind in ("relu", "gelu", "tanh")
    },
    "activation_backward round": Case(
        lambda b, x, dy: b.activation_backward("round", x, dy), {"x": apart(5), "dy": normal(5)}
    ),
    "elementwise_region": Case(
        lambda b, x, y: b.elementwise_region([x, y], [("add", "i0", "i1"), ("silu", "s0")]),
        {"x": normal(4), "y": normal(4)},
    ),
}

SHAPE = {
    "reshape": Case(lambda b, x: b.reshape(x, [3, -1]), {"x": normal(2, 3, 2)}),
    "reshape of symbols": Case(lambda b, x: b.reshape(x, ["n", "m", 1]), {"x": normal(2, 3).sized("n", "m")}),
    "transpose": Case(lambda b, x: b.transpose(x, [1, 2, 0]), {"x": normal(2, 3, 2)}),
    "expand": Case(lambda b, x: b.expand(x, [4, 2, 3]), {"x": normal(2, 1)}),
    "expand of symbols": Case(
        lambda b, x, y: b.expand(b.mul(x, y), ["n", 3, "n"]),
        {"x": normal(1, 2).sized(1, "n"), "y": normal(3, 2).sized(3, "n")},
    ),
    "barrier": Case(lambda b, x: b.barrier(x), {"x": normal(2, 4)}),
    "narrow": Case(lambda b, x: b.narrow(x, -1, 1, 2), {"x": normal(2, 4)}),
    "narrow of all": Case(lambda b, x: b.narrow(x, 0, 0, 2), {"x": normal(2, 4)}),
    "narrow of symbols": Case(lambda b, x: b.narrow(x, 0, 1, 2), {"x": normal(5, 2).sized("n", 2)}),
    "slice of the end of symbols": Case(lambda b, x: b.slice(x, 0, "n - 2"), {"x": normal(5, 2).sized("n", 2)}),
    "slice beyond the end": Case(lambda b, x: b.slice(x, 0, 7, 9), {"x": normal(5, 2).sized("n", 2)}),
    "slice": Case(lambda b, x: b.slice(x, -1, 1, None, 2), {"x": normal(2, 5)}),
    "slice backwards": Case(lambda b, x: b.slice(x, 1, None, None, -2), {"x": normal(2, 5)}),
    "slice of symbols": Case(lambda b, x: b.slice(x, 1, 1, "n - 1"), {"x": normal(2, 5).sized(2, "n")}),
    "concat": Case(lambda b, x, y: b.concat([x, y, x], -1), {"x": normal(2, 2), "y": normal(2, 3)}),
    "concat of symbols": Case(
        lambda b, x, y: b.concat([x, y], 0), {"x": normal(2, 3).sized("n", 3), "y": normal(1, 3).sized("m", 3)}
    ),
    "concat of a static part": Case(
        lambda b, x, y: b.concat([x, y], 0), {"x": normal(2, 3), "y": normal(2, 3).sized("n", 3)}
    ),
    "dynamic_slice": Case(lambda b, x, i: b.dynamic_slice(x, i, 2, 1), {"x": normal(2, 5), "i": given(2, "i32")}),
    "dynamic_update_slice": Case(
        lambda b, x, u, i: b.dynamic_update_slice(x, u, i, 1),
        {"x": normal(2, 5), "u": normal(2, 2), "i": given(9, "i32")},
    ),
    "dim": Case(lambda b, x: b.div(x, b.dim(x, 0, "f64")), {"x": normal(3).sized("n")}),
    "iota": Case(lambda b, x: b.mul(x, b.cast(b.iota(["n"], 0, "f32"), "f64")), {"x": normal(3).sized("n")}),
    "flip": Case(lambda b, x: b.flip(x, -1), {"x": normal(2, 3)}),
    "cache_update": Case(
        lambda b, c, n, p: b.cache_update(c, n, p),
        {"c": normal(2, 4, 3), "n": normal(2, 2, 3), "p": given([1, 2], "i32")},
    ),
}

REDUCTIONS = {
    **{
        f"{kind} {axes} {kept}": Case(
            lambda b, x, kind=kind, axes=axes, kept=kept: b.reduce(x, kind, axes, keep_dims=kept), {"x": apart(2, 3, 2)}
        )
        for kind in ("sum", "mean", "max", "min", "prod")
        for axes, kept in (([-1], False), ([0, 2], True))
    },
    "mean of symbols": Case(lambda b, x: b.mean(x, [0, 1]), {"x": normal(2, 3).sized("n", "m")}),
    "sum of nothing": Case(lambda b, x: b.sum(x, 0), {"x": normal(0, 3)}),
    "prod of zeros": Case(
        lambda b, x: b.prod(x, 1), {"x": given([[2.0, 0.0, 3.0, 1.5], [0.0, 0.0, 3.0, 1.0], [1, 2, 3, 4]])}
    ),
    "prod of symbols": Case(lambda b, x: b.prod(x, [0, 1]), {"x": normal(2, 3).sized("n", "m")}),
    "mean of complex": Case(lambda b, z: b.mean(z, [0, 1]), {"z": complexes(2, 3).sized("n", 3)}, tolerance=SINGLE),
    "sum of complex": Case(lambda b, z: b.sum(z, 0), {"z": complexes(2, 3)}, tolerance=SINGLE),
    "softmax": Case(lambda b, x: b.softmax(x, -1), {"x": normal(2, 4)}),
    "softmax of axis 0": Case(lambda b, x: b.softmax(x, 0), {"x": normal(3, 2).sized("n", 2)}),
    "cumsum": Case(lambda b, x: b.cumsum(x, -1), {"x": normal(2, 4)}),
    "cumsum exclusive": Case(lambda b, x: b.cumsum(x, 0, exclusive=True), {"x": normal(3, 2).sized("n", 2)}),
    "top_k": Case(lambda b, x: b.top_k(x, 2)[0], {"x": apart(5)}),
    "top_k of rows": Case(lambda b, x: b.top_k(x, 2)[0], {"x": apart(2, 2, 4).sized("n", 2, 4)}),
    "top_k of all": Case(lambda b, x: b.top_k(x, "n")[0], {"x": apart(2, 4).sized(2, "n")}),
}

INDEXING = {
    "gather": Case(lambda b, t, i: b.gather(t, i), {"t": normal(4, 2), "i": integers(2, 3, below=4)}),
    "gather of axis 1": Case(lambda b, t, i: b.gather(t, i, -1), {"t": normal(2, 4), "i": given([3, 9, -2, 3], "i32")}),
    "gather of a batch": Case(
        lambda b, t, i: b.gather(t, i, 2, batch_dims=1), {"t": normal(2, 3, 4, 2), "i": integers(2, 3, below=4)}
    ),
    "gather of batches": Case(
        lambda b, t, i: b.gather(t, i, 2, batch_dims=2),
        {"t": normal(2, 2, 4, 3).sized("n", 2, 4, 3), "i": integers(2, 2, below=4).sized("n", 2)},
    ),
    "scatter_add": Case(lambda b, u, i: b.scatter_add(u, i, 3), {"u": normal(4, 2), "i": given([0, 2, 2, 7], "i32")}),
    "scatter_add of axis 1": Case(
        lambda b, u, i, like: b.scatter_add(u, i, like, 1),
        {"u": normal(2, 2, 2), "i": given([[0, 2], [2, -1]], "i32"), "like": normal(2, 4).sized(2, "n")},
        wrt=["u"],
    ),
    "softmax_cross_entropy_with_logits": Case(
        lambda b, x, i: b.softmax_cross_entropy_with_logits(x, i),
        {"x": normal(3, 4).sized("n", 4), "i": integers(3, below=4).sized("n")},
    ),
    "softmax_cross_entropy_backward": Case(
        lambda b, x, i, d: b.softmax_cross_entropy_backward(x, i, d),
        {"x": normal(3, 4), "i": integers(3, below=4), "d": normal(3)},
    ),
}

CORE = ELEMENTWISE | SHAPE | REDUCTIONS | INDEXING
