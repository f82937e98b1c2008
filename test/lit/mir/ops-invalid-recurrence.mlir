// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @gated_delta_net_c1_rank(%q: tensor<2x3x4xf32>, %g: tensor<2x3x4xf32>) {
  // expected-error @below {{expects 'q' to have four dimensions, but its rank is 3}}
  %y, %s = mir.gated_delta_net %q, %q, %q decay %g beta %g : tensor<2x3x4xf32>, tensor<2x3x4xf32>
  return
}

// -----

func.func @gated_delta_net_c2_shape(%q: tensor<2x3x4x8xf32>, %g: tensor<2x4x3xf32>) {
  // expected-error @below {{expects 'g' and 'beta' to be [2, 3, 4] of 'f32', but got 'tensor<2x4x3xf32>'}}
  %y, %s = mir.gated_delta_net %q, %q, %q decay %g beta %g : tensor<2x3x4x8xf32>, tensor<2x4x3xf32>
  return
}

// -----

func.func @gated_delta_net_c2_element(%q: tensor<2x3x4x8xf16>, %g: tensor<2x3x4xf32>) {
  // expected-error @below {{expects 'g' and 'beta' to be [2, 3, 4] of 'f16', but got 'tensor<2x3x4xf32>'}}
  %y, %s = mir.gated_delta_net %q, %q, %q decay %g beta %g : tensor<2x3x4x8xf16>, tensor<2x3x4xf32>
  return
}

// -----

func.func @gated_delta_net_c3_shape(%q: tensor<2x?x4x8xf32>, %g: tensor<2x?x4xf32>, %s: tensor<2x4x8x9xf32>) {
  // expected-error @below {{expects 'state' to be [2, 4, 8, 8], but got [2, 4, 8, 9]}}
  %y, %t = mir.gated_delta_net %q, %q, %q decay %g beta %g state %s : tensor<2x?x4x8xf32>, tensor<2x?x4xf32>, tensor<2x4x8x9xf32>
  return
}

// -----

func.func @gated_delta_net_c4_narrow(%q: tensor<2x?x4x8xbf16>, %g: tensor<2x?x4xbf16>, %s: tensor<2x4x8x8xbf16>) {
  // expected-error @below {{expects 'state' to be of 'f32' where 'q' is of 'bf16', but got 'bf16'}}
  %y, %t = mir.gated_delta_net %q, %q, %q decay %g beta %g state %s : tensor<2x?x4x8xbf16>, tensor<2x?x4xbf16>, tensor<2x4x8x8xbf16>
  return
}

// -----

func.func @gated_delta_net_c4_f64(%q: tensor<2x?x4x8xf64>, %g: tensor<2x?x4xf64>, %s: tensor<2x4x8x8xf32>) {
  // expected-error @below {{expects 'state' to be of 'f64' where 'q' is of 'f64', but got 'f32'}}
  %y, %t = mir.gated_delta_net %q, %q, %q decay %g beta %g state %s : tensor<2x?x4x8xf64>, tensor<2x?x4xf64>, tensor<2x4x8x8xf32>
  return
}

// -----

func.func @gated_delta_net_c5_chunk(%q: tensor<2x?x4x8xf32>, %g: tensor<2x?x4xf32>) {
  // expected-error @below {{expects 'chunk' to be positive, but got 0}}
  %y, %s = mir.gated_delta_net %q, %q, %q decay %g beta %g chunk 0 : tensor<2x?x4x8xf32>, tensor<2x?x4xf32>
  return
}
