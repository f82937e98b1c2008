// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(gpu-chain-launches{chip=sm_90})' --verify-diagnostics | FileCheck %s --check-prefixes=CHECK,NEW
// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(gpu-chain-launches{chip=sm_86})' --verify-diagnostics | FileCheck %s --check-prefixes=CHECK,OLD

/// Generic kernels let the next one start, and wait for the one before, ahead of all they do. Older chips can't.
// CHECK-LABEL: func private @copy.body(
//       CHECK:   gpu.launch_func @kernels::@copy_0
//    NEW-SAME:   {rlx.pdl}
//     OLD-NOT:   rlx.pdl
//       CHECK:   return

/// Schedules say themselves what waits.
// CHECK-LABEL: func private @own.body(
//       CHECK:   gpu.launch_func @kernels::@own_0
//   CHECK-NOT:   rlx.pdl
//       CHECK:   return
// CHECK-LABEL: gpu.func @copy_0
//    NEW-NEXT:   nvvm.griddepcontrol launch_dependents
//    NEW-NEXT:   nvvm.griddepcontrol wait
//     OLD-NOT:   nvvm.griddepcontrol
//       CHECK:   memref.load
// CHECK-LABEL: llvm.func @own_0
//   CHECK-NOT:   nvvm.griddepcontrol
module attributes {gpu.container_module} {
  func.func private @copy.body(%x: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) {
    %c1 = arith.constant 1 : index
    %p = memref.reinterpret_cast %x to offset: [0], sizes: [], strides: [] : memref<4xf32> to memref<f32>
    gpu.launch_func @kernels::@copy_0 blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%p : memref<f32>)
    return
  }
  func.func private @own.body(%x: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernels::@own_0 blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>)
    return
  }
  gpu.module @kernels {
    gpu.func @copy_0(%x: memref<f32>) kernel {
      %0 = memref.load %x[] : memref<f32>
      memref.store %0, %x[] : memref<f32>
      gpu.return
    }
    llvm.func @own_0(%x: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
}

// -----

/// What may start before the kernel before has ended has to wait for it somewhere.
// expected-error @below {{may start before the kernel before has ended, but 'own_0' doesn't wait}}
module attributes {gpu.container_module} {
  func.func private @own.body(%x: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernels::@own_0 blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>) {rlx.pdl}
    return
  }
  gpu.module @kernels {
    llvm.func @own_0(%x: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
}

// -----

/// A launch that no block of the chip has the memory for fails when it is compiled.
// expected-error @below {{has 300000 bytes of shared memory, but blocks of sm_}}
module attributes {gpu.container_module} {
  func.func private @own.body(%begin: index, %end: index, %scratch: memref<?xi8>) {
    %bytes = arith.constant 300000 : i32
    gpu.launch_func @kernels::@own_0 blocks in (%end, %end, %end) threads in (%end, %end, %end) dynamic_shared_memory_size %bytes
    return
  }
  gpu.module @kernels {
    llvm.func @own_0() attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
}

// -----

/// Kernels that are code already can't be changed.
// expected-error @below {{is of kernel 'k_0', which the module doesn't have}}
module attributes {gpu.container_module} {
  func.func private @k.body(%begin: index, %end: index, %scratch: memref<?xi8>) {
    gpu.launch_func @kernels::@k_0 blocks in (%end, %end, %end) threads in (%end, %end, %end)
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry k_0()\0A">]
}
