// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element-wise operations: functions of one element, arithmetic with broadcasting.

#ifndef RLX_MIR_ELEMENTWISE
#define RLX_MIR_ELEMENTWISE

include "mir/base.td"

def MIR_SiluOp : MIR_Op<"silu", [SameOperandsAndResultType]> {
  let summary = "sigmoid-weighted linear unit";
  let arguments = (ins MIR_FloatTensor:$x);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}

def MIR_ConstantOp : MIR_Op<"constant", [ConstantLike, AllTypesMatch<["value", "result"]>]> {
  let summary = "a constant tensor";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs MIR_Tensor:$result);
  let assemblyFormat = "attr-dict $value";
  let hasFolder = 1;
}

#endif // RLX_MIR_ELEMENTWISE
