// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations that move elements: inference, verifiers and folders.

#include "dialects/MIR.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallBitVector.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace rlx::mir;

/// Checks that `axis` is a dimension, counted from the front.
static LogicalResult checkAxis(std::optional<Location> location, StringRef op, int64_t axis,
                               int64_t rank) {
  if (axis >= 0 && axis < rank)
    return success();
  return inferError(location, op, "expects 'axis' to be at least 0 and less than the rank, ", rank,
                    ", but got ", axis);
}

//===----------------------------------------------------------------------===//
// ReshapeOp
//===----------------------------------------------------------------------===//

/// Product of static sizes; nothing where one is dynamic or the product overflows.
static std::optional<int64_t> product(ArrayRef<int64_t> sizes) {
  int64_t result = 1;
  for (int64_t size : sizes)
    if (ShapedType::isDynamic(size) || llvm::MulOverflow(result, size, result))
      return std::nullopt;
  return result;
}

/// The sizes of a reshape's entries -3, dynamic where they aren't known.
static FailureOr<SmallVector<int64_t>> reshapeSizes(std::optional<Location> location,
                                                    ValueRange like, DenseI64ArrayAttr likeDims,
                                                    ArrayAttr sizes, ArrayRef<int64_t> newShape) {
  StringRef op = ReshapeOp::getOperationName();
  FailureOr<SmallVector<int64_t>> dims = likeSizes(location, op, like, likeDims);
  if (failed(dims)) // C5
    return failure();
  const size_t given = sizes ? sizes.size() : 0, wanted = llvm::count(newShape, -3);
  if (given != wanted) // C6
    return inferError(location, op, "expects 'sizes' to have a size for each -3 in 'new_shape', ",
                      wanted, ", but got ", given);
  SmallVector<int64_t> result;
  for (Attribute each : sizes ? sizes.getValue() : ArrayRef<Attribute>()) {
    FailureOr<KnownSize> size = sizeOf(location, op, "sizes", each, *dims);
    if (failed(size)) // C6
      return failure();
    if (*size && **size < 0) // C6
      return inferError(location, op, "expects 'sizes' not to be negative, but got ", each,
                        ", which is ", **size);
    result.push_back(size->value_or(ShapedType::kDynamic));
  }
  return result;
}

/// The entries of `new_shape`, of which -2 and -3 are sizes. What `x` and the result have beside
/// the sizes that both have at one position goes to `from` and `to`.
static FailureOr<SmallVector<int64_t>>
reshapeEntries(std::optional<Location> location, RankedTensorType x, ArrayRef<int64_t> newShape,
               ArrayRef<int64_t> given, SmallVectorImpl<int64_t> &from,
               SmallVectorImpl<int64_t> &to) {
  StringRef op = ReshapeOp::getOperationName();
  SmallVector<int64_t> shape(newShape);
  bool hasRest = false;
  for (auto [position, size] : llvm::enumerate(shape)) {
    if (size < -3 || (size == -1 && hasRest)) // C1
      return inferError(location, op, "expects 'new_shape' to hold -3, -2, sizes and at most one ",
                        "-1, but got ", shapeText(newShape));
    if (size == -1) {
      hasRest = true;
      continue;
    }
    if (size == -2) {
      if (int64_t(position) >= x.getRank()) // C2
        return inferError(location, op, "expects -2 in 'new_shape' at a dimension of 'x', whose ",
                          "rank is ", x.getRank(), ", but got it at ", position);
      size = x.getDimSize(position);
      from[position] = 1;
      continue;
    }
    if (size == -3) {
      size = given.front();
      given = given.drop_front();
    }
    to.push_back(size);
  }
  return shape;
}

