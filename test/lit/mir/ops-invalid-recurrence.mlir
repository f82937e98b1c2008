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

// -----

func.func @selective_scan_c1_rank(%x: tensor<2x8xf32>, %a: tensor<8x4xf32>, %b: tensor<2x?x4xf32>) {
  // expected-error @below {{'mir.selective_scan' op expects 'x' to have three dimensions, but its rank is 2}}
  %y, %t = mir.selective_scan %x, %x, %a, %b, %b : tensor<2x8xf32>, tensor<8x4xf32>, tensor<2x?x4xf32>
  return
}

// -----

func.func @selective_scan_c2_shape(%x: tensor<2x?x8xf32>, %a: tensor<7x4xf32>, %b: tensor<2x?x4xf32>) {
  // expected-error @below {{expects 'a' to be [8, n] of 'f32', but got 'tensor<7x4xf32>'}}
  %y, %t = mir.selective_scan %x, %x, %a, %b, %b : tensor<2x?x8xf32>, tensor<7x4xf32>, tensor<2x?x4xf32>
  return
}

// -----

func.func @selective_scan_c2_rank(%x: tensor<2x?x8xf32>, %a: tensor<8xf32>, %b: tensor<2x?x4xf32>) {
  // expected-error @below {{expects 'a' to be [8, n] of 'f32', but got 'tensor<8xf32>'}}
  %y, %t = mir.selective_scan %x, %x, %a, %b, %b : tensor<2x?x8xf32>, tensor<8xf32>, tensor<2x?x4xf32>
  return
}

// -----

func.func @selective_scan_c2_type(%x: tensor<2x?x8xf32>, %a: tensor<8x4xf64>, %b: tensor<2x?x4xf32>) {
  // expected-error @below {{expects 'a' to be [8, n] of 'f32', but got 'tensor<8x4xf64>'}}
  %y, %t = mir.selective_scan %x, %x, %a, %b, %b : tensor<2x?x8xf32>, tensor<8x4xf64>, tensor<2x?x4xf32>
  return
}

// -----

func.func @selective_scan_c3_shape(%x: tensor<2x?x8xf32>, %a: tensor<8x4xf32>, %b: tensor<2x?x5xf32>) {
  // expected-error @below {{expects 'b' and 'c' to be [2, ?, 4] of 'f32', but got 'tensor<2x?x5xf32>'}}
  %y, %t = mir.selective_scan %x, %x, %a, %b, %b : tensor<2x?x8xf32>, tensor<8x4xf32>, tensor<2x?x5xf32>
  return
}

// -----

func.func @selective_scan_c3_type(%x: tensor<2x?x8xf32>, %a: tensor<8x4xf32>, %b: tensor<2x?x4xf16>) {
  // expected-error @below {{expects 'b' and 'c' to be [2, ?, 4] of 'f32', but got 'tensor<2x?x4xf16>'}}
  %y, %t = mir.selective_scan %x, %x, %a, %b, %b : tensor<2x?x8xf32>, tensor<8x4xf32>, tensor<2x?x4xf16>
  return
}

// -----

func.func @selective_scan_c4_state(%x: tensor<2x?x8xf32>, %a: tensor<8x4xf32>, %b: tensor<2x?x4xf32>, %s: tensor<2x4x8xf32>) {
  // expected-error @below {{expects 'state' to be [2, 8, 4], but got [2, 4, 8]}}
  %y, %t = mir.selective_scan %x, %x, %a, %b, %b state %s : tensor<2x?x8xf32>, tensor<8x4xf32>, tensor<2x?x4xf32>, tensor<2x4x8xf32>
  return
}

// -----

func.func @selective_scan_c5_type(%x: tensor<2x?x8xf32>, %a: tensor<8x4xf32>, %b: tensor<2x?x4xf32>, %s: tensor<2x8x4xf64>) {
  // expected-error @below {{expects 'state' to be of 'f32' where 'x' is of 'f32', but got 'f64'}}
  %y, %t = mir.selective_scan %x, %x, %a, %b, %b state %s : tensor<2x?x8xf32>, tensor<8x4xf32>, tensor<2x?x4xf32>, tensor<2x8x4xf64>
  return
}
