// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @depthwise_conv1d_causal_c1_rank(%x: tensor<8x16xf32>, %w: tensor<16x1x1x3xf32>, %p: tensor<2x2x16xf32>) {
  // expected-error @below {{expects 'input' to have three dimensions, but got 2}}
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<8x16xf32>, tensor<16x1x1x3xf32>, tensor<2x2x16xf32>
  return
}

// -----

func.func @depthwise_conv1d_causal_c2_rank(%x: tensor<2x8x16xf32>, %w: tensor<16x3xf32>, %p: tensor<2x2x16xf32>) {
  // expected-error @below {{expects 'weight' to be [C, 1, 1, K], static, with C and K positive and K below 2^31, but got [16, 3]}}
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<2x8x16xf32>, tensor<16x3xf32>, tensor<2x2x16xf32>
  return
}

// -----

func.func @depthwise_conv1d_causal_c2_group(%x: tensor<2x8x16xf32>, %w: tensor<16x2x1x3xf32>, %p: tensor<2x2x16xf32>) {
  // expected-error @below {{expects 'weight' to be [C, 1, 1, K], static, with C and K positive and K below 2^31, but got [16, 2, 1, 3]}}
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<2x8x16xf32>, tensor<16x2x1x3xf32>, tensor<2x2x16xf32>
  return
}

// -----

func.func @depthwise_conv1d_causal_c2_dynamic(%x: tensor<2x8x16xf32>, %w: tensor<?x1x1x3xf32>, %p: tensor<2x2x16xf32>) {
  // expected-error @below {{expects 'weight' to be [C, 1, 1, K], static, with C and K positive and K below 2^31, but got [?, 1, 1, 3]}}
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<2x8x16xf32>, tensor<?x1x1x3xf32>, tensor<2x2x16xf32>
  return
}

// -----

func.func @depthwise_conv1d_causal_c2_no_tap(%x: tensor<2x8x16xf32>, %w: tensor<16x1x1x0xf32>, %p: tensor<2x?x16xf32>) {
  // expected-error @below {{expects 'weight' to be [C, 1, 1, K], static, with C and K positive and K below 2^31, but got [16, 1, 1, 0]}}
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<2x8x16xf32>, tensor<16x1x1x0xf32>, tensor<2x?x16xf32>
  return
}

// -----

func.func @depthwise_conv1d_causal_c3_channels(%x: tensor<2x8x16xf32>, %w: tensor<8x1x1x3xf32>, %p: tensor<2x2x16xf32>) {
  // expected-error @below {{expects 'weight' to have as many channels as 'input', 16, but got 8}}
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<2x8x16xf32>, tensor<8x1x1x3xf32>, tensor<2x2x16xf32>
  return
}

// -----

func.func @depthwise_conv1d_causal_c4_length(%x: tensor<2x8x16xf32>, %w: tensor<16x1x1x3xf32>, %p: tensor<2x3x16xf32>) {
  // expected-error @below {{expects 'left_pad' to be [2, 2, 16], but got [2, 3, 16]}}
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<2x8x16xf32>, tensor<16x1x1x3xf32>, tensor<2x3x16xf32>
  return
}

// -----

func.func @depthwise_conv1d_causal_c4_dynamic_length(%x: tensor<2x8x16xf32>, %w: tensor<16x1x1x3xf32>, %p: tensor<2x?x16xf32>) {
  // expected-error @below {{expects 'left_pad' to be [2, 2, 16], but got [2, ?, 16]}}
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<2x8x16xf32>, tensor<16x1x1x3xf32>, tensor<2x?x16xf32>
  return
}

// -----

func.func @depthwise_conv1d_causal_c5_weight(%x: tensor<2x8x16xf32>, %w: tensor<16x1x1x3xf16>, %p: tensor<2x2x16xf32>) {
  // expected-error @below {{expects 'weight' to have the element type of 'input', 'f32', but got 'f16'}}
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<2x8x16xf32>, tensor<16x1x1x3xf16>, tensor<2x2x16xf32>
  return
}

