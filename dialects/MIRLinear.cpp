// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Contractions, low-rank updates, systems of equations: inference.

#include "dialects/MIR.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace rlx::mir;

//===----------------------------------------------------------------------===//
// DotGeneralOp
//===----------------------------------------------------------------------===//

/// Checks that `contracting` and `batch` name dimensions of an operand, each at most once. `used`
/// then says which they are.
static LogicalResult checkDims(std::optional<Location> location, StringRef name,
                               ArrayRef<int64_t> contracting, ArrayRef<int64_t> batch,
                               SmallVectorImpl<bool> &used) {
  for (int64_t dim : llvm::concat<const int64_t>(contracting, batch)) {
    if (dim >= 0 && dim < int64_t(used.size()) && !used[dim]) {
      used[dim] = true;
      continue;
    }
    return inferError(location, DotGeneralOp::getOperationName(), "expects '", name,
                      "_contracting' and '", name, "_batch' to be different dimensions of '", name,
                      "', whose rank is ", used.size(), ", but got ", shapeText(contracting),
                      " and ", shapeText(batch));
  }
  return success();
}

LogicalResult DotGeneralOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                             Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> lhs = tensorType(location, op, "lhs", adaptor.getLhs().getType());
  FailureOr<RankedTensorType> rhs = tensorType(location, op, "rhs", adaptor.getRhs().getType());
  if (failed(lhs) || failed(rhs))
    return failure();
  // The parser infers before it fills in defaults.
  Properties properties = adaptor.getProperties();
  populateDefaultProperties({op, context}, properties);
  ArrayRef<int64_t> lhsContracting = properties.lhs_contracting,
                    rhsContracting = properties.rhs_contracting, lhsBatch = properties.lhs_batch,
                    rhsBatch = properties.rhs_batch;
  for (auto [name, own, other] : {std::tuple("contracting", lhsContracting, rhsContracting),
                                  std::tuple("batch", lhsBatch, rhsBatch)})
    if (own.size() != other.size()) // C1
      return inferError(location, op, "expects 'lhs_", name, "' and 'rhs_", name,
                        "' to have equally many entries, but got ", shapeText(own), " and ",
                        shapeText(other));
  SmallVector<bool> ofLhs(lhs->getRank(), false), ofRhs(rhs->getRank(), false);
  if (failed(checkDims(location, "lhs", lhsContracting, lhsBatch, ofLhs)) || // C2
      failed(checkDims(location, "rhs", rhsContracting, rhsBatch, ofRhs)))
    return failure();

  SmallVector<int64_t> shape;
  auto pairs = [&](ArrayRef<int64_t> own, ArrayRef<int64_t> others, bool stays) -> LogicalResult {
    for (auto [dim, other] : llvm::zip_equal(own, others)) {
      FailureOr<int64_t> size = joinSizes(lhs->getDimSize(dim), rhs->getDimSize(other));
      if (failed(size)) // C3
        return inferError(location, op, "expects dimension ", dim,
                          " of 'lhs' to be like dimension ", other, " of 'rhs', but got ",
                          lhs->getDimSize(dim), " and ", rhs->getDimSize(other));
      if (stays)
        shape.push_back(*size);
    }
    return success();
  };
  if (failed(pairs(lhsBatch, rhsBatch, /*stays=*/true)) ||
      failed(pairs(lhsContracting, rhsContracting, /*stays=*/false)))
    return failure();
  for (auto [type, used] : {std::pair(*lhs, ArrayRef(ofLhs)), std::pair(*rhs, ArrayRef(ofRhs))})
    for (auto [size, isUsed] : llvm::zip_equal(type.getShape(), used))
      if (!isUsed)
        shape.push_back(size);

  Type element = lhs->getElementType(), other = rhs->getElementType();
  bool ofBytes = element.isInteger(8) && other.isInteger(8);
  if (element != other && !ofBytes) // C4
    return inferError(location, op,
                      "expects 'lhs' and 'rhs' to be of one element type or of bytes, but got ",
                      element, " and ", other);
  if (ofBytes) // Their sums would overflow.
    element = IntegerType::get(context, 32);
  results.push_back(RankedTensorType::get(shape, element));
  return success();
}

//===----------------------------------------------------------------------===//
// LoraMatmulOp
//===----------------------------------------------------------------------===//

