// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products with packed weights, quantisation of activations, and repacking: inference.

#include "dialects/MIR.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace rlx::mir;

/// Outputs of a packed weight: its rows, or what its panels hold.
static int64_t outputs(RankedTensorType weight, PackedAttr packed) {
  return packed.getLayout() == Layout::Panels ? packed.getN() : weight.getDimSize(0);
}

/// Type of the product of `x` with the packed `weight`.
static LogicalResult inferPackedProduct(std::optional<Location> location, StringRef op,
                                        StringRef name, Type xType, Type weightType, Type element,
                                        SmallVectorImpl<Type> &results) {
  FailureOr<RankedTensorType> x = tensorType(location, op, name, xType);
  FailureOr<RankedTensorType> weight = tensorType(location, op, "weight", weightType);
  if (failed(x) || failed(weight))
    return failure();
  auto packed = dyn_cast_or_null<PackedAttr>(weight->getEncoding());
  if (!packed)
    return inferError(location, op, "expects 'weight' to be packed, but got ", *weight);
  if (x->getRank() == 0) // C1
    return inferError(location, op, "expects '", name,
                      "' to have at least one dimension, but its rank is 0");
  SmallVector<int64_t> shape(x->getShape());
  if (!sizesAgree(shape.back(), packed.getK()))
    return inferError(location, op, "expects the last dimension of '", name,
                      "' to be the k of 'weight', ", packed.getK(), ", but got ", shape.back());
  shape.back() = outputs(*weight, packed);
  results.push_back(RankedTensorType::get(shape, element ? element : x->getElementType()));
  return success();
}

LogicalResult DequantMatmulOp::inferReturnTypes(MLIRContext *, std::optional<Location> location,
                                                Adaptor adaptor, SmallVectorImpl<Type> &results) {
  return inferPackedProduct(location, getOperationName(), "x", adaptor.getX().getType(),
                            adaptor.getWeight().getType(), /*element=*/{}, results);
}

//===----------------------------------------------------------------------===//
// BlockQuantizeOp
//===----------------------------------------------------------------------===//

LogicalResult BlockQuantizeOp::inferReturnTypes(MLIRContext *context,
                                                std::optional<Location> location, Adaptor adaptor,
                                                SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> x = tensorType(location, op, "x", adaptor.getX().getType());
  if (failed(x))
    return failure();
  if (x->getRank() == 0 || ShapedType::isDynamic(x->getShape().back())) // C1
    return inferError(location, op, "expects 'x' to have a static last dimension, but it is ",
                      shapeText(x->getShape()));
  // The parser infers before it fills in defaults.
  int64_t block = adaptor.getBlockAttr() ? adaptor.getBlockAttr().getInt() : 32;
  int64_t k = x->getShape().back();
  if (block <= 0 || block % 32 != 0) // C2
    return inferError(location, op, "expects 'block' to be a positive multiple of 32, but got ",
                      block);
  if (k % block != 0) // C3
    return inferError(location, op, "expects the last dimension of 'x' to be a multiple of ",
                      "'block', ", block, ", but got ", k);
  SmallVector<int64_t> shape(x->getShape());
  results.push_back(RankedTensorType::get(shape, IntegerType::get(context, 8)));
  shape.back() = k / block;
  results.push_back(RankedTensorType::get(shape, Float32Type::get(context)));
  results.push_back(RankedTensorType::get(shape, IntegerType::get(context, 32)));
  return success();
}

//===----------------------------------------------------------------------===//
// BlockDotOp
//===----------------------------------------------------------------------===//

LogicalResult BlockDotOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                           Adaptor adaptor, SmallVectorImpl<Type> &results) {
  return inferPackedProduct(location, getOperationName(), "q", adaptor.getQ().getType(),
                            adaptor.getWeight().getType(), Float32Type::get(context), results);
}

LogicalResult BlockDotOp::verify() {
  auto packed = cast<PackedAttr>(getWeight().getType().getEncoding());
  if (packed.getBlockLength() == 1) // C2
    return emitOpError("expects 'weight' to hold integers, but its scheme is ")
           << stringifyScheme(packed.getScheme());
  return success();
}

//===----------------------------------------------------------------------===//
// RepackOp
//===----------------------------------------------------------------------===//

/// The dense scheme that an element type is, as a dense weight is packed without conversion.
static std::optional<Scheme> denseScheme(Type element) {
  if (element.isF32())
    return Scheme::F32;
  if (element.isF16())
    return Scheme::F16;
  if (element.isBF16())
    return Scheme::BF16;
  return std::nullopt;
}

LogicalResult RepackOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location,
                                         Adaptor adaptor, SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  FailureOr<RankedTensorType> weight =
      tensorType(location, op, "weight", adaptor.getWeight().getType());
  if (failed(weight))
    return failure();
  auto packed = dyn_cast_or_null<PackedAttr>(weight->getEncoding());
  std::optional<Scheme> scheme =
      packed ? packed.getScheme() : denseScheme(weight->getElementType());
  if (!scheme || weight->getRank() != 2 || (packed && packed.getLayout() != Layout::Rows)) // C1
    return inferError(location, op, "expects 'weight' to be packed in rows, or to be a dense ",
                      "[n, k] of f32, f16 or bf16, but got ", *weight);
  auto isSize = [](int64_t size) { return size > 0 && size <= INT32_MAX; };
  if (!llvm::all_of(weight->getShape(), isSize)) // C2
    return inferError(location, op, "expects 'weight' to have static dimensions from 1 to ",
                      "2^31 - 1, but got ", *weight);
  if (packed && packed.getPanelShape().back() == 0) // C3: panels of no bytes are none
    return inferError(location, op, "expects a scheme that has panels, but got ",
                      stringifyScheme(*scheme));
  int64_t n = weight->getDimSize(0), k = packed ? packed.getK() : weight->getDimSize(1);
  auto panels = PackedAttr::get(context, *scheme, k, n, Layout::Panels);
  results.push_back(
      RankedTensorType::get(panels.getPanelShape(), IntegerType::get(context, 8), panels));
  return success();
}
