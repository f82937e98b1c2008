// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention, rotary positions and the cache: verifiers.

#include "dialects/MIR.h"
#include "dialects/MIRFormats.h"

using namespace mlir;
using namespace rlx::mir;

/// Checks that `pos` has an entry for each batch.
static LogicalResult verifyPositions(Operation *op, Value pos, int64_t batch) {
  if (!pos)
    return success();
  int64_t entries = cast<RankedTensorType>(pos.getType()).getDimSize(0);
  if (sizesAgree(entries, batch))
    return success();
  return op->emitOpError("expects 'pos' to have one entry per batch, ")
         << batch << ", but its length is " << entries;
}

/// Whether what is stored may be of another type than what is computed with: f16 and bf16 serve
/// f32.
static bool isStorageFor(Type stored, Type computed) {
  return stored == computed || (computed.isF32() && (stored.isF16() || stored.isBF16()));
}

LogicalResult rlx::mir::checkKept(const KeptRows &rows, function_ref<InFlightDiagnostic()> error) {
  Type stored = rows.type.getElementType();
  if (stored.isInteger(8) != rows.scheme.has_value())
    return error() << "expects '" << rows.schemeName << "' exactly where '" << rows.name
                   << "' is of i8, but '" << rows.name << "' is of " << stored << " and '"
                   << rows.schemeName << "' is " << (rows.scheme ? "present" : "absent");
  if (!rows.scheme) {
    if (isStorageFor(stored, rows.element))
      return success();
    return error() << "expects '" << rows.name << "' to have the element type of '" << rows.of
                   << "', or f16, bf16 or i8 where that is f32, but '" << rows.of << "' is of "
                   << rows.element << " and '" << rows.name << "' of " << stored;
  }
  StringRef scheme = stringifyCacheScheme(*rows.scheme);
  if (!rows.element.isF32())
    return error() << "expects '" << rows.of << "' to be of f32 where '" << rows.name
                   << "' is of blocks of " << scheme << ", but got " << rows.element;
  std::optional<BlockFormat> format = findBlockFormat(scheme);
  if (!format)
    return error() << "unknown format '" << scheme << "', known are " << blockFormatNames();
  if (ShapedType::isDynamic(rows.part) || rows.part % format->length != 0)
    return error() << "expects " << rows.partName << " to be a multiple of the block length of "
                   << scheme << ", " << format->length << ", but got " << sizeText(rows.part);
  int64_t bytes = rows.width / format->length * format->bytes;
  if (!sizesAgree(rows.type.getShape().back(), bytes))
    return error() << "expects '" << rows.name << "' to have rows of " << bytes << " bytes, "
                   << rows.width << " elements in blocks of " << scheme << ", but got "
                   << rows.type.getShape().back();
  return success();
}

/// Whether a number of heads or elements is positive, and small enough to be multiplied.
static bool isCount(int64_t number) { return number > 0 && number <= INT32_MAX; }

//===----------------------------------------------------------------------===//
// AttentionOp
//===----------------------------------------------------------------------===//

int64_t AttentionOp::getKvHeads() { return getNumKvHeads().value_or(getNumHeads()); }

int64_t AttentionBackwardOp::getKvHeads() { return getNumKvHeads().value_or(getNumHeads()); }

namespace {
/// What the shape of an operand says in its layout; `heads` and `headDim` are one product, in
/// `headDim`, where the layout is packed.
struct HeadShape {
  int64_t batch = 1, heads = 1, length, headDim;
};
} // namespace

static FailureOr<HeadShape> headShape(ArrayRef<int64_t> shape, HeadLayout layout) {
  HeadShape result;
  if (layout == HeadLayout::Packed) {
    if (shape.size() != 2 && shape.size() != 3)
      return failure();
    result.headDim = shape.back();
    result.length = shape[shape.size() - 2];
    if (shape.size() == 3)
      result.batch = shape.front();
    return result;
  }
  if (shape.size() != 4)
    return failure();
  bool headsFirst = layout == HeadLayout::BHSD;
  result.batch = shape[0];
  result.heads = shape[headsFirst ? 1 : 2];
  result.length = shape[headsFirst ? 2 : 1];
  result.headDim = shape[3];
  return result;
}

