// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention and rotary positions.

#ifndef RLX_HIR_ATTENTION
#define RLX_HIR_ATTENTION

include "hir/base.td"

def HIR_AttentionOp : HIR_BlockOp<"attention", [AttrSizedOperandSegments]> {
  let summary = "softmax attention with grouped queries and an optional cache";
  let description = [{
    Attention of H query heads over Hkv key and value heads, each of width D. `q` is
    [B, Sq, H * D], `k` and `v` are [B, Sk, Hkv * D]; head h reads the keys and
    values of head h / (H / Hkv), so they aren't repeated. For each batch item, head
    and query i at position a, with keys j at positions 0, 1, ...:

        s[j] = scale * (q[i] . k[j])
        s[j] = softcap * tanh(s[j] / softcap)     with softcap
        s[j] = s[j] + mask[i, j]                  with mask_kind = bias
        p    = softmax(s) over the keys that are kept
        result[i] = sum_j p[j] * v[j]

    With `sinks`, [H], each softmax has one more score, sinks[h], which no key has: it takes
    a part of the weight, and adds nothing to the result. It is neither scaled nor capped,
    and no mask hides it.

    | `mask_kind`      | keys that are kept                        |
    |------------------|-------------------------------------------|
    | `none`, `bias`   | all                                       |
    | `causal`         | j <= a                                    |
    | `sliding_window` | a - `window` < j <= a: `window` keys      |
    | `custom`         | those whose `mask` is true or >= 0.5      |

    A query that keeps no key gives zeros, and keys that aren't kept have no influence,
    NaN included. A bias is added to capped scores, and hides no key: -inf gives the
    weight 0 (and zeros where all of a row is -inf), and the least finite number
    throughout a row gives all keys of it one weight, so the mean of the values. Position a is Sk - Sq + i: the last query stands at the last key.
    `scale` is D^(-1/2) unless given. `mask` is [B, H, Sq, Sk], or for `custom` also
    [B, Sk]; each dimension but Sk may be 1, which stands for all alike.

    The result has the type of `q`. Scores, softmax and sums are computed in f32 (f64
    for f64).

    With `k_cache`, `v_cache` and `pos`, this call's keys and values are written into
    the caches, [B, P, Hkv * D], as rows pos[b], pos[b] + 1, ... of batch item b, and
    queries read the caches:

        k_cache_out[b, pos[b] + i] = k[b, i], other rows as in k_cache; v likewise
        query i of b stands at a = pos[b] + i
        keys are rows j < pos[b] + Sq of k_cache_out

    Here Sk is P in the shape of `mask`, and `mask_kind = none` still reads filled rows
    only. `caches_out` are the two new caches, of the types of the old ones. Each is
    tied to its operand: it takes its memory, where nothing else reads the operand
    later. Caches of f16 or bf16 hold keys and values of f32 rounded; they are widened
    where they are read. Caches of i8 hold blocks, whose format `k_scheme` and `v_scheme`
    name, see `mir.cache_update`. Keys are stored after `rope`. The caller keeps 0 <= pos[b] <= P - Sq.

    - (C1) `q`, `k` and `v` have three dimensions and one element type.
    - (C2) `num_heads`, `num_kv_heads` and `head_dim` are positive.
    - (C3) `num_heads` is a multiple of `num_kv_heads`, which is `num_heads` if absent.
    - (C4) the last dimension is `num_heads` * `head_dim` in `q`, `num_kv_heads` *
      `head_dim` in `k` and `v`.
    - (C5) `k` and `v` have one type, and the batch size of `q`.
    - (C6) `mask` is there exactly with `mask_kind` `custom` or `bias`.
    - (C7) `mask` has the shape that is given above.
    - (C8) `mask` has the element type of `q`, or for `custom` also i1.
    - (C9) `window` is there exactly with `mask_kind = sliding_window`, and positive.
    - (C10) `scale` is finite and not zero; `softcap` is finite and positive.
    - (C11) `k_cache`, `v_cache` and `pos` are there together or not at all.
    - (C12) the caches are [B, P, `num_kv_heads` * `head_dim`], with one P, of the
      element type of `q`; where that is f32, each may also be of f16 or bf16, or of i8.
    - (C13) with caches, `k` and `v` are as long as `q`, and not longer than the caches.
    - (C14) `pos` is as long as the batch.
    - (C15) `k_scheme` is there exactly where `k_cache` is of i8, `v_scheme` where
      `v_cache` is. `head_dim` is a multiple of 32 then, and rows of the cache are of 34
      bytes for every 32 elements with q8_0, and of 18 with q4_0.
    - (C16) `sinks` is [`num_heads`], of f32 or of the element type of `q`.

    ```mlir
    func.func @f(%q: tensor<1x?x64xf32>, %k: tensor<1x?x32xf32>, %v: tensor<1x?x32xf32>, %kc: tensor<1x512x32xf32>,
                 %vc: tensor<1x512x32xf32>, %pos: tensor<1xi32>, %sinks: tensor<4xf32>) -> (tensor<1x?x64xf32>, tensor<1x512x32xf32>, tensor<1x512x32xf32>) {
      %plain = hir.attention %q, %k, %v heads 4 kv_heads 2 head_dim 16 mask causal
          : tensor<1x?x64xf32>, tensor<1x?x32xf32>, tensor<1x?x32xf32>
      %o, %caches:2 = hir.attention %plain, %k, %v heads 4 kv_heads 2 head_dim 16
          mask sliding_window window 128 caches %kc, %vc at %pos sinks %sinks scale 0.25 softcap 50.0
          : tensor<1x?x64xf32>, tensor<1x?x32xf32>, tensor<1x?x32xf32>, tensor<1x512x32xf32>, tensor<1x512x32xf32>, tensor<1xi32>, tensor<4xf32>
      return %o, %caches#0, %caches#1 : tensor<1x?x64xf32>, tensor<1x512x32xf32>, tensor<1x512x32xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$q, MIR_FloatTensor:$k, MIR_FloatTensor:$v,
      Optional<MIR_MaskTensor>:$mask, Optional<MIR_KeptTensor>:$k_cache,
      Optional<MIR_KeptTensor>:$v_cache, Optional<MIR_PositionTensor>:$pos, Optional<MIR_FloatTensor>:$sinks,
      I64Attr:$num_heads, OptionalAttr<I64Attr>:$num_kv_heads, I64Attr:$head_dim,
      HIR_MaskKindAttr:$mask_kind, OptionalAttr<I64Attr>:$window, OptionalAttr<F32Attr>:$scale,
      OptionalAttr<F32Attr>:$softcap, OptionalAttr<MIR_CacheSchemeAttr>:$k_scheme,
      OptionalAttr<MIR_CacheSchemeAttr>:$v_scheme);
  // One variadic group, not two optional results: their sizes would need an attribute that type
  // inference can't set.
  let results = (outs MIR_FloatTensor:$result, Variadic<MIR_KeptTensor>:$caches_out);
  let assemblyFormat = [{
    $q `,` $k `,` $v `heads` $num_heads (`kv_heads` $num_kv_heads^)? `head_dim` $head_dim
    (`mask` `` $mask_kind^)? ($mask^)? (`window` $window^)?
    (`caches` $k_cache^ `,` $v_cache `at` $pos)? (`sinks` $sinks^)? (`scale` $scale^)? (`softcap` $softcap^)?
    (`k_scheme` `` $k_scheme^)? (`v_scheme` `` $v_scheme^)?
    attr-dict `:` type(operands)
  }];
  let extraClassDeclaration = checkDeclaration # [{
    /// Heads of keys and values: `num_heads` where the attribute is absent.
    int64_t getKvHeads();
  }];
}

def HIR_RopeOp : HIR_BlockOp<"rope"> {
  let summary = "rotary position embedding";
  let description = [{
    Rotates pairs of elements of each head of `x`, [B, S, heads * D], by an angle that
    grows with the position. `cos` and `sin` are tables, [P, D/2], whose row is the
    position and whose column i is the pair; token s of batch item b has position
    pos[b] + s, or s where there is no `pos`. With c and t the table entries of the
    position for pair i, i < n_rot/2:

        result[first(i)]  = x[first(i)] * c - x[second(i)] * t
        result[second(i)] = x[second(i)] * c + x[first(i)] * t

    | `style`       | first(i) | second(i)     |
    |---------------|----------|---------------|
    | `half`        | i        | i + n_rot/2   |
    | `interleaved` | 2i       | 2i + 1        |

    Elements of the head from `n_rot` on are copied. The style belongs to the weights:
    the wrong one gives fluent nonsense, so the text always shows it.

    The result has the type of `x`; rotations are computed in f32 (f64 for f64). The
    caller keeps 0 <= pos[b] <= P - S.

    - (C1) `x` has three dimensions; the last one is a multiple of `head_dim`.
    - (C2) `head_dim` is positive and even.
    - (C3) `n_rot`, which is `head_dim` if absent, is positive, even and at most
      `head_dim`.
    - (C4) `cos` and `sin` have one type, [P, `head_dim` / 2], of f32 or of the element
      type of `x`.
    - (C5) the tables have at least as many rows as `x` has tokens.
    - (C6) `pos` is as long as the batch.

    ```mlir
    func.func @f(%x: tensor<1x?x64xf32>, %cos: tensor<512x8xf32>, %sin: tensor<512x8xf32>, %pos: tensor<1xi32>) -> tensor<1x?x64xf32> {
      %y = hir.rope half %x, %cos, %sin at %pos head_dim 16 n_rot 8
          : tensor<1x?x64xf32>, tensor<512x8xf32>, tensor<512x8xf32>, tensor<1xi32>
      return %y : tensor<1x?x64xf32>
    }
    ```
  }];
  let arguments = (ins MIR_FloatTensor:$x, MIR_FloatTensor:$cos, MIR_FloatTensor:$sin,
      Optional<MIR_PositionTensor>:$pos, I64Attr:$head_dim, OptionalAttr<I64Attr>:$n_rot,
      HIR_RopeStyleAttr:$style);
  let results = (outs MIR_FloatTensor:$result);
  let assemblyFormat = [{
    `` $style $x `,` $cos `,` $sin (`at` $pos^)? `head_dim` $head_dim (`n_rot` $n_rot^)?
    attr-dict `:` type(operands)
  }];
}

#endif // RLX_HIR_ATTENTION
