// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @softmax_cross_entropy_with_logits_c1_logits(%x: tensor<2x4x10xf32>, %l: tensor<4xi32>) {
  // expected-error @below {{expects 'logits' to have two dimensions, but its rank is 3}}
  %y = mir.softmax_cross_entropy_with_logits %x, %l : tensor<2x4x10xf32>, tensor<4xi32>
  return
}

// -----

func.func @softmax_cross_entropy_with_logits_c1_labels(%x: tensor<4x10xf32>, %l: tensor<4x1xi32>) {
  // expected-error @below {{expects 'labels' to have one dimension, but its rank is 2}}
  %y = mir.softmax_cross_entropy_with_logits %x, %l : tensor<4x10xf32>, tensor<4x1xi32>
  return
}

// -----

func.func @softmax_cross_entropy_with_logits_c2_rule(%x: tensor<4x10xf32>, %l: tensor<5xi32>) {
  // expected-error @below {{expects 'labels' to have an entry for each of the 4 rows of 'logits', but got 5}}
  %y = mir.softmax_cross_entropy_with_logits %x, %l : tensor<4x10xf32>, tensor<5xi32>
  return
}

// -----

func.func @softmax_cross_entropy_with_logits_c3_rule(%x: tensor<?x0xf32>, %l: tensor<5xi32>) {
  // expected-error @below {{expects a class for the 5 rows of 'logits', but got none}}
  %y = mir.softmax_cross_entropy_with_logits %x, %l : tensor<?x0xf32>, tensor<5xi32>
  return
}

// -----

func.func @softmax_cross_entropy_backward_c1_rule(%x: tensor<4x10xf32>, %l: tensor<4xi32>, %d: tensor<4x10xf32>) {
  // expected-error @below {{expects 'd_loss' to have one dimension, but its rank is 2}}
  %y = mir.softmax_cross_entropy_backward %x, %l, %d : tensor<4x10xf32>, tensor<4xi32>, tensor<4x10xf32>
  return
}

// -----

func.func @softmax_cross_entropy_backward_c2_rule(%x: tensor<?x10xf32>, %l: tensor<4xi32>, %d: tensor<3xf32>) {
  // expected-error @below {{expects 'd_loss' to have an entry for each of the 4 rows of 'logits', but got 3}}
  %y = mir.softmax_cross_entropy_backward %x, %l, %d : tensor<?x10xf32>, tensor<4xi32>, tensor<3xf32>
  return
}
