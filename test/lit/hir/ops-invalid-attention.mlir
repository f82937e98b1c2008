// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @attention_c1_rank(%q: tensor<2x4x3x8xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects 'q', 'k' and 'v' to have three dimensions, but got 4, 3 and 3}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8
      : tensor<2x4x3x8xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c1_element_type(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf16>) {
  // expected-error @below {{expects 'k' and 'v' to have the element type of 'q', 'f32', but got 'f16'}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8
      : tensor<2x3x32xf32>, tensor<2x5x16xf16>, tensor<2x5x16xf16>
  return
}

// -----

func.func @attention_c2_heads(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects positive 'num_heads', 'num_kv_heads' and 'head_dim', but got 0, 2 and 8}}
  %y = hir.attention %q, %k, %k heads 0 kv_heads 2 head_dim 8
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c2_kv_heads(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects positive 'num_heads', 'num_kv_heads' and 'head_dim', but got 4, -2 and 8}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads -2 head_dim 8
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c2_head_dim(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects positive 'num_heads', 'num_kv_heads' and 'head_dim', but got 4, 4 and 0}}
  %y = hir.attention %q, %k, %k heads 4 head_dim 0 : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c2_overflow(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects num_heads * head_dim to be below 2^63, but got 4 * 4611686018427387904}}
  %y = hir.attention %q, %k, %k heads 4 head_dim 4611686018427387904
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c3_groups(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects 'num_heads' to be a multiple of 'num_kv_heads', 3, but got 4}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 3 head_dim 8
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c4_query_width(%q: tensor<2x3x40xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects the last dimension of 'q' to be num_heads * head_dim, 32, but got 40}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8
      : tensor<2x3x40xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

/// Keys aren't repeated for the query heads.
func.func @attention_c4_key_width(%q: tensor<2x3x32xf32>, %k: tensor<2x5x32xf32>) {
  // expected-error @below {{expects the last dimension of 'k' to be num_kv_heads * head_dim, 16, but got 32}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8
      : tensor<2x3x32xf32>, tensor<2x5x32xf32>, tensor<2x5x32xf32>
  return
}

// -----

func.func @attention_c5_key_value_types(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>, %v: tensor<2x6x16xf32>) {
  // expected-error @below {{expects 'v' to have the type of 'k', 'tensor<2x5x16xf32>', but got 'tensor<2x6x16xf32>'}}
  %y = hir.attention %q, %k, %v heads 4 kv_heads 2 head_dim 8
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x6x16xf32>
  return
}

// -----

func.func @attention_c5_batch(%q: tensor<2x3x32xf32>, %k: tensor<1x5x16xf32>) {
  // expected-error @below {{expects 'k' and 'v' to have the batch size of 'q', 2, but got 1}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8
      : tensor<2x3x32xf32>, tensor<1x5x16xf32>, tensor<1x5x16xf32>
  return
}

// -----

func.func @attention_c6_no_mask(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects 'mask' exactly with 'mask_kind' custom or bias, but 'mask_kind' is bias and 'mask' is not there}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask bias
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c6_mask_with_causal(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>, %m: tensor<2x5xf32>) {
  // expected-error @below {{expects 'mask' exactly with 'mask_kind' custom or bias, but 'mask_kind' is causal and 'mask' is there}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask causal %m
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<2x5xf32>
  return
}

// -----

func.func @attention_c6_mask_with_none(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>, %m: tensor<2x5xf32>) {
  // expected-error @below {{expects 'mask' exactly with 'mask_kind' custom or bias, but 'mask_kind' is none and 'mask' is there}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 %m
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<2x5xf32>
  return
}

// -----

func.func @attention_c7_bias_rank(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>, %m: tensor<2x5xf32>) {
  // expected-error @below {{expects 'mask' to be [2, 4, 3, 5], or 1 in place of a dimension but the last, but got [2, 5]}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask bias %m
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<2x5xf32>
  return
}

// -----

func.func @attention_c7_bias_shape(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>, %m: tensor<2x2x3x5xf32>) {
  // expected-error @below {{expects 'mask' to be [2, 4, 3, 5], or 1 in place of a dimension but the last, but got [2, 2, 3, 5]}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask bias %m
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<2x2x3x5xf32>
  return
}

// -----

func.func @attention_c7_custom_keys(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>, %m: tensor<2x1xf32>) {
  // expected-error @below {{expects 'mask' to be [2, 4, 3, 5] or [2, 5], or 1 in place of a dimension but the last, but got [2, 1]}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask custom %m
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<2x1xf32>
  return
}

