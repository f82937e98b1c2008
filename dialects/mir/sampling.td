// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Choosing what comes next in a sequence.

#ifndef RLX_MIR_SAMPLING
#define RLX_MIR_SAMPLING

include "mir/base.td"

def MIR_SampleOp : MIR_InferredOp<"sample"> {
  let summary = "next token of sequences, drawn among the most likely ones";
  let description = [{
    One step of generation for each of B sequences. `values`, [B, k], are the largest
    logits in descending order and `indices` their tokens, as `mir.top_k` gives them.
    `controls`, [B, 3], are (temperature, count, top_p). `pos` is the position of the
    last known token. `draws`, [B, P], are random numbers in [0, 1), and `chosen`, [B, P],
    the tokens that were chosen, both by the position after which a token comes.

    Of batch b, for i < k:

        place = min(max(pos, 0), P - 1)
        w[i]  = exp((values[i] - values[0]) / temperature) where i < max(count, 1), else 0
        c[i]  = w[0] + ... + w[i], added in this order
        m     = number of c[i] < top_p * c[k - 1], at most k - 1
        t     = number of c[i] <= draws[place] * c[m], at most m

    The token is `indices[t]`: the `count` most likely ones are kept, of these the
    shortest run whose share reaches `top_p`, of which one is drawn by its share. Where
    `temperature` isn't above 0 it is `indices[0]`. It is -1 where `values[0]` is
    infinite or one of `values` is NaN: nothing can be chosen there.

    `token`, [B, 1], is the token; `next`, [B], is its position, min(place + 1, P - 1);
    `chosen_out` is `chosen` with the token at `place`. A lowering may write into the
    memory of `chosen`. Everything is computed in f32.

    - (C1) `values` is [B, k] with a static k of at least 1.
    - (C2) `indices` has the shape of `values`.
    - (C3) `controls` is [B, 3].
    - (C4) `chosen` and `draws` are [B, P], P at least 1.
    - (C5) `pos` has B entries.

    ```mlir
    func.func @f(%values: tensor<1x64xf32>, %ids: tensor<1x64xi32>, %controls: tensor<1x3xf32>,
                 %draws: tensor<1x?xf32>, %chosen: tensor<1x?xi32>, %pos: tensor<1xi32>)
        -> (tensor<1x1xi32>, tensor<1xi32>, tensor<1x?xi32>) {
      %token, %next, %all = mir.sample %values, %ids by %controls, %draws in %chosen at %pos
          : tensor<1x64xf32>, tensor<1x64xi32>, tensor<1x3xf32>, tensor<1x?xf32>, tensor<1x?xi32>,
            tensor<1xi32>
      return %token, %next, %all : tensor<1x1xi32>, tensor<1xi32>, tensor<1x?xi32>
    }
    ```
  }];
  let arguments = (ins MIR_F32Tensor:$values, MIR_I32Tensor:$indices, MIR_F32Tensor:$controls,
      MIR_F32Tensor:$draws, MIR_I32Tensor:$chosen, MIR_PositionTensor:$pos);
  let results = (outs MIR_I32Tensor:$token, MIR_PositionTensor:$next,
      MIR_I32Tensor:$chosen_out);
  let assemblyFormat = [{
    $values `,` $indices `by` $controls `,` $draws `in` $chosen `at` $pos attr-dict
    `:` type($values) `,` type($indices) `,` type($controls) `,` type($draws) `,`
    type($chosen) `,` type($pos)
  }];
}

#endif // RLX_MIR_SAMPLING
