// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(mir-check-ranges{inputs=300 params=2})'
// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-check-ranges{inputs=300 params=2})' 2>/dev/null | FileCheck %s

// CHECK-LABEL: func.func @squares(
//       CHECK:   mir.mul
func.func @squares(%x: tensor<4x8xf16> {mir.kind = "input", mir.name = "x"}) -> tensor<4x8xf16> {
  // expected-remark @below {{mir-check-ranges: 'mir.mul' may overflow in f16: its magnitude is at most 9e+04, and the limit 65504}}
  %y = mir.mul %x, %x : tensor<4x8xf16>
  return %y : tensor<4x8xf16>
}

// -----

/// The same numbers fit into f32 and bf16, and those of a norm into f16.
func.func @no_remark(%x: tensor<4x8xf32> {mir.kind = "input", mir.name = "x"},
                     %h: tensor<4x8xf16> {mir.kind = "input", mir.name = "h"},
                     %g: tensor<8xf16> {mir.kind = "param", mir.name = "g"}) -> (tensor<4x8xf32>, tensor<4x8xf16>) {
  %y = mir.mul %x, %x : tensor<4x8xf32>
  %z = mir.rms_norm %h, %g : tensor<4x8xf16>, tensor<8xf16>
  return %y, %z : tensor<4x8xf32>, tensor<4x8xf16>
}

// -----

func.func @no_bound(%x: tensor<4x8xf16> {mir.kind = "input", mir.name = "x"}) -> tensor<4x8xf16> {
  // expected-remark @below {{'mir.tan' may overflow in f16: it has no bound, and the limit 65504}}
  %y = mir.tan %x : tensor<4x8xf16>
  return %y : tensor<4x8xf16>
}
