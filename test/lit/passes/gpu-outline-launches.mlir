// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-outline-launches,canonicalize,cse)' | FileCheck %s

/// The kernel takes pointers, then dynamic sizes; views are made again in it. The host launches and touches no memory.
// CHECK-LABEL: func private @half.body(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<?x8xf32>
//   CHECK-NOT:   memref.subview
//   CHECK-DAG:   %[[P:.+]] = memref.reinterpret_cast %[[X]] to offset: [0], sizes: [], strides: [] : memref<?x8xf32> to memref<f32>
//   CHECK-DAG:   %[[N:.+]] = memref.dim %[[X]], %c0
//       CHECK:   gpu.launch_func @kernels::@half_0 blocks in (%[[N]], %c1{{.*}}, %c1{{.*}}) threads in (%c4{{.*}}, %c1{{.*}}, %c1{{.*}}) args(%[[P]] : memref<f32>, %[[N]] : index)
//   CHECK-NOT:   memref.store
//       CHECK:   return
// CHECK-LABEL: gpu.module @kernels
//       CHECK:   gpu.func @half_0(%[[Q:.+]]: memref<f32>, %[[M:.+]]: index) kernel attributes {known_block_size = array<i32: 4, 1, 1>}
//       CHECK:     %[[B:.+]] = memref.reinterpret_cast %[[Q]] to offset: [0], sizes: [%[[M]], 8], strides: [8, 1]
//       CHECK:     %[[V:.+]] = memref.subview %[[B]]
//       CHECK:     %[[ROW:.+]] = gpu.block_id x
//       CHECK:     %[[T:.+]] = gpu.thread_id x
//       CHECK:     memref.store %{{.+}}, %[[V]][%[[ROW]], %[[T]]]
//       CHECK:     gpu.return
func.func private @half.body(%x: memref<?x8xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %x, %c0 : memref<?x8xf32>
  %v = memref.subview %x[0, 4] [%n, 4] [1, 1] : memref<?x8xf32> to memref<?x4xf32, strided<[8, 1], offset: 4>>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c4, %sy = %c1, %sz = %c1) {
    memref.store %zero, %v[%bx, %tx] : memref<?x4xf32, strided<[8, 1], offset: 4>>
    gpu.terminator
  }
  return
}