/// The rules of what attention reads as keys and values, of which only the forward one has schemes.
static LogicalResult verifyKept(AttentionOp op) {
  int64_t width = op.getKvHeads() * op.getHeadDim();
  auto error = [&] { return op.emitOpError(); };
  auto check = [&](StringRef name, StringRef schemeName, RankedTensorType type,
                   std::optional<CacheScheme> scheme) -> LogicalResult {
    if (scheme && op.getLayout() != HeadLayout::Packed) // C12
      return error() << "expects layout packed with '" << schemeName << "', but got "
                     << stringifyHeadLayout(op.getLayout());
    return checkKept({name, schemeName, type, scheme, width, int64_t(op.getHeadDim()), "'head_dim'",
                      op.getQ().getType().getElementType(), "q"},
                     error);
  };
  if (failed(check("k", "k_scheme", op.getK().getType(), op.getKScheme())))
    return failure();
  return check("v", "v_scheme", op.getV().getType(), op.getVScheme());
}

static LogicalResult verifyKept(AttentionBackwardOp op) {
  Type element = op.getQ().getType().getElementType(),
       stored = op.getK().getType().getElementType();
  if (isStorageFor(stored, element))
    return success();
  return op.emitOpError("expects 'k' and 'v' to have the element type of 'q', or f16 or bf16 where "
                        "that is f32, but 'q' is of ")
         << element << " and 'k' of " << stored;
}

/// Checks that an operand holds `heads` heads of `headDim` elements.
template <typename Op>
static LogicalResult verifyHeads(Op op, StringRef name, HeadShape shape, int64_t heads) {
  int64_t headDim = op.getHeadDim();
  if (op.getLayout() == HeadLayout::Packed) {
    if (sizesAgree(shape.headDim, heads * headDim))
      return success();
    return op.emitOpError("expects '")
           << name << "' to have rows of " << heads << " heads of " << headDim << " elements, "
           << heads * headDim << ", but got " << shape.headDim;
  }
  if (sizesAgree(shape.heads, heads) && sizesAgree(shape.headDim, headDim))
    return success();
  return op.emitOpError("expects '")
         << name << "' to have " << heads << " heads of " << headDim << " elements, but got "
         << sizeText(shape.heads) << " of " << sizeText(shape.headDim);
}

template <typename Op> static LogicalResult verifyMask(Op op, HeadShape q, HeadShape k) {
  MaskKind kind = op.getMaskKind();
  bool wanted = kind == MaskKind::Custom || kind == MaskKind::Bias;
  if (wanted != bool(op.getMask())) // C5
    return op.emitOpError("expects 'mask' exactly with mask_kind custom or bias, but mask_kind is ")
           << stringifyMaskKind(kind) << " and 'mask' is " << (wanted ? "absent" : "present");
  if (!wanted)
    return success();
  RankedTensorType mask = op.getMask().getType();
  SmallVector<int64_t> target{q.batch, int64_t(op.getNumHeads()), q.length, k.length};
  bool perKey = kind == MaskKind::Custom && mask.getRank() == 2;
  if (perKey)
    target = {q.batch, k.length};
  if (mask.getRank() != int64_t(target.size()) || !broadcastsTo(mask.getShape(), target) ||
      !sizesAgree(mask.getShape().back(), k.length)) // C6
    return op.emitOpError("expects 'mask' of kind ")
           << stringifyMaskKind(kind) << " to be " << shapeText(target)
           << ", where all but the last may be 1, but got " << shapeText(mask.getShape());
  Type element = mask.getElementType(), wantedElement = op.getQ().getType().getElementType();
  if (element != wantedElement && !(kind == MaskKind::Custom && element.isInteger(1))) // C6
    return op.emitOpError("expects 'mask' of kind ")
           << stringifyMaskKind(kind) << " to be of " << wantedElement
           << (kind == MaskKind::Custom ? " or i1" : "") << ", but got " << element;
  return success();
}