// -----

/// With caches a mask is as long as they are.
func.func @attention_c7_custom_positions(%q: tensor<2x?x32xf32>, %k: tensor<2x?x16xf32>, %m: tensor<2x5xf32>, %kc: tensor<2x64x16xf32>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'mask' to be [2, 4, ?, 64] or [2, 64], or 1 in place of a dimension but the last, but got [2, 5]}}
  %y, %c:2 = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask custom %m caches %kc, %kc at %pos
      : tensor<2x?x32xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>, tensor<2x5xf32>, tensor<2x64x16xf32>,
        tensor<2x64x16xf32>, tensor<2xi32>
  return
}

// -----

func.func @attention_c8_bias_element_type(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>, %m: tensor<2x4x3x5xi1>) {
  // expected-error @below {{expects 'mask' to have the element type of 'q', 'f32', but got 'i1'}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask bias %m
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<2x4x3x5xi1>
  return
}

// -----

func.func @attention_c8_custom_element_type(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>, %m: tensor<2x5xf16>) {
  // expected-error @below {{expects 'mask' to have the element type of 'q', 'f32', or i1, but got 'f16'}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask custom %m
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<2x5xf16>
  return
}

// -----

func.func @attention_c9_no_window(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects 'window' exactly with 'mask_kind' sliding_window, but 'mask_kind' is sliding_window and 'window' is not there}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask sliding_window
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c9_window_with_causal(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects 'window' exactly with 'mask_kind' sliding_window, but 'mask_kind' is causal and 'window' is there}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask causal window 4
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c9_window_zero(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects a positive 'window', but got 0}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask sliding_window window 0
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c10_scale(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects a finite 'scale' other than 0, but got 0.000000e+00}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 scale 0.0
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c10_scale_nan(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects a finite 'scale' other than 0, but got nan}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 scale 0x7FC00000
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c10_softcap(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>) {
  // expected-error @below {{expects a positive, finite 'softcap', but got -5.000000e+01}}
  %y = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 softcap -50.0
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>
  return
}

// -----

func.func @attention_c11_no_value_cache(%q: tensor<2x3x32xf32>, %k: tensor<2x3x16xf32>, %kc: tensor<2x64x16xf32>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'k_cache', 'v_cache' and 'pos' together or not at all, but got 2 of them}}
  %y, %c:2 = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 caches %kc, at %pos
      : tensor<2x3x32xf32>, tensor<2x3x16xf32>, tensor<2x3x16xf32>, tensor<2x64x16xf32>, tensor<2xi32>
  return
}

// -----

func.func @attention_c11_no_positions(%q: tensor<2x3x32xf32>, %k: tensor<2x3x16xf32>, %kc: tensor<2x64x16xf32>) {
  // expected-error @below {{expects 'k_cache', 'v_cache' and 'pos' together or not at all, but got 2 of them}}
  %y, %c:2 = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 caches %kc, %kc at
      : tensor<2x3x32xf32>, tensor<2x3x16xf32>, tensor<2x3x16xf32>, tensor<2x64x16xf32>, tensor<2x64x16xf32>
  return
}

// -----

func.func @attention_c12_cache_lengths(%q: tensor<2x3x32xf32>, %k: tensor<2x3x16xf32>, %kc: tensor<2x64x16xf32>, %vc: tensor<2x65x16xf32>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'k_cache' and 'v_cache' to have one length, but got 64 and 65}}
  %y, %c:2 = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 caches %kc, %vc at %pos
      : tensor<2x3x32xf32>, tensor<2x3x16xf32>, tensor<2x3x16xf32>, tensor<2x64x16xf32>, tensor<2x65x16xf32>,
        tensor<2xi32>
  return
}

// -----

func.func @attention_c12_cache_width(%q: tensor<2x3x32xf32>, %k: tensor<2x3x16xf32>, %kc: tensor<2x64x32xf32>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'k_cache' to be [2, ?, 16], but got [2, 64, 32]}}
  %y, %c:2 = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 caches %kc, %kc at %pos
      : tensor<2x3x32xf32>, tensor<2x3x16xf32>, tensor<2x3x16xf32>, tensor<2x64x32xf32>, tensor<2x64x32xf32>,
        tensor<2xi32>
  return
}

// -----

