// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu.module(gpu-lower-math))' --split-input-file --verify-diagnostics | FileCheck %s

/// Instructions, not calls of a library; rsqrt is exact, as on CPUs.
// CHECK-LABEL: gpu.func @roots(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: f32
//       CHECK:   %[[S:.+]] = llvm.call_intrinsic "llvm.sqrt.f32"(%[[X]])
//   CHECK-DAG:   %[[ONE:.+]] = arith.constant 1.0
//   CHECK-DAG:   %[[T:.+]] = llvm.call_intrinsic "llvm.sqrt.f32"(%[[S]])
//       CHECK:   %[[R:.+]] = arith.divf %[[ONE]], %[[T]]
//       CHECK:   memref.store %[[R]]
gpu.module @kernels {
  gpu.func @roots(%x: f32, %y: memref<f32>) kernel {
    %s = math.sqrt %x : f32
    %r = math.rsqrt %s : f32
    memref.store %r, %y[] : memref<f32>
    gpu.return
  }
}

// -----

// expected-error @below {{GPUs have no instruction for, and we no expansion of:}}
gpu.module @kernels {
  gpu.func @no_exp(%x: f64, %y: memref<f64>) kernel {
    %s = math.exp %x : f64
    memref.store %s, %y[] : memref<f64>
    gpu.return
  }
}
