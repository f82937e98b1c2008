// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @complex_c1_shapes(%a: tensor<4x8xf32>, %b: tensor<4xf32>) {
  // expected-error @below {{'mir.complex' op expects the shapes of 're' and 'im' to broadcast, but got [4, 8] and [4]}}
  %z = mir.complex %a, %b : tensor<4x8xf32>, tensor<4xf32>
  return
}

// -----

func.func @complex_of_f64(%a: tensor<4xf64>) {
  // expected-error @below {{operand #0 must be dense tensor of 32-bit float values}}
  %z = mir.complex %a, %a : tensor<4xf64>
  return
}

// -----

/// Inference reads types that no constraint has checked yet.
func.func @complex_unranked(%a: tensor<4xf32>, %b: tensor<*xf32>) {
  // expected-error @below {{expects 'im' to be a ranked tensor, but got 'tensor<*xf32>'}}
  %z = mir.complex %a, %b : tensor<4xf32>, tensor<*xf32>
  return
}

// -----

func.func @real_of_f32(%z: tensor<4xf32>) {
  // expected-error @below {{operand #0 must be dense tensor of complex<f32> values, but got 'tensor<4xf32>'}}
  %x = mir.real %z : tensor<4xf32>
  return
}

// -----

func.func @complex_norm_sq_of_f64(%z: tensor<4xcomplex<f64>>) {
  // expected-error @below {{operand #0 must be dense tensor of complex<f32> values, but got 'tensor<4xcomplex<f64>>'}}
  %x = mir.complex_norm_sq %z : tensor<4xcomplex<f64>>
  return
}

// -----

func.func @reduce_c4_max(%z: tensor<4xcomplex<f32>>) {
  // expected-error @below {{expects kind sum or mean of complex numbers, but got max}}
  %x = mir.reduce max %z axes [0] : tensor<4xcomplex<f32>>
  return
}

// -----

func.func @constant_of_complex() {
  // expected-error @below {{result #0 must be dense tensor of a float, i1, i8 to i64 or ui8 to ui32 values}}
  %c = mir.constant dense<(1.0, 2.0)> : tensor<2xcomplex<f32>>
  return
}

// -----

func.func @complex_norm_sq_backward_c1_shape(%z: tensor<4x8xcomplex<f32>>, %g: tensor<?x7xf32>) {
  // expected-error @below {{'mir.complex_norm_sq_backward' op expects 'z' and 'g' to have one shape, but got [4, 8] and [?, 7]}}
  %d = mir.complex_norm_sq_backward %z, %g : tensor<4x8xcomplex<f32>>, tensor<?x7xf32>
  return
}

// -----

func.func @complex_norm_sq_backward_c1_rank(%z: tensor<8xcomplex<f32>>, %g: tensor<1x8xf32>) {
  // expected-error @below {{expects 'z' and 'g' to have one shape, but got [8] and [1, 8]}}
  %d = mir.complex_norm_sq_backward %z, %g : tensor<8xcomplex<f32>>, tensor<1x8xf32>
  return
}

// -----

func.func @tanh_of_complex(%z: tensor<4xcomplex<f32>>) {
  // expected-error @below {{operand #0 must be dense tensor of f16, bf16, f32 or f64 values, but got 'tensor<4xcomplex<f32>>'}}
  %x = mir.tanh %z : tensor<4xcomplex<f32>>
  return
}