func.func @attention_c12_cache_element_type(%q: tensor<2x3x32xf32>, %k: tensor<2x3x16xf32>, %kc: tensor<2x64x16xf64>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'k_cache' to have the element type of 'q', or f16, bf16 or i8 where that is f32, but 'q' is of 'f32' and 'k_cache' of 'f64'}}
  %y, %c:2 = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 caches %kc, %kc at %pos
      : tensor<2x3x32xf32>, tensor<2x3x16xf32>, tensor<2x3x16xf32>, tensor<2x64x16xf64>, tensor<2x64x16xf64>,
        tensor<2xi32>
  return
}

// -----

func.func @attention_c12_cache_wider(%q: tensor<2x3x32xf16>, %k: tensor<2x3x16xf16>, %kc: tensor<2x64x16xf32>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'k_cache' to have the element type of 'q', or f16, bf16 or i8 where that is f32, but 'q' is of 'f16' and 'k_cache' of 'f32'}}
  %y, %c:2 = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 caches %kc, %kc at %pos
      : tensor<2x3x32xf16>, tensor<2x3x16xf16>, tensor<2x3x16xf16>, tensor<2x64x16xf32>, tensor<2x64x16xf32>,
        tensor<2xi32>
  return
}

// -----

func.func @attention_c13_keys(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>, %kc: tensor<2x64x16xf32>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'k' and 'v' to be as long as 'q' with caches, 3, but their length is 5}}
  %y, %c:2 = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 caches %kc, %kc at %pos
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<2x64x16xf32>, tensor<2x64x16xf32>,
        tensor<2xi32>
  return
}

// -----

func.func @attention_c13_cache_length(%q: tensor<2x3x32xf32>, %k: tensor<2x3x16xf32>, %kc: tensor<2x2x16xf32>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'k_cache' to be at least as long as 'q', 3, but its length is 2}}
  %y, %c:2 = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 caches %kc, %kc at %pos
      : tensor<2x3x32xf32>, tensor<2x3x16xf32>, tensor<2x3x16xf32>, tensor<2x2x16xf32>, tensor<2x2x16xf32>,
        tensor<2xi32>
  return
}

// -----

func.func @attention_c14_positions(%q: tensor<2x3x32xf32>, %k: tensor<2x3x16xf32>, %kc: tensor<2x64x16xf32>, %pos: tensor<1xi32>) {
  // expected-error @below {{expects 'pos' to have one entry for each batch item, [2], but its shape is [1]}}
  %y, %c:2 = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 caches %kc, %kc at %pos
      : tensor<2x3x32xf32>, tensor<2x3x16xf32>, tensor<2x3x16xf32>, tensor<2x64x16xf32>, tensor<2x64x16xf32>,
        tensor<1xi32>
  return
}

// -----

func.func @rope_c1_rank(%x: tensor<2x3x4x8xf32>, %cos: tensor<64x4xf32>, %sin: tensor<64x4xf32>) {
  // expected-error @below {{expects 'x' to have three dimensions, but got 4}}
  %y = hir.rope half %x, %cos, %sin head_dim 8 : tensor<2x3x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>
  return
}

// -----

func.func @rope_c1_width(%x: tensor<2x3x36xf32>, %cos: tensor<64x4xf32>, %sin: tensor<64x4xf32>) {
  // expected-error @below {{expects the last dimension of 'x' to be a multiple of 'head_dim', 8, but got 36}}
  %y = hir.rope half %x, %cos, %sin head_dim 8 : tensor<2x3x36xf32>, tensor<64x4xf32>, tensor<64x4xf32>
  return
}

// -----

func.func @rope_c2_head_dim_odd(%x: tensor<2x3x32xf32>, %cos: tensor<64x4xf32>, %sin: tensor<64x4xf32>) {
  // expected-error @below {{expects a positive, even 'head_dim', but got 7}}
  %y = hir.rope half %x, %cos, %sin head_dim 7 : tensor<2x3x32xf32>, tensor<64x4xf32>, tensor<64x4xf32>
  return
}

// -----

func.func @rope_c2_head_dim_zero(%x: tensor<2x3x32xf32>, %cos: tensor<64x4xf32>, %sin: tensor<64x4xf32>) {
  // expected-error @below {{expects a positive, even 'head_dim', but got 0}}
  %y = hir.rope half %x, %cos, %sin head_dim 0 : tensor<2x3x32xf32>, tensor<64x4xf32>, tensor<64x4xf32>
  return
}

// -----

