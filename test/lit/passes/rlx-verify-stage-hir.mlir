// RUN: not rlx-opt %s --pass-pipeline='builtin.module(rlx-verify-stage{stage=asm})' 2>&1 | FileCheck %s
// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(rlx-verify-stage{stage=hir})'

// CHECK: option 'stage' expects one of hir, mir, kernels, lir, linalg, cpu, llvm, gpu, nvvm, ptx, host, but got 'asm'

/// Blocks and operations of MIR side by side, calls of private functions, which need no names.
module {
  func.func private @helper(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %y = mir.silu %x : tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
  func.func @main(%x: tensor<4x8xf32> {mir.name = "x", mir.kind = "input"}, %w: tensor<8x8xf32> {mir.name = "w", mir.kind = "param"}) -> (tensor<4x8xf32> {mir.name = "y"}) {
    %h = hir.linear %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
    %y = call @helper(%h) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
}

// -----

// expected-error @below {{function 'main': argument 1 has no 'mir.name'}}
module {
  func.func @main(%x: tensor<4xf32> {mir.name = "x", mir.kind = "input"}, %w: tensor<4xf32> {mir.kind = "param"}) -> (tensor<4xf32> {mir.name = "y"}) {
    return %x : tensor<4xf32>
  }
}

// -----

// expected-error @below {{function 'main': argument 0 has no 'mir.kind' of input or param}}
module {
  func.func @main(%x: tensor<4xf32> {mir.name = "x"}) -> (tensor<4xf32> {mir.name = "y"}) {
    return %x : tensor<4xf32>
  }
}

// -----

// expected-error @below {{function 'main': result 0 has no 'mir.name'}}
module {
  func.func @main(%x: tensor<4xf32> {mir.name = "x", mir.kind = "input"}) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

// expected-error @below {{function 'main': 2 arguments are named 'x'}}
module {
  func.func @main(%x: tensor<4xf32> {mir.name = "x", mir.kind = "input"}, %w: tensor<4xf32> {mir.name = "x", mir.kind = "param"}) -> (tensor<4xf32> {mir.name = "y"}) {
    return %x : tensor<4xf32>
  }
}

// -----

// expected-error @below {{function 'main': 2 results are named 'y'}}
module {
  func.func @main(%x: tensor<4xf32> {mir.name = "x", mir.kind = "input"}) -> (tensor<4xf32> {mir.name = "y"}, tensor<4xf32> {mir.name = "y"}) {
    return %x, %x : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// expected-error @below {{function 'main': 'tensor.empty' at loc(}}
module {
  func.func @main() -> (tensor<4xf32> {mir.name = "y"}) {
    %x = tensor.empty() : tensor<4xf32>
    return %x : tensor<4xf32>
  }
}