static LogicalResult inferReshape(std::optional<Location> location, RankedTensorType x,
                                  ArrayRef<int64_t> newShape, ArrayRef<int64_t> given,
                                  SmallVectorImpl<Type> &results) {
  StringRef op = ReshapeOp::getOperationName();
  SmallVector<int64_t> from(x.getShape()), to;
  FailureOr<SmallVector<int64_t>> shape = reshapeEntries(location, x, newShape, given, from, to);
  if (failed(shape))
    return failure();
  std::optional<int64_t> have = product(from), want = product(to);
  if (!want && areKnown(to)) // C4
    return inferError(location, op, "expects the product of the sizes in 'new_shape' to be ",
                      "below 2^63, but got ", shapeText(newShape));
  auto *rest = llvm::find(*shape, -1);
  const bool hasRest = rest != shape->end();
  bool fits = true;
  if (have && want)
    fits = hasRest ? *want != 0 && *have % *want == 0 : *have == *want;
  if (!fits) // C3
    return inferError(location, op,
                      "expects 'x' and the result to have the same number of elements, but 'x' is ",
                      shapeText(x.getShape()), " and 'new_shape' ", shapeText(newShape));
  if (hasRest)
    *rest = have && want ? *have / *want : ShapedType::kDynamic;
  results.push_back(RankedTensorType::get(*shape, x.getElementType()));
  return success();
}

LogicalResult ReshapeOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                          Adaptor adaptor, SmallVectorImpl<Type> &results) {
  FailureOr<RankedTensorType> x =
      tensorType(location, getOperationName(), "x", adaptor.getX().getType());
  if (failed(x) || failed(requireAttributes(location, getOperationName(),
                                            {{"new_shape", adaptor.getNewShapeAttr()}})))
    return failure();
  FailureOr<SmallVector<int64_t>> sizes =
      reshapeSizes(location, adaptor.getLike(), adaptor.getLikeDimsAttr(), adaptor.getSizesAttr(),
                   adaptor.getNewShape());
  return failed(sizes) ? failure()
                       : inferReshape(location, *x, adaptor.getNewShape(), *sizes, results);
}

OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  // Equal types are equal shapes: at most one dimension isn't static or that of x.
  if (getX().getType() == getType() && getLike().empty())
    return getX();
  FailureOr<SmallVector<int64_t>> sizes =
      reshapeSizes(std::nullopt, getLike(), getLikeDimsAttr(), getSizesAttr(), getNewShape());
  if (failed(sizes))
    return {};
  // Sizes of other values that are known are numbers.
  if (getSizes() && areKnown(*sizes)) {
    SmallVector<int64_t> entries(getNewShape());
    ArrayRef<int64_t> rest = *sizes;
    for (int64_t &entry : entries)
      if (entry == -3) {
        entry = rest.front();
        rest = rest.drop_front();
      }
    setNewShape(entries);
    removeSizesAttr();
    removeLikeDimsAttr();
    getLikeMutable().clear();
    return getResult();
  }
  // reshape(reshape(x)) -> reshape(x), where no size is taken from what lies between, and that the
  // inner one's sizes fit is no condition of its own.
  auto inner = getX().getDefiningOp<ReshapeOp>();
  SmallVector<Type> types;
  if (!inner || !inner.getLike().empty() || llvm::is_contained(getNewShape(), -2) ||
      failed(inferReshape(std::nullopt, inner.getX().getType(), getNewShape(), *sizes, types)) ||
      types.front() != getType())
    return {};
  getXMutable().assign(inner.getX());
  return getResult();
}

//===----------------------------------------------------------------------===//
// TransposeOp
//===----------------------------------------------------------------------===//

LogicalResult TransposeOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                            Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  if (failed(x) ||
      failed(requireAttributes(location, op, {{"permutation", adaptor.getPermutationAttr()}})))
    return failure();
  ArrayRef<int64_t> permutation = adaptor.getPermutation();
  llvm::SmallBitVector seen(x->getRank());
  SmallVector<int64_t> shape;
  for (int64_t dim : permutation) {
    if (dim < 0 || dim >= x->getRank() || seen.test(dim))
      break;
    seen.set(dim);
    shape.push_back(x->getDimSize(dim));
  }
  if (shape.size() != permutation.size() || !seen.all()) // C1
    return inferError(location, op, "expects 'permutation' to hold each of the ", x->getRank(),
                      " dimensions of 'x' once, but got ", shapeText(permutation));
  results.push_back(RankedTensorType::get(shape, x->getElementType()));
  return success();
}

OpFoldResult TransposeOp::fold(FoldAdaptor) {
  if (llvm::equal(getPermutation(), llvm::seq<int64_t>(getPermutation().size())))
    return getX();
  // transpose(transpose(x, p), q) -> transpose(x, p . q)
  auto inner = getX().getDefiningOp<TransposeOp>();
  if (!inner)
    return {};
  SmallVector<int64_t> permutation;
  for (int64_t dim : getPermutation())
    permutation.push_back(inner.getPermutation()[dim]);
  setPermutation(permutation);
  getXMutable().assign(inner.getX());
  return getResult();
}

