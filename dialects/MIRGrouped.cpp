// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of rows with one of several weights each: inference.

#include "dialects/MIR.h"

using namespace mlir;
using namespace rlx::mir;

/// Checks that `expert` numbers the rows of an operand; gives how many there are.
static FailureOr<int64_t> checkExperts(std::optional<Location> location, StringRef op,
                                       StringRef name, RankedTensorType x,
                                       RankedTensorType expert) {
  FailureOr<int64_t> rows = joinSizes(x.getDimSize(0), expert.getDimSize(0));
  if (failed(rows)) // C3
    return inferError(location, op, "expects 'expert' to have an entry for each of the ",
                      x.getDimSize(0), " rows of '", name, "', but got ", expert.getDimSize(0));
  return rows;
}

LogicalResult GroupedMatmulOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                                Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  FailureOr<RankedTensorType> weight =
      tensorType(location, op, "weight", adaptor.getWeight().getType());
  FailureOr<RankedTensorType> expert =
      tensorType(location, op, "expert", adaptor.getExpert().getType());
  if (failed(x) || failed(weight) || failed(expert))
    return failure();
  if (x->getRank() != 2 || weight->getRank() != 3 || expert->getRank() != 1) // C1
    return inferError(location, op,
                      "expects 'x' to have two dimensions, 'weight' three and 'expert' one, but "
                      "their ranks are ",
                      x->getRank(), ", ", weight->getRank(), " and ", expert->getRank());
  if (!sizesAgree(x->getDimSize(1), weight->getDimSize(1))) // C2
    return inferError(location, op, "expects 'x' and 'weight' to have the same k, but got ",
                      x->getDimSize(1), " and ", weight->getDimSize(1));
  FailureOr<int64_t> rows = checkExperts(location, op, "x", *x, *expert);
  if (failed(rows))
    return failure();
  if (weight->getDimSize(0) == 0 && *rows > 0) // C4
    return inferError(location, op, "expects an expert for the ", *rows,
                      " rows of 'x', but 'weight' is ", shapeText(weight->getShape()));
  results.push_back(RankedTensorType::get({*rows, weight->getDimSize(2)}, x->getElementType()));
  return success();
}

/// Rows that each expert has in a packed weight.
static FailureOr<int64_t> expertRows(std::optional<Location> location, StringRef op,
                                     RankedTensorType weight, PackedAttr packed, int64_t experts) {
  int64_t rows = packed.getLayout() == Layout::Panels ? packed.getN() : weight.getDimSize(0);
  if (experts <= 0 || ShapedType::isDynamic(rows) || rows % experts != 0)
    return inferError(location, op, "expects a positive 'experts' that divides the ",
                      sizeText(rows), " rows of 'weight', which are static, but got ", experts);
  return rows / experts;
}

/// The type and the encoding of a packed weight.
static FailureOr<std::pair<RankedTensorType, PackedAttr>>
packedType(std::optional<Location> location, StringRef op, Type type) {
  FailureOr<RankedTensorType> weight = tensorType(location, op, "weight", type);
  if (failed(weight))
    return failure();
  auto packed = dyn_cast_or_null<PackedAttr>(weight->getEncoding());
  if (!packed)
    return inferError(location, op, "expects 'weight' to be packed, but got ", *weight);
  return std::pair(*weight, packed);
}

/// The type [m, n] of products of rows, an operand of the given name and type, with packed experts;
/// `element` is that of the result, or that of the rows where it is none.
static LogicalResult inferPackedExperts(std::optional<Location> location, StringRef op,
                                        StringRef name, ArrayRef<Type> operands,
                                        IntegerAttr experts, Type element,
                                        SmallVectorImpl<Type> &results) {
  FailureOr<RankedTensorType> x = tensorType(location, op, name, operands[0]);
  FailureOr<RankedTensorType> expert = tensorType(location, op, "expert", operands[2]);
  auto weight = packedType(location, op, operands[1]);
  if (failed(x) || failed(weight) || failed(expert) ||
      failed(requireAttributes(location, op, {{"experts", experts}})))
    return failure();
  if (x->getRank() != 2 || expert->getRank() != 1) // C1
    return inferError(location, op, "expects '", name,
                      "' to have two dimensions and 'expert' one, but their ranks are ",
                      x->getRank(), " and ", expert->getRank());
  auto [type, packed] = *weight;
  if (!sizesAgree(x->getDimSize(1), packed.getK())) // C2
    return inferError(location, op, "expects the last dimension of '", name,
                      "' to be the k of 'weight', ", packed.getK(), ", but got ", x->getDimSize(1));
  FailureOr<int64_t> rows = checkExperts(location, op, name, *x, *expert);
  if (failed(rows))
    return failure();
  FailureOr<int64_t> columns = expertRows(location, op, type, packed, experts.getInt()); // C4
  if (failed(columns))
    return failure();
  results.push_back(
      RankedTensorType::get({*rows, *columns}, element ? element : x->getElementType()));
  return success();
}

LogicalResult DequantGroupedMatmulOp::inferReturnTypes(MLIRContext *,
                                                       std::optional<Location> location,
                                                       Adaptor adaptor,
                                                       SmallVectorImpl<Type> &results) {
  return inferPackedExperts(
      location, getOperationName(), "x",
      {adaptor.getX().getType(), adaptor.getWeight().getType(), adaptor.getExpert().getType()},
      adaptor.getExpertsAttr(), Type(), results);
}

LogicalResult GroupedBlockDotOp::inferReturnTypes(MLIRContext *context,
                                                  std::optional<Location> location, Adaptor adaptor,
                                                  SmallVectorImpl<Type> &results) {
  return inferPackedExperts(
      location, getOperationName(), "q",
      {adaptor.getQ().getType(), adaptor.getWeight().getType(), adaptor.getExpert().getType()},
      adaptor.getExpertsAttr(), Float32Type::get(context), results);
}

LogicalResult GroupedBlockDotOp::verify() { // C5
  return verifyHoldsIntegers(*this, getWeight().getType());
}

LogicalResult DequantMoeWeightsOp::inferReturnTypes(MLIRContext *context,
                                                    std::optional<Location> location,
                                                    Adaptor adaptor,
                                                    SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  auto weight = packedType(location, op, adaptor.getWeight().getType());
  if (failed(weight) ||
      failed(requireAttributes(location, op, {{"experts", adaptor.getExpertsAttr()}})))
    return failure();
  auto [type, packed] = *weight;
  FailureOr<int64_t> columns = expertRows(location, op, type, packed, adaptor.getExperts()); // C1
  if (failed(columns))
    return failure();
  results.push_back(
      RankedTensorType::get({int64_t(adaptor.getExperts()), int64_t(packed.getK()), *columns},
                            Float32Type::get(context)));
  return success();
}
