// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @activation_backward
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xbf16>, %[[D:.+]]: tensor<?x8xbf16>)
//       CHECK:   mir.activation_backward %[[X]], %[[D]] gelu_approx : tensor<?x8xbf16>
func.func @activation_backward(%x: tensor<?x8xbf16>, %dy: tensor<?x8xbf16>) -> tensor<?x8xbf16> {
  %dx = mir.activation_backward %x, %dy gelu_approx : tensor<?x8xbf16>
  return %dx : tensor<?x8xbf16>
}

// CHECK-LABEL: func @norms_backward_input
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x?xf32>, %[[G:.+]]: tensor<?xf32>, %[[H:.+]]: tensor<4xf32>, %[[D:.+]]: tensor<4x?xf32>)
//       CHECK:   %[[R:.+]] = mir.layer_norm_backward_input %[[X]], %[[G]], %[[D]] : tensor<4x?xf32>, tensor<?xf32>
//       CHECK:   mir.rms_norm_backward_input %[[X]], %[[H]], %[[R]] axis 0 eps 2.500000e-01 : tensor<4x?xf32>, tensor<4xf32>
func.func @norms_backward_input(%x: tensor<4x?xf32>, %g: tensor<?xf32>, %h: tensor<4xf32>, %dy: tensor<4x?xf32>) -> tensor<4x?xf32> {
  %0 = mir.layer_norm_backward_input %x, %g, %dy : tensor<4x?xf32>, tensor<?xf32>
  %1 = mir.rms_norm_backward_input %x, %h, %0 axis 0 eps 0.25 : tensor<4x?xf32>, tensor<4xf32>
  return %1 : tensor<4x?xf32>
}

/// Results are as long as the dimension that is normalised along.
// CHECK-LABEL: func @norms_backward_gamma
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x?xf32>, %[[D:.+]]: tensor<4x?xf32>) -> (tensor<?xf32>, tensor<4xf32>)
//       CHECK:   mir.layer_norm_backward_gamma %[[X]], %[[D]] : tensor<4x?xf32>
//       CHECK:   mir.rms_norm_backward_gamma %[[X]], %[[D]] axis 0 eps 2.500000e-01 : tensor<4x?xf32>
func.func @norms_backward_gamma(%x: tensor<4x?xf32>, %dy: tensor<4x?xf32>) -> (tensor<?xf32>, tensor<4xf32>) {
  %0 = mir.layer_norm_backward_gamma %x, %dy : tensor<4x?xf32>
  %1 = mir.rms_norm_backward_gamma %x, %dy axis 0 eps 0.25 : tensor<4x?xf32>
  return %0, %1 : tensor<?xf32>, tensor<4xf32>
}

// CHECK-LABEL: func @attention_backward
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x4x?x8xf32>, %[[K:.+]]: tensor<2x2x?x8xbf16>, %[[D:.+]]: tensor<2x4x?x8xf32>, %[[M:.+]]: tensor<2x1x?x?xf32>, %[[P:.+]]: tensor<2xi32>)
//       CHECK:   %[[R:.+]], %{{.+}}, %{{.+}} = mir.attention_backward %[[Q]], %[[K]], %[[K]], %[[D]] mask(%[[M]] : tensor<2x1x?x?xf32>)
//  CHECK-SAME:     pos(%[[P]] : tensor<2xi32>) heads 4 kv_heads 2 head_dim 8 layout bhsd masked bias
//  CHECK-SAME:     scale 5.000000e-01 softcap 2.000000e+00 : tensor<2x4x?x8xf32>, tensor<2x2x?x8xbf16>
//       CHECK:   mir.attention_backward %[[R]], %[[K]], %[[K]], %[[D]] heads 4 kv_heads 2 head_dim 8 layout bhsd masked sliding_window window 3
func.func @attention_backward(%q: tensor<2x4x?x8xf32>, %k: tensor<2x2x?x8xbf16>, %dy: tensor<2x4x?x8xf32>,
                              %m: tensor<2x1x?x?xf32>, %pos: tensor<2xi32>) -> (tensor<2x4x?x8xf32>, tensor<2x2x?x8xbf16>) {
  %0:3 = mir.attention_backward %q, %k, %k, %dy mask(%m : tensor<2x1x?x?xf32>) pos(%pos : tensor<2xi32>)
      heads 4 kv_heads 2 head_dim 8 layout bhsd masked bias scale 0.5 softcap 2.0
      : tensor<2x4x?x8xf32>, tensor<2x2x?x8xbf16>
  %1:3 = mir.attention_backward %0#0, %k, %k, %dy heads 4 kv_heads 2 head_dim 8 layout bhsd
      masked sliding_window window 3 : tensor<2x4x?x8xf32>, tensor<2x2x?x8xbf16>
  return %1#0, %0#1 : tensor<2x4x?x8xf32>, tensor<2x2x?x8xbf16>
}
