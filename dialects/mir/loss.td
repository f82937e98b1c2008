// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Losses, and their gradients.

#ifndef RLX_MIR_LOSS
#define RLX_MIR_LOSS

include "mir/base.td"

def MIR_SoftmaxCrossEntropyWithLogitsOp
    : MIR_InferredOp<"softmax_cross_entropy_with_logits"> {
  let summary = "cross entropy of a row's softmax and its label";
  let description = [{
    With `logits` [n, c] and a label for each row, a class from 0 to c - 1:

        result[n] = log(sum_c exp(logits[n, c] - m[n])) - (logits[n, labels[n]] - m[n])

    where m[n] is the largest element of the row. Computed in f32 (f64 for f64) and rounded
    once. A label outside of the classes is clamped to them; an f32 label drops its fraction,
    and NaN counts as 0. No label is left out, and rows aren't reduced to one number.

    - (C1) `logits` has two dimensions and `labels` one.
    - (C2) `labels` has an entry for each row of `logits`.
    - (C3) there is a class, or `logits` has no rows. Where sizes are dynamic, this is a
      condition at run time.

    ```mlir
    func.func @f(%x: tensor<?x10xf32>, %l: tensor<?xi32>) -> tensor<?xf32> {
      %y = mir.softmax_cross_entropy_with_logits %x, %l : tensor<?x10xf32>, tensor<?xi32>
      return %y : tensor<?xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$logits, MIR_IndicesTensor:$labels);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = "$logits `,` $labels attr-dict `:` type($logits) `,` type($labels)";
}

def MIR_SoftmaxCrossEntropyBackwardOp : MIR_InferredOp<"softmax_cross_entropy_backward", [
    AllElementTypesMatch<["logits", "d_loss"]>]> {
  let summary = "gradient of the cross entropy of a row's softmax and its label";
  let description = [{
    The gradient of `mir.softmax_cross_entropy_with_logits` by its logits, [n, c], with `d_loss`
    [n] that of its result:

        result[n, c] = (softmax(logits[n])[c] - (1 where c = labels[n], else 0)) * d_loss[n]

    Computed in f32 (f64 for f64) and rounded once; labels are read as there.

    - (C1) `logits` has two dimensions, `labels` and `d_loss` one.
    - (C2) `labels` and `d_loss` have an entry for each row of `logits`.

    ```mlir
    func.func @f(%x: tensor<?x10xf32>, %l: tensor<?xi32>, %d: tensor<?xf32>) -> tensor<?x10xf32> {
      %y = mir.softmax_cross_entropy_backward %x, %l, %d : tensor<?x10xf32>, tensor<?xi32>, tensor<?xf32>
      return %y : tensor<?x10xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$logits, MIR_IndicesTensor:$labels, MIR_FloatTensor:$d_loss);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = "$logits `,` $labels `,` $d_loss attr-dict `:` type(operands)";
}

#endif // RLX_MIR_LOSS
