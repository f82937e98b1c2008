// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @layer_norm_c1_axis(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'axis' to be a dimension of 'x', whose rank is 2, but got 2}}
  %r = mir.layer_norm %x, %g axis 2 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @layer_norm_c2_gamma(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'gamma' to be as long as dimension 0 of 'x', 4, but its length is 8}}
  %r = mir.layer_norm %x, %g axis 0 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @layer_norm_c3_beta_length(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %b: tensor<9xf32>) {
  // expected-error @below {{expects 'beta' to be as long as dimension 1 of 'x', 8, but its length is 9}}
  %r = mir.layer_norm %x, %g beta(%b : tensor<9xf32>) : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @layer_norm_c3_beta_type(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %b: tensor<8xf16>) {
  // expected-error @below {{expects 'beta' to have the element type of 'x', 'f32', but got 'f16'}}
  %r = mir.layer_norm %x, %g beta(%b : tensor<8xf16>) : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @layer_norm_c4_eps_negative(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got -2.500000e-01}}
  %r = mir.layer_norm %x, %g eps -0.25 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @layer_norm_c4_eps_infinite(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got INF}}
  %r = mir.layer_norm %x, %g eps 0x7F800000 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_c1_axis(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'axis' to be a dimension of 'x', whose rank is 2, but got 2}}
  %r = mir.rms_norm %x, %g axis 2 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_c2_gamma(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'gamma' to be as long as dimension 0 of 'x', 4, but its length is 8}}
  %r = mir.rms_norm %x, %g axis 0 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_c3_beta_length(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %b: tensor<9xf32>) {
  // expected-error @below {{expects 'beta' to be as long as dimension 1 of 'x', 8, but its length is 9}}
  %r = mir.rms_norm %x, %g beta(%b : tensor<9xf32>) : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_c3_beta_type(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %b: tensor<8xf16>) {
  // expected-error @below {{expects 'beta' to have the element type of 'x', 'f32', but got 'f16'}}
  %r = mir.rms_norm %x, %g beta(%b : tensor<8xf16>) : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_c4_eps_negative(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got -2.500000e-01}}
  %r = mir.rms_norm %x, %g eps -0.25 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_c4_eps_infinite(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got INF}}
  %r = mir.rms_norm %x, %g eps 0x7F800000 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @fused_residual_layer_norm_c1_rank(%x: tensor<f32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'x' to have at least one dimension, but its rank is 0}}
  %r = mir.fused_residual_layer_norm %x, %x, %g : tensor<f32>, tensor<8xf32>
  return
}

// -----

func.func @fused_residual_layer_norm_c2_gamma(%x: tensor<4x8xf32>, %g: tensor<9xf32>) {
  // expected-error @below {{expects 'gamma' to be as long as dimension 1 of 'x', 8, but its length is 9}}
  %r = mir.fused_residual_layer_norm %x, %x, %g : tensor<4x8xf32>, tensor<9xf32>
  return
}

// -----

func.func @fused_residual_layer_norm_c3_bias(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %b: tensor<9xf32>) {
  // expected-error @below {{expects 'bias' to be as long as dimension 1 of 'x', 8, but its length is 9}}
  %r = mir.fused_residual_layer_norm %x, %x, %g bias(%b : tensor<9xf32>) : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @fused_residual_layer_norm_c3_beta(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %b: tensor<8xf16>) {
  // expected-error @below {{expects 'beta' to have the element type of 'x', 'f32', but got 'f16'}}
  %r = mir.fused_residual_layer_norm %x, %x, %g beta(%b : tensor<8xf16>) : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @fused_residual_layer_norm_c4_eps(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got 0.000000e+00}}
  %r = mir.fused_residual_layer_norm %x, %x, %g eps 0.0 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @fused_residual_rms_norm_c1_rank(%x: tensor<f32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'x' to have at least one dimension, but its rank is 0}}
  %r = mir.fused_residual_rms_norm %x, %x, %g : tensor<f32>, tensor<8xf32>
  return
}

// -----

func.func @fused_residual_rms_norm_c2_gamma(%x: tensor<4x8xf32>, %g: tensor<9xf32>) {
  // expected-error @below {{expects 'gamma' to be as long as dimension 1 of 'x', 8, but its length is 9}}
  %r = mir.fused_residual_rms_norm %x, %x, %g : tensor<4x8xf32>, tensor<9xf32>
  return
}

// -----

func.func @fused_residual_rms_norm_c3_bias(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %b: tensor<9xf32>) {
  // expected-error @below {{expects 'bias' to be as long as dimension 1 of 'x', 8, but its length is 9}}
  %r = mir.fused_residual_rms_norm %x, %x, %g bias(%b : tensor<9xf32>) : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @fused_residual_rms_norm_c3_beta(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %b: tensor<8xf16>) {
  // expected-error @below {{expects 'beta' to have the element type of 'x', 'f32', but got 'f16'}}
  %r = mir.fused_residual_rms_norm %x, %x, %g beta(%b : tensor<8xf16>) : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @fused_residual_rms_norm_c4_eps(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got 0.000000e+00}}
  %r = mir.fused_residual_rms_norm %x, %x, %g eps 0.0 : tensor<4x8xf32>, tensor<8xf32>
  return
}
