// RUN: rlx-opt %s --verify-diagnostics --pass-pipeline='builtin.module(rlx-generic-kernels)'

/// Kernels that come as linalg are looked at, too.
// expected-error @below {{pass 'kernel-destination-style': values are too large}}
module {
  func.func @tensors(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.role = "kernel", mir.template = "generic: test"} {
    %0 = tensor.empty() : tensor<9223372036854775807x2xf32>
    return %x : tensor<4xf32>
  }
}
