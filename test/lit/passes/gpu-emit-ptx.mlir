// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-gpu-to-nvvm,gpu-emit-ptx{chip=sm_80})' | FileCheck %s
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(rlx-gpu-to-nvvm,gpu-emit-ptx{chip=sm_999})' 2>&1 | FileCheck %s --check-prefix=CHIP
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(rlx-gpu-to-nvvm,gpu-emit-ptx{chip=sm_90 ptx=7.0})' 2>&1 | FileCheck %s --check-prefix=PTX

/// Whole PTX for the chip, by the least version that knows it: exp is arithmetic, and nothing is called.
//      CHECK: gpu.binary @kernels [#gpu.object<#nvvm.target<{{.*}}chip = "sm_80", features = "+ptx70">
//  CHECK-NOT: .extern
//  CHECK-NOT: call
// CHECK-SAME: .version 7.0
// CHECK-SAME: .target sm_80
// CHECK-SAME: .entry exp_0
// CHECK-SAME: .maxntid 256
// CHECK-SAME: fma.rn.f32
// CHIP: option 'chip' expects one of sm_80, {{.+}}, but got 'sm_999'
// PTX: 'ptx' expects at least 8.0 for sm_90, but got 7.0
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @exp_0(%x: memref<f32>, %n: index) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %b = memref.reinterpret_cast %x to offset: [0], sizes: [%n], strides: [1] : memref<f32> to memref<?xf32, strided<[1]>>
      %i = gpu.thread_id x
      %v = memref.load %b[%i] : memref<?xf32, strided<[1]>>
      %e = math.exp %v : f32
      memref.store %e, %b[%i] : memref<?xf32, strided<[1]>>
      gpu.return
    }
  }
}
