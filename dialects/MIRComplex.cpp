// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Complex numbers: inference and folders.

#include "dialects/MIR.h"

using namespace mlir;
using namespace rlx::mir;

LogicalResult ComplexOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                          Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> re = tensorType(location, op, "re", adaptor.getRe().getType());
  FailureOr<RankedTensorType> im = tensorType(location, op, "im", adaptor.getIm().getType());
  if (failed(re) || failed(im))
    return failure();
  FailureOr<SmallVector<int64_t>> shape = broadcastShapes(re->getShape(), im->getShape());
  if (failed(shape)) // C1
    return inferError(location, op, "expects the shapes of 're' and 'im' to broadcast, but got ",
                      shapeText(re->getShape()), " and ", shapeText(im->getShape()));
  results.push_back(RankedTensorType::get(*shape, ComplexType::get(Float32Type::get(context))));
  return success();
}

template <typename Op>
static LogicalResult inferPart(MLIRContext *context, std::optional<Location> location,
                               typename Op::Adaptor adaptor, SmallVectorImpl<Type> &results) {
  FailureOr<RankedTensorType> z =
      tensorType(location, Op::getOperationName(), "z", adaptor.getZ().getType());
  if (failed(z))
    return failure();
  results.push_back(RankedTensorType::get(z->getShape(), Float32Type::get(context)));
  return success();
}

#define INFER_PART(Op)                                                                             \
  LogicalResult Op::inferReturnTypes(MLIRContext *context, std::optional<Location> location,       \
                                     Adaptor adaptor, SmallVectorImpl<Type> &results) {            \
    return inferPart<Op>(context, location, adaptor, results);                                     \
  }
INFER_PART(RealOp)
INFER_PART(ImagOp)
INFER_PART(ComplexNormSqOp)
#undef INFER_PART

LogicalResult ComplexNormSqBackwardOp::inferReturnTypes(MLIRContext *,
                                                        std::optional<Location> location,
                                                        Adaptor adaptor,
                                                        SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> z = tensorType(location, op, "z", adaptor.getZ().getType());
  FailureOr<RankedTensorType> g = tensorType(location, op, "g", adaptor.getG().getType());
  if (failed(z) || failed(g))
    return failure();
  FailureOr<SmallVector<int64_t>> shape = joinShapes(z->getShape(), g->getShape());
  if (failed(shape)) // C1
    return inferError(location, op, "expects 'z' and 'g' to have one shape, but got ",
                      shapeText(z->getShape()), " and ", shapeText(g->getShape()));
  results.push_back(RankedTensorType::get(*shape, z->getElementType()));
  return success();
}

OpFoldResult ConjugateOp::fold(FoldAdaptor) {
  auto inner = getZ().getDefiningOp<ConjugateOp>(); // conjugate(conjugate(z)) -> z
  return inner ? OpFoldResult(inner.getZ()) : OpFoldResult();
}
