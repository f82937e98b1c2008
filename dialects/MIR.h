// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef RLX_DIALECTS_MIR_H
#define RLX_DIALECTS_MIR_H

#include "dialects/MIRShape.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TensorEncoding.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/MIRDialect.h.inc"
#include "dialects/MIREnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/MIRAttrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/MIROps.h.inc"

#endif // RLX_DIALECTS_MIR_H