func.func @rope_c3_n_rot_odd(%x: tensor<2x3x32xf32>, %cos: tensor<64x4xf32>, %sin: tensor<64x4xf32>) {
  // expected-error @below {{expects a positive, even 'n_rot' of at most 'head_dim', 8, but got 3}}
  %y = hir.rope half %x, %cos, %sin head_dim 8 n_rot 3 : tensor<2x3x32xf32>, tensor<64x4xf32>, tensor<64x4xf32>
  return
}

// -----

func.func @rope_c3_n_rot_above_head_dim(%x: tensor<2x3x32xf32>, %cos: tensor<64x4xf32>, %sin: tensor<64x4xf32>) {
  // expected-error @below {{expects a positive, even 'n_rot' of at most 'head_dim', 8, but got 10}}
  %y = hir.rope half %x, %cos, %sin head_dim 8 n_rot 10 : tensor<2x3x32xf32>, tensor<64x4xf32>, tensor<64x4xf32>
  return
}

// -----

func.func @rope_c4_table_types(%x: tensor<2x3x32xf32>, %cos: tensor<64x4xf32>, %sin: tensor<65x4xf32>) {
  // expected-error @below {{expects 'cos' and 'sin' to have one type, but got 'tensor<64x4xf32>' and 'tensor<65x4xf32>'}}
  %y = hir.rope half %x, %cos, %sin head_dim 8 : tensor<2x3x32xf32>, tensor<64x4xf32>, tensor<65x4xf32>
  return
}

// -----

func.func @rope_c4_table_width(%x: tensor<2x3x32xf32>, %cos: tensor<64x8xf32>, %sin: tensor<64x8xf32>) {
  // expected-error @below {{expects the tables to be [?, 4], but got [64, 8]}}
  %y = hir.rope half %x, %cos, %sin head_dim 8 : tensor<2x3x32xf32>, tensor<64x8xf32>, tensor<64x8xf32>
  return
}

// -----

func.func @rope_c4_table_rank(%x: tensor<2x3x32xf32>, %cos: tensor<1x64x4xf32>, %sin: tensor<1x64x4xf32>) {
  // expected-error @below {{expects the tables to be [?, 4], but got [1, 64, 4]}}
  %y = hir.rope half %x, %cos, %sin head_dim 8 : tensor<2x3x32xf32>, tensor<1x64x4xf32>, tensor<1x64x4xf32>
  return
}

// -----

func.func @rope_c4_table_element_type(%x: tensor<2x3x32xbf16>, %cos: tensor<64x4xf16>, %sin: tensor<64x4xf16>) {
  // expected-error @below {{expects the tables to be of f32 or of the element type of 'x', 'bf16', but got 'f16'}}
  %y = hir.rope half %x, %cos, %sin head_dim 8 : tensor<2x3x32xbf16>, tensor<64x4xf16>, tensor<64x4xf16>
  return
}

// -----

func.func @rope_c5_table_rows(%x: tensor<2x3x32xf32>, %cos: tensor<2x4xf32>, %sin: tensor<2x4xf32>) {
  // expected-error @below {{expects the tables to have a row for each token of 'x', 3, but they have 2}}
  %y = hir.rope half %x, %cos, %sin head_dim 8 : tensor<2x3x32xf32>, tensor<2x4xf32>, tensor<2x4xf32>
  return
}

// -----

func.func @rope_c6_positions(%x: tensor<2x3x32xf32>, %cos: tensor<64x4xf32>, %sin: tensor<64x4xf32>, %pos: tensor<3xi32>) {
  // expected-error @below {{expects 'pos' to have one entry for each batch item, [2], but its shape is [3]}}
  %y = hir.rope half %x, %cos, %sin at %pos head_dim 8
      : tensor<2x3x32xf32>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<3xi32>
  return
}

// -----

func.func @attention_c12_value_cache(%q: tensor<2x3x32xf32>, %k: tensor<2x3x16xf32>, %kc: tensor<2x64x16xf16>, %vc: tensor<2x64x8xf16>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'v_cache' to be [2, ?, 16], but got [2, 64, 8]}}
  %y, %c:2 = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 caches %kc, %vc at %pos
      : tensor<2x3x32xf32>, tensor<2x3x16xf32>, tensor<2x3x16xf32>, tensor<2x64x16xf16>, tensor<2x64x8xf16>,
        tensor<2xi32>
  return
}

// -----

