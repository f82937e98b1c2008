// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @fused_swiglu_c1_odd(%x: tensor<4x15xf32>) {
  // expected-error @below {{expects the last dimension of 'x' to be even, but 'x' is [4, 15]}}
  %r = mir.fused_swiglu %x : tensor<4x15xf32>
  return
}

// -----

func.func @fused_swiglu_c1_rank(%x: tensor<f32>) {
  // expected-error @below {{expects the last dimension of 'x' to be even, but 'x' is []}}
  %r = mir.fused_swiglu %x : tensor<f32>
  return
}
