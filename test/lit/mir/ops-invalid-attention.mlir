// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @attention_c1_rank_packed(%q: tensor<2x5x512xf32>, %k: tensor<7x256xf32>) {
  // expected-error @below {{expects 'q', 'k' and 'v' to have the rank of layout packed, all 2 or all 3, but their ranks are 3, 2 and 2}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 : tensor<2x5x512xf32>, tensor<7x256xf32>
  return
}

// -----

func.func @attention_c1_rank_bhsd(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects 'q', 'k' and 'v' to have the rank of layout bhsd, 4, but their ranks are 3, 3 and 3}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 layout bhsd : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c2_heads(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{with 'num_heads' a multiple of 'num_kv_heads', but got 8, 3 and 64}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 3 head_dim 64 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c2_zero(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects positive 'num_heads', 'num_kv_heads' and 'head_dim', with 'num_heads' a multiple of 'num_kv_heads', but got 8, 0 and 64}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 0 head_dim 64 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c3_width_q(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects 'q' to have rows of 4 heads of 64 elements, 256, but got 512}}
  %r = mir.attention %q, %k, %k heads 4 head_dim 64 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

/// Without kv_heads there are as many as query heads.
func.func @attention_c3_width_k(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects 'k' to have rows of 8 heads of 64 elements, 512, but got 256}}
  %r = mir.attention %q, %k, %k heads 8 head_dim 64 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c3_heads(%q: tensor<2x8x5x64xf32>, %k: tensor<2x8x5x64xf32>) {
  // expected-error @below {{expects 'k' to have 4 heads of 64 elements, but got 8 of 64}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 layout bhsd : tensor<2x8x5x64xf32>, tensor<2x8x5x64xf32>
  return
}

// -----

/// The layout is never guessed from the sizes.
func.func @attention_c3_layout(%q: tensor<2x8x5x64xf32>, %k: tensor<2x8x5x64xf32>) {
  // expected-error @below {{expects 'q' to have 8 heads of 64 elements, but got 5 of 64}}
  %r = mir.attention %q, %k, %k heads 8 head_dim 64 layout bshd : tensor<2x8x5x64xf32>, tensor<2x8x5x64xf32>
  return
}

// -----

func.func @attention_c4_batch(%q: tensor<2x5x512xf32>, %k: tensor<3x7x256xf32>) {
  // expected-error @below {{expects 'q', 'k' and 'v' to have the same batch, but got 2, 3 and 3}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 : tensor<2x5x512xf32>, tensor<3x7x256xf32>
  return
}

// -----

