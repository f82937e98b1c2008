// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "dialects/HIR.h"

using namespace mlir;
using namespace rlx::hir;

#include "dialects/HIRDialect.cpp.inc"

void HIRDialect::initialize() { registerHIRDialectOperations(this); }
