// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifiers and folders of MIR's element-wise operations.

#include "dialects/MIR.h"

using namespace mlir;
using namespace rlx::mir;

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }
