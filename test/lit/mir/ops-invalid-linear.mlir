// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @dot_general_c1_contracting(%x: tensor<4x5xf32>, %y: tensor<4x5xf32>) {
  // expected-error @below {{expects 'lhs_contracting' and 'rhs_contracting' to have equally many entries, but got [0, 1] and [0]}}
  %z = mir.dot_general %x, %y contracting [0, 1] with [0] : tensor<4x5xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @dot_general_c1_batch(%x: tensor<4x5xf32>, %y: tensor<4x5xf32>) {
  // expected-error @below {{expects 'lhs_batch' and 'rhs_batch' to have equally many entries, but got [0] and []}}
  %z = mir.dot_general %x, %y batch [0] with [] : tensor<4x5xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @dot_general_c2_range(%x: tensor<4x5xf32>, %y: tensor<4x5xf32>) {
  // expected-error @below {{expects 'lhs_contracting' and 'lhs_batch' to be different dimensions of 'lhs', whose rank is 2, but got [2] and []}}
  %z = mir.dot_general %x, %y contracting [2] with [0] : tensor<4x5xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @dot_general_c2_negative(%x: tensor<4x5xf32>, %y: tensor<4x5xf32>) {
  // expected-error @below {{expects 'rhs_contracting' and 'rhs_batch' to be different dimensions of 'rhs', whose rank is 2, but got [-1] and []}}
  %z = mir.dot_general %x, %y contracting [1] with [-1] : tensor<4x5xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @dot_general_c2_twice(%x: tensor<4x5xf32>, %y: tensor<4x5xf32>) {
  // expected-error @below {{expects 'rhs_contracting' and 'rhs_batch' to be different dimensions of 'rhs', whose rank is 2, but got [1] and [1]}}
  %z = mir.dot_general %x, %y contracting [1] with [1] batch [0] with [1] : tensor<4x5xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @dot_general_c3_rule(%x: tensor<4x5xf32>, %y: tensor<?x6xf32>) {
  // expected-error @below {{expects dimension 1 of 'lhs' to be like dimension 1 of 'rhs', but got 5 and 6}}
  %z = mir.dot_general %x, %y contracting [0, 1] with [0, 1] : tensor<4x5xf32>, tensor<?x6xf32>
  return
}

// -----

func.func @dot_general_c4_rule(%x: tensor<4xf32>, %y: tensor<4xf64>) {
  // expected-error @below {{expects 'lhs' and 'rhs' to be of one element type or of bytes, but got 'f32' and 'f64'}}
  %z = mir.dot_general %x, %y contracting [0] with [0] : tensor<4xf32>, tensor<4xf64>
  return
}

// -----

func.func @lora_matmul_c1_x(%x: tensor<f32>, %w: tensor<8x16xf32>, %a: tensor<8x2xf32>, %b: tensor<2x16xf32>) {
  // expected-error @below {{expects 'x' to have at least one dimension and 'weight', 'a' and 'b' two, but their ranks are 0, 2, 2 and 2}}
  %y = mir.lora_matmul %x, %w, %a, %b scale 1.0 : tensor<f32>, tensor<8x16xf32>, tensor<8x2xf32>, tensor<2x16xf32>
  return
}

// -----

func.func @lora_matmul_c2_k(%x: tensor<3x8xf32>, %w: tensor<?x16xf32>, %a: tensor<9x2xf32>, %b: tensor<2x16xf32>) {
  // expected-error @below {{expects 'x', 'weight' and 'a' to have the same k, but got 8, ? and 9}}
  %y = mir.lora_matmul %x, %w, %a, %b scale 1.0 : tensor<3x8xf32>, tensor<?x16xf32>, tensor<9x2xf32>, tensor<2x16xf32>
  return
}

// -----

func.func @lora_matmul_c2_weight(%x: tensor<3x?xf32>, %w: tensor<8x16xf32>, %a: tensor<9x2xf32>, %b: tensor<2x16xf32>) {
  // expected-error @below {{expects 'x', 'weight' and 'a' to have the same k, but got ?, 8 and 9}}
  %y = mir.lora_matmul %x, %w, %a, %b scale 1.0 : tensor<3x?xf32>, tensor<8x16xf32>, tensor<9x2xf32>, tensor<2x16xf32>
  return
}

// -----

func.func @lora_matmul_c3_r(%x: tensor<3x8xf32>, %w: tensor<8x16xf32>, %a: tensor<8x2xf32>, %b: tensor<3x16xf32>) {
  // expected-error @below {{expects 'a' and 'b' to have the same r, but got 2 and 3}}
  %y = mir.lora_matmul %x, %w, %a, %b scale 1.0 : tensor<3x8xf32>, tensor<8x16xf32>, tensor<8x2xf32>, tensor<3x16xf32>
  return
}

// -----

func.func @lora_matmul_c4_n(%x: tensor<3x8xf32>, %w: tensor<8x16xf32>, %a: tensor<8x2xf32>, %b: tensor<2x17xf32>) {
  // expected-error @below {{expects 'weight' and 'b' to have the same n, but got 16 and 17}}
  %y = mir.lora_matmul %x, %w, %a, %b scale 1.0 : tensor<3x8xf32>, tensor<8x16xf32>, tensor<8x2xf32>, tensor<2x17xf32>
  return
}

// -----

func.func @lora_matmul_c5_scale(%x: tensor<3x8xf32>, %w: tensor<8x16xf32>, %a: tensor<8x2xf32>, %b: tensor<2x16xf32>) {
  // expected-error @below {{expects a finite 'scale', but got INF}}
  %y = mir.lora_matmul %x, %w, %a, %b scale 0x7F800000 : tensor<3x8xf32>, tensor<8x16xf32>, tensor<8x2xf32>, tensor<2x16xf32>
  return
}

// -----

func.func @dense_solve_c1_square(%a: tensor<8x9xf32>, %b: tensor<8xf32>) {
  // expected-error @below {{expects 'a' to be [n, n], but it is [8, 9]}}
  %x = mir.dense_solve %a, %b : tensor<8x9xf32>, tensor<8xf32>
  return
}

// -----

func.func @dense_solve_c1_rank(%a: tensor<2x8x8xf32>, %b: tensor<8xf32>) {
  // expected-error @below {{expects 'a' to be [n, n], but it is [2, 8, 8]}}
  %x = mir.dense_solve %a, %b : tensor<2x8x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @dense_solve_c2_size(%a: tensor<8x8xf32>, %b: tensor<9x2xf32>) {
  // expected-error @below {{expects 'b' to be [8], or to have one dimension more, but it is [9, 2]}}
  %x = mir.dense_solve %a, %b : tensor<8x8xf32>, tensor<9x2xf32>
  return
}

// -----

func.func @dense_solve_c2_rank(%a: tensor<8x8xf32>, %b: tensor<8x2x2xf32>) {
  // expected-error @below {{expects 'b' to be [8], or to have one dimension more, but it is [8, 2, 2]}}
  %x = mir.dense_solve %a, %b : tensor<8x8xf32>, tensor<8x2x2xf32>
  return
}

// -----

func.func @dense_solve_element(%a: tensor<8x8xf16>, %b: tensor<8xf16>) {
  // expected-error @below {{operand #0 must be dense tensor of f32 or f64 values, but got 'tensor<8x8xf16>'}}
  %x = mir.dense_solve %a, %b : tensor<8x8xf16>, tensor<8xf16>
  return
}

// -----

func.func @batched_dense_solve_c1_rule(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>) {
  // expected-error @below {{expects 'a' to be [batch, n, n], but it is [8, 8]}}
  %x = mir.batched_dense_solve %a, %b : tensor<8x8xf32>, tensor<8x8xf32>
  return
}

// -----

func.func @batched_dense_solve_c2_rule(%a: tensor<3x8x8xf32>, %b: tensor<8x2xf32>) {
  // expected-error @below {{expects 'b' to be [3, 8], or to have one dimension more, but it is [8, 2]}}
  %x = mir.batched_dense_solve %a, %b : tensor<3x8x8xf32>, tensor<8x2xf32>
  return
}
