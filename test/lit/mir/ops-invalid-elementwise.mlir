// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @cast_c1_shape(%x: tensor<?x8xf32>) {
  // expected-error @below {{expects the result to have the shape of 'x', [?, 8], but its shape is [4, 8]}}
  %y = mir.cast %x : tensor<?x8xf32> to tensor<4x8xf16>
  return
}

// -----

func.func @add_c1_shapes(%x: tensor<4x8xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{'mir.add' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4, 8] and [4]}}
  %z = mir.add %x, %y : tensor<4x8xf32>, tensor<4xf32>
  return
}

// -----

func.func @sub_c1_shapes(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @below {{'mir.sub' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.sub %x, %y : tensor<4xf32>, tensor<5xf32>
  return
}

// -----

func.func @mul_c1_shapes(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @below {{'mir.mul' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.mul %x, %y : tensor<4xf32>, tensor<5xf32>
  return
}

// -----

func.func @div_c1_shapes(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @below {{'mir.div' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.div %x, %y : tensor<4xf32>, tensor<5xf32>
  return
}

// -----

func.func @max_c1_shapes(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @below {{'mir.max' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.max %x, %y : tensor<4xf32>, tensor<5xf32>
  return
}

// -----

func.func @min_c1_shapes(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @below {{'mir.min' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.min %x, %y : tensor<4xf32>, tensor<5xf32>
  return
}

// -----

func.func @pow_c1_shapes(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @below {{'mir.pow' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.pow %x, %y : tensor<4xf32>, tensor<5xf32>
  return
}

// -----

func.func @and_c1_shapes(%x: tensor<4xi1>, %y: tensor<5xi1>) {
  // expected-error @below {{'mir.and' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.and %x, %y : tensor<4xi1>, tensor<5xi1>
  return
}

// -----

func.func @or_c1_shapes(%x: tensor<4xi1>, %y: tensor<5xi1>) {
  // expected-error @below {{'mir.or' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.or %x, %y : tensor<4xi1>, tensor<5xi1>
  return
}

// -----

func.func @xor_c1_shapes(%x: tensor<4xi1>, %y: tensor<5xi1>) {
  // expected-error @below {{'mir.xor' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.xor %x, %y : tensor<4xi1>, tensor<5xi1>
  return
}

// -----

func.func @floor_div_c1_shapes(%x: tensor<4xi32>, %y: tensor<5xi32>) {
  // expected-error @below {{'mir.floor_div' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.floor_div %x, %y : tensor<4xi32>, tensor<5xi32>
  return
}

// -----

func.func @floor_rem_c1_shapes(%x: tensor<4xi32>, %y: tensor<5xi32>) {
  // expected-error @below {{'mir.floor_rem' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.floor_rem %x, %y : tensor<4xi32>, tensor<5xi32>
  return
}

// -----

func.func @trunc_div_c1_shapes(%x: tensor<4xi32>, %y: tensor<5xi32>) {
  // expected-error @below {{'mir.trunc_div' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.trunc_div %x, %y : tensor<4xi32>, tensor<5xi32>
  return
}

// -----

func.func @trunc_rem_c1_shapes(%x: tensor<4xi32>, %y: tensor<5xi32>) {
  // expected-error @below {{'mir.trunc_rem' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.trunc_rem %x, %y : tensor<4xi32>, tensor<5xi32>
  return
}

// -----

func.func @and_of_floats(%x: tensor<4xf32>) {
  // expected-error @below {{operand #0 must be dense tensor of i1, i8 to i64 or ui8 to ui32 values}}
  %z = mir.and %x, %x : tensor<4xf32>
  return
}

// -----

func.func @floor_div_of_conditions(%x: tensor<4xi1>) {
  // expected-error @below {{operand #0 must be dense tensor of i8 to i64 or ui8 to ui32 values}}
  %z = mir.floor_div %x, %x : tensor<4xi1>
  return
}

// -----

func.func @iota_c1_axis() {
  // expected-error @below {{expects 'axis' to be a dimension of the result, whose rank is 2, but got 2}}
  %z = mir.iota axis 2 to tensor<4x8xi32>
  return
}

// -----

func.func @iota_c2_no_dims(%x: tensor<?xf32>) {
  // expected-error @below {{expects 'like_dims' to have an entry for each of the result's 1 dimensions with 'like' and to be absent without it, but it is absent with 'like'}}
  %z = mir.iota axis 0 like %x : tensor<?xf32> to tensor<?xi32>
  return
}

// -----

func.func @iota_c2_no_like() {
  // expected-error @below {{but it is [0] without 'like'}}
  %z = "mir.iota"() {axis = 0 : i64, like_dims = array<i64: 0>} : () -> tensor<?xi32>
  return
}

// -----

func.func @iota_c2_few_dims(%x: tensor<?xf32>) {
  // expected-error @below {{but it is [0] with 'like'}}
  %z = mir.iota axis 0 like %x dims [0] : tensor<?xf32> to tensor<?x4xi32>
  return
}

// -----

func.func @iota_c3_dims(%x: tensor<?xf32>) {
  // expected-error @below {{expects entries of 'like_dims' to be -1 or dimensions of 'like', whose rank is 1, but got [1]}}
  %z = mir.iota axis 0 like %x dims [1] : tensor<?xf32> to tensor<?xi32>
  return
}

// -----

func.func @iota_c4_dynamic() {
  // expected-error @below {{expects dimension 0 of the result to be static without an entry of 'like_dims', but it is ?}}
  %z = mir.iota axis 0 to tensor<?xi32>
  return
}

// -----

func.func @iota_c4_sizes(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects dimension 0 of the result to be as long as dimension 1 of 'like', 8, but it is 4}}
  %z = mir.iota axis 0 like %x dims [1] : tensor<4x8xf32> to tensor<4xi32>
  return
}

// -----

func.func @iota_element_type() {
  // expected-error @below {{result #0 must be dense tensor of f32, i32, i64 or ui8 to ui32 index values, but got 'tensor<4xf16>'}}
  %z = mir.iota axis 0 to tensor<4xf16>
  return
}

// -----

func.func @add_element_types(%x: tensor<4xf32>, %y: tensor<4xf16>) {
  // expected-error @below {{failed to verify that all of {lhs, rhs} have same element type}}
  %z = mir.add %x, %y : tensor<4xf32>, tensor<4xf16>
  return
}

// -----

/// The bytes of a packed weight aren't numbers.
func.func @add_packed(%x: tensor<4x20xi8, #mir.packed<q4_1, k = 32>>, %y: tensor<4x20xi8>) {
  // expected-error @below {{operand #0 must be dense tensor}}
  %z = mir.add %x, %y : tensor<4x20xi8, #mir.packed<q4_1, k = 32>>, tensor<4x20xi8>
  return
}

// -----

func.func @add_i1(%x: tensor<4xi1>) {
  // expected-error @below {{operand #0 must be dense tensor of a float, complex<f32>, i8 to i64 or ui8 to ui32 values}}
  %z = mir.add %x, %x : tensor<4xi1>
  return
}

// -----

/// Inference reads types that no constraint has checked yet.
func.func @add_unranked(%x: tensor<4xf32>, %y: tensor<*xf32>) {
  // expected-error @below {{expects 'rhs' to be a ranked tensor, but got 'tensor<*xf32>'}}
  %z = mir.add %x, %y : tensor<4xf32>, tensor<*xf32>
  return
}

// -----

/// Only a result that inference gives is accepted.
func.func @add_result(%x: tensor<4xf32>) {
  // expected-error @below {{inferred type(s) 'tensor<4xf32>' are incompatible with return type(s) of operation 'tensor<?xf32>'}}
  // expected-error @below {{failed to infer returned types}}
  %z = "mir.add"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @compare_c1_shapes(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @below {{'mir.compare' op expects the shapes of 'lhs' and 'rhs' to broadcast, but got [4] and [5]}}
  %z = mir.compare lt %x, %y : tensor<4xf32>, tensor<5xf32>
  return
}

// -----

func.func @where_c1_sides(%c: tensor<i1>, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @below {{expects the shapes of 'on_true' and 'on_false' to broadcast, but got [4] and [5]}}
  %z = mir.where %c, %x, %y : tensor<i1>, tensor<4xf32>, tensor<5xf32>
  return
}

// -----

func.func @where_c1_condition(%c: tensor<3xi1>, %x: tensor<4xf32>) {
  // expected-error @below {{expects the shapes of 'condition' and the choices to broadcast, but got [3] and [4]}}
  %z = mir.where %c, %x, %x : tensor<3xi1>, tensor<4xf32>
  return
}
