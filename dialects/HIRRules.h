// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules that several blocks share. Each reports what breaks it, with both values.

#ifndef RLX_DIALECTS_HIRRULES_H
#define RLX_DIALECTS_HIRRULES_H

#include "dialects/HIR.h"

namespace rlx::hir {

/// Whether both sizes are known and differ.
inline bool differ(int64_t lhs, int64_t rhs) {
  return mlir::ShapedType::isStatic(lhs) && mlir::ShapedType::isStatic(rhs) && lhs != rhs;
}

/// Whether both sizes are known and `lhs` is above `rhs`.
inline bool exceeds(int64_t lhs, int64_t rhs) {
  return mlir::ShapedType::isStatic(lhs) && mlir::ShapedType::isStatic(rhs) && lhs > rhs;
}

/// The type of a value that `expectTensors` accepted.
inline mlir::RankedTensorType tensor(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}

/// Every operand is a ranked tensor. Inference sees operands before type constraints do.
llvm::LogicalResult expectTensors(EmitError error, mlir::ValueRange operands);

/// The weights of one operation; `element` is the type of the activations, of the operand `of`.
class Weights {
public:
  Weights(EmitError error, mlir::Type element, bool transpose, llvm::StringRef of = "x")
      : error(error), element(element), transpose(transpose), of(of) {}

  /// Gives the number of outputs of a weight, dense or packed, that multiplies something with
  /// `inputs` columns, in words `columns`.
  llvm::FailureOr<int64_t> outputs(llvm::StringRef name, mlir::Value weight, int64_t inputs,
                                   llvm::StringRef columns);

  /// As above, where the number of outputs is prescribed, in words `origin`.
  llvm::LogicalResult check(llvm::StringRef name, mlir::Value weight, int64_t inputs,
                            llvm::StringRef columns, int64_t outputs, llvm::StringRef origin);

  /// After all weights: `transpose_weight` has a weight to which it applies.
  llvm::LogicalResult finish();

private:
  EmitError error;
  mlir::Type element;
  bool transpose;
  llvm::StringRef of;
  bool anyDense = false;
};

/// A vector as long as something of `width` elements, in words `what`, of the element type of
/// operand `of`; absent is fine.
llvm::LogicalResult checkVector(EmitError error, llvm::StringRef name, mlir::Value vector,
                                int64_t width, llvm::StringRef what, mlir::Type element,
                                llvm::StringRef of);

/// A vector as long as the last dimension of `x`, of its element type; absent is fine.
llvm::LogicalResult checkNormVector(EmitError error, llvm::StringRef name, mlir::Value vector,
                                    mlir::RankedTensorType x);

llvm::LogicalResult checkEps(EmitError error, const llvm::APFloat &eps);

/// Heads of an attention.
struct Heads {
  int64_t queries, keys, width;

  llvm::LogicalResult check(EmitError error) const;
};

/// What a mask selects from; `element` is the type of the activations, of the operand `of`.
struct ScoreShape {
  int64_t batch, heads, queries, keys;
  mlir::Type element;
  llvm::StringRef of;
};

/// Presence, shape and element type of a mask, presence and size of a window.
llvm::LogicalResult checkMask(EmitError error, mir::MaskKind kind, mlir::Value mask,
                              std::optional<int64_t> window, const ScoreShape &scores);

/// Two caches, [batch, at least tokens, width], and what is written into them: `tokens` rows of
/// `heads` heads of the element type of operand `of`.
struct Caches {
  mlir::Value k, v;
  std::optional<mir::CacheScheme> kScheme, vScheme;
  int64_t batch, tokens;
  Heads heads;
  mlir::Type element;
  llvm::StringRef of;

  llvm::LogicalResult check(EmitError error) const;
};

/// A vector with one position for each batch item; absent is fine.
llvm::LogicalResult checkPositions(EmitError error, mlir::Value pos, int64_t batch);

/// Two tables, [at least tokens, headDim / 2], of f32 or of the element type of operand `of`.
llvm::LogicalResult checkTables(EmitError error, mlir::Value cos, mlir::Value sin, int64_t headDim,
                                int64_t tokens, mlir::Type element, llvm::StringRef of = "x");

} // namespace rlx::hir

#endif // RLX_DIALECTS_HIRRULES_H
