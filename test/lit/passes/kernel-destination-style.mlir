// RUN: rlx-opt %s --pass-pipeline='builtin.module(kernel-destination-style)' | FileCheck %s

/// Buffers for the operands, then for the results; one unit does all the work, and the body says why it is generic.
//   CHECK-NOT: @two_0.mir
// CHECK-LABEL: func private @two_0.body(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<?x8xf32>, %[[W:[a-z0-9]+]]: memref<16x20xi8>, %[[Y:[a-z0-9]+]]: memref<?x8xf32>, %[[Z:[a-z0-9]+]]: memref<?x8xf32>,
//  CHECK-SAME:   %{{.+}}: index, %{{.+}}: index, %{{.+}}: memref<?xi8>) attributes {mir.template = "generic: a reason"}
//       CHECK:   %[[XT:.+]] = bufferization.to_tensor %[[X]] restrict : memref<?x8xf32> to tensor<?x8xf32>
//       CHECK:   %[[WT:.+]] = bufferization.to_tensor %[[W]] restrict : memref<16x20xi8> to tensor<16x20xi8, #mir.packed<q4_1, k = 32>>
//       CHECK:   %[[A:.+]] = linalg.abs ins(%[[XT]] : {{.+}}) outs(%[[XT]] :
//       CHECK:   %[[E:.+]] = linalg.exp ins(%[[A]]
//       CHECK:   bufferization.materialize_in_destination %[[E]] in restrict writable %[[Y]]
//       CHECK:   bufferization.materialize_in_destination %[[A]] in restrict writable %[[Z]]
//       CHECK:   return
// CHECK-LABEL: func private @two_0.units(%{{.+}}: memref<?x8xf32>, %{{.+}}: memref<16x20xi8>, %{{.+}}: memref<?x8xf32>, %{{.+}}: memref<?x8xf32>) -> index
//       CHECK:   %[[ONE:.+]] = arith.constant 1 : index
//       CHECK:   return %[[ONE]]
// CHECK-LABEL: func private @two_0.scratch(%{{.+}}: memref<?x8xf32>, %{{.+}}: memref<16x20xi8>, %{{.+}}: memref<?x8xf32>, %{{.+}}: memref<?x8xf32>) -> index
//       CHECK:   %[[ZERO:.+]] = arith.constant 0 : index
//       CHECK:   return %[[ZERO]]
func.func private @two_0.mir(%x: tensor<?x8xf32>, %w: tensor<16x20xi8, #mir.packed<q4_1, k = 32>>) -> (tensor<?x8xf32>, tensor<?x8xf32>) attributes {mir.kernel = "generic", mir.role = "kernel", mir.template = "generic: a reason"} {
  %a = linalg.abs ins(%x : tensor<?x8xf32>) outs(%x : tensor<?x8xf32>) -> tensor<?x8xf32>
  %e = linalg.exp ins(%a : tensor<?x8xf32>) outs(%a : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %e, %a : tensor<?x8xf32>, tensor<?x8xf32>
}

/// What a result overwrites is read where it is written.
// CHECK-LABEL: func private @update_0.body(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<8xf32>, %[[U:[a-z0-9]+]]: memref<8xf32>, %[[Y:[a-z0-9]+]]: memref<8xf32>,
//   CHECK-DAG:   %[[YT:.+]] = bufferization.to_tensor %[[Y]] restrict writable
//   CHECK-DAG:   %[[UT:.+]] = bufferization.to_tensor %[[U]] restrict :
//       CHECK:   %[[S:.+]] = linalg.add ins(%[[UT]], %[[UT]] : {{.+}}) outs(%[[YT]] :
//       CHECK:   bufferization.materialize_in_destination %[[S]] in restrict writable %[[Y]]
func.func private @update_0.mir(%x: tensor<8xf32>, %u: tensor<8xf32>) -> tensor<8xf32> attributes {mir.kernel = "generic", mir.role = "kernel", mir.tied_arguments = array<i64: 0>, mir.template = "generic: a reason"} {
  %a = linalg.add ins(%u, %u : tensor<8xf32>, tensor<8xf32>) outs(%x : tensor<8xf32>) -> tensor<8xf32>
  return %a : tensor<8xf32>
}