func.func @attention_c15_no_scheme(%q: tensor<2x3x64xf32>, %k: tensor<2x3x32xf32>, %kc: tensor<2x64x34xi8>, %vc: tensor<2x64x32xf32>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'k_scheme' exactly where 'k_cache' is of i8, but 'k_cache' is of 'i8' and 'k_scheme' is absent}}
  %y, %c:2 = hir.attention %q, %k, %k heads 2 kv_heads 1 head_dim 32 caches %kc, %vc at %pos v_scheme q8_0
      : tensor<2x3x64xf32>, tensor<2x3x32xf32>, tensor<2x3x32xf32>, tensor<2x64x34xi8>, tensor<2x64x32xf32>,
        tensor<2xi32>
  return
}

// -----

func.func @attention_c15_scheme_of_floats(%q: tensor<2x3x64xf32>, %k: tensor<2x3x32xf32>, %kc: tensor<2x64x32xf32>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'v_scheme' exactly where 'v_cache' is of i8, but 'v_cache' is of 'f32' and 'v_scheme' is present}}
  %y, %c:2 = hir.attention %q, %k, %k heads 2 kv_heads 1 head_dim 32 caches %kc, %kc at %pos v_scheme q8_0
      : tensor<2x3x64xf32>, tensor<2x3x32xf32>, tensor<2x3x32xf32>, tensor<2x64x32xf32>, tensor<2x64x32xf32>,
        tensor<2xi32>
  return
}

// -----

func.func @attention_c15_heads(%q: tensor<2x3x96xf32>, %k: tensor<2x3x96xf32>, %kc: tensor<2x64x102xi8>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'head_dim' to be a multiple of the block length of q8_0, 32, but got 48}}
  %y, %c:2 = hir.attention %q, %k, %k heads 2 head_dim 48 caches %kc, %kc at %pos k_scheme q8_0 v_scheme q8_0
      : tensor<2x3x96xf32>, tensor<2x3x96xf32>, tensor<2x3x96xf32>, tensor<2x64x102xi8>, tensor<2x64x102xi8>,
        tensor<2xi32>
  return
}

// -----

func.func @attention_c15_bytes(%q: tensor<2x3x64xf32>, %k: tensor<2x3x64xf32>, %kc: tensor<2x64x68xi8>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'v_cache' to have rows of 36 bytes, 64 elements in blocks of q4_0, but got 68}}
  %y, %c:2 = hir.attention %q, %k, %k heads 2 head_dim 32 caches %kc, %kc at %pos k_scheme q8_0 v_scheme q4_0
      : tensor<2x3x64xf32>, tensor<2x3x64xf32>, tensor<2x3x64xf32>, tensor<2x64x68xi8>, tensor<2x64x68xi8>,
        tensor<2xi32>
  return
}

// -----

func.func @attention_c15_queries(%q: tensor<2x3x64xf16>, %k: tensor<2x3x64xf16>, %kc: tensor<2x64x68xi8>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'q' to be of f32 where 'k_cache' is of blocks of q8_0, but got 'f16'}}
  %y, %c:2 = hir.attention %q, %k, %k heads 2 head_dim 32 caches %kc, %kc at %pos k_scheme q8_0 v_scheme q8_0
      : tensor<2x3x64xf16>, tensor<2x3x64xf16>, tensor<2x3x64xf16>, tensor<2x64x68xi8>, tensor<2x64x68xi8>,
        tensor<2xi32>
  return
}

// -----

func.func @attention_c15_no_caches(%q: tensor<2x3x64xf32>) {
  // expected-error @below {{expects 'k_scheme' and 'v_scheme' only with caches, but there are none}}
  %y = hir.attention %q, %q, %q heads 2 head_dim 32 k_scheme q8_0
      : tensor<2x3x64xf32>, tensor<2x3x64xf32>, tensor<2x3x64xf32>
  return
}

// -----

func.func @attention_c16_length(%q: tensor<2x3x64xf32>, %s: tensor<4xf32>) {
  // expected-error @below {{expects 'sinks' to have one entry per query head, [2], but got [4]}}
  %y = hir.attention %q, %q, %q heads 2 head_dim 32 sinks %s
      : tensor<2x3x64xf32>, tensor<2x3x64xf32>, tensor<2x3x64xf32>, tensor<4xf32>
  return
}

// -----

func.func @attention_c16_type(%q: tensor<2x3x64xf16>, %s: tensor<2xf64>) {
  // expected-error @below {{expects 'sinks' to be of f32 or of the element type of 'q', 'f16', but got 'f64'}}
  %y = hir.attention %q, %q, %q heads 2 head_dim 32 sinks %s
      : tensor<2x3x64xf16>, tensor<2x3x64xf16>, tensor<2x3x64xf16>, tensor<2xf64>
  return
}
