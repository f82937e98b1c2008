// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules of attention, rope and the decoder block.

#include "dialects/HIRRules.h"

using namespace mlir;
using namespace rlx;
using namespace rlx::hir;

int64_t AttentionOp::getKvHeads() { return getNumKvHeads().value_or(getNumHeads()); }

LogicalResult AttentionOp::check(Adaptor op, EmitError error, SmallVectorImpl<Type> &results) {
  if (failed(expectTensors(error, op.getOperands())))
    return failure();
  if (!op.getNumHeadsAttr() || !op.getHeadDimAttr())
    return error() << "expects 'num_heads' and 'head_dim'";

  RankedTensorType q = tensor(op.getQ()), k = tensor(op.getK()), v = tensor(op.getV());
  Type element = q.getElementType();
  if (q.getRank() != 3 || k.getRank() != 3 || v.getRank() != 3) // C1
    return error() << "expects 'q', 'k' and 'v' to have three dimensions, but got " << q.getRank()
                   << ", " << k.getRank() << " and " << v.getRank();
  if (k.getElementType() != element) // C1
    return error() << "expects 'k' and 'v' to have the element type of 'q', " << element
                   << ", but got " << k.getElementType();

  Heads heads{int64_t(op.getNumHeads()), int64_t(op.getNumKvHeads().value_or(op.getNumHeads())),
              int64_t(op.getHeadDim())};
  if (failed(heads.check(error))) // C2, C3
    return failure();
  int64_t width = heads.queries * heads.width, kvWidth = heads.keys * heads.width;
  if (differ(q.getDimSize(2), width)) // C4
    return error() << "expects the last dimension of 'q' to be num_heads * head_dim, " << width
                   << ", but got " << q.getDimSize(2);
  if (differ(k.getDimSize(2), kvWidth)) // C4
    return error() << "expects the last dimension of 'k' to be num_kv_heads * head_dim, " << kvWidth
                   << ", but got " << k.getDimSize(2);
  if (k != v) // C5
    return error() << "expects 'v' to have the type of 'k', " << k << ", but got " << v;
  int64_t batch = q.getDimSize(0), queries = q.getDimSize(1), keys = k.getDimSize(1);
  if (differ(k.getDimSize(0), batch)) // C5
    return error() << "expects 'k' and 'v' to have the batch size of 'q', " << batch << ", but got "
                   << k.getDimSize(0);

  bool cached = op.getKCache() != nullptr;
  if (cached != bool(op.getVCache()) || cached != bool(op.getPos())) // C11
    return error() << "expects 'k_cache', 'v_cache' and 'pos' together or not at all, but got "
                   << cached + bool(op.getVCache()) + bool(op.getPos()) << " of them";
  if (!cached && (op.getKScheme() || op.getVScheme())) // C15
    return error() << "expects 'k_scheme' and 'v_scheme' only with caches, but there are none";
  results.push_back(q);
  if (cached) {
    Caches caches{op.getKCache(),  op.getVCache(), op.getKScheme(),
                  op.getVScheme(), batch,          queries,
                  heads,           element,        "q"};
    if (failed(caches.check(error))) // C12, C13, C15
      return failure();
    if (differ(keys, queries)) // C13
      return error() << "expects 'k' and 'v' to be as long as 'q' with caches, " << queries
                     << ", but their length is " << keys;
    if (failed(checkPositions(error, op.getPos(), batch))) // C14
      return failure();
    keys = tensor(op.getKCache()).getDimSize(1);
    results.append({op.getKCache().getType(), op.getVCache().getType()});
  }

  if (failed(checkMask(error, op.getMaskKind(), op.getMask(), op.getWindow(),
                       {batch, heads.queries, queries, keys, element, "q"}))) // C6 to C9
    return failure();
  if (std::optional<APFloat> scale = op.getScale(); // C10
      scale && (!scale->isFinite() || scale->isZero()))
    return error() << "expects a finite 'scale' other than 0, but got " << scale->convertToDouble();
  if (std::optional<APFloat> softcap = op.getSoftcap(); // C10
      softcap && (!softcap->isFinite() || softcap->isNegative() || softcap->isZero()))
    return error() << "expects a positive, finite 'softcap', but got "
                   << softcap->convertToDouble();
  if (!op.getSinks())
    return success();
  RankedTensorType sinks = tensor(op.getSinks());
  if (sinks.getRank() != 1 || differ(sinks.getDimSize(0), heads.queries)) // C16
    return error() << "expects 'sinks' to have one entry per query head, [" << heads.queries
                   << "], but got " << mir::shapeText(sinks.getShape());
  if (!sinks.getElementType().isF32() && sinks.getElementType() != element) // C16
    return error() << "expects 'sinks' to be of f32 or of the element type of 'q', " << element
                   << ", but got " << sinks.getElementType();
  return success();
}

