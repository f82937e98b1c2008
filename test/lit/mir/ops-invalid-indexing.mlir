// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @scatter_add_c1_negative(%u: tensor<3x8xf32>, %i: tensor<3xi32>) {
  // expected-error @below {{expects 'axis' to be from 0 to the number of dimensions of 'updates' beyond those of 'indices', 2 - 1, but got -1}}
  %y = mir.scatter_add %u, %i axis -1 size 4 : tensor<3x8xf32>, tensor<3xi32>
  return
}

// -----

func.func @scatter_add_c1_large(%u: tensor<3x8xf32>, %i: tensor<3x8xi32>) {
  // expected-error @below {{expects 'axis' to be from 0 to the number of dimensions of 'updates' beyond those of 'indices', 2 - 2, but got 1}}
  %y = mir.scatter_add %u, %i axis 1 size 4 : tensor<3x8xf32>, tensor<3x8xi32>
  return
}

// -----

func.func @scatter_add_c2_rule(%u: tensor<3x8xf32>, %i: tensor<3xi32>) {
  // expected-error @below {{expects 'updates' to have the dimensions of 'indices', [3], from 1 on, but it is [3, 8]}}
  %y = mir.scatter_add %u, %i axis 1 size 4 : tensor<3x8xf32>, tensor<3xi32>
  return
}

// -----

func.func @scatter_add_c3_none(%u: tensor<3x8xf32>, %i: tensor<3xi32>) {
  // expected-error @below {{expects a 'size' that isn't negative, or 'like', but got none without 'like'}}
  %y = mir.scatter_add %u, %i axis 0 : tensor<3x8xf32>, tensor<3xi32>
  return
}

// -----

func.func @scatter_add_c3_both(%u: tensor<3x8xf32>, %i: tensor<3xi32>) {
  // expected-error @below {{expects a 'size' that isn't negative, or 'like', but got 4 with 'like'}}
  %y = mir.scatter_add %u, %i axis 0 size 4 like %u : tensor<3x8xf32>, tensor<3xi32>, tensor<3x8xf32>
  return
}

// -----

func.func @scatter_add_c3_negative(%u: tensor<3x8xf32>, %i: tensor<3xi32>) {
  // expected-error @below {{expects a 'size' that isn't negative, or 'like', but got -4 without 'like'}}
  %y = mir.scatter_add %u, %i axis 0 size -4 : tensor<3x8xf32>, tensor<3xi32>
  return
}

// -----

func.func @scatter_add_c4_rule(%u: tensor<3x8xf32>, %i: tensor<8xi32>) {
  // expected-error @below {{expects 'like' to have a dimension 1, but its rank is 1}}
  %y = mir.scatter_add %u, %i axis 1 like %i : tensor<3x8xf32>, tensor<8xi32>, tensor<8xi32>
  return
}