/// The rules of attention, which its gradients have, too.
template <typename Op> static LogicalResult verifyAttention(Op op) {
  ArrayRef<int64_t> qShape = op.getQ().getType().getShape(),
                    kShape = op.getK().getType().getShape(),
                    vShape = op.getV().getType().getShape();
  FailureOr<HeadShape> q = headShape(qShape, op.getLayout()), k = headShape(kShape, op.getLayout()),
                       v = headShape(vShape, op.getLayout());
  if (failed(q) || failed(k) || failed(v) || qShape.size() != kShape.size() ||
      qShape.size() != vShape.size()) // C1
    return op.emitOpError("expects 'q', 'k' and 'v' to have the rank of layout ")
           << stringifyHeadLayout(op.getLayout()) << ", "
           << (op.getLayout() == HeadLayout::Packed ? "all 2 or all 3" : "4")
           << ", but their ranks are " << qShape.size() << ", " << kShape.size() << " and "
           << vShape.size();
  int64_t heads = op.getNumHeads(), kvHeads = op.getKvHeads(), headDim = op.getHeadDim();
  if (!isCount(heads) || !isCount(kvHeads) || !isCount(headDim) || heads % kvHeads != 0) // C2
    return op.emitOpError("expects positive 'num_heads', 'num_kv_heads' and 'head_dim', with "
                          "'num_heads' a multiple of 'num_kv_heads', but got ")
           << heads << ", " << kvHeads << " and " << headDim;
  if (failed(verifyKept(op))) // C10 to C12
    return failure();
  auto isDense = [](Value x) {
    return !cast<RankedTensorType>(x.getType()).getElementType().isInteger();
  };
  if (failed(verifyHeads(op, "q", *q, heads)) ||
      (isDense(op.getK()) && failed(verifyHeads(op, "k", *k, kvHeads))) ||
      (isDense(op.getV()) && failed(verifyHeads(op, "v", *v, kvHeads)))) // C3
    return failure();
  if (!sizesAgree(q->batch, k->batch) || !sizesAgree(q->batch, v->batch)) // C4
    return op.emitOpError("expects 'q', 'k' and 'v' to have the same batch, but got ")
           << sizeText(q->batch) << ", " << sizeText(k->batch) << " and " << sizeText(v->batch);
  if (!sizesAgree(k->length, v->length)) // C4
    return op.emitOpError("expects 'k' and 'v' to have the same length, but got ")
           << k->length << " and " << v->length;
  if (failed(verifyMask(op, *q, *k)))
    return failure();
  bool sliding = op.getMaskKind() == MaskKind::SlidingWindow;
  if (sliding != bool(op.getWindowAttr())) // C7
    return op.emitOpError(
               "expects 'window' exactly with mask_kind sliding_window, but mask_kind is ")
           << stringifyMaskKind(op.getMaskKind()) << " and 'window' is "
           << (sliding ? "absent" : "present");
  if (sliding && int64_t(*op.getWindow()) <= 0) // C7
    return op.emitOpError("expects a positive 'window', but got ") << int64_t(*op.getWindow());
  if (failed(verifyPositions(op, op.getPos(), q->batch))) // C8
    return failure();
  if (op.getScale() && !op.getScale()->isFinite()) // C9
    return op.emitOpError("expects a finite 'scale', but got ")
           << op.getScaleAttr().getValueAsDouble();
  if (op.getSoftcap() &&
      !(op.getSoftcap()->isFinite() && op.getSoftcapAttr().getValueAsDouble() > 0)) // C9
    return op.emitOpError("expects a positive, finite 'softcap', but got ")
           << op.getSoftcapAttr().getValueAsDouble();
  return success();
}