LogicalResult RopeOp::check(Adaptor op, EmitError error, SmallVectorImpl<Type> &results) {
  if (failed(expectTensors(error, op.getOperands())))
    return failure();
  if (!op.getHeadDimAttr())
    return error() << "expects 'head_dim'";

  int64_t headDim = op.getHeadDim(), rotated = op.getNRot().value_or(headDim);
  if (headDim <= 0 || headDim % 2 != 0) // C2
    return error() << "expects a positive, even 'head_dim', but got " << headDim;
  if (rotated <= 0 || rotated % 2 != 0 || rotated > headDim) // C3
    return error() << "expects a positive, even 'n_rot' of at most 'head_dim', " << headDim
                   << ", but got " << rotated;
  RankedTensorType x = tensor(op.getX());
  if (x.getRank() != 3) // C1
    return error() << "expects 'x' to have three dimensions, but got " << x.getRank();
  int64_t width = x.getDimSize(2);
  if (ShapedType::isStatic(width) && width % headDim != 0) // C1
    return error() << "expects the last dimension of 'x' to be a multiple of 'head_dim', "
                   << headDim << ", but got " << width;
  if (failed(checkTables(error, op.getCos(), op.getSin(), headDim, x.getDimSize(1),
                         x.getElementType())) ||                   // C4, C5
      failed(checkPositions(error, op.getPos(), x.getDimSize(0)))) // C6
    return failure();
  results.push_back(x);
  return success();
}

LogicalResult LlamaDecoderBlockOp::check(Adaptor op, EmitError error,
                                         SmallVectorImpl<Type> &results) {
  if (failed(expectTensors(error, op.getOperands())))
    return failure();
  if (!op.getNumHeadsAttr() || !op.getNumKvHeadsAttr() || !op.getHeadDimAttr())
    return error() << "expects 'num_heads', 'num_kv_heads' and 'head_dim'";

  RankedTensorType x = tensor(op.getX());
  if (x.getRank() != 3) // C1
    return error() << "expects 'x' to have three dimensions, but got " << x.getRank();
  int64_t batch = x.getDimSize(0), tokens = x.getDimSize(1), columns = x.getDimSize(2);
  Type element = x.getElementType();
  Heads heads{int64_t(op.getNumHeads()), int64_t(op.getNumKvHeads()), int64_t(op.getHeadDim())};
  if (failed(heads.check(error))) // C10, C11
    return failure();
  if (heads.width % 2 != 0) // C10
    return error() << "expects an even 'head_dim', but got " << heads.width;
  int64_t width = heads.queries * heads.width, kvWidth = heads.keys * heads.width;

  if (failed(checkNormVector(error, "ln1_gamma", op.getLn1Gamma(), x)) || // C8, C9
      failed(checkNormVector(error, "ln1_beta", op.getLn1Beta(), x)) ||
      failed(checkNormVector(error, "ln2_gamma", op.getLn2Gamma(), x)) ||
      failed(checkNormVector(error, "ln2_beta", op.getLn2Beta(), x)) ||
      failed(checkEps(error, op.getEps()))) // C21
    return failure();

  StringRef ofX = "'x' has columns", ofHeads = "num_heads * head_dim",
            ofKvHeads = "num_kv_heads * head_dim", ofGate = "'gate_w' has outputs";
  Weights weights(error, element, op.getTransposeWeight());
  if (failed(weights.check("q_w", op.getQW(), columns, ofX, width, ofHeads)) || // C2 to C5, C7
      failed(weights.check("k_w", op.getKW(), columns, ofX, kvWidth, ofKvHeads)) ||
      failed(weights.check("v_w", op.getVW(), columns, ofX, kvWidth, ofKvHeads)) ||
      failed(weights.check("o_w", op.getOW(), width, ofHeads, columns, ofX)))
    return failure();
  FailureOr<int64_t> hidden = weights.outputs("gate_w", op.getGateW(), columns, ofX);
  if (failed(hidden) || failed(weights.check("up_w", op.getUpW(), columns, ofX, *hidden, ofGate)) ||
      failed(weights.check("down_w", op.getDownW(), *hidden, ofGate, columns, ofX)) ||
      failed(weights.finish())) // C6
    return failure();

  if (failed(checkTables(error, op.getCos(), op.getSin(), heads.width, tokens, element)))
    return failure(); // C12, C13
  bool cached = op.getKCache() != nullptr;
  if (cached != bool(op.getVCache()) || (cached && !op.getPos())) // C18
    return error() << "expects 'k_cache' and 'v_cache' together or not at all, and with 'pos', but "
                      "got "
                   << cached + bool(op.getVCache()) << " of the caches "
                   << (op.getPos() ? "with" : "without") << " 'pos'";
  if (!cached && (op.getKScheme() || op.getVScheme())) // C22
    return error() << "expects 'k_scheme' and 'v_scheme' only with caches, but there are none";
  results.push_back(x);
  int64_t keys = tokens;
  if (cached) {
    Caches caches{op.getKCache(),  op.getVCache(), op.getKScheme(),
                  op.getVScheme(), batch,          tokens,
                  heads,           element,        "x"};
    if (failed(caches.check(error))) // C19, C22
      return failure();
    keys = tensor(op.getKCache()).getDimSize(1);
    results.append({op.getKCache().getType(), op.getVCache().getType()});
  }
  if (failed(checkPositions(error, op.getPos(), batch))) // C20
    return failure();
  return checkMask(error, op.getMaskKind(), op.getMask(), op.getWindow(),
                   {batch, heads.queries, tokens, keys, element, "x"}); // C14 to C17
}
