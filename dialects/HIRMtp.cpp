// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules of the draft head.

#include "dialects/HIRRules.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace rlx;
using namespace rlx::hir;

static constexpr StringLiteral activations = "h_pre_norm";

using Adaptor = Qwen35MtpHeadOp::Adaptor;

/// C3: a table of embeddings, of whatever length.
static LogicalResult checkEmbedding(EmitError error, RankedTensorType table, int64_t width,
                                    Type element) {
  if (auto packed = dyn_cast_or_null<mir::PackedAttr>(table.getEncoding())) {
    if (packed.getLayout() == mir::Layout::Rows && !differ(packed.getK(), width))
      return success();
  } else if (table.getRank() == 2 && !differ(table.getDimSize(1), width) &&
             table.getElementType() == element) {
    return success();
  }
  return error() << "expects 'embed_w' to be rows of " << mir::sizeText(width) << ", dense of "
                 << element << " or packed, but got " << table;
}

/// C10, C11: gammas and betas, over the width of the model or of a head.
static LogicalResult checkNorms(EmitError error, Adaptor op, int64_t width, int64_t headDim,
                                Type element) {
  const std::tuple<StringRef, Value, bool> vectors[] = {
      {"hnorm_w", op.getHnormW(), false},        {"hnorm_b", op.getHnormB(), false},
      {"enorm_w", op.getEnormW(), false},        {"enorm_b", op.getEnormB(), false},
      {"attn_norm_w", op.getAttnNormW(), false}, {"attn_norm_b", op.getAttnNormB(), false},
      {"q_norm_w", op.getQNormW(), true},        {"q_norm_b", op.getQNormB(), true},
      {"k_norm_w", op.getKNormW(), true},        {"k_norm_b", op.getKNormB(), true},
      {"post_norm_w", op.getPostNormW(), false}, {"post_norm_b", op.getPostNormB(), false},
      {"head_norm_w", op.getHeadNormW(), false}, {"head_norm_b", op.getHeadNormB(), false}};
  for (auto [name, vector, ofHead] : vectors)
    if (failed(checkVector(error, name, vector, ofHead ? headDim : width,
                           ofHead ? "'head_dim'" : "the last dimension of 'h_pre_norm'", element,
                           activations)))
      return failure();
  return success();
}

LogicalResult Qwen35MtpHeadOp::check(Adaptor op, EmitError error, SmallVectorImpl<Type> &results) {
  if (failed(expectTensors(error, op.getOperands())))
    return failure();
  if (!op.getNumHeadsAttr() || !op.getNumKvHeadsAttr() || !op.getHeadDimAttr())
    return error() << "expects 'num_heads', 'num_kv_heads' and 'head_dim'";

  RankedTensorType x = tensor(op.getHPreNorm());
  if (x.getRank() != 3) // C1
    return error() << "expects 'h_pre_norm' to have three dimensions, but got " << x.getRank();
  int64_t batch = x.getDimSize(0), tokens = x.getDimSize(1), columns = x.getDimSize(2);
  Type element = x.getElementType();
  RankedTensorType ids = tensor(op.getInputIds()), last = tensor(op.getLastTokenIdx());
  if (ids.getRank() != 2 || differ(ids.getDimSize(0), batch) ||
      differ(ids.getDimSize(1), tokens)) // C2
    return error() << "expects 'input_ids' to be " << mir::shapeText({batch, tokens})
                   << ", but got " << mir::shapeText(ids.getShape());
  if (ShapedType::isDynamic(batch))
    batch = ids.getDimSize(0);
  if (ShapedType::isDynamic(tokens))
    tokens = ids.getDimSize(1);
  if (last.getRank() != 1 || differ(last.getDimSize(0), batch)) // C2
    return error() << "expects 'last_token_idx' to be " << mir::shapeText(batch) << ", but got "
                   << mir::shapeText(last.getShape());
  if (ShapedType::isDynamic(batch))
    batch = last.getDimSize(0);
  if (failed(checkEmbedding(error, tensor(op.getEmbedW()), columns, element))) // C3
    return failure();

  Heads heads{int64_t(op.getNumHeads()), int64_t(op.getNumKvHeads()), int64_t(op.getHeadDim())};
  if (failed(heads.check(error))) // C12, C13
    return failure();
  if (heads.width % 2 != 0) // C12
    return error() << "expects an even 'head_dim', but got " << heads.width;
  int64_t rotated = op.getNRot().value_or(heads.width);
  if (rotated <= 0 || rotated % 2 != 0 || rotated > heads.width) // C14
    return error() << "expects a positive, even 'n_rot' of at most 'head_dim', " << heads.width
                   << ", but got " << rotated;
  int64_t width = heads.queries * heads.width, kvWidth = heads.keys * heads.width;
  int64_t both = ShapedType::kDynamic, gated;
  if ((ShapedType::isStatic(columns) && llvm::MulOverflow(columns, int64_t(2), both)) ||
      llvm::MulOverflow(width, int64_t(2), gated)) // C18
    return error() << "expects twice the last dimension of 'h_pre_norm', " << mir::sizeText(columns)
                   << ", and twice num_heads * head_dim, " << width << ", to be below 2^63";
  if (failed(checkNorms(error, op, columns, heads.width, element)) || // C10, C11
      failed(checkEps(error, op.getEps())))                           // C17
    return failure();

  StringRef ofX = "'h_pre_norm' has columns", ofHeads = "num_heads * head_dim",
            ofKvHeads = "num_kv_heads * head_dim", ofGate = "'gate_w' has outputs";
  Weights weights(error, element, op.getTransposeWeight(), activations);
  if (failed(weights.check("eh_w", op.getEhW(), both, "twice the columns of 'h_pre_norm'", columns,
                           ofX)) || // C4 to C7, C9
      failed(weights.check("q_gate_w", op.getQGateW(), columns, ofX, gated,
                           "2 * num_heads * head_dim")) ||
      failed(weights.check("k_w", op.getKW(), columns, ofX, kvWidth, ofKvHeads)) ||
      failed(weights.check("v_w", op.getVW(), columns, ofX, kvWidth, ofKvHeads)) ||
      failed(weights.check("o_w", op.getOW(), width, ofHeads, columns, ofX)))
    return failure();
  FailureOr<int64_t> hidden = weights.outputs("gate_w", op.getGateW(), columns, ofX);
  if (failed(hidden) || failed(weights.check("up_w", op.getUpW(), columns, ofX, *hidden, ofGate)) ||
      failed(weights.check("down_w", op.getDownW(), *hidden, ofGate, columns, ofX)))
    return failure();
  FailureOr<int64_t> scores = weights.outputs("lm_head_w", op.getLmHeadW(), columns, ofX);
  if (failed(scores) || failed(weights.finish())) // C8
    return failure();
  if (failed(checkTables(error, op.getCos(), op.getSin(), heads.width, tokens, element,
                         activations))) // C15, C16
    return failure();
  int64_t shape[] = {batch, 1, *scores};
  results.push_back(RankedTensorType::get(shape, element));
  return success();
}
