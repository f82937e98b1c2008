// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-launches-to-loops)' | FileCheck %s

/// Threads run one after the other up to a shuffle, where each has its value in memory for the others.
// CHECK-LABEL: func private @swap.body(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<32xf32>
//       CHECK:   %[[KEPT:.+]] = memref.alloca() : memref<32xf32>
//       CHECK:   scf.for %{{.+}} = %c0{{.*}} to %c2
//       CHECK:     scf.for
//       CHECK:       scf.for
//       CHECK:         %[[V:.+]] = memref.load %{{.+}} : memref<f32>
//       CHECK:         memref.store %[[V]], %{{.+}} : memref<32xf32>
//       CHECK:     scf.for
//       CHECK:       scf.for
//       CHECK:         %[[OTHER:.+]] = arith.xori
//       CHECK:         %[[W:.+]] = memref.load %{{.+}}[%[[OTHER]]] : memref<32xf32>
//       CHECK:         memref.store %[[W]], %{{.+}} : memref<32xf32>
//       CHECK:     scf.for
//       CHECK:       scf.for
//       CHECK:         %[[R:.+]] = memref.load %{{.+}} : memref<32xf32>
//       CHECK:         memref.store %[[R]], %{{.+}} : memref<f32>
//   CHECK-NOT: gpu.
module attributes {gpu.container_module} {
  func.func private @swap.body(%x: memref<32xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c32 = arith.constant 32 : index
    %p = memref.reinterpret_cast %x to offset: [0], sizes: [], strides: [] : memref<32xf32> to memref<f32>
    gpu.launch_func @kernels::@swap_0 blocks in (%c2, %c1, %c1) threads in (%c32, %c1, %c1) args(%p : memref<f32>)
    return
  }
  gpu.module @kernels {
    gpu.func @swap_0(%x: memref<f32>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
      %one = arith.constant 1 : i32
      %width = arith.constant 32 : i32
      %v = memref.load %x[] : memref<f32>
      %w, %ok = gpu.shuffle xor %v, %one, %width : f32
      memref.store %w, %x[] : memref<f32>
      gpu.return
    }
  }
}