//===----------------------------------------------------------------------===//
// NarrowOp
//===----------------------------------------------------------------------===//

LogicalResult NarrowOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                         Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  if (failed(x) || failed(requireAttributes(location, op,
                                            {{"axis", adaptor.getAxisAttr()},
                                             {"start", adaptor.getStartAttr()},
                                             {"length", adaptor.getLengthAttr()}})))
    return failure();
  int64_t axis = adaptor.getAxis(), start = adaptor.getStart(), length = adaptor.getLength();
  if (failed(checkAxis(location, op, axis, x->getRank()))) // C1
    return failure();
  SmallVector<int64_t> shape(x->getShape());
  int64_t size = shape[axis];
  if (start < 0 || length < 0 ||
      (ShapedType::isStatic(size) && (start > size || length > size - start))) // C2
    return inferError(location, op, "expects a range within dimension ", axis, " of 'x', of size ",
                      sizeText(size), ", but got start ", start, " and length ", length);
  shape[axis] = length;
  results.push_back(RankedTensorType::get(shape, x->getElementType()));
  return success();
}

OpFoldResult NarrowOp::fold(FoldAdaptor) {
  // A range as long as a static dimension is all of it.
  return getX().getType() == getType() ? OpFoldResult(getX()) : OpFoldResult();
}

//===----------------------------------------------------------------------===//
// SliceOp
//===----------------------------------------------------------------------===//

/// How many elements Python's slice of `size` takes; `step` is neither 0 nor the least integer.
static int64_t sliceLength(int64_t size, std::optional<int64_t> start, std::optional<int64_t> stop,
                           int64_t step) {
  // Bounds are positions from 0 to `size`, and for negative steps from -1 to `size - 1`.
  const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
  auto bound = [&](std::optional<int64_t> given, int64_t otherwise) {
    if (!given)
      return otherwise;
    return std::clamp(*given < 0 ? *given + size : *given, low, high);
  };
  const int64_t from = bound(start, step < 0 ? high : low), to = bound(stop, step < 0 ? low : high);
  const int64_t distance = step < 0 ? from - to : to - from, stride = std::abs(step);
  return distance <= 0 ? 0 : (distance - 1) / stride + 1;
}

static std::optional<int64_t> valueOf(IntegerAttr attribute) {
  return attribute ? std::optional(attribute.getInt()) : std::nullopt;
}

LogicalResult SliceOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                        Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  if (failed(x) || failed(requireAttributes(location, op, {{"axis", adaptor.getAxisAttr()}})))
    return failure();
  const int64_t axis = adaptor.getAxis();
  if (failed(checkAxis(location, op, axis, x->getRank()))) // C1
    return failure();
  const int64_t step = valueOf(adaptor.getStepAttr()).value_or(1);
  if (step == 0 || step == std::numeric_limits<int64_t>::min()) // C2
    return inferError(location, op,
                      "expects 'step' to be neither 0 nor the least integer, but got ", step);
  std::optional<int64_t> length = valueOf(adaptor.getLengthAttr());
  if (length && *length < 0) // C3
    return inferError(location, op, "expects 'length' not to be negative, but got ", *length);
  FailureOr<SmallVector<int64_t>> dims =
      likeSizes(location, op, adaptor.getLike(), adaptor.getLikeDimsAttr());
  if (failed(dims)) // C4
    return failure();
  bool isKnown = ShapedType::isStatic(x->getDimSize(axis));
  auto bound = [&](StringRef name, Attribute given) -> FailureOr<KnownSize> {
    if (!given)
      return KnownSize();
    FailureOr<KnownSize> found = sizeOf(location, op, name, given, *dims);
    isKnown &= succeeded(found) && found->has_value();
    return found;
  };
  FailureOr<KnownSize> start = bound("start", adaptor.getStartAttr());
  FailureOr<KnownSize> stop = bound("stop", adaptor.getStopAttr());
  if (failed(start) || failed(stop)) // C5
    return failure();
  SmallVector<int64_t> shape(x->getShape());
  if (isKnown) {
    const int64_t taken = sliceLength(shape[axis], *start, *stop, step);
    if (length && *length != taken) // C3
      return inferError(location, op,
                        "expects 'length' to be the number of elements of the slice, ", taken,
                        ", but got ", *length);
    length = taken;
  }
  shape[axis] = length.value_or(ShapedType::kDynamic);
  results.push_back(RankedTensorType::get(shape, x->getElementType()));
  return success();
}

