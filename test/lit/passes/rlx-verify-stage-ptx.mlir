// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(rlx-verify-stage{stage=ptx})'

/// The GPU's code is text, and holds what the host launches.
module attributes {gpu.container_module} {
  func.func private @k.body(%begin: index, %end: index, %scratch: memref<?xi8>) {
    gpu.launch_func @kernels::@k_0 blocks in (%end, %end, %end) threads in (%end, %end, %end)
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry k_0()\0A">]
}

// -----

// expected-error @below {{what is launched is a kernel of the PTX, but got 'k_1'}}
module attributes {gpu.container_module} {
  func.func private @k.body(%begin: index, %end: index, %scratch: memref<?xi8>) {
    gpu.launch_func @kernels::@k_1 blocks in (%end, %end, %end) threads in (%end, %end, %end)
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry k_0()\0A">]
}

// -----

// expected-error @below {{code for the GPU is a 'gpu.binary'}}
module attributes {gpu.container_module} {
  gpu.module @kernels {
  }
}
