// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The HIR dialect: the blocks that model authors write.

#ifndef RLX_HIR
#define RLX_HIR

include "mir/base.td"

def HIR_Dialect : Dialect {
  let name = "hir";
  let cppNamespace = "::rlx::hir";
  let summary = "blocks of transformer models";
  let dependentDialects = ["::rlx::mir::MIRDialect"];
}

class HIR_Op<string mnemonic, list<Trait> traits = []>
    : Op<HIR_Dialect, mnemonic, !listconcat([Pure], traits)>;

def HIR_RmsNormOp : HIR_Op<"rms_norm", [AllTypesMatch<["x", "result"]>]> {
  let summary = "root-mean-square normalisation over the last dimension";
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$gamma,
      DefaultValuedAttr<F32Attr, "1e-5f">:$eps);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = "$x `,` $gamma (`eps` $eps^)? attr-dict `:` type($x) `,` type($gamma)";
}

#endif // RLX_HIR
