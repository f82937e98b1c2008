// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations that users register from Python.

#ifndef RLX_MIR_CUSTOM
#define RLX_MIR_CUSTOM

include "mir/base.td"

def MIR_CustomOp : MIR_Op<"custom"> {
  let summary = "an operation that users register from Python";
  let description = [{
    The operation that `rlx.register_op` registered under the name `op`, on `inputs`
    and with `parameters` (docs/own-operations.md). What is registered says which types
    and sizes the results have, what they hold, and how they are computed: by other MIR
    operations that take its place, or by a function that compiled code calls. Without
    it, the operation can be read, printed and verified, but neither interpreted nor
    compiled.

    It is a function of its inputs and parameters alone: operations that are alike are
    computed once, and one whose results nothing reads isn't computed at all.

    - (C1) `op` is made of two or more words joined by dots, each of letters, digits and
      underscores and not beginning with a digit, and the first isn't `mir` or `hir`.
    - (C2) there is an input and a result.
    - (C3) each of `parameters` has a name that is such a word, and is a boolean, an `i64`,
      an `f64`, a string or an array of these.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %w: tensor<8xf32>) -> tensor<?x8xf32> {
      %y = mir.custom "my.gelu2"(%x, %w) with {scale = 2.0, mode = "exact"}
          : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
      return %y : tensor<?x8xf32>
    }
    ```
  }];
  let arguments = (ins StrAttr:$op, Variadic<MIR_StoredTensor>:$inputs,
      OptionalAttr<DictionaryAttr>:$parameters);
  let results = (outs Variadic<MIR_StoredTensor>:$outputs);
  let assemblyFormat = [{
    $op `` `(` $inputs `)` (`with` $parameters^)? attr-dict `:`
    functional-type($inputs, $outputs)
  }];
  let hasVerifier = 1;
}

#endif // RLX_MIR_CUSTOM
