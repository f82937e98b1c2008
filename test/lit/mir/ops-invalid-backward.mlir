// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @layer_norm_backward_input_c1_axis(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'axis' to be a dimension of 'x', whose rank is 2, but got 2}}
  %r = mir.layer_norm_backward_input %x, %g, %x axis 2 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @layer_norm_backward_input_c2_gamma(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'gamma' to be as long as dimension 0 of 'x', 4, but its length is 8}}
  %r = mir.layer_norm_backward_input %x, %g, %x axis 0 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @layer_norm_backward_input_c3_eps(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got 0}}
  %r = mir.layer_norm_backward_input %x, %g, %x eps 0.0 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @layer_norm_backward_gamma_c1_axis(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects 'axis' to be a dimension of 'x', whose rank is 2, but got -3}}
  %r = mir.layer_norm_backward_gamma %x, %x axis -3 : tensor<4x8xf32>
  return
}

// -----

func.func @layer_norm_backward_gamma_c2_eps(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got -1}}
  %r = mir.layer_norm_backward_gamma %x, %x eps -1.0 : tensor<4x8xf32>
  return
}

// -----

func.func @rms_norm_backward_input_c1_axis(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'axis' to be a dimension of 'x', whose rank is 2, but got 2}}
  %r = mir.rms_norm_backward_input %x, %g, %x axis 2 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_backward_input_c2_gamma(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'gamma' to be as long as dimension 0 of 'x', 4, but its length is 8}}
  %r = mir.rms_norm_backward_input %x, %g, %x axis 0 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_backward_input_c3_eps(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got 0}}
  %r = mir.rms_norm_backward_input %x, %g, %x eps 0.0 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_backward_gamma_c1_axis(%x: tensor<f32>) {
  // expected-error @below {{expects 'axis' to be a dimension of 'x', whose rank is 0, but got -1}}
  %r = mir.rms_norm_backward_gamma %x, %x : tensor<f32>
  return
}

// -----

func.func @rms_norm_backward_gamma_c2_eps(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got 0}}
  %r = mir.rms_norm_backward_gamma %x, %x eps 0.0 : tensor<4x8xf32>
  return
}

// -----

func.func @attention_backward_c1_rank_packed(%q: tensor<2x5x512xf32>, %k: tensor<7x256xf32>) {
  // expected-error @below {{expects 'q', 'k' and 'v' to have the rank of layout packed, all 2 or all 3, but their ranks are 3, 2 and 2}}
  %r:3 = mir.attention_backward %q, %k, %k, %q heads 8 kv_heads 4 head_dim 64 : tensor<2x5x512xf32>, tensor<7x256xf32>
  return
}

// -----

func.func @attention_backward_c2_heads(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{with 'num_heads' a multiple of 'num_kv_heads', but got 8, 3 and 64}}
  %r:3 = mir.attention_backward %q, %k, %k, %q heads 8 kv_heads 3 head_dim 64 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_backward_c3_width_q(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects 'q' to have rows of 4 heads of 64 elements, 256, but got 512}}
  %r:3 = mir.attention_backward %q, %k, %k, %q heads 4 head_dim 64 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_backward_c4_batch(%q: tensor<2x5x512xf32>, %k: tensor<3x7x256xf32>) {
  // expected-error @below {{expects 'q', 'k' and 'v' to have the same batch, but got 2, 3 and 3}}
  %r:3 = mir.attention_backward %q, %k, %k, %q heads 8 kv_heads 4 head_dim 64 : tensor<2x5x512xf32>, tensor<3x7x256xf32>
  return
}

// -----

func.func @attention_backward_c5_absent(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects 'mask' exactly with mask_kind custom or bias, but mask_kind is custom and 'mask' is absent}}
  %r:3 = mir.attention_backward %q, %k, %k, %q heads 8 kv_heads 4 head_dim 64 masked custom : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_backward_c6_custom_shape(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>, %m: tensor<2x5xf32>) {
  // expected-error @below {{expects 'mask' of kind custom to be [2, 7], where all but the last may be 1, but got [2, 5]}}
  %r:3 = mir.attention_backward %q, %k, %k, %q mask(%m : tensor<2x5xf32>) heads 8 kv_heads 4 head_dim 64 masked custom : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_backward_c7_absent(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects 'window' exactly with mask_kind sliding_window, but mask_kind is sliding_window and 'window' is absent}}
  %r:3 = mir.attention_backward %q, %k, %k, %q heads 8 kv_heads 4 head_dim 64 masked sliding_window : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_backward_c8_pos(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>, %p: tensor<3xi32>) {
  // expected-error @below {{expects 'pos' to have one entry per batch, 2, but its length is 3}}
  %r:3 = mir.attention_backward %q, %k, %k, %q pos(%p : tensor<3xi32>) heads 8 kv_heads 4 head_dim 64 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_backward_c9_scale(%q: tensor<2x5x512xf32>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects a finite 'scale', but got nan}}
  %r:3 = mir.attention_backward %q, %k, %k, %q heads 8 kv_heads 4 head_dim 64 scale 0x7FC00000 : tensor<2x5x512xf32>, tensor<2x7x256xf32>
  return
}

// -----

func.func @attention_backward_c10_wider(%q: tensor<2x5x512xf16>, %k: tensor<2x7x256xf32>) {
  // expected-error @below {{expects 'k' and 'v' to have the element type of 'q', or f16 or bf16 where that is f32, but 'q' is of 'f16' and 'k' of 'f32'}}
  %r:3 = mir.attention_backward %q, %k, %k, %q heads 8 kv_heads 4 head_dim 64 : tensor<2x5x512xf16>, tensor<2x7x256xf32>
  return
}
