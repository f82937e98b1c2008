// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention, rotary positions, and the cache of keys and values.

#ifndef RLX_MIR_ATTENTION
#define RLX_MIR_ATTENTION

include "mir/base.td"

def MIR_AttentionOp : MIR_Op<"attention", [
    AttrSizedOperandSegments, AllTypesMatch<["q", "result"]>]> {
  let summary = "scaled dot-product attention";
  let description = [{
    For each batch b, head h and query i, over the keys j that the query may see:

        s_j = scale * <q_i, k_j>              (default scale: 1 / sqrt(head_dim))
        s_j = softcap * tanh(s_j / softcap)   with softcap
        s_j = s_j + mask[b, h, i, j]          with mask_kind = bias
        result_i = sum_j softmax(s)_j * v_j

    **Sinks.** With `sinks`, each softmax has one more score, sinks[h], which no key has: it
    takes a part of the weight, and adds nothing to the result. It is neither scaled nor
    capped, and no mask hides it. A sink of -inf changes nothing.

    All is computed in f32 (f64 for f64) and rounded once; keys and values of f16 or bf16
    beside queries of f32 are widened first, without loss. **A query that sees no key
    gives zeros**, and keys that aren't seen have no influence, NaN included. A bias is
    added to capped scores, and hides no key: -inf gives the weight 0 (and zeros where all
    of a row is -inf), and the least finite number throughout a row gives all keys of it
    one weight, so the mean of the values.

    **Heads.** There are `num_heads` query heads and `num_kv_heads` (default: as many)
    heads of keys and values. They are grouped: head h uses key head
    h / (num_heads / num_kv_heads).

    **Layout** of `q`, `k`, `v` and the result, with S the number of queries or keys:

    | layout | shape |
    |---|---|
    | packed (default) | [B, S, heads * head_dim], or [S, heads * head_dim] for B = 1 |
    | bhsd | [B, heads, S, head_dim] |
    | bshd | [B, S, heads, head_dim] |

    **Blocks.** Keys and values beside queries of f32 may be bytes, in layout packed:
    `k_scheme` and `v_scheme` say that rows of `k` and `v` are the blocks of 32 elements
    that `mir.cache_update` writes, one after the other, and each is read as what it
    decodes to, in f32.

    **Positions.** Query i stands at position `offset + i` among the keys. Without `pos`,
    `offset = Sk - Sq`: the last query is aligned with the last key (bottom right).
    With `pos`, [B], `offset = pos[b]`, and only the first `pos[b] + Sq` keys exist: the
    rest of a cache isn't filled yet.

    | mask_kind | a query at position p sees the keys |
    |---|---|
    | none (default) | all |
    | causal | j <= p |
    | sliding_window | p - window < j <= p: `window` keys, its own included |
    | custom | where `mask` is true or >= 0.5 |
    | bias | all |

    `mask` is [B, Sk] or [B, H, Sq, Sk] for custom and [B, H, Sq, Sk] for bias; any of
    these dimensions but Sk may be 1 and is broadcast.

    - (C1) `q`, `k` and `v` have the rank of `layout`.
    - (C2) `num_heads`, `num_kv_heads` and `head_dim` are positive and below 2^31, and
      `num_kv_heads` divides `num_heads`.
    - (C3) `q` holds `num_heads`, `k` and `v` `num_kv_heads` heads of `head_dim` elements.
    - (C4) `q`, `k` and `v` have the same batch, and `k` and `v` the same length.
    - (C5) `mask` is present exactly with mask_kind custom and bias.
    - (C6) `mask` has the shape given above; its element type is that of `q`, or i1 for
      custom.
    - (C7) `window` is present exactly with mask_kind sliding_window, and positive.
    - (C8) `pos` has one entry per batch.
    - (C9) `scale` is finite, and `softcap` is positive and finite.
    - (C10) `k` and `v` have the element type of `q`; where that is f32, each may also be
      of f16 or bf16, or of i8.
    - (C11) `k_scheme` is present exactly where `k` is of i8, `v_scheme` where `v` is.
    - (C12) with a scheme, `layout` is packed, and `head_dim` a multiple of 32; rows are of
      34 bytes for every 32 elements with q8_0, and of 18 with q4_0.
    - (C13) `sinks` is [num_heads], of f32 or of the element type of `q`.

    ```mlir
    func.func @f(%q: tensor<1x?x512xf32>, %k: tensor<1x128x256xf32>, %v: tensor<1x128x256xf32>,
                 %pos: tensor<1xi32>, %sinks: tensor<8xf32>) -> tensor<1x?x512xf32> {
      %y = mir.attention %q, %k, %v pos(%pos : tensor<1xi32>) sinks(%sinks : tensor<8xf32>)
          heads 8 kv_heads 4 head_dim 64 masked sliding_window window 32
          : tensor<1x?x512xf32>, tensor<1x128x256xf32>
      return %y : tensor<1x?x512xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$q, MIR_KeptTensor:$k, MIR_KeptTensor:$v,
      Optional<MIR_MaskTensor>:$mask, Optional<MIR_PositionTensor>:$pos, Optional<MIR_FloatTensor>:$sinks,
      I64Attr:$num_heads, OptionalAttr<I64Attr>:$num_kv_heads, I64Attr:$head_dim,
      DefaultValuedAttr<MIR_MaskKindAttr, "MaskKind::None">:$mask_kind,
      OptionalAttr<I64Attr>:$window, OptionalAttr<F32Attr>:$scale, OptionalAttr<F32Attr>:$softcap,
      DefaultValuedAttr<MIR_HeadLayoutAttr, "HeadLayout::Packed">:$layout,
      OptionalAttr<MIR_CacheSchemeAttr>:$k_scheme, OptionalAttr<MIR_CacheSchemeAttr>:$v_scheme);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $q `,` $k `,` $v (`mask` `(` $mask^ `:` type($mask) `)`)? (`pos` `(` $pos^ `:` type($pos) `)`)?
    (`sinks` `(` $sinks^ `:` type($sinks) `)`)?
    `heads` $num_heads (`kv_heads` $num_kv_heads^)? `head_dim` $head_dim (`layout` `` $layout^)?
    (`masked` `` $mask_kind^)? (`window` $window^)? (`scale` $scale^)? (`softcap` $softcap^)?
    (`k_scheme` `` $k_scheme^)? (`v_scheme` `` $v_scheme^)?
    attr-dict `:` type($q) `,` custom<SharedType>(type($k), type($v))
  }];
  let extraClassDeclaration = [{
    /// Heads of keys and values: `num_kv_heads`, or as many as there are query heads.
    int64_t getKvHeads();
  }];
  let hasVerifier = 1;
}

def MIR_AttentionBackwardOp : MIR_Op<"attention_backward", [
    AttrSizedOperandSegments, AllTypesMatch<["q", "dy", "dq"]>, AllTypesMatch<["k", "v", "dk", "dv"]>]> {
  let summary = "gradients of attention by queries, keys and values";
  let description = [{
    Where `dy` is the gradient by the result of `mir.attention` of the same operands and
    attributes, the gradients by `q`, `k` and `v`. With the weights p = softmax(s) of the
    forward operation, which are computed again, of each batch, head and query i:

        dp_j = <dy_i, v_j>
        ds_j = p_j * (dp_j - sum_j p_j * dp_j)
        ds_j = ds_j * (1 - (c_j / softcap)^2)    with softcap; c_j is the capped score
        dq_i = scale * sum_j ds_j * k_j
        dk_j = scale * sum_i ds_j * q_i          over the heads that share the key, too
        dv_j = sum_i p_j * dy_i

    Keys that aren't seen have the weight 0, and queries that see none the gradient 0.
    Nothing is computed for `mask`, `pos` and what they hide. All is computed in f32 (f64
    for f64) and rounded once.

    The constraints are those of `mir.attention`, where `k` and `v` have one type:

    - (C1) `q` and `k` have the rank of `layout`.
    - (C2) `num_heads`, `num_kv_heads` and `head_dim` are positive and below 2^31, and
      `num_kv_heads` divides `num_heads`.
    - (C3) `q` holds `num_heads` and `k` `num_kv_heads` heads of `head_dim` elements.
    - (C4) `q` and `k` have the same batch.
    - (C5) `mask` is present exactly with mask_kind custom and bias.
    - (C6) `mask` has the shape that `mir.attention` says; its element type is that of `q`,
      or i1 for custom.
    - (C7) `window` is present exactly with mask_kind sliding_window, and positive.
    - (C8) `pos` has one entry per batch.
    - (C9) `scale` is finite, and `softcap` is positive and finite.
    - (C10) `k` and `v` have the element type of `q`; where that is f32, they may also be
      of f16 or bf16.

    ```mlir
    func.func @f(%q: tensor<1x?x64xf32>, %k: tensor<1x?x32xf32>, %v: tensor<1x?x32xf32>,
                 %dy: tensor<1x?x64xf32>) -> (tensor<1x?x64xf32>, tensor<1x?x32xf32>, tensor<1x?x32xf32>) {
      %dq, %dk, %dv = mir.attention_backward %q, %k, %v, %dy heads 8 kv_heads 4 head_dim 8 masked causal
          : tensor<1x?x64xf32>, tensor<1x?x32xf32>
      return %dq, %dk, %dv : tensor<1x?x64xf32>, tensor<1x?x32xf32>, tensor<1x?x32xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$q, MIR_FloatTensor:$k, MIR_FloatTensor:$v, MIR_FloatTensor:$dy,
      Optional<MIR_MaskTensor>:$mask, Optional<MIR_PositionTensor>:$pos,
      I64Attr:$num_heads, OptionalAttr<I64Attr>:$num_kv_heads, I64Attr:$head_dim,
      DefaultValuedAttr<MIR_MaskKindAttr, "MaskKind::None">:$mask_kind,
      OptionalAttr<I64Attr>:$window, OptionalAttr<F32Attr>:$scale, OptionalAttr<F32Attr>:$softcap,
      DefaultValuedAttr<MIR_HeadLayoutAttr, "HeadLayout::Packed">:$layout);
  let results = (outs MIR_FloatTensor:$dq, MIR_FloatTensor:$dk, MIR_FloatTensor:$dv);
  let assemblyFormat = [{
    $q `,` $k `,` $v `,` $dy (`mask` `(` $mask^ `:` type($mask) `)`)? (`pos` `(` $pos^ `:` type($pos) `)`)?
    `heads` $num_heads (`kv_heads` $num_kv_heads^)? `head_dim` $head_dim (`layout` `` $layout^)?
    (`masked` `` $mask_kind^)? (`window` $window^)? (`scale` $scale^)? (`softcap` $softcap^)?
    attr-dict `:` type($q) `,` type($k)
  }];
  let extraClassDeclaration = [{
    /// Heads of keys and values: `num_kv_heads`, or as many as there are query heads.
    int64_t getKvHeads();
  }];
  let hasVerifier = 1;
}

def MIR_RopeOp : MIR_Op<"rope", [
    AllTypesMatch<["x", "result"]>, AllTypesMatch<["cos", "sin"]>]> {
  let summary = "rotary position embedding";
  let description = [{
    Rotates pairs of elements of each head by angles whose cosines and sines are given.
    `x` is [..., S, heads * head_dim]: the position is the dimension before the last.
    With u one head of a row, and c and s a row of `cos` and `sin`, for i < n_rot / 2:

        result[a] = u[a] * c[i] - u[b] * s[i]
        result[b] = u[b] * c[i] + u[a] * s[i]

    - `style = half` (default): (a, b) = (i, i + n_rot / 2), as in GPT-NeoX;
    - `style = interleaved`: (a, b) = (2 i, 2 i + 1), as in the first LLaMA.

    Elements from `n_rot` (default: `head_dim`) on are copied. `cos` and `sin` are
    [P, head_dim / 2], of which the first n_rot / 2 columns are read. The row is
    `pos[b] + s` with `pos`, [B], b being the first dimension of `x`, and s without. It is
    in the tables, `0 <= pos[b]` and `pos[b] + S <= P`, which is a condition at run time.
    Computed in f32 (f64 for f64) and rounded once.

    - (C1) `x` has at least two dimensions.
    - (C2) `head_dim` is positive and even, and divides the last dimension of `x`.
    - (C3) `n_rot` is positive, even and at most `head_dim`.
    - (C4) `cos` and `sin` are [P, head_dim / 2], of f32 or the element type of `x`.
    - (C5) `cos` and `sin` have a row for each position of `x`.
    - (C6) `pos` has one entry per batch; a two-dimensional `x` is one batch.

    ```mlir
    func.func @f(%x: tensor<1x?x512xf32>, %cos: tensor<128x32xf32>, %sin: tensor<128x32xf32>,
                 %pos: tensor<1xi32>) -> tensor<1x?x512xf32> {
      %y = mir.rope %x, %cos, %sin pos(%pos : tensor<1xi32>) head_dim 64 n_rot 32 style interleaved
          : tensor<1x?x512xf32>, tensor<128x32xf32>
      return %y : tensor<1x?x512xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$cos, MIR_FloatTensor:$sin,
      Optional<MIR_PositionTensor>:$pos, I64Attr:$head_dim, OptionalAttr<I64Attr>:$n_rot,
      DefaultValuedAttr<MIR_RopeStyleAttr, "RopeStyle::Half">:$style);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    $x `,` $cos `,` $sin (`pos` `(` $pos^ `:` type($pos) `)`)? `head_dim` $head_dim
    (`n_rot` $n_rot^)? (`style` `` $style^)? attr-dict `:` type($x) `,` type($cos)
  }];
  let extraClassDeclaration = [{
    /// Elements of each head that are rotated: `n_rot`, or all of them.
    int64_t getRotated();
  }];
  let hasVerifier = 1;
}

def MIR_CacheUpdateOp : MIR_Op<"cache_update", [
    AllTypesMatch<["cache", "result"]>]> {
  let summary = "a cache with new rows written into it";
  let description = [{
    `cache`, [B, P, E], with rows pos[b] to pos[b] + S - 1 of each batch b replaced by
    those of `new`, [B, S, E], rounded to the element type of `cache` where they are of
    f32 and the cache is of f16 or bf16. The rows are in the cache, `0 <= pos[b]` and
    `pos[b] + S <= P`, which is a condition at run time. A lowering may write into the memory of `cache`.

    With `scheme`, `cache` is [B, P, bytes] of i8, and rows are written as blocks of 32
    elements, one after the other: d, as f16 in little-endian order, and the codes q, as
    the quantisers of GGUF files round them, in f32:

        q8_0  d = max|x| / 127, q = trunc(x * (1 / d) + copysign(0.5, x * (1 / d)))
              34 bytes: d and q[0], ..., q[31]; read as f32(q) * f32(d)
        q4_0  d = x_m / -8, x_m the first of the elements of the largest magnitude,
              q = min(trunc(x * (1 / d) + 8.5), 15)
              18 bytes: d and q[i] + 16 * q[i + 16], i < 16; read as f32(q - 8) * f32(d)

    q are computed with d before it is rounded to f16; where |d| < 2^-126, 1 / d counts as
    0. A block whose d isn't finite in f16, since elements aren't or are too large, gets
    NaN (0x7e00) as d and q that are read as 0: it is read as NaN.

    - (C1) `cache` and `new` have three dimensions.
    - (C2) `cache` and `new` have the same batch, and without `scheme` the same width.
    - (C3) `new` has no more rows than `cache`.
    - (C4) `pos` has one entry per batch.
    - (C5) `cache` has the element type of `new`; where that is f32, it may also be of f16
      or bf16, or of i8.
    - (C6) `scheme` is present exactly where `cache` is of i8.
    - (C7) with `scheme`, the width of `new` is static and a multiple of 32, and that of
      `cache` 34 for every 32 elements with q8_0, and 18 with q4_0.

    ```mlir
    func.func @f(%c: tensor<1x128x256xf32>, %n: tensor<1x?x256xf32>, %pos: tensor<1xi32>) -> tensor<1x128x256xf32> {
      %y = mir.cache_update %c, %n at %pos
          : tensor<1x128x256xf32>, tensor<1x?x256xf32>, tensor<1xi32>
      return %y : tensor<1x128x256xf32>
    }
    ```
  }];
  let arguments = (ins MIR_KeptTensor:$cache, MIR_FloatTensor:$new, MIR_PositionTensor:$pos,
      OptionalAttr<MIR_CacheSchemeAttr>:$scheme);
  let results = (outs MIR_KeptTensor:$result);
  let assemblyFormat = [{
    $cache `,` $new `at` $pos (`scheme` `` $scheme^)? attr-dict `:` type($cache) `,` type($new) `,` type($pos)
  }];
  // The generated builders would name a parameter `new`.
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$cache, "::mlir::Value":$rows,
      "::mlir::Value":$pos), [{
    $_state.addOperands({cache, rows, pos});
    $_state.addTypes(cache.getType());
  }]>];
  let hasVerifier = 1;
}

#endif // RLX_MIR_ATTENTION