LogicalResult AttentionOp::verify() {
  if (failed(verifyAttention(*this)))
    return failure();
  if (!getSinks())
    return success();
  RankedTensorType sinks = getSinks().getType();
  int64_t heads = getNumHeads();
  if (sinks.getRank() != 1 || !sizesAgree(sinks.getDimSize(0), heads)) // C13
    return emitOpError("expects 'sinks' to have one entry per query head, [")
           << heads << "], but got " << shapeText(sinks.getShape());
  Type element = getQ().getType().getElementType();
  if (!sinks.getElementType().isF32() && sinks.getElementType() != element) // C13
    return emitOpError("expects 'sinks' to be of f32 or of the element type of 'q', ")
           << element << ", but got " << sinks.getElementType();
  return success();
}

LogicalResult AttentionBackwardOp::verify() { return verifyAttention(*this); }

//===----------------------------------------------------------------------===//
// RopeOp
//===----------------------------------------------------------------------===//

int64_t RopeOp::getRotated() { return getNRot().value_or(getHeadDim()); }

LogicalResult RopeOp::verify() {
  ArrayRef<int64_t> x = getX().getType().getShape(), table = getCos().getType().getShape();
  if (x.size() < 2) // C1
    return emitOpError("expects 'x' to have at least two dimensions, but its rank is ") << x.size();
  int64_t headDim = getHeadDim(), rotated = getRotated(), width = x.back();
  if (!isCount(headDim) || headDim % 2 != 0 ||
      (ShapedType::isStatic(width) && width % headDim != 0)) // C2
    return emitOpError("expects a positive, even 'head_dim' that divides the last dimension of "
                       "'x', ")
           << sizeText(width) << ", but got " << headDim;
  if (rotated <= 0 || rotated % 2 != 0 || rotated > headDim) // C3
    return emitOpError("expects 'n_rot' to be positive, even and at most 'head_dim', ")
           << headDim << ", but got " << rotated;
  if (table.size() != 2 || !sizesAgree(table.back(), headDim / 2)) // C4
    return emitOpError("expects 'cos' and 'sin' to be [P, head_dim / 2], with ")
           << headDim / 2 << " columns, but got " << shapeText(table);
  Type element = getX().getType().getElementType();
  Type tableElement = getCos().getType().getElementType();
  if (tableElement != element && !tableElement.isF32()) // C4
    return emitOpError("expects 'cos' and 'sin' to be of f32 or of the element type of 'x', ")
           << element << ", but got " << tableElement;
  int64_t length = x[x.size() - 2];
  if (ShapedType::isStatic(length) && ShapedType::isStatic(table[0]) && table[0] < length) // C5
    return emitOpError("expects 'cos' and 'sin' to have a row for each of the ")
           << length << " positions of 'x', but got " << table[0];
  return verifyPositions(*this, getPos(), x.size() == 2 ? 1 : x.front()); // C6
}

//===----------------------------------------------------------------------===//
// CacheUpdateOp
//===----------------------------------------------------------------------===//

LogicalResult CacheUpdateOp::verify() {
  ArrayRef<int64_t> cache = getCache().getType().getShape(), rows = getNew().getType().getShape();
  if (cache.size() != 3 || rows.size() != 3) // C1
    return emitOpError("expects 'cache' and 'new' to have three dimensions, but their ranks are ")
           << cache.size() << " and " << rows.size();
  if (failed(checkKept({"cache", "scheme", getCache().getType(), getScheme(), rows[2], rows[2],
                        "the width of 'new'", getNew().getType().getElementType(), "new"},
                       [&] { return emitOpError(); }))) // C5 to C7
    return failure();
  if (!sizesAgree(cache[0], rows[0]) || (!getScheme() && !sizesAgree(cache[2], rows[2]))) // C2
    return emitOpError("expects 'cache' and 'new' to have the same batch and width, but got ")
           << shapeText(cache) << " and " << shapeText(rows);
  if (ShapedType::isStatic(cache[1]) && ShapedType::isStatic(rows[1]) && rows[1] > cache[1]) // C3
    return emitOpError("expects 'new' to have no more rows than 'cache', ")
           << cache[1] << ", but got " << rows[1];
  return verifyPositions(*this, getPos(), cache[0]); // C4
}
