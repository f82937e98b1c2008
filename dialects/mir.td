// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The MIR dialect: tensor primitives, one file per family.

#ifndef RLX_MIR
#define RLX_MIR

include "mir/attention.td"
include "mir/backward.td"
include "mir/base.td"
include "mir/complex.td"
include "mir/control.td"
include "mir/conv.td"
include "mir/custom.td"
include "mir/elementwise.td"
include "mir/fft.td"
include "mir/fused.td"
include "mir/image.td"
include "mir/grouped.td"
include "mir/indexing.td"
include "mir/linear.td"
include "mir/loss.td"
include "mir/matmul.td"
include "mir/norm.td"
include "mir/quant.td"
include "mir/quantize.td"
include "mir/recurrence.td"
include "mir/reduction.td"
include "mir/sampling.td"
include "mir/shape.td"
include "mir/splat.td"

#endif // RLX_MIR