OpFoldResult SliceOp::fold(FoldAdaptor) {
  FailureOr<SmallVector<int64_t>> dims =
      likeSizes(std::nullopt, getOperationName(), getLike(), getLikeDimsAttr());
  if (failed(dims))
    return {};
  // All elements in their order: without bounds, or as many as a static dimension has.
  auto start = dyn_cast_or_null<IntegerAttr>(getStartAttr());
  const bool isWhole = getStep() == 1 && !getLength() && !getStopAttr() &&
                       (!getStartAttr() || (start && start.getInt() == 0));
  const bool isStatic = ShapedType::isStatic(getType().getDimSize(getAxis()));
  if (getX().getType() == getType() && (isWhole || (isStatic && getStep() == 1)))
    return getX();
  // Bounds that are known are numbers.
  IntegerAttr from = knownSize(getStartAttr(), *dims), to = knownSize(getStopAttr(), *dims);
  if (getLike().empty() || bool(from) != bool(getStartAttr()) || bool(to) != bool(getStopAttr()))
    return {};
  if (from)
    setStartAttr(from);
  if (to)
    setStopAttr(to);
  removeLikeDimsAttr();
  getLikeMutable().clear();
  return getResult();
}

//===----------------------------------------------------------------------===//
// DynamicSliceOp
//===----------------------------------------------------------------------===//

LogicalResult DynamicSliceOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                               Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  if (failed(x) ||
      failed(requireAttributes(
          location, op, {{"axis", adaptor.getAxisAttr()}, {"length", adaptor.getLengthAttr()}})))
    return failure();
  const int64_t axis = adaptor.getAxis();
  if (failed(checkAxis(location, op, axis, x->getRank()))) // C1
    return failure();
  FailureOr<SmallVector<int64_t>> dims =
      likeSizes(location, op, adaptor.getLike(), adaptor.getLikeDimsAttr());
  if (failed(dims)) // C2
    return failure();
  FailureOr<KnownSize> length = sizeOf(location, op, "length", adaptor.getLengthAttr(), *dims);
  if (failed(length)) // C3
    return failure();
  SmallVector<int64_t> shape(x->getShape());
  if (*length && (**length < 0 || (ShapedType::isStatic(shape[axis]) && **length > shape[axis])))
    return inferError(location, op, "expects 'length' to be from 0 to the size of dimension ", axis,
                      " of 'x', ", sizeText(shape[axis]), ", but got ", **length); // C4
  shape[axis] = length->value_or(ShapedType::kDynamic);
  results.push_back(RankedTensorType::get(shape, x->getElementType()));
  return success();
}

OpFoldResult DynamicSliceOp::fold(FoldAdaptor) {
  FailureOr<SmallVector<int64_t>> dims =
      likeSizes(std::nullopt, getOperationName(), getLike(), getLikeDimsAttr());
  if (failed(dims))
    return {};
  // All elements of a static dimension are at one position.
  if (getX().getType() == getType() && ShapedType::isStatic(getType().getDimSize(getAxis())))
    return getX();
  IntegerAttr length = knownSize(getLengthAttr(), *dims);
  if (getLike().empty() || !length)
    return {};
  setLengthAttr(length);
  removeLikeDimsAttr();
  getLikeMutable().clear();
  return getResult();
}

//===----------------------------------------------------------------------===//
// DynamicUpdateSliceOp
//===----------------------------------------------------------------------===//

LogicalResult DynamicUpdateSliceOp::verify() {
  RankedTensorType x = getX().getType(), update = getUpdate().getType();
  const int64_t axis = getAxis();
  if (axis < 0 || axis >= x.getRank()) // C1
    return emitOpError("expects 'axis' to be at least 0 and less than the rank, ")
           << x.getRank() << ", but got " << axis;
  bool isAlike = x.getRank() == update.getRank();
  for (int64_t dim = 0; isAlike && dim < x.getRank(); ++dim)
    isAlike = dim == axis || sizesAgree(x.getDimSize(dim), update.getDimSize(dim));
  if (!isAlike) // C2
    return emitOpError("expects 'update' to be like 'x' in every dimension but ")
           << axis << ", but 'x' is " << shapeText(x.getShape()) << " and 'update' "
           << shapeText(update.getShape());
  const int64_t size = x.getDimSize(axis), part = update.getDimSize(axis);
  if (ShapedType::isStatic(size) && ShapedType::isStatic(part) && part > size) // C3
    return emitOpError("expects 'update' to be at most as large as 'x' along dimension ")
           << axis << ", " << size << ", but it is " << part;
  return success();
}

