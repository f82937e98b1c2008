// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products with packed weights, quantisation of activations, and repacking: inference.

#include "dialects/MIR.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

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
// DequantMatmulScaledOp
//===----------------------------------------------------------------------===//

/// Whether `type` is a tensor of such elements and sizes.
static bool isTensorOf(RankedTensorType type, bool floats, ArrayRef<int64_t> shape) {
  Type element = type.getElementType();
  return (floats ? element.isF32() : element.isSignlessInteger(8)) && type.getShape() == shape;
}

FailureOr<RankedTensorType> rlx::mir::inferScaledProduct(const ScaledProduct &op,
                                                         function_ref<InFlightDiagnostic()> error) {
  StringRef scheme = stringifyScaledScheme(op.scheme);
  bool nvfp4 = op.scheme == ScaledScheme::Nvfp4;
  bool fp8 = op.scheme == ScaledScheme::Fp8E4M3 || op.scheme == ScaledScheme::Fp8E5M2;
  bool halves = nvfp4 || op.scheme == ScaledScheme::Int4;
  ArrayRef<int64_t> x = op.x.getShape();
  if (x.empty() || ShapedType::isDynamic(x.back())) // C1
    return error() << "expects 'x' to have a static last dimension, but it is " << shapeText(x);
  if (nvfp4 || fp8) { // C2
    if (op.block)
      return error() << "has no 'block' with " << scheme << ", but got " << *op.block;
  } else if (!op.block || *op.block <= 0) {
    InFlightDiagnostic diagnostic = error() << "expects a positive 'block' with " << scheme;
    if (op.block)
      diagnostic << ", but got " << *op.block;
    return diagnostic;
  }
  auto presence = [&](StringRef name, RankedTensorType type, bool expected) -> LogicalResult { // C3
    if (bool(type) == expected)
      return success();
    return error() << (expected ? "expects '" : "has no '") << name << "' with " << scheme;
  };
  if (failed(presence("zero_point", op.zeroPoint, op.scheme == ScaledScheme::Int8A)) ||
      failed(presence("global_scale", op.globalScale, nvfp4)))
    return failure();

  // N is the last dimension of what isn't flat.
  RankedTensorType wide = halves ? op.scale : op.weight;
  if (wide.getRank() != 2 || ShapedType::isDynamic(wide.getShape().back())) // C4, C5
    return error() << "expects '" << (halves ? "scale" : "weight")
                   << "' to have two static dimensions with " << scheme << ", but it is "
                   << shapeText(wide.getShape());
  int64_t k = x.back(), n = wide.getShape().back();
  SmallVector<int64_t> codes = {k, n};
  if (halves) {
    int64_t count;
    if (llvm::MulOverflow(k, n, count)) // C4
      return error() << "expects K * N below 2^63, but got " << k << " and " << n;
    codes = {count / 2 + count % 2};
  }
  if (!isTensorOf(op.weight, /*floats=*/false, codes)) // C4
    return error() << "expects 'weight' to be " << shapeText(codes) << " x i8 with " << scheme
                   << ", K = " << k << " and N = " << n << ", but got " << op.weight;
  SmallVector<int64_t> scales = {n};
  if (!fp8)
    scales.insert(scales.begin(), llvm::divideCeilSigned(k, nvfp4 ? 16 : *op.block));
  if (!isTensorOf(op.scale, /*floats=*/!nvfp4, scales)) // C5
    return error() << "expects 'scale' to be " << shapeText(scales) << " x "
                   << (nvfp4 ? "i8" : "f32") << " with " << scheme << ", K = " << k
                   << " and N = " << n << ", but got " << op.scale;
  if (op.zeroPoint && op.zeroPoint != op.scale) // C6
    return error() << "expects 'zero_point' to have the type of 'scale', " << op.scale
                   << ", but got " << op.zeroPoint;
  if (op.globalScale && !isTensorOf(op.globalScale, /*floats=*/true, {1})) // C7
    return error() << "expects 'global_scale' to be [1] x f32, but got " << op.globalScale;
  SmallVector<int64_t> shape(x);
  shape.back() = n;
  return RankedTensorType::get(shape, op.x.getElementType());
}

