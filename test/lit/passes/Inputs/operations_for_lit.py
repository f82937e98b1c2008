# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that tests of passes load by `--rlx-load`: one that is lowered, one that is called, one that is both."""

import numpy as np

import rlx_mlir as rlx


def infer(x, *, scale=1.0):
    return x


def reference(x, *, scale):
    return x * np.array(scale, x.dtype)


def lowering(m, x, *, scale):
    return m.neg(x) * -scale


def halves(x):
    half = rlx.TensorSpec((x.shape[0] // 2, *x.shape[1:]), x.dtype)
    return half, half


def split(x):
    return tuple(np.split(x, 2))


rlx.register_op("lit.lowered", infer=infer, reference=reference, lowering=lowering)
rlx.register_op("lit.called", infer=halves, reference=split, kernel=split)
rlx.register_op("lit.both", infer=infer, reference=reference, lowering=lowering, kernel=reference)