//===----------------------------------------------------------------------===//
// DimOp
//===----------------------------------------------------------------------===//

LogicalResult DimOp::verify() {
  const int64_t axis = getAxis(), rank = getX().getType().getRank();
  if (axis < 0 || axis >= rank) // C1
    return emitOpError("expects 'axis' to be at least 0 and less than the rank, ")
           << rank << ", but got " << axis;
  if (getType().getRank() != 0) // C2
    return emitOpError("expects a result without dimensions, but it is ") << getType();
  return success();
}

//===----------------------------------------------------------------------===//
// ConcatOp
//===----------------------------------------------------------------------===//

LogicalResult ConcatOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                         Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  if (adaptor.getInputs().empty()) // C1
    return inferError(location, op, "expects at least one input");
  FailureOr<RankedTensorType> first =
      tensorType(location, op, "inputs", adaptor.getInputs().front().getType());
  if (failed(first) || failed(requireAttributes(location, op, {{"axis", adaptor.getAxisAttr()}})))
    return failure();
  int64_t axis = adaptor.getAxis();
  if (failed(checkAxis(location, op, axis, first->getRank()))) // C2
    return failure();
  SmallVector<int64_t> shape(first->getShape());
  for (auto [index, input] : llvm::enumerate(adaptor.getInputs().drop_front())) {
    FailureOr<RankedTensorType> type = tensorType(location, op, "inputs", input.getType());
    if (failed(type))
      return failure();
    if (type->getRank() != first->getRank() ||
        type->getElementType() != first->getElementType()) // C1
      return inferError(location, op,
                        "expects inputs of one rank and element type, but input 0 is ", *first,
                        " and input ", index + 1, " is ", *type);
    if (type->getEncoding() != first->getEncoding()) // C5
      return inferError(location, op, "expects inputs of one encoding, but input 0 is ", *first,
                        " and input ", index + 1, " is ", *type);
    for (auto [dim, size, other] : llvm::enumerate(shape, type->getShape())) {
      if (int64_t(dim) == axis) {
        if (ShapedType::isDynamic(size) || ShapedType::isDynamic(other))
          size = ShapedType::kDynamic;
        else if (llvm::AddOverflow(size, other, size)) // C4
          return inferError(location, op, "expects sizes along 'axis' with a sum below 2^63, but ",
                            "input ", index + 1, " exceeds it with ", other);
        continue;
      }
      FailureOr<int64_t> joined = joinSizes(size, other);
      if (failed(joined)) // C3
        return inferError(location, op, "expects inputs alike in dimension ", dim, ", but it is ",
                          size, " in input 0 and ", other, " in input ", index + 1);
      size = *joined;
    }
  }
  auto packed = dyn_cast_or_null<PackedAttr>(first->getEncoding());
  if (packed && (axis != 0 || packed.getLayout() != Layout::Rows)) // C5
    return inferError(location, op,
                      "expects packed inputs in rows, joined along axis 0, but axis is ", axis,
                      " and input 0 is ", *first);
  results.push_back(RankedTensorType::get(shape, first->getElementType(), first->getEncoding()));
  return success();
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  return getInputs().size() == 1 ? OpFoldResult(getInputs().front()) : OpFoldResult();
}

//===----------------------------------------------------------------------===//
// ExpandOp
//===----------------------------------------------------------------------===//

