// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(rlx-verify-stage{stage=gpu})'

/// The host computes sizes and launches; kernels are loops, or what a schedule wrote.
module attributes {gpu.container_module} {
  func.func private @k.body(%x: memref<?xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "own"} {
    %c0 = arith.constant 0 : index
    %n = memref.dim %x, %c0 : memref<?xf32>
    gpu.launch_func @kernels::@k_0 blocks in (%n, %n, %n) threads in (%n, %n, %n) args(%x : memref<?xf32>) {rlx.pdl}
    return
  }
  func.func private @k.units(%x: memref<?xf32>) -> index {
    %c1 = arith.constant 1 : index
    return %c1 : index
  }
  func.func private @k.scratch(%x: memref<?xf32>) -> index {
    %c0 = arith.constant 0 : index
    return %c0 : index
  }
  gpu.module @kernels {
    llvm.func @k_0(%x: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} {
      nvvm.griddepcontrol wait
      llvm.return
    }
    gpu.func @k_1(%x: memref<f32>) kernel {
      %0 = memref.load %x[] : memref<f32>
      gpu.return
    }
  }
}

// -----

// expected-error-re @below {{'memref.store' at loc{{.+}}: the host computes sizes and launches}}
module attributes {gpu.container_module} {
  func.func private @k.body(%x: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "own"} {
    %0 = arith.constant 1.0 : f32
    memref.store %0, %x[%begin] : memref<4xf32>
    return
  }
  func.func private @k.units(%x: memref<4xf32>) -> index {
    %c1 = arith.constant 1 : index
    return %c1 : index
  }
  func.func private @k.scratch(%x: memref<4xf32>) -> index {
    %c0 = arith.constant 0 : index
    return %c0 : index
  }
}

// -----

// expected-error @below {{a kernel that may start before the one before has ended waits for it}}
module attributes {gpu.container_module} {
  func.func private @k.body(%begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "own"} {
    gpu.launch_func @kernels::@k_0 blocks in (%end, %end, %end) threads in (%end, %end, %end) {rlx.pdl}
    return
  }
  func.func private @k.units() -> index {
    %c1 = arith.constant 1 : index
    return %c1 : index
  }
  func.func private @k.scratch() -> index {
    %c0 = arith.constant 0 : index
    return %c0 : index
  }
  gpu.module @kernels {
    llvm.func @k_0() attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
}

// -----

// expected-error-re @below {{'linalg.fill' at loc{{.+}}: kernels hold operations of affine, arith, gpu, math, memref, nvvm, scf}}
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @k_0(%x: memref<4xf32>) kernel {
      %0 = arith.constant 1.0 : f32
      linalg.fill ins(%0 : f32) outs(%x : memref<4xf32>)
      gpu.return
    }
  }
}

// -----

// expected-error @below {{function 'k.0': the name of a kernel is one that PTX can spell}}
module attributes {gpu.container_module} {
  gpu.module @kernels {
    llvm.func @k.0() attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
}

// -----

// expected-error @below {{function 'prepare': what runs once has left the module}}
module {
  func.func @prepare() attributes {mir.role = "prepare"} {
    return
  }
}