func.func @attention_c5_absent(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects 'mask' exactly with mask_kind custom or bias, but mask_kind is custom and 'mask' is absent}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 masked custom : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c5_present(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>, %m: tensor<2x7xf32>) {
  // expected-error @below {{expects 'mask' exactly with mask_kind custom or bias, but mask_kind is causal and 'mask' is present}}
  %r = mir.attention %q, %k, %k mask(%m : tensor<2x7xf32>) heads 8 kv_heads 4 head_dim 64 masked causal : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c6_custom_shape(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>, %m: tensor<2x5xf32>) {
  // expected-error @below {{expects 'mask' of kind custom to be [2, 7], where all but the last may be 1, but got [2, 5]}}
  %r = mir.attention %q, %k, %k mask(%m : tensor<2x5xf32>) heads 8 kv_heads 4 head_dim 64 masked custom : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c6_custom_heads(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>, %m: tensor<2x4x5x7xi1>) {
  // expected-error @below {{expects 'mask' of kind custom to be [2, 8, 5, 7], where all but the last may be 1, but got [2, 4, 5, 7]}}
  %r = mir.attention %q, %k, %k mask(%m : tensor<2x4x5x7xi1>) heads 8 kv_heads 4 head_dim 64 masked custom : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c6_keys(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>, %m: tensor<2x1xf32>) {
  // expected-error @below {{expects 'mask' of kind custom to be [2, 7], where all but the last may be 1, but got [2, 1]}}
  %r = mir.attention %q, %k, %k mask(%m : tensor<2x1xf32>) heads 8 kv_heads 4 head_dim 64 masked custom : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c6_bias_rank(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>, %m: tensor<5x7xf32>) {
  // expected-error @below {{expects 'mask' of kind bias to be [2, 8, 5, 7], where all but the last may be 1, but got [5, 7]}}
  %r = mir.attention %q, %k, %k mask(%m : tensor<5x7xf32>) heads 8 kv_heads 4 head_dim 64 masked bias : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c6_bias_i1(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>, %m: tensor<1x1x5x7xi1>) {
  // expected-error @below {{expects 'mask' of kind bias to be of 'f32', but got 'i1'}}
  %r = mir.attention %q, %k, %k mask(%m : tensor<1x1x5x7xi1>) heads 8 kv_heads 4 head_dim 64 masked bias : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c6_custom_type(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>, %m: tensor<2x7xf16>) {
  // expected-error @below {{expects 'mask' of kind custom to be of 'f32' or i1, but got 'f16'}}
  %r = mir.attention %q, %k, %k mask(%m : tensor<2x7xf16>) heads 8 kv_heads 4 head_dim 64 masked custom : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c7_absent(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects 'window' exactly with mask_kind sliding_window, but mask_kind is sliding_window and 'window' is absent}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 masked sliding_window : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c7_present(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects 'window' exactly with mask_kind sliding_window, but mask_kind is causal and 'window' is present}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 masked causal window 4 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c7_zero(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects a positive 'window', but got 0}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 masked sliding_window window 0 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c8_pos(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>, %p: tensor<3xi32>) {
  // expected-error @below {{expects 'pos' to have one entry per batch, 2, but its length is 3}}
  %r = mir.attention %q, %k, %k pos(%p : tensor<3xi32>) heads 8 kv_heads 4 head_dim 64 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c8_pos_rank_2(%q: tensor<5x512xf32>, %k: tensor<7x256xf32>, %p: tensor<2xi32>) {
  // expected-error @below {{expects 'pos' to have one entry per batch, 1, but its length is 2}}
  %r = mir.attention %q, %k, %k pos(%p : tensor<2xi32>) heads 8 kv_heads 4 head_dim 64 : tensor<5x512xf32>, tensor<7x256xf32>
  return
}

// -----

func.func @attention_c9_scale(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects a finite 'scale', but got nan}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 scale 0x7FC00000 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c9_softcap(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects a positive, finite 'softcap', but got 0.000000e+00}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 softcap 0.0 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c10_wider(%q: tensor<2x5x512xf16>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects 'k' to have the element type of 'q', or f16, bf16 or i8 where that is f32, but 'q' is of 'f16' and 'k' of 'f32'}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 : tensor<2x5x512xf16>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_c10_f64(%q: tensor<2x5x512xf64>, %k: tensor<2x7x256xf16>) {
  // expected-error @below {{where that is f32, but 'q' is of 'f64' and 'k' of 'f16'}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 : tensor<2x5x512xf64>, tensor<2x7x256xf16>
  return
}

// -----

func.func @attention_c10_two_halves(%q: tensor<2x5x512xbf16>, %k: tensor<2x7x256xf16>) {
  // expected-error @below {{where that is f32, but 'q' is of 'bf16' and 'k' of 'f16'}}
  %r = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 : tensor<2x5x512xbf16>, tensor<2x7x256xf16>
  return
}

// -----

func.func @rope_c1_rank(%x: tensor<512xf32>, %c: tensor<128x32xf32>) {
  // expected-error @below {{expects 'x' to have at least two dimensions, but its rank is 1}}
  %r = mir.rope %x, %c, %c head_dim 64 : tensor<512xf32>, tensor<128x32xf32>
  return
}

// -----

func.func @rope_c2_divides(%x: tensor<2x5x500xf32>, %c: tensor<128x32xf32>) {
  // expected-error @below {{expects a positive, even 'head_dim' that divides the last dimension of 'x', 500, but got 64}}
  %r = mir.rope %x, %c, %c head_dim 64 : tensor<2x5x500xf32>, tensor<128x32xf32>
  return
}

// -----

func.func @rope_c2_odd(%x: tensor<2x5x512xf32>, %c: tensor<128x32xf32>) {
  // expected-error @below {{expects a positive, even 'head_dim' that divides the last dimension of 'x', 512, but got 1}}
  %r = mir.rope %x, %c, %c head_dim 1 : tensor<2x5x512xf32>, tensor<128x32xf32>
  return
}

// -----

func.func @rope_c3_odd(%x: tensor<2x5x512xf32>, %c: tensor<128x32xf32>) {
  // expected-error @below {{expects 'n_rot' to be positive, even and at most 'head_dim', 64, but got 31}}
  %r = mir.rope %x, %c, %c head_dim 64 n_rot 31 : tensor<2x5x512xf32>, tensor<128x32xf32>
  return
}

// -----

func.func @rope_c3_large(%x: tensor<2x5x512xf32>, %c: tensor<128x32xf32>) {
  // expected-error @below {{expects 'n_rot' to be positive, even and at most 'head_dim', 64, but got 66}}
  %r = mir.rope %x, %c, %c head_dim 64 n_rot 66 : tensor<2x5x512xf32>, tensor<128x32xf32>
  return
}

// -----

/// The columns follow from head_dim even where fewer elements are rotated.
func.func @rope_c4_columns(%x: tensor<2x5x512xf32>, %c: tensor<128x16xf32>) {
  // expected-error @below {{expects 'cos' and 'sin' to be [P, head_dim / 2], with 32 columns, but got [128, 16]}}
  %r = mir.rope %x, %c, %c head_dim 64 n_rot 32 : tensor<2x5x512xf32>, tensor<128x16xf32>
  return
}

// -----

func.func @rope_c4_element_type(%x: tensor<2x5x512xf32>, %c: tensor<128x32xf16>) {
  // expected-error @below {{expects 'cos' and 'sin' to be of f32 or of the element type of 'x', 'f32', but got 'f16'}}
  %r = mir.rope %x, %c, %c head_dim 64 : tensor<2x5x512xf32>, tensor<128x32xf16>
  return
}

// -----

func.func @rope_c5_rows(%x: tensor<2x5x512xf32>, %c: tensor<4x32xf32>) {
  // expected-error @below {{expects 'cos' and 'sin' to have a row for each of the 5 positions of 'x', but got 4}}
  %r = mir.rope %x, %c, %c head_dim 64 : tensor<2x5x512xf32>, tensor<4x32xf32>
  return
}

// -----

func.func @rope_c6_pos(%x: tensor<2x5x512xf32>, %c: tensor<128x32xf32>, %p: tensor<1xi32>) {
  // expected-error @below {{expects 'pos' to have one entry per batch, 2, but its length is 1}}
  %r = mir.rope %x, %c, %c pos(%p : tensor<1xi32>) head_dim 64 : tensor<2x5x512xf32>, tensor<128x32xf32>
  return
}

// -----

func.func @cache_update_c1_rank(%c: tensor<1x128x256xf32>, %n: tensor<5x256xf32>, %p: tensor<1xi32>) {
  // expected-error @below {{expects 'cache' and 'new' to have three dimensions, but their ranks are 3 and 2}}
  %r = mir.cache_update %c, %n at %p : tensor<1x128x256xf32>, tensor<5x256xf32>, tensor<1xi32>
  return
}

// -----

func.func @cache_update_c2_batch(%c: tensor<1x128x256xf32>, %n: tensor<2x5x256xf32>, %p: tensor<1xi32>) {
  // expected-error @below {{expects 'cache' and 'new' to have the same batch and width, but got [1, 128, 256] and [2, 5, 256]}}
  %r = mir.cache_update %c, %n at %p : tensor<1x128x256xf32>, tensor<2x5x256xf32>, tensor<1xi32>
  return
}

// -----

func.func @cache_update_c2_width(%c: tensor<1x128x256xf32>, %n: tensor<1x5x128xf32>, %p: tensor<1xi32>) {
  // expected-error @below {{expects 'cache' and 'new' to have the same batch and width, but got [1, 128, 256] and [1, 5, 128]}}
  %r = mir.cache_update %c, %n at %p : tensor<1x128x256xf32>, tensor<1x5x128xf32>, tensor<1xi32>
  return
}

// -----

func.func @cache_update_c3_rows(%c: tensor<1x128x256xf32>, %n: tensor<1x129x256xf32>, %p: tensor<1xi32>) {
  // expected-error @below {{expects 'new' to have no more rows than 'cache', 128, but got 129}}
  %r = mir.cache_update %c, %n at %p : tensor<1x128x256xf32>, tensor<1x129x256xf32>, tensor<1xi32>
  return
}

// -----

func.func @cache_update_c4_pos(%c: tensor<1x128x256xf32>, %n: tensor<1x5x256xf32>, %p: tensor<2xi32>) {
  // expected-error @below {{expects 'pos' to have one entry per batch, 1, but its length is 2}}
  %r = mir.cache_update %c, %n at %p : tensor<1x128x256xf32>, tensor<1x5x256xf32>, tensor<2xi32>
  return
}

// -----

func.func @cache_update_c5_wider(%c: tensor<1x128x256xf32>, %n: tensor<1x5x256xf16>, %p: tensor<1xi32>) {
  // expected-error @below {{expects 'cache' to have the element type of 'new', or f16, bf16 or i8 where that is f32, but 'new' is of 'f16' and 'cache' of 'f32'}}
  %r = mir.cache_update %c, %n at %p : tensor<1x128x256xf32>, tensor<1x5x256xf16>, tensor<1xi32>
  return
}

// -----

func.func @cache_update_c6_no_scheme(%c: tensor<1x128x272xi8>, %n: tensor<1x5x256xf32>, %p: tensor<1xi32>) {
  // expected-error @below {{expects 'scheme' exactly where 'cache' is of i8, but 'cache' is of 'i8' and 'scheme' is absent}}
  %r = mir.cache_update %c, %n at %p : tensor<1x128x272xi8>, tensor<1x5x256xf32>, tensor<1xi32>
  return
}

// -----

func.func @cache_update_c6_scheme_of_floats(%c: tensor<1x128x256xf16>, %n: tensor<1x5x256xf32>, %p: tensor<1xi32>) {
  // expected-error @below {{expects 'scheme' exactly where 'cache' is of i8, but 'cache' is of 'f16' and 'scheme' is present}}
  %r = mir.cache_update %c, %n at %p scheme q4_0 : tensor<1x128x256xf16>, tensor<1x5x256xf32>, tensor<1xi32>
  return
}

// -----

func.func @cache_update_c7_width(%c: tensor<1x128x51xi8>, %n: tensor<1x5x48xf32>, %p: tensor<1xi32>) {
  // expected-error @below {{expects the width of 'new' to be a multiple of the block length of q8_0, 32, but got 48}}
  %r = mir.cache_update %c, %n at %p scheme q8_0 : tensor<1x128x51xi8>, tensor<1x5x48xf32>, tensor<1xi32>
  return
}

// -----

func.func @cache_update_c7_dynamic_width(%c: tensor<1x128x34xi8>, %n: tensor<1x5x?xf32>, %p: tensor<1xi32>) {
  // expected-error @below {{expects the width of 'new' to be a multiple of the block length of q8_0, 32, but got ?}}
  %r = mir.cache_update %c, %n at %p scheme q8_0 : tensor<1x128x34xi8>, tensor<1x5x?xf32>, tensor<1xi32>
  return
}

// -----

func.func @cache_update_c7_bytes(%c: tensor<1x128x272xi8>, %n: tensor<1x5x256xf32>, %p: tensor<1xi32>) {
  // expected-error @below {{expects 'cache' to have rows of 144 bytes, 256 elements in blocks of q4_0, but got 272}}
  %r = mir.cache_update %c, %n at %p scheme q4_0 : tensor<1x128x272xi8>, tensor<1x5x256xf32>, tensor<1xi32>
  return
}

// -----

func.func @cache_update_c7_element(%c: tensor<1x128x272xi8>, %n: tensor<1x5x256xf64>, %p: tensor<1xi32>) {
  // expected-error @below {{expects 'new' to be of f32 where 'cache' is of blocks of q8_0, but got 'f64'}}
  %r = mir.cache_update %c, %n at %p scheme q8_0 : tensor<1x128x272xi8>, tensor<1x5x256xf64>, tensor<1xi32>
  return
}

// -----

func.func @attention_c1_values(%q: tensor<2x5x64xf32>, %k: tensor<2x9x64xf32>, %v: tensor<9x64xf32>) {
  // expected-error @below {{expects 'q', 'k' and 'v' to have the rank of layout packed, all 2 or all 3, but their ranks are 3, 3 and 2}}
  %r = mir.attention %q, %k, %v heads 2 head_dim 32 : tensor<2x5x64xf32>, tensor<2x9x64xf32>, tensor<9x64xf32>
  return
}

// -----

func.func @attention_c3_values(%q: tensor<2x5x64xf32>, %k: tensor<2x9x64xf32>, %v: tensor<2x9x32xf32>) {
  // expected-error @below {{expects 'v' to have rows of 2 heads of 32 elements, 64, but got 32}}
  %r = mir.attention %q, %k, %v heads 2 head_dim 32 : tensor<2x5x64xf32>, tensor<2x9x64xf32>, tensor<2x9x32xf32>
  return
}

// -----

func.func @attention_c4_length(%q: tensor<2x5x64xf32>, %k: tensor<2x9x64xf32>, %v: tensor<2x8x64xf32>) {
  // expected-error @below {{expects 'k' and 'v' to have the same length, but got 9 and 8}}
  %r = mir.attention %q, %k, %v heads 2 head_dim 32 : tensor<2x5x64xf32>, tensor<2x9x64xf32>, tensor<2x8x64xf32>
  return
}

// -----

func.func @attention_c11_no_scheme(%q: tensor<2x5x64xf32>, %k: tensor<2x9x68xi8>) {
  // expected-error @below {{expects 'v_scheme' exactly where 'v' is of i8, but 'v' is of 'i8' and 'v_scheme' is absent}}
  %r = mir.attention %q, %k, %k heads 2 head_dim 32 k_scheme q8_0 : tensor<2x5x64xf32>, tensor<2x9x68xi8>
  return
}

// -----

func.func @attention_c12_layout(%q: tensor<2x2x5x32xf32>, %k: tensor<2x2x9x34xi8>) {
  // expected-error @below {{expects layout packed with 'k_scheme', but got bhsd}}
  %r = mir.attention %q, %k, %k heads 2 head_dim 32 layout bhsd k_scheme q8_0 v_scheme q8_0
      : tensor<2x2x5x32xf32>, tensor<2x2x9x34xi8>
  return
}

// -----

func.func @attention_c12_bytes(%q: tensor<2x5x64xf32>, %k: tensor<2x9x36xi8>) {
  // expected-error @below {{expects 'k' to have rows of 68 bytes, 64 elements in blocks of q8_0, but got 36}}
  %r = mir.attention %q, %k, %k heads 2 head_dim 32 k_scheme q8_0 v_scheme q4_0
      : tensor<2x5x64xf32>, tensor<2x9x36xi8>
  return
}

// -----

func.func @attention_c12_heads(%q: tensor<2x5x32xf32>, %k: tensor<2x9x34xi8>) {
  // expected-error @below {{expects 'head_dim' to be a multiple of the block length of q8_0, 32, but got 16}}
  %r = mir.attention %q, %k, %k heads 2 head_dim 16 k_scheme q8_0 v_scheme q8_0
      : tensor<2x5x32xf32>, tensor<2x9x34xi8>
  return
}

// -----

func.func @attention_c13_length(%q: tensor<2x5x64xf32>, %s: tensor<3xf32>) {
  // expected-error @below {{expects 'sinks' to have one entry per query head, [2], but got [3]}}
  %r = mir.attention %q, %q, %q sinks(%s : tensor<3xf32>) heads 2 head_dim 32 : tensor<2x5x64xf32>, tensor<2x5x64xf32>
  return
}

// -----

func.func @attention_c13_rank(%q: tensor<2x5x64xf32>, %s: tensor<1x2xf32>) {
  // expected-error @below {{expects 'sinks' to have one entry per query head, [2], but got [1, 2]}}
  %r = mir.attention %q, %q, %q sinks(%s : tensor<1x2xf32>) heads 2 head_dim 32 : tensor<2x5x64xf32>, tensor<2x5x64xf32>
  return
}

// -----

func.func @attention_c13_type(%q: tensor<2x5x64xbf16>, %s: tensor<2xf16>) {
  // expected-error @below {{expects 'sinks' to be of f32 or of the element type of 'q', 'bf16', but got 'f16'}}
  %r = mir.attention %q, %q, %q sinks(%s : tensor<2xf16>) heads 2 head_dim 32 : tensor<2x5x64xbf16>, tensor<2x5x64xbf16>
  return
}