// -----

func.func @depthwise_conv1d_causal_c5_pad(%x: tensor<2x8x16xf32>, %w: tensor<16x1x1x3xf32>, %p: tensor<2x2x16xbf16>) {
  // expected-error @below {{expects 'left_pad' to have the element type of 'input', 'f32', but got 'bf16'}}
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<2x8x16xf32>, tensor<16x1x1x3xf32>, tensor<2x2x16xbf16>
  return
}

// -----

func.func @gated_delta_net_c1_rank(%q: tensor<2x3x4xf32>, %g: tensor<2x3xf32>) {
  // expected-error @below {{expects 'q', 'k' and 'v' to have four dimensions and one type, but got 'tensor<2x3x4xf32>', 'tensor<2x3x4xf32>' and 'tensor<2x3x4xf32>'}}
  %y, %s = hir.gated_delta_net %q, %q, %q decay %g beta %g
      : tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>
  return
}

// -----

/// Heads that are fewer than those of the values are repeated by the caller.
func.func @gated_delta_net_c1_heads(%q: tensor<2x3x2x8xf32>, %v: tensor<2x3x4x8xf32>, %g: tensor<2x3x4xf32>) {
  // expected-error @below {{expects 'q', 'k' and 'v' to have four dimensions and one type, but got 'tensor<2x3x2x8xf32>', 'tensor<2x3x2x8xf32>' and 'tensor<2x3x4x8xf32>'}}
  %y, %s = hir.gated_delta_net %q, %q, %v decay %g beta %g
      : tensor<2x3x2x8xf32>, tensor<2x3x2x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>
  return
}

// -----

func.func @gated_delta_net_c2_shape(%q: tensor<2x3x4x8xf32>, %g: tensor<2x3x8xf32>) {
  // expected-error @below {{expects 'g' and 'beta' to have one type, [2, 3, 4] of 'f32', but got 'tensor<2x3x8xf32>' and 'tensor<2x3x8xf32>'}}
  %y, %s = hir.gated_delta_net %q, %q, %q decay %g beta %g
      : tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x8xf32>, tensor<2x3x8xf32>
  return
}

// -----

func.func @gated_delta_net_c2_element(%q: tensor<2x3x4x8xbf16>, %g: tensor<2x3x4xf32>) {
  // expected-error @below {{expects 'g' and 'beta' to have one type, [2, 3, 4] of 'bf16', but got 'tensor<2x3x4xf32>' and 'tensor<2x3x4xf32>'}}
  %y, %s = hir.gated_delta_net %q, %q, %q decay %g beta %g
      : tensor<2x3x4x8xbf16>, tensor<2x3x4x8xbf16>, tensor<2x3x4x8xbf16>, tensor<2x3x4xf32>, tensor<2x3x4xf32>
  return
}

// -----

func.func @gated_delta_net_c3_shape(%q: tensor<2x3x4x8xf32>, %g: tensor<2x3x4xf32>, %s: tensor<2x8x8x4xf32>) {
  // expected-error @below {{expects 'state' to be [2, 4, 8, 8], but got [2, 8, 8, 4]}}
  %y, %t = hir.gated_delta_net %q, %q, %q decay %g beta %g state %s
      : tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x8x8x4xf32>
  return
}

// -----

func.func @gated_delta_net_c4_element(%q: tensor<2x3x4x8xf16>, %g: tensor<2x3x4xf16>, %s: tensor<2x4x8x8xf16>) {
  // expected-error @below {{expects 'state' to be of 'f32' where 'q' is of 'f16', but got 'f16'}}
  %y, %t = hir.gated_delta_net %q, %q, %q decay %g beta %g state %s
      : tensor<2x3x4x8xf16>, tensor<2x3x4x8xf16>, tensor<2x3x4x8xf16>, tensor<2x3x4xf16>, tensor<2x3x4xf16>, tensor<2x4x8x8xf16>
  return
}
