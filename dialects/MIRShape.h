// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What inference and verifiers of several families share: sizes that may be dynamic, and their
// text in messages; and the custom directives of the assembly.

#ifndef RLX_DIALECTS_MIRSHAPE_H
#define RLX_DIALECTS_MIRSHAPE_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/OpImplementation.h"

#include <optional>
#include <string>

namespace rlx::mir {

/// "?" or the number.
std::string sizeText(int64_t size);

/// "[2, ?, 8]".
std::string shapeText(llvm::ArrayRef<int64_t> shape);

/// Whether two sizes can be one: they are equal, or one is dynamic.
bool sizesAgree(int64_t lhs, int64_t rhs);

/// The size that two dimensions share, the static one where one is dynamic; failure where they
/// differ.
llvm::FailureOr<int64_t> joinSizes(int64_t lhs, int64_t rhs);

/// The shape that two tensors share, size by size; failure where they differ.
llvm::FailureOr<llvm::SmallVector<int64_t>> joinShapes(llvm::ArrayRef<int64_t> lhs,
                                                       llvm::ArrayRef<int64_t> rhs);

/// Numpy's rule for shapes aligned at the last dimension. Only a size that is 1 in the type is
/// repeated: a dynamic size that meets another is equal to it at run time.
llvm::FailureOr<llvm::SmallVector<int64_t>> broadcastShapes(llvm::ArrayRef<int64_t> lhs,
                                                            llvm::ArrayRef<int64_t> rhs);

/// Whether `shape`, aligned at the last dimension, can be repeated to `target`.
bool broadcastsTo(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> target);

/// `axis` from the front; negative ones count from the end. Nothing where there is no such
/// dimension.
std::optional<int64_t> axisFromFront(int64_t axis, int64_t rank);

/// The type of a tensor, or null where `type` is none: inference runs before the constraints on
/// operands are checked.
llvm::FailureOr<mlir::RankedTensorType> tensorType(std::optional<mlir::Location> location,
                                                   llvm::StringRef op, llvm::StringRef operand,
                                                   mlir::Type type);

/// Emits "'op' op ..." and fails, for inference, which has no operation yet.
template <typename... Parts>
llvm::LogicalResult inferError(std::optional<mlir::Location> location, llvm::StringRef op,
                               Parts &&...parts) {
  return mlir::emitOptionalError(location, "'", op, "' op ", std::forward<Parts>(parts)...);
}

/// Checks that the attributes of these names are there: inference runs before that is verified.
llvm::LogicalResult
requireAttributes(std::optional<mlir::Location> location, llvm::StringRef op,
                  llvm::ArrayRef<std::pair<llvm::StringRef, mlir::Attribute>> attributes);

enum class BlockField { Scale, Sum };

/// Type of the scales or sums of a quantised tensor: an entry for each 32 elements of its rows.
mlir::Type getBlockType(mlir::Type quantized, BlockField field);

/// Two types, written once where they are equal.
mlir::ParseResult parseSharedType(mlir::OpAsmParser &parser, mlir::Type &lhs, mlir::Type &rhs);
void printSharedType(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::Type lhs,
                     mlir::Type rhs);

/// Numbers of f32 without their types; those of `array<f32: ...>` would be printed rounded.
mlir::ParseResult parseFloats(mlir::OpAsmParser &parser, mlir::ArrayAttr &numbers);
void printFloats(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::ArrayAttr numbers);

} // namespace rlx::mir

#endif // RLX_DIALECTS_MIRSHAPE_H
