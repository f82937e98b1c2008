// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules that several blocks share.

#include "dialects/HIRRules.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace rlx;
using namespace rlx::hir;

LogicalResult hir::expectTensors(EmitError error, ValueRange operands) {
  for (Value operand : operands)
    if (!isa<RankedTensorType>(operand.getType()))
      return error() << "expects ranked tensors as operands, but got " << operand.getType();
  return success();
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

FailureOr<int64_t> Weights::outputs(StringRef name, Value weight, int64_t inputs,
                                    StringRef columns) {
  RankedTensorType type = tensor(weight);
  int64_t k, n;
  if (auto packed = dyn_cast_or_null<mir::PackedAttr>(type.getEncoding())) {
    if (packed.getLayout() != mir::Layout::Rows)
      return error() << "expects the packed weight '" << name << "' to have layout = rows, but got "
                     << mir::stringifyLayout(packed.getLayout());
    k = packed.getK();
    n = type.getDimSize(0);
  } else {
    if (type.getRank() != 2)
      return error() << "expects the dense weight '" << name << "' to have two dimensions, but got "
                     << type.getRank();
    if (type.getElementType() != element)
      return error() << "expects the dense weight '" << name << "' to have the element type of '"
                     << of << "', " << element << ", but got " << type.getElementType();
    k = type.getDimSize(transpose ? 1 : 0);
    n = type.getDimSize(transpose ? 0 : 1);
    anyDense = true;
  }
  if (differ(k, inputs))
    return error() << "expects '" << name << "' to have as many inputs as " << columns << ", "
                   << inputs << ", but it has " << k;
  return n;
}

LogicalResult Weights::check(StringRef name, Value weight, int64_t inputs, StringRef columns,
                             int64_t outputs, StringRef origin) {
  FailureOr<int64_t> n = this->outputs(name, weight, inputs, columns);
  if (failed(n))
    return failure();
  if (differ(*n, outputs))
    return error() << "expects '" << name << "' to have as many outputs as " << origin << ", "
                   << outputs << ", but it has " << *n;
  return success();
}

LogicalResult Weights::finish() {
  if (transpose && !anyDense)
    return error() << "expects 'transpose_weight' only with a dense weight, but every weight is "
                      "packed";
  return success();
}

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

LogicalResult hir::checkVector(EmitError error, StringRef name, Value vector, int64_t width,
                               StringRef what, Type element, StringRef of) {
  if (!vector)
    return success();
  RankedTensorType type = tensor(vector);
  if (type.getRank() != 1)
    return error() << "expects '" << name << "' to have one dimension, but got " << type.getRank();
  int64_t length = type.getDimSize(0);
  if (differ(length, width))
    return error() << "expects '" << name << "' to be as long as " << what << ", " << width
                   << ", but its length is " << length;
  if (type.getElementType() != element)
    return error() << "expects '" << name << "' to have the element type of '" << of << "', "
                   << element << ", but got " << type.getElementType();
  return success();
}

LogicalResult hir::checkNormVector(EmitError error, StringRef name, Value vector,
                                   RankedTensorType x) {
  return checkVector(error, name, vector, x.getShape().back(), "the last dimension of 'x'",
                     x.getElementType(), "x");
}

LogicalResult hir::checkEps(EmitError error, const APFloat &eps) {
  if (!eps.isFinite() || eps.isNegative() || eps.isZero())
    return error() << "expects a positive, finite 'eps', but got " << eps.convertToDouble();
  return success();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

LogicalResult Heads::check(EmitError error) const {
  if (queries <= 0 || keys <= 0 || width <= 0)
    return error() << "expects positive 'num_heads', 'num_kv_heads' and 'head_dim', but got "
                   << queries << ", " << keys << " and " << width;
  int64_t product;
  if (llvm::MulOverflow(queries, width, product))
    return error() << "expects num_heads * head_dim to be below 2^63, but got " << queries << " * "
                   << width;
  if (queries % keys != 0)
    return error() << "expects 'num_heads' to be a multiple of 'num_kv_heads', " << keys
                   << ", but got " << queries;
  return success();
}

/// Writes the shape of a mask that has one entry for each score.
static InFlightDiagnostic &printShape(InFlightDiagnostic &diagnostic, ArrayRef<int64_t> shape) {
  diagnostic << "[";
  llvm::interleaveComma(shape, diagnostic, [&](int64_t size) {
    if (ShapedType::isDynamic(size))
      diagnostic << "?";
    else
      diagnostic << size;
  });
  return diagnostic << "]";
}

LogicalResult hir::checkMask(EmitError error, mir::MaskKind kind, Value mask,
                             std::optional<int64_t> window, const ScoreShape &scores) {
  bool custom = kind == mir::MaskKind::Custom;
  bool wanted = custom || kind == mir::MaskKind::Bias;
  if (bool(mask) != wanted)
    return error() << "expects 'mask' exactly with 'mask_kind' custom or bias, but 'mask_kind' is "
                   << mir::stringifyMaskKind(kind) << " and 'mask' is "
                   << (mask ? "there" : "not there");

  bool windowed = kind == mir::MaskKind::SlidingWindow;
  if (window.has_value() != windowed)
    return error()
           << "expects 'window' exactly with 'mask_kind' sliding_window, but 'mask_kind' is "
           << mir::stringifyMaskKind(kind) << " and 'window' is "
           << (window ? "there" : "not there");
  if (window && *window <= 0)
    return error() << "expects a positive 'window', but got " << *window;
  if (!mask)
    return success();

  RankedTensorType type = tensor(mask);
  int64_t full[] = {scores.batch, scores.heads, scores.queries, scores.keys};
  int64_t rows[] = {scores.batch, scores.keys};
  auto fits = [&](ArrayRef<int64_t> expected) {
    if (type.getRank() != int64_t(expected.size()) ||
        differ(type.getShape().back(), expected.back()))
      return false;
    return llvm::all_of(llvm::zip(type.getShape().drop_back(), expected.drop_back()),
                        [](auto pair) {
                          auto [size, wanted] = pair;
                          return size == 1 || !differ(size, wanted);
                        });
  };
  if (!fits(full) && !(custom && fits(rows))) {
    InFlightDiagnostic diagnostic = error() << "expects 'mask' to be ";
    printShape(diagnostic, full);
    if (custom)
      printShape(diagnostic << " or ", rows);
    diagnostic << ", or 1 in place of a dimension but the last, but got ";
    return printShape(diagnostic, type.getShape());
  }

  Type element = type.getElementType();
  if (element != scores.element && !(custom && element.isSignlessInteger(1)))
    return error() << "expects 'mask' to have the element type of '" << scores.of << "', "
                   << scores.element << (custom ? ", or i1" : "") << ", but got " << element;
  return success();
}

LogicalResult Caches::check(EmitError error) const {
  int64_t width = heads.keys * heads.width, shape[] = {batch, ShapedType::kDynamic, width};
  auto check = [&](StringRef name, StringRef schemeName, Value cache,
                   std::optional<mir::CacheScheme> scheme) -> LogicalResult {
    RankedTensorType type = tensor(cache);
    bool ranked = type.getRank() == 3;
    if (ranked && failed(mir::checkKept({name, schemeName, type, scheme, width, heads.width,
                                         "'head_dim'", element, of},
                                        error)))
      return failure();
    if (!ranked || differ(type.getDimSize(0), batch) ||
        (!scheme && differ(type.getDimSize(2), width))) {
      InFlightDiagnostic diagnostic = error() << "expects '" << name << "' to be ";
      return printShape(printShape(diagnostic, shape) << ", but got ", type.getShape());
    }
    if (exceeds(tokens, type.getDimSize(1)))
      return error() << "expects '" << name << "' to be at least as long as '" << of << "', "
                     << tokens << ", but its length is " << type.getDimSize(1);
    return success();
  };
  if (failed(check("k_cache", "k_scheme", k, kScheme)) ||
      failed(check("v_cache", "v_scheme", v, vScheme)))
    return failure();
  int64_t keys = tensor(k).getDimSize(1), values = tensor(v).getDimSize(1);
  if (differ(keys, values))
    return error() << "expects 'k_cache' and 'v_cache' to have one length, but got " << keys
                   << " and " << values;
  return success();
}

LogicalResult hir::checkPositions(EmitError error, Value pos, int64_t batch) {
  if (!pos)
    return success();
  RankedTensorType type = tensor(pos);
  if (type.getRank() != 1 || differ(type.getDimSize(0), batch)) {
    InFlightDiagnostic diagnostic = error()
                                    << "expects 'pos' to have one entry for each batch item, ";
    return printShape(printShape(diagnostic, batch) << ", but its shape is ", type.getShape());
  }
  return success();
}

LogicalResult hir::checkTables(EmitError error, Value cos, Value sin, int64_t headDim,
                               int64_t tokens, Type element, StringRef of) {
  RankedTensorType type = tensor(cos);
  if (type != sin.getType())
    return error() << "expects 'cos' and 'sin' to have one type, but got " << type << " and "
                   << sin.getType();
  if (type.getRank() != 2 || differ(type.getDimSize(1), headDim / 2)) {
    InFlightDiagnostic diagnostic = error() << "expects the tables to be ";
    int64_t shape[] = {ShapedType::kDynamic, headDim / 2};
    return printShape(printShape(diagnostic, shape) << ", but got ", type.getShape());
  }
  if (type.getElementType() != element && !type.getElementType().isF32())
    return error() << "expects the tables to be of f32 or of the element type of '" << of << "', "
                   << element << ", but got " << type.getElementType();
  if (exceeds(tokens, type.getDimSize(0)))
    return error() << "expects the tables to have a row for each token of '" << of << "', "
                   << tokens << ", but they have " << type.getDimSize(0);
  return success();
}