LogicalResult ExpandOp::verify() {
  ArrayRef<int64_t> from = getX().getType().getShape(), to = getType().getShape();
  if (from.size() > to.size()) // C1
    return emitOpError("expects the result to have at least the rank of 'x', ")
           << from.size() << ", but its rank is " << to.size();
  if (!broadcastsTo(from, to)) // C2
    return emitOpError("expects each size of 'x' to be 1 or that of the result, but 'x' is ")
           << shapeText(from) << " and the result " << shapeText(to);
  std::optional<ArrayRef<int64_t>> dims = getLikeDims();
  if (bool(getLike()) != dims.has_value() || (dims && dims->size() != to.size())) // C3
    return emitOpError("expects 'like' and 'like_dims', with an entry for each of the ")
           << to.size() << " dimensions of the result, or neither, but got "
           << (dims ? shapeText(*dims) : "none") << (getLike() ? " with" : " without") << " 'like'";
  ArrayRef<int64_t> like;
  if (getLike())
    like = getLike().getType().getShape();
  for (auto [dim, size] : llvm::enumerate(to)) {
    const int64_t entry = dims ? (*dims)[dim] : -1;
    const bool isOpen = ShapedType::isDynamic(size);
    const bool exists = entry >= 0 && entry < int64_t(like.size());
    if (entry != -1 && !(exists && sizesAgree(size, like[entry]))) // C4
      return emitOpError("expects entries of 'like_dims' to be -1 or dimensions of 'like', ")
             << shapeText(like) << ", of the size that the result has, " << shapeText(to)
             << ", but got " << entry << " for dimension " << dim;
    const size_t missing = to.size() - from.size();
    if (isOpen && entry == -1 && (dim < missing || ShapedType::isStatic(from[dim - missing]))) // C5
      return emitOpError("expects dynamic dimensions of the result to be those of 'x', ")
             << shapeText(from) << ", or of 'like', but dimension " << dim << " of "
             << shapeText(to) << " is neither";
  }
  return success();
}

OpFoldResult ExpandOp::fold(FoldAdaptor) {
  // `like` stays: that its sizes are those of x is a condition at run time.
  return !getLike() && getX().getType() == getType() ? OpFoldResult(getX()) : OpFoldResult();
}

//===----------------------------------------------------------------------===//
// GatherOp
//===----------------------------------------------------------------------===//

LogicalResult GatherOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                         Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> table =
      tensorType(location, op, "table", adaptor.getTable().getType());
  FailureOr<RankedTensorType> indices =
      tensorType(location, op, "indices", adaptor.getIndices().getType());
  if (failed(table) || failed(indices) ||
      failed(requireAttributes(location, op, {{"axis", adaptor.getAxisAttr()}})))
    return failure();
  int64_t axis = adaptor.getAxis();
  if (failed(checkAxis(location, op, axis, table->getRank()))) // C1
    return failure();
  Type element = table->getElementType();
  SmallVector<int64_t> sizes(table->getShape());
  if (auto packed = dyn_cast_or_null<PackedAttr>(table->getEncoding())) {
    if (axis != 0 || packed.getLayout() == Layout::Panels) // C2
      return inferError(location, op, "expects axis 0 and layout rows or planes with a packed ",
                        "'table', but got axis ", axis, " and layout ",
                        stringifyLayout(packed.getLayout()));
    element = Float32Type::get(context);
    sizes = {sizes.front(), packed.getK()};
  }
  // The parser infers before it fills in defaults.
  int64_t batches = adaptor.getBatchDimsAttr() ? adaptor.getBatchDimsAttr().getInt() : 0;
  if (batches < 0 || batches > std::min(axis, indices->getRank())) // C3
    return inferError(location, op, "expects 'batch_dims' to be at least 0 and at most 'axis', ",
                      axis, ", and the rank of 'indices', ", indices->getRank(), ", but got ",
                      batches);
  ArrayRef<int64_t> all = sizes, own = indices->getShape();
  SmallVector<int64_t> shape(all.take_front(axis));
  for (auto [dim, size, other] :
       llvm::enumerate(MutableArrayRef(shape).take_front(batches), own.take_front(batches))) {
    FailureOr<int64_t> joined = joinSizes(size, other);
    if (failed(joined)) // C4
      return inferError(location, op, "expects 'table' and 'indices' to be alike in dimension ",
                        dim, " of 'batch_dims', but got ", size, " and ", other);
    size = *joined;
  }
  if (all[axis] == 0 && llvm::all_of(own, [](int64_t size) { return size > 0; })) // C5
    return inferError(location, op, "expects 'table' to have an entry along axis ", axis,
                      " for indices ", shapeText(own), ", but it is ", shapeText(all));
  llvm::append_range(shape, own.drop_front(batches));
  llvm::append_range(shape, all.drop_front(axis + 1));
  results.push_back(RankedTensorType::get(shape, element));
  return success();
}
