// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @rms_norm_c1_scalar(%x: tensor<f32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'x' to have at least one dimension, but got 0}}
  %y = hir.rms_norm %x, %g : tensor<f32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_c2_gamma_rank(%x: tensor<4x8xf32>, %g: tensor<4x8xf32>) {
  // expected-error @below {{expects 'gamma' to have one dimension, but got 2}}
  %y = hir.rms_norm %x, %g : tensor<4x8xf32>, tensor<4x8xf32>
  return
}

// -----

func.func @rms_norm_c2_gamma_length(%x: tensor<4x8xf32>, %g: tensor<9xf32>) {
  // expected-error @below {{expects 'gamma' to be as long as the last dimension of 'x', 8, but its length is 9}}
  %y = hir.rms_norm %x, %g : tensor<4x8xf32>, tensor<9xf32>
  return
}

// -----

func.func @rms_norm_c2_beta_length(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %b: tensor<7xf32>) {
  // expected-error @below {{expects 'beta' to be as long as the last dimension of 'x', 8, but its length is 7}}
  %y = hir.rms_norm %x, %g beta %b : tensor<4x8xf32>, tensor<8xf32>, tensor<7xf32>
  return
}

// -----

func.func @rms_norm_c3_gamma_element_type(%x: tensor<4x8xf32>, %g: tensor<8xf16>) {
  // expected-error @below {{expects 'gamma' to have the element type of 'x', 'f32', but got 'f16'}}
  %y = hir.rms_norm %x, %g : tensor<4x8xf32>, tensor<8xf16>
  return
}

// -----

func.func @rms_norm_c3_beta_element_type(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %b: tensor<8xbf16>) {
  // expected-error @below {{expects 'beta' to have the element type of 'x', 'f32', but got 'bf16'}}
  %y = hir.rms_norm %x, %g beta %b : tensor<4x8xf32>, tensor<8xf32>, tensor<8xbf16>
  return
}

// -----

func.func @rms_norm_c4_eps_zero(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got 0.000000e+00}}
  %y = hir.rms_norm %x, %g eps 0.0 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_c4_eps_negative(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got -5.000000e-01}}
  %y = hir.rms_norm %x, %g eps -0.5 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_c4_eps_infinite(%x: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got INF}}
  %y = hir.rms_norm %x, %g eps 0x7F800000 : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @residual_rms_norm_c1_scalar(%x: tensor<f32>, %r: tensor<f32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'x' to have at least one dimension, but got 0}}
  %y = hir.residual_rms_norm %x, %r, %g : tensor<f32>, tensor<f32>, tensor<8xf32>
  return
}

// -----

func.func @residual_rms_norm_c2_gamma_rank(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %g: tensor<4x8xf32>) {
  // expected-error @below {{expects 'gamma' to have one dimension, but got 2}}
  %y = hir.residual_rms_norm %x, %r, %g : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  return
}

// -----

func.func @residual_rms_norm_c2_gamma_length(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %g: tensor<9xf32>) {
  // expected-error @below {{expects 'gamma' to be as long as the last dimension of 'x', 8, but its length is 9}}
  %y = hir.residual_rms_norm %x, %r, %g : tensor<4x8xf32>, tensor<4x8xf32>, tensor<9xf32>
  return
}

// -----

func.func @residual_rms_norm_c2_beta_length(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %g: tensor<8xf32>, %b: tensor<7xf32>) {
  // expected-error @below {{expects 'beta' to be as long as the last dimension of 'x', 8, but its length is 7}}
  %y = hir.residual_rms_norm %x, %r, %g beta %b : tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>, tensor<7xf32>
  return
}

// -----

func.func @residual_rms_norm_c3_gamma_element_type(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %g: tensor<8xf16>) {
  // expected-error @below {{expects 'gamma' to have the element type of 'x', 'f32', but got 'f16'}}
  %y = hir.residual_rms_norm %x, %r, %g : tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf16>
  return
}

// -----

func.func @residual_rms_norm_c3_beta_element_type(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %g: tensor<8xf32>, %b: tensor<8xbf16>) {
  // expected-error @below {{expects 'beta' to have the element type of 'x', 'f32', but got 'bf16'}}
  %y = hir.residual_rms_norm %x, %r, %g beta %b : tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>, tensor<8xbf16>
  return
}

// -----

func.func @residual_rms_norm_c4_eps_zero(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got 0.000000e+00}}
  %y = hir.residual_rms_norm %x, %r, %g eps 0.0 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @residual_rms_norm_c4_eps_negative(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got -5.000000e-01}}
  %y = hir.residual_rms_norm %x, %r, %g eps -0.5 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @residual_rms_norm_c4_eps_infinite(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got INF}}
  %y = hir.residual_rms_norm %x, %r, %g eps 0x7F800000 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @residual_rms_norm_c5_residual_shape(%x: tensor<4x8xf32>, %r: tensor<5x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'residual' to have the type of 'x', 'tensor<4x8xf32>', but got 'tensor<5x8xf32>'}}
  %y = hir.residual_rms_norm %x, %r, %g : tensor<4x8xf32>, tensor<5x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @residual_rms_norm_c5_residual_element_type(%x: tensor<4x8xf32>, %r: tensor<4x8xf16>, %g: tensor<8xf32>) {
  // expected-error @below {{expects 'residual' to have the type of 'x', 'tensor<4x8xf32>', but got 'tensor<4x8xf16>'}}
  %y = hir.residual_rms_norm %x, %r, %g : tensor<4x8xf32>, tensor<4x8xf16>, tensor<8xf32>
  return
}
