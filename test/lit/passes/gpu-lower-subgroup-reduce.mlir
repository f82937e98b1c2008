// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu.module(gpu-lower-subgroup-reduce))' | FileCheck %s

/// Five exchanges, at distances of 1, 2, 4, 8 and 16: every thread has the sum.
// CHECK-LABEL: gpu.func @sum(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: f32
//       CHECK:   %[[A:.+]], %{{.+}} = gpu.shuffle xor %[[X]], %c1_i32, %c32_i32
//       CHECK:   %[[B:.+]] = arith.addf %[[X]], %[[A]]
//       CHECK:   gpu.shuffle xor %[[B]], %c2_i32
//       CHECK:   gpu.shuffle xor %{{.+}}, %c4_i32
//       CHECK:   gpu.shuffle xor %{{.+}}, %c8_i32
//       CHECK:   %[[C:.+]], %{{.+}} = gpu.shuffle xor %[[D:.+]], %c16_i32
//       CHECK:   %[[E:.+]] = arith.addf %[[D]], %[[C]]
//       CHECK:   memref.store %[[E]]
gpu.module @kernels {
  gpu.func @sum(%x: f32, %y: memref<f32>) kernel {
    %s = gpu.subgroup_reduce add %x : (f32) -> f32
    memref.store %s, %y[] : memref<f32>
    gpu.return
  }
}
