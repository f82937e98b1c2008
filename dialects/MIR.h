// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef RLX_DIALECTS_MIR_H
#define RLX_DIALECTS_MIR_H

#include "dialects/MIRShape.h"
#include "dialects/MIRSizes.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TensorEncoding.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/MIRDialect.h.inc"
#include "dialects/MIREnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/MIRAttrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/MIROps.h.inc"

namespace rlx::mir {

/// Types and attributes of a product with a weight whose scales are a tensor; absent operands are
/// null. HIR's block and the primitive have the same rules.
struct ScaledProduct {
  mlir::RankedTensorType x, weight, scale, zeroPoint, globalScale;
  ScaledScheme scheme;
  std::optional<int64_t> block;
};

/// Checks the numbered constraints of `mir.dequant_matmul_scaled`, and gives the type of its
/// result.
llvm::FailureOr<mlir::RankedTensorType>
inferScaledProduct(const ScaledProduct &op, llvm::function_ref<mlir::InFlightDiagnostic()> error);

/// As above, of an operation's adaptor.
template <typename Adaptor>
llvm::FailureOr<mlir::RankedTensorType>
inferScaledProduct(Adaptor op, llvm::function_ref<mlir::InFlightDiagnostic()> error) {
  // Inference sees operands before type constraints do.
  for (mlir::Value operand : op.getOperands())
    if (!mlir::isa<mlir::RankedTensorType>(operand.getType()))
      return error() << "expects ranked tensors as operands, but got " << operand.getType();
  auto type = [](mlir::Value value) {
    return value ? mlir::cast<mlir::RankedTensorType>(value.getType()) : mlir::RankedTensorType();
  };
  std::optional<int64_t> block;
  if (mlir::IntegerAttr attribute = op.getBlockAttr())
    block = attribute.getInt();
  return inferScaledProduct({type(op.getX()), type(op.getWeight()), type(op.getScale()),
                             type(op.getZeroPoint()), type(op.getGlobalScale()), op.getScheme(),
                             block},
                            error);
}

/// Keys or values as they are stored, and what they are computed with.
struct KeptRows {
  /// The operand, and the attribute that says of which format its blocks are.
  llvm::StringRef name, schemeName;
  mlir::RankedTensorType type;
  std::optional<CacheScheme> scheme;
  /// Elements of a row, a part of which blocks fill, and the name of that part.
  int64_t width, part;
  llvm::StringRef partName;
  /// The element type that is computed with, and the operand that has it.
  mlir::Type element;
  llvm::StringRef of;
};

/// Checks the element type of stored rows, that they have a scheme exactly where they are bytes,
/// and their width then. HIR's blocks and the primitives have the same rules.
llvm::LogicalResult checkKept(const KeptRows &rows,
                              llvm::function_ref<mlir::InFlightDiagnostic()> error);

/// Attributes of a convolution.
struct ConvGeometry {
  llvm::ArrayRef<int64_t> stride, padding, dilation;
  int64_t groups;
};

/// Checks constraints 1 to 6 of `mir.conv`, and gives the sizes of the result.
llvm::FailureOr<llvm::SmallVector<int64_t>>
inferConvShape(std::optional<mlir::Location> location, llvm::StringRef op, mlir::RankedTensorType x,
               mlir::RankedTensorType weight, const ConvGeometry &geometry);

/// Checks that the scheme of a packed weight holds integers, which integer products need.
llvm::LogicalResult verifyHoldsIntegers(mlir::Operation *op, mlir::RankedTensorType weight);

} // namespace rlx::mir

#endif // RLX_DIALECTS_MIR_H
