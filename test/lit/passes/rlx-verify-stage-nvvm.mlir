// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(rlx-verify-stage{stage=nvvm})'

module {
  gpu.module @kernels {
    llvm.func @k_0() attributes {gpu.kernel, nvvm.kernel} {
      nvvm.barrier0
      llvm.return
    }
  }
}

// -----

// expected-error-re @below {{function 'k_0': 'arith.constant' at loc{{.+}}: kernels hold operations of llvm and nvvm only}}
module {
  gpu.module @kernels {
    llvm.func @k_0() attributes {gpu.kernel, nvvm.kernel} {
      %0 = arith.constant 1 : i32
      llvm.return
    }
  }
}
