// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-chunk-recurrence{chunk=16})' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-chunk-recurrence)' | FileCheck %s --check-prefix=DEFAULT

// CHECK-LABEL: func @dynamic
//       CHECK:   mir.gated_delta_net {{.+}} beta %{{[^ ]+}} chunk 16 :
// DEFAULT-LABEL: func @dynamic
//       DEFAULT:   chunk 16 :
func.func @dynamic(%q: tensor<1x?x2x8xf32>, %g: tensor<1x?x2xf32>) -> tensor<1x?x2x8xf32> {
  %y, %s = mir.gated_delta_net %q, %q, %q decay %g beta %g : tensor<1x?x2x8xf32>, tensor<1x?x2xf32>
  return %y : tensor<1x?x2x8xf32>
}

// CHECK-LABEL: func @as_many_steps
//       CHECK:   state %{{[^ ]+}} chunk 16 :
func.func @as_many_steps(%q: tensor<1x16x2x8xf32>, %g: tensor<1x16x2xf32>, %s: tensor<1x2x8x8xf32>) -> tensor<1x16x2x8xf32> {
  %y, %t = mir.gated_delta_net %q, %q, %q decay %g beta %g state %s : tensor<1x16x2x8xf32>, tensor<1x16x2xf32>, tensor<1x2x8x8xf32>
  return %y : tensor<1x16x2x8xf32>
}

/// No chunk would ever be whole.
// CHECK-LABEL: func @no_fewer_steps
//       CHECK:   mir.gated_delta_net
//   CHECK-NOT:   chunk
//       CHECK:   return
func.func @no_fewer_steps(%q: tensor<1x15x2x8xf32>, %g: tensor<1x15x2xf32>) -> tensor<1x15x2x8xf32> {
  %y, %s = mir.gated_delta_net %q, %q, %q decay %g beta %g : tensor<1x15x2x8xf32>, tensor<1x15x2xf32>
  return %y : tensor<1x15x2x8xf32>
}

/// What is chosen already stays.
// CHECK-LABEL: func @no_other_chunk
//       CHECK:   chunk 4 :
func.func @no_other_chunk(%q: tensor<1x?x2x8xf32>, %g: tensor<1x?x2xf32>) -> tensor<1x?x2x8xf32> {
  %y, %s = mir.gated_delta_net %q, %q, %q decay %g beta %g chunk 4 : tensor<1x?x2x8xf32>, tensor<1x?x2xf32>
  return %y : tensor<1x?x2x8xf32>
}
