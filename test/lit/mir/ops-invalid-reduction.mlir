// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @reduce_c1_twice(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects 'axes' to be different dimensions of 'x', whose rank is 2, but got [1, 1]}}
  %r = mir.reduce sum %x axes [1, 1] : tensor<4x8xf32>
  return
}

// -----

func.func @reduce_c1_range(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects 'axes' to be different dimensions of 'x', whose rank is 2, but got [-1]}}
  %r = mir.reduce sum %x axes [-1] : tensor<4x8xf32>
  return
}

// -----

func.func @reduce_c2_mean(%x: tensor<4x8xi32>) {
  // expected-error @below {{expects 'x' to be of floats or complex numbers with kind mean, but its element type is 'i32'}}
  %r = mir.reduce mean %x axes [1] : tensor<4x8xi32>
  return
}

// -----

func.func @reduce_c3_any_of_numbers(%x: tensor<4x8xi32>) {
  // expected-error @below {{expects 'x' to be of i1 with kind any, but its element type is 'i32'}}
  %r = mir.reduce any %x axes [1] : tensor<4x8xi32>
  return
}

// -----

func.func @reduce_c3_sum_of_conditions(%x: tensor<4x8xi1>) {
  // expected-error @below {{expects 'x' to be of numbers with kind sum, but its element type is 'i1'}}
  %r = mir.reduce sum %x axes [1] : tensor<4x8xi1>
  return
}

// -----

func.func @softmax_c1_axis(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects 'axis' to be a dimension of 'x', whose rank is 2, but got -3}}
  %r = mir.softmax %x axis -3 : tensor<4x8xf32>
  return
}

// -----

func.func @cumsum_c1_axis(%x: tensor<f32>) {
  // expected-error @below {{expects 'axis' to be a dimension of 'x', whose rank is 0, but got -1}}
  %r = mir.cumsum %x : tensor<f32>
  return
}

// -----

func.func @top_k_c1_rank(%x: tensor<f32>) {
  // expected-error @below {{expects 'x' to have at least one dimension, but it is []}}
  %v, %i = mir.top_k 1 of %x : tensor<f32>
  return
}

// -----

func.func @top_k_c2_dims(%x: tensor<4x?xf32>) {
  // expected-error @below {{expects 'like_dims' to have a dimension of each of the 1 values in 'like', but got []}}
  %v, %i = mir.top_k "d0" of %x like %x : tensor<4x?xf32>, tensor<4x?xf32>
  return
}

// -----

func.func @top_k_c3_text(%x: tensor<4x?xf32>) {
  // expected-error @below {{expects 'k' to be a number or a size, but }}
  %v, %i = mir.top_k "d1" of %x like %x dims [1] : tensor<4x?xf32>, tensor<4x?xf32>
  return
}

// -----

func.func @top_k_c4_negative(%x: tensor<4x?xf32>) {
  // expected-error @below {{expects 'k' to be from 0 to the last dimension of 'x', ?, but got -1}}
  %v, %i = mir.top_k -1 of %x : tensor<4x?xf32>
  return
}

// -----

func.func @top_k_c4_many(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects 'k' to be from 0 to the last dimension of 'x', 8, but got 9}}
  %v, %i = mir.top_k 9 of %x : tensor<4x8xf32>
  return
}
