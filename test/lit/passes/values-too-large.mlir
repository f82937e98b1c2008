// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(func.func(mir-to-linalg),rlx-generic-kernels)'

/// Upstream's arithmetic on strides overflows, and an assertion ends the process.
// expected-error @below {{pass 'mir-to-linalg': values are too large}}
func.func @elements(%x: tensor<9223372036854775807x2xf32>) -> tensor<2x9223372036854775807xf32> attributes {mir.role = "kernel", mir.template = "generic: test"} {
  %y = mir.transpose %x permutation [1, 0] : tensor<9223372036854775807x2xf32>
  return %y : tensor<2x9223372036854775807xf32>
}

// -----

/// The elements can be counted in 64 bits, their bytes can't.
// expected-error-re @below {{result 0 of 'mir.neg' at loc({{.*}}) is of tensor<1152921504606846976x2xf32>: 9223372036854775808 bytes, but at most 9223372036854775807 can be addressed}}
func.func @bytes(%x: tensor<1152921504606846976x2xf32>) -> tensor<1152921504606846976x2xf32> attributes {mir.role = "kernel", mir.template = "generic: test"} {
  %y = mir.neg %x : tensor<1152921504606846976x2xf32>
  return %y : tensor<1152921504606846976x2xf32>
}

// -----

/// What an operation needs in between is larger than its operands: the scores of attention.
// expected-error-re @below {{result 0 of 'tensor.empty' at loc({{.*}}) is of tensor<1x1x1x2147483648x2147483648xf32>: 18446744073709551616 bytes}}
func.func @scores(%q: tensor<1x2147483648x4xf32>) -> tensor<1x2147483648x4xf32> attributes {mir.role = "kernel", mir.template = "generic: test"} {
  %y = mir.attention %q, %q, %q heads 1 head_dim 4 : tensor<1x2147483648x4xf32>, tensor<1x2147483648x4xf32>
  return %y : tensor<1x2147483648x4xf32>
}

// -----

/// Strides of an empty value are computed as if it weren't empty.
// expected-error @below {{argument 0 of function 'empty' is of tensor<0x9223372036854775807x2xf32>}}
func.func @empty(%x: tensor<0x9223372036854775807x2xf32>) -> tensor<0x9223372036854775807x2xf32> attributes {mir.role = "kernel", mir.template = "generic: test"} {
  %y = mir.neg %x : tensor<0x9223372036854775807x2xf32>
  return %y : tensor<0x9223372036854775807x2xf32>
}

// -----

/// The largest that there is.
func.func @fits(%x: tensor<1152921504606846975x2xf32>) -> tensor<1152921504606846975x2xf32> attributes {mir.role = "kernel", mir.template = "generic: test"} {
  %y = mir.neg %x : tensor<1152921504606846975x2xf32>
  return %y : tensor<1152921504606846975x2xf32>
}
