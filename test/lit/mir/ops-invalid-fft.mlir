// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @fft_c1_rank(%x: tensor<f32>) {
  // expected-error @below {{'mir.fft' op expects 'x' to have at least one dimension, but its rank is 0}}
  %y = mir.fft %x : tensor<f32>
  return
}

// -----

func.func @fft_c2_zero(%x: tensor<3x0xcomplex<f32>>) {
  // expected-error @below {{expects the last dimension of 'x' to be static and positive, but got 0}}
  %y = mir.fft %x : tensor<3x0xcomplex<f32>>
  return
}

// -----

func.func @fft_c2_dynamic(%x: tensor<3x?xf32>) {
  // expected-error @below {{expects the last dimension of 'x' to be static and positive, but got ?}}
  %y = mir.fft %x : tensor<3x?xf32>
  return
}

// -----

func.func @fft_c3_odd(%x: tensor<?x7xf64>) {
  // expected-error @below {{expects the last dimension of 'x' to be even, real parts and as many imaginary ones, but got 7}}
  %y = mir.fft %x : tensor<?x7xf64>
  return
}

// -----

func.func @fft_of_f16(%x: tensor<8xf16>) {
  // expected-error @below {{operand #0 must be dense tensor of f32, f64 or complex<f32> values, but got 'tensor<8xf16>'}}
  %y = mir.fft %x : tensor<8xf16>
  return
}

// -----

func.func @fft_of_complex_f64(%x: tensor<8xcomplex<f64>>) {
  // expected-error @below {{operand #0 must be dense tensor of f32, f64 or complex<f32> values, but got 'tensor<8xcomplex<f64>>'}}
  %y = mir.fft %x : tensor<8xcomplex<f64>>
  return
}