LogicalResult DequantMatmulScaledOp::inferReturnTypes(MLIRContext *,
                                                      std::optional<Location> location,
                                                      Adaptor adaptor,
                                                      SmallVectorImpl<Type> &results) {
  StringRef op = getOperationName();
  if (failed(requireAttributes(location, op, {{"scheme", adaptor.getSchemeAttr()}})))
    return failure();
  auto error = [&]() -> InFlightDiagnostic {
    if (!location)
      return {};
    return mlir::emitError(*location) << "'" << op << "' op ";
  };
  FailureOr<RankedTensorType> result = inferScaledProduct(adaptor, error);
  if (failed(result))
    return failure();
  results.push_back(*result);
  return success();
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
  int64_t bits = adaptor.getBitsAttr() ? adaptor.getBitsAttr().getInt() : 8;
  if (bits != 8 && bits != 15 && bits != 22) // C4
    return inferError(location, op, "expects 'bits' to be 8, 15 or 22, but got ", bits);
  int64_t limit = int64_t(127) << (bits - 8);
  if (block > INT32_MAX / limit) // C5
    return inferError(location, op, "expects 'block' to be at most ", INT32_MAX / limit, " with ",
                      bits, " bits, as sums are of 32 bits, but got ", block);
  SmallVector<int64_t> shape(x->getShape());
  unsigned width = bits == 8 ? 8 : bits == 15 ? 16 : 32;
  results.push_back(RankedTensorType::get(shape, IntegerType::get(context, width)));
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

LogicalResult rlx::mir::verifyHoldsIntegers(Operation *op, RankedTensorType weight) {
  auto packed = cast<PackedAttr>(weight.getEncoding());
  if (!packed.hasIntegers())
    return op->emitOpError("expects 'weight' to hold integers, but its scheme is ")
           << packed.getScheme();
  return success();
}

LogicalResult BlockDotOp::verify() { // C2
  return verifyHoldsIntegers(*this, getWeight().getType());
}

//===----------------------------------------------------------------------===//
// RepackOp
//===----------------------------------------------------------------------===//

/// The dense scheme that an element type is, as a dense weight is packed without conversion.
static std::optional<StringRef> denseScheme(Type element) {
  if (element.isF32())
    return "f32";
  if (element.isF16())
    return "f16";
  if (element.isBF16())
    return "bf16";
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
  std::optional<StringRef> scheme =
      packed ? packed.getScheme() : denseScheme(weight->getElementType());
  if (!scheme || weight->getRank() != 2 || (packed && packed.getLayout() != Layout::Rows)) // C1
    return inferError(location, op, "expects 'weight' to be packed in rows, or to be a dense ",
                      "[n, k] of f32, f16 or bf16, but got ", *weight);
  auto isSize = [](int64_t size) { return size > 0 && size <= INT32_MAX; };
  if (!llvm::all_of(weight->getShape(), isSize)) // C2
    return inferError(location, op, "expects 'weight' to have static dimensions from 1 to ",
                      "2^31 - 1, but got ", *weight);
  // The parser infers before it fills in defaults.
  Layout layout = adaptor.getLayoutAttr() ? adaptor.getLayout() : Layout::Panels;
  if (layout == Layout::Rows) // C4
    return inferError(location, op, "expects 'layout' to be panels or planes, but got rows");
  bool toPanels = layout == Layout::Panels;
  // A layout in which a row has no bytes is none.
  if (packed && (toPanels ? packed.getPanelShape().back() : packed.getPlaneBytes()) == 0) // C3
    return inferError(location, op, "expects a scheme that has ", stringifyLayout(layout),
                      ", but got ", *scheme);
  int64_t n = weight->getDimSize(0), k = packed ? packed.getK() : weight->getDimSize(1);
  auto encoding = PackedAttr::get(context, *scheme, k, toPanels ? n : 0, layout);
  SmallVector<int64_t> shape = {n, encoding.getPlaneBytes()};
  if (toPanels)
    shape = encoding.getPanelShape();
  results.push_back(RankedTensorType::get(shape, IntegerType::get(context, 8), encoding));
  return success();
}
