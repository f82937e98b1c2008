// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writing where indices say: inference and folding.

#include "dialects/MIR.h"

using namespace mlir;
using namespace rlx::mir;

LogicalResult ScatterAddOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                             Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> updates =
      tensorType(location, op, "updates", adaptor.getUpdates().getType());
  FailureOr<RankedTensorType> indices =
      tensorType(location, op, "indices", adaptor.getIndices().getType());
  if (failed(updates) || failed(indices) ||
      failed(requireAttributes(location, op, {{"axis", adaptor.getAxisAttr()}})))
    return failure();
  int64_t axis = adaptor.getAxis(), count = indices->getRank();
  if (axis < 0 || axis > updates->getRank() - count) // C1
    return inferError(location, op,
                      "expects 'axis' to be from 0 to the number of dimensions of 'updates' beyond "
                      "those of 'indices', ",
                      updates->getRank(), " - ", count, ", but got ", axis);
  ArrayRef<int64_t> own = updates->getShape();
  if (!llvm::equal(own.slice(axis, count), indices->getShape(), sizesAgree)) // C2
    return inferError(location, op, "expects 'updates' to have the dimensions of 'indices', ",
                      shapeText(indices->getShape()), ", from ", axis, " on, but it is ",
                      shapeText(own));
  IntegerAttr given = adaptor.getSizeAttr();
  if (bool(given) == bool(adaptor.getLike()) || (given && given.getInt() < 0)) { // C3
    std::string found = given ? std::to_string(given.getInt()) : "none";
    return inferError(location, op, "expects a 'size' that isn't negative, or 'like', but got ",
                      found, adaptor.getLike() ? " with" : " without", " 'like'");
  }
  int64_t size = given ? given.getInt() : 0;
  if (adaptor.getLike()) {
    FailureOr<RankedTensorType> like =
        tensorType(location, op, "like", adaptor.getLike().getType());
    if (failed(like))
      return failure();
    if (axis >= like->getRank()) // C4
      return inferError(location, op, "expects 'like' to have a dimension ", axis,
                        ", but its rank is ", like->getRank());
    size = like->getDimSize(axis);
  }
  SmallVector<int64_t> shape(own.take_front(axis));
  shape.push_back(size);
  llvm::append_range(shape, own.drop_front(axis + count));
  results.push_back(RankedTensorType::get(shape, updates->getElementType()));
  return success();
}

OpFoldResult ScatterAddOp::fold(FoldAdaptor) {
  int64_t size = getType().getDimSize(getAxis());
  if (!getLike() || ShapedType::isDynamic(size))
    return {};
  setSize(size);
  getLikeMutable().clear();
  return getResult();
}
