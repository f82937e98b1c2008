// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fused operations that belong to no other family.

#ifndef RLX_MIR_FUSED
#define RLX_MIR_FUSED

include "mir/base.td"

def MIR_FusedSwigluOp : MIR_InferredOp<"fused_swiglu"> {
  let summary = "SiLU-gated product of the two halves of a row";
  let description = [{
    `x` is [..., 2 f]; each row holds f values "up" and f values "gate":

        result[..., i] = up[i] * silu(gate[i])

    Up comes first; with `gate_first`, gate does. Computed in f32 (f64 for f64) and
    rounded once.

    - (C1) `x` has at least one dimension, and the last is even.

    ```mlir
    func.func @f(%x: tensor<?x16xf32>) -> tensor<?x8xf32> {
      %y = mir.fused_swiglu %x gate_first : tensor<?x16xf32>
      return %y : tensor<?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, UnitAttr:$gate_first);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = "$x (`gate_first` $gate_first^)? attr-dict `:` type($x)";
}

#endif // RLX_MIR_FUSED
