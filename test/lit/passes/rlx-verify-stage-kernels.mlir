// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(rlx-verify-stage{stage=kernels})'

/// Calls and reshapes in the entry function; what @prepare gives are its parameters.
module {
  func.func @prepare(%g: tensor<4xf32> {mir.name = "g", mir.kind = "param"}) -> (tensor<4xf32> {mir.name = "g:prepared"}) attributes {mir.role = "prepare"} {
    %0 = mir.neg %g : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func private @mul_0(%x: tensor<4xf32>, %g: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
    %0 = mir.mul %x, %g : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @main(%x: tensor<2x2xf32> {mir.name = "x", mir.kind = "input"}, %g: tensor<4xf32> {mir.name = "g:prepared", mir.kind = "param"}) -> (tensor<4xf32> {mir.name = "y"}) {
    %r = mir.reshape %x to [4] : tensor<2x2xf32>
    %0 = call @mul_0(%r, %g) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %1 = call @mul_0(%0, %g) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

// -----

// expected-error @below {{the entry function holds calls, reshapes, and loops and choices of these only}}
module {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = mir.neg %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

// expected-error @below {{function 'main': it calls 'neg_0', which is no kernel}}
module {
  func.func private @neg_0(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = mir.neg %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = call @neg_0(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

// expected-error @below {{function 'neg_0': every kernel is called}}
module {
  func.func private @neg_0(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
    %0 = mir.neg %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

// expected-error @below {{function 'neg_1': it is the same as kernel 'neg_0'}}
module {
  func.func private @neg_0(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
    %0 = mir.neg %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func private @neg_1(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
    %0 = mir.neg %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = call @neg_0(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = call @neg_1(%0) : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

// -----

// expected-error-re @below {{function 'neg_0': a kernel has a 'mir.kernel' of gemm, {{.*}}, own, but got 'fast'}}
module {
  func.func private @neg_0(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "fast", mir.role = "kernel"} {
    %0 = mir.neg %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = call @neg_0(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

// expected-error @below {{functions hold operations of func, mir}}
module {
  func.func private @empty_0() -> tensor<4xf32> attributes {mir.kernel = "generic", mir.role = "kernel"} {
    %0 = tensor.empty() : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @main() -> tensor<4xf32> {
    %0 = call @empty_0() : () -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

// expected-error @below {{function 'prepare': result 0 is 'g:prepared' of tensor<4xf32>, but that parameter of the entry function is of tensor<8xf32>}}
module {
  func.func @prepare(%g: tensor<4xf32> {mir.name = "g", mir.kind = "param"}) -> (tensor<4xf32> {mir.name = "g:prepared"}) attributes {mir.role = "prepare"} {
    return %g : tensor<4xf32>
  }
  func.func @main(%g: tensor<8xf32> {mir.name = "g:prepared", mir.kind = "param"}) -> tensor<8xf32> {
    return %g : tensor<8xf32>
  }
}

// -----

// expected-error @below {{function 'second': there is one function of role 'prepare'}}
module {
  func.func @first() attributes {mir.role = "prepare"} {
    return
  }
  func.func @second() attributes {mir.role = "prepare"} {
    return
  }
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