LogicalResult LoraMatmulOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                             Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  FailureOr<RankedTensorType> weight =
      tensorType(location, op, "weight", adaptor.getWeight().getType());
  FailureOr<RankedTensorType> a = tensorType(location, op, "a", adaptor.getA().getType());
  FailureOr<RankedTensorType> b = tensorType(location, op, "b", adaptor.getB().getType());
  if (failed(x) || failed(weight) || failed(a) || failed(b) ||
      failed(requireAttributes(location, op, {{"scale", adaptor.getScaleAttr()}})))
    return failure();
  if (x->getRank() < 1 || weight->getRank() != 2 || a->getRank() != 2 || b->getRank() != 2) // C1
    return inferError(location, op,
                      "expects 'x' to have at least one dimension and 'weight', 'a' and 'b' two, "
                      "but their ranks are ",
                      x->getRank(), ", ", weight->getRank(), ", ", a->getRank(), " and ",
                      b->getRank());
  int64_t k = x->getShape().back();
  if (!sizesAgree(k, weight->getDimSize(0)) || !sizesAgree(k, a->getDimSize(0)) ||
      !sizesAgree(weight->getDimSize(0), a->getDimSize(0))) // C2
    return inferError(location, op, "expects 'x', 'weight' and 'a' to have the same k, but got ",
                      sizeText(k), ", ", sizeText(weight->getDimSize(0)), " and ",
                      sizeText(a->getDimSize(0)));
  if (!sizesAgree(a->getDimSize(1), b->getDimSize(0))) // C3
    return inferError(location, op, "expects 'a' and 'b' to have the same r, but got ",
                      a->getDimSize(1), " and ", b->getDimSize(0));
  FailureOr<int64_t> n = joinSizes(weight->getDimSize(1), b->getDimSize(1));
  if (failed(n)) // C4
    return inferError(location, op, "expects 'weight' and 'b' to have the same n, but got ",
                      weight->getDimSize(1), " and ", b->getDimSize(1));
  if (!adaptor.getScale().isFinite()) // C5
    return inferError(location, op, "expects a finite 'scale', but got ",
                      adaptor.getScaleAttr().getValueAsDouble());
  SmallVector<int64_t> shape(x->getShape());
  shape.back() = *n;
  results.push_back(RankedTensorType::get(shape, x->getElementType()));
  return success();
}

//===----------------------------------------------------------------------===//
// DenseSolveOp, BatchedDenseSolveOp
//===----------------------------------------------------------------------===//

/// Type of the solutions of systems with `batches` leading dimensions.
static LogicalResult inferSolution(std::optional<Location> location, StringRef op, int64_t batches,
                                   Type matrix, Type sides, SmallVectorImpl<Type> &results) {
  FailureOr<RankedTensorType> a = tensorType(location, op, "a", matrix);
  FailureOr<RankedTensorType> b = tensorType(location, op, "b", sides);
  if (failed(a) || failed(b))
    return failure();
  ArrayRef<int64_t> rows = a->getShape(), right = b->getShape();
  FailureOr<int64_t> n = failure();
  if (a->getRank() == batches + 2)
    n = joinSizes(rows[batches], rows[batches + 1]);
  if (failed(n)) // C1
    return inferError(location, op, "expects 'a' to be ", batches ? "[batch, n, n]" : "[n, n]",
                      ", but it is ", shapeText(rows));
  SmallVector<int64_t> lead(rows.take_front(batches));
  lead.push_back(*n);
  int64_t rank = right.size();
  if ((rank != batches + 1 && rank != batches + 2) ||
      !llvm::equal(lead, right.take_front(batches + 1), sizesAgree)) // C2
    return inferError(location, op, "expects 'b' to be ", shapeText(lead),
                      ", or to have one dimension more, but it is ", shapeText(right));
  SmallVector<int64_t> shape(right);
  for (auto [size, own] : llvm::zip(shape, lead))
    size = *joinSizes(own, size);
  results.push_back(RankedTensorType::get(shape, b->getElementType()));
  return success();
}

LogicalResult DenseSolveOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                             Adaptor adaptor, SmallVectorImpl<Type> &results) {
  return inferSolution(location, getOperationName(), 0, adaptor.getA().getType(),
                       adaptor.getB().getType(), results);
}

LogicalResult BatchedDenseSolveOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                                    Adaptor adaptor,
                                                    SmallVectorImpl<Type> &results) {
  return inferSolution(location, getOperationName(), 1, adaptor.getA().getType(),
                       adaptor.getB().getType(), results);
}
