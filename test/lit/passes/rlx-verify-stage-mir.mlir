// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(rlx-verify-stage{stage=mir})'

/// Primitives, and control flow where there is some.
module {
  func.func @main(%x: tensor<4xf32> {mir.name = "x", mir.kind = "input"}, %n: index {mir.name = "n", mir.kind = "input"}) -> (tensor<4xf32> {mir.name = "y"}) {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %y = scf.for %i = %zero to %n step %one iter_args(%a = %x) -> (tensor<4xf32>) {
      %b = mir.silu %a : tensor<4xf32>
      scf.yield %b : tensor<4xf32>
    }
    return %y : tensor<4xf32>
  }
}

// -----

// expected-error @below {{functions hold operations of arith, func, mir, scf}}
module {
  func.func @main(%x: tensor<4x8xf32> {mir.name = "x", mir.kind = "input"}, %w: tensor<8x8xf32> {mir.name = "w", mir.kind = "param"}) -> (tensor<4x8xf32> {mir.name = "y"}) {
    %y = hir.linear %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
    return %y : tensor<4x8xf32>
  }
}

// -----

/// Functions that the entry calls are looked at, too.
// expected-error @below {{function 'helper': 'linalg.abs' at loc(}}
module {
  func.func private @helper(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = linalg.abs ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
  func.func @main(%x: tensor<4xf32> {mir.name = "x", mir.kind = "input"}) -> (tensor<4xf32> {mir.name = "y"}) {
    %y = call @helper(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

// expected-error @below {{function 'main': argument 0 has no 'mir.name'}}
module {
  func.func @main(%x: tensor<4xf32> {mir.kind = "input"}) -> (tensor<4xf32> {mir.name = "y"}) {
    return %x : tensor<4xf32>
  }
}

// -----

/// Memory that 64 bits can't address.
// expected-error @below {{argument 0 of function 'main' is of tensor<9223372036854775807x2xf32>: 73786976294838206456 bytes, but at most 9223372036854775807 can be addressed}}
module {
  func.func @main(%x: tensor<9223372036854775807x2xf32> {mir.name = "x", mir.kind = "input"}) -> (tensor<4xf32> {mir.name = "y"}) {
    %y = mir.constant dense<0.0> : tensor<4xf32>
    return %y : tensor<4xf32>
  }
}
