// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @reshape_c1_entry(%x: tensor<4x6xf32>) {
  // expected-error @below {{expects 'new_shape' to hold -3, -2, sizes and at most one -1, but got [-4, 8]}}
  %r = mir.reshape %x to [-4, 8] : tensor<4x6xf32>
  return
}

// -----

func.func @reshape_c1_two_inferred(%x: tensor<4x6xf32>) {
  // expected-error @below {{expects 'new_shape' to hold -3, -2, sizes and at most one -1, but got [-1, -1]}}
  %r = mir.reshape %x to [-1, -1] : tensor<4x6xf32>
  return
}

// -----

func.func @reshape_c2_position(%x: tensor<4x6xf32>) {
  // expected-error @below {{expects -2 in 'new_shape' at a dimension of 'x', whose rank is 2, but got it at 2}}
  %r = mir.reshape %x to [-2, 6, -2] : tensor<4x6xf32>
  return
}

// -----

func.func @reshape_c3_count(%x: tensor<4x6xf32>) {
  // expected-error @below {{expects 'x' and the result to have the same number of elements, but 'x' is [4, 6] and 'new_shape' [5, 5]}}
  %r = mir.reshape %x to [5, 5] : tensor<4x6xf32>
  return
}

// -----

func.func @reshape_c3_indivisible(%x: tensor<?x6xf32>) {
  // expected-error @below {{but 'x' is [?, 6] and 'new_shape' [-2, 4, -1]}}
  %r = mir.reshape %x to [-2, 4, -1] : tensor<?x6xf32>
  return
}

// -----

/// Of no elements, -1 could be any size.
func.func @reshape_c3_ambiguous(%x: tensor<0x6xf32>) {
  // expected-error @below {{but 'x' is [0, 6] and 'new_shape' [0, -1]}}
  %r = mir.reshape %x to [0, -1] : tensor<0x6xf32>
  return
}

// -----

func.func @reshape_c4_size(%x: tensor<?x6xf32>) {
  // expected-error @below {{expects the product of the sizes in 'new_shape' to be below 2^63, but got [4294967296, 4294967296]}}
  %r = mir.reshape %x to [4294967296, 4294967296] : tensor<?x6xf32>
  return
}

// -----

func.func @transpose_c1_twice(%x: tensor<2x3xf32>) {
  // expected-error @below {{expects 'permutation' to hold each of the 2 dimensions of 'x' once, but got [0, 0]}}
  %r = mir.transpose %x permutation [0, 0] : tensor<2x3xf32>
  return
}

// -----

func.func @transpose_c1_missing(%x: tensor<2x3xf32>) {
  // expected-error @below {{expects 'permutation' to hold each of the 2 dimensions of 'x' once, but got [1]}}
  %r = mir.transpose %x permutation [1] : tensor<2x3xf32>
  return
}

// -----

func.func @transpose_c1_negative(%x: tensor<2x3xf32>) {
  // expected-error @below {{expects 'permutation' to hold each of the 2 dimensions of 'x' once, but got [0, -1]}}
  %r = mir.transpose %x permutation [0, -1] : tensor<2x3xf32>
  return
}

// -----

func.func @narrow_c1_axis(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects 'axis' to be at least 0 and less than the rank, 2, but got 2}}
  %r = mir.narrow %x axis 2 start 0 length 1 : tensor<4x8xf32>
  return
}

// -----

func.func @narrow_c2_end(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects a range within dimension 1 of 'x', of size 8, but got start 6 and length 3}}
  %r = mir.narrow %x axis 1 start 6 length 3 : tensor<4x8xf32>
  return
}

// -----

func.func @narrow_c2_negative(%x: tensor<?x8xf32>) {
  // expected-error @below {{expects a range within dimension 0 of 'x', of size ?, but got start -1 and length 3}}
  %r = mir.narrow %x axis 0 start -1 length 3 : tensor<?x8xf32>
  return
}

// -----

func.func @slice_c1_axis(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects 'axis' to be at least 0 and less than the rank, 2, but got 2}}
  %r = mir.slice %x axis 2 start 1 : tensor<4x8xf32>
  return
}

// -----

func.func @slice_c2_step(%x: tensor<4x?xf32>) {
  // expected-error @below {{expects 'step' to be neither 0 nor the least integer, but got 0}}
  %r = mir.slice %x axis 1 step 0 : tensor<4x?xf32>
  return
}

// -----

func.func @slice_c3_negative(%x: tensor<4x?xf32>) {
  // expected-error @below {{expects 'length' not to be negative, but got -1}}
  %r = mir.slice %x axis 1 length -1 : tensor<4x?xf32>
  return
}

// -----

func.func @slice_c3_length(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects 'length' to be the number of elements of the slice, 3, but got 4}}
  %r = mir.slice %x axis 1 start 2 step 2 length 4 : tensor<4x8xf32>
  return
}

// -----

func.func @slice_c4_count(%x: tensor<4x?xf32>, %y: tensor<?xi32>) {
  // expected-error @below {{expects 'like_dims' to have a dimension of each of the 1 values in 'like', but got []}}
  %r = mir.slice %x axis 1 start "d0" like %y : tensor<4x?xf32>, tensor<?xi32>
  return
}

// -----

func.func @slice_c4_none(%x: tensor<4x?xf32>) {
  // expected-error @below {{expects 'like_dims' to have a dimension of each of the 0 values in 'like', but got []}}
  %r = mir.slice %x axis 1 start 1 dims [] : tensor<4x?xf32>
  return
}

// -----

func.func @slice_c4_dimension(%x: tensor<4x?xf32>, %y: tensor<?xi32>) {
  // expected-error @below {{expects 'like_dims' to have dimensions of 'like', but got 1 for 'tensor<?xi32>'}}
  %r = mir.slice %x axis 1 start "d0" like %y dims [1] : tensor<4x?xf32>, tensor<?xi32>
  return
}

// -----

func.func @slice_c5_symbol(%x: tensor<4x?xf32>, %y: tensor<?xi32>) {
  // expected-error @below {{expects 'stop' to be a number or a size, but 'd0 + d1' has 'd1', but 'like_dims' lists 1 dimensions}}
  %r = mir.slice %x axis 1 stop "d0 + d1" like %y dims [0] : tensor<4x?xf32>, tensor<?xi32>
  return
}

// -----

func.func @slice_c5_word(%x: tensor<4x?xf32>, %y: tensor<?xi32>) {
  // expected-error @below {{'start' to be a number or a size, but 'log(d0, 2)' has 'log' where a number, 'd0', 'd1', ..., floordiv, ceildiv, mod, min or max should be}}
  %r = mir.slice %x axis 1 start "log(d0, 2)" like %y dims [0] : tensor<4x?xf32>, tensor<?xi32>
  return
}

// -----

func.func @slice_c5_divisor(%x: tensor<4x?xf32>, %y: tensor<?xi32>) {
  // expected-error @below {{'floordiv(d0, 0)' has '0' where a positive number should be, which divides}}
  %r = mir.slice %x axis 1 start "floordiv(d0, 0)" like %y dims [0] : tensor<4x?xf32>, tensor<?xi32>
  return
}

// -----

func.func @slice_c5_divisor_size(%x: tensor<4x?xf32>, %y: tensor<8xi32>) {
  // expected-error @below {{'floordiv(9, d0)' has 'd0' where a positive number should be, which divides}}
  %r = mir.slice %x axis 1 start "floordiv(9, d0)" like %y dims [0] : tensor<4x?xf32>, tensor<8xi32>
  return
}

// -----

func.func @slice_c5_end(%x: tensor<4x?xf32>, %y: tensor<?xi32>) {
  // expected-error @below {{'d0 d0' has 'd0' where it should end or go on with + or -}}
  %r = mir.slice %x axis 1 start "d0 d0" like %y dims [0] : tensor<4x?xf32>, tensor<?xi32>
  return
}

// -----

func.func @slice_c5_parenthesis(%x: tensor<4x?xf32>, %y: tensor<?xi32>) {
  // expected-error @below {{'max(d0, 1' has '' where ')' should be}}
  %r = mir.slice %x axis 1 start "max(d0, 1" like %y dims [0] : tensor<4x?xf32>, tensor<?xi32>
  return
}

// -----

func.func @slice_c5_large(%x: tensor<4x?xf32>, %y: tensor<8xi32>) {
  // expected-error @below {{'d0*9223372036854775807' isn't within 64 bits}}
  %r = mir.slice %x axis 1 start "d0*9223372036854775807" like %y dims [0] : tensor<4x?xf32>, tensor<8xi32>
  return
}

// -----

func.func @slice_c5_number(%x: tensor<4x?xf32>) {
  // expected-error @below {{'9223372036854775808' has '9223372036854775808', which is no number of 64 bits}}
  %r = mir.slice %x axis 1 start "9223372036854775808" : tensor<4x?xf32>
  return
}

// -----

func.func @slice_c5_kind(%x: tensor<4x?xf32>) {
  // expected-error @below {{attribute 'start' failed to satisfy constraint: a number or a size}}
  %r = "mir.slice"(%x) {axis = 1, start = 1.0 : f32} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  return
}

// -----

func.func @dynamic_slice_c1_axis(%x: tensor<4x8xf32>, %i: tensor<i32>) {
  // expected-error @below {{expects 'axis' to be at least 0 and less than the rank, 2, but got 2}}
  %r = mir.dynamic_slice %x at %i axis 2 length 1 : tensor<4x8xf32>, tensor<i32>
  return
}

// -----

func.func @dynamic_slice_c2_dimension(%x: tensor<4x8xf32>, %i: tensor<i32>, %y: tensor<?xi32>) {
  // expected-error @below {{expects 'like_dims' to have dimensions of 'like', but got -1 for 'tensor<?xi32>'}}
  %r = mir.dynamic_slice %x at %i axis 1 length "d0" like %y dims [-1] : tensor<4x8xf32>, tensor<i32>, tensor<?xi32>
  return
}

// -----

func.func @dynamic_slice_c3_text(%x: tensor<4x8xf32>, %i: tensor<i32>) {
  // expected-error @below {{expects 'length' to be a number or a size, but 's' has 's' where a number}}
  %r = mir.dynamic_slice %x at %i axis 1 length "s" : tensor<4x8xf32>, tensor<i32>
  return
}

// -----

func.func @dynamic_slice_c4_long(%x: tensor<4x8xf32>, %i: tensor<i32>) {
  // expected-error @below {{expects 'length' to be from 0 to the size of dimension 1 of 'x', 8, but got 9}}
  %r = mir.dynamic_slice %x at %i axis 1 length 9 : tensor<4x8xf32>, tensor<i32>
  return
}

// -----

func.func @dynamic_slice_c4_negative(%x: tensor<4x?xf32>, %i: tensor<i32>, %y: tensor<2xi32>) {
  // expected-error @below {{expects 'length' to be from 0 to the size of dimension 1 of 'x', ?, but got -1}}
  %r = mir.dynamic_slice %x at %i axis 1 length "d0 - 3" like %y dims [0] : tensor<4x?xf32>, tensor<i32>, tensor<2xi32>
  return
}

// -----

func.func @dynamic_slice_start(%x: tensor<4x8xf32>, %i: tensor<1xi32>) {
  // expected-error @below {{operand #1 must be dense 0-d tensor of 32-bit signless integer or 64-bit signless integer values}}
  %r = mir.dynamic_slice %x at %i axis 1 length 1 : tensor<4x8xf32>, tensor<1xi32>
  return
}

// -----

func.func @dynamic_update_slice_c1_axis(%x: tensor<4x8xf32>, %u: tensor<4x2xf32>, %i: tensor<i64>) {
  // expected-error @below {{expects 'axis' to be at least 0 and less than the rank, 2, but got -1}}
  %r = mir.dynamic_update_slice %x, %u at %i axis -1 : tensor<4x8xf32>, tensor<4x2xf32>, tensor<i64>
  return
}

// -----

func.func @dynamic_update_slice_c2_rank(%x: tensor<4x8xf32>, %u: tensor<2xf32>, %i: tensor<i64>) {
  // expected-error @below {{expects 'update' to be like 'x' in every dimension but 1, but 'x' is [4, 8] and 'update' [2]}}
  %r = mir.dynamic_update_slice %x, %u at %i axis 1 : tensor<4x8xf32>, tensor<2xf32>, tensor<i64>
  return
}

// -----

func.func @dynamic_update_slice_c2_alike(%x: tensor<4x8xf32>, %u: tensor<3x2xf32>, %i: tensor<i64>) {
  // expected-error @below {{expects 'update' to be like 'x' in every dimension but 1, but 'x' is [4, 8] and 'update' [3, 2]}}
  %r = mir.dynamic_update_slice %x, %u at %i axis 1 : tensor<4x8xf32>, tensor<3x2xf32>, tensor<i64>
  return
}

// -----

func.func @dynamic_update_slice_c3_large(%x: tensor<?x8xf32>, %u: tensor<4x9xf32>, %i: tensor<i64>) {
  // expected-error @below {{expects 'update' to be at most as large as 'x' along dimension 1, 8, but it is 9}}
  %r = mir.dynamic_update_slice %x, %u at %i axis 1 : tensor<?x8xf32>, tensor<4x9xf32>, tensor<i64>
  return
}

// -----

func.func @reshape_c5_count(%x: tensor<?x8xf32>) {
  // expected-error @below {{expects 'like_dims' to have a dimension of each of the 1 values in 'like', but got [0, 1]}}
  %r = mir.reshape %x to [-3, -1] sizes ["d0"] like %x dims [0, 1] : tensor<?x8xf32>, tensor<?x8xf32>
  return
}

// -----

func.func @reshape_c6_count(%x: tensor<?x8xf32>) {
  // expected-error @below {{expects 'sizes' to have a size for each -3 in 'new_shape', 2, but got 1}}
  %r = mir.reshape %x to [-3, -3] sizes ["d0"] like %x dims [0] : tensor<?x8xf32>, tensor<?x8xf32>
  return
}

// -----

func.func @reshape_c6_negative(%x: tensor<?x8xf32>, %y: tensor<2xi32>) {
  // expected-error @below {{expects 'sizes' not to be negative, but got "d0 - 3", which is -1}}
  %r = mir.reshape %x to [-3, -1] sizes ["d0 - 3"] like %y dims [0] : tensor<?x8xf32>, tensor<2xi32>
  return
}

// -----

func.func @reshape_c6_text(%x: tensor<?x8xf32>) {
  // expected-error @below {{expects 'sizes' to be a number or a size, but 'd0 +' has '' where a number}}
  %r = mir.reshape %x to [-3, -1] sizes ["d0 +"] like %x dims [0] : tensor<?x8xf32>, tensor<?x8xf32>
  return
}

// -----

func.func @reshape_c3_sizes(%x: tensor<4x8xf32>, %y: tensor<3xi32>) {
  // expected-error @below {{expects 'x' and the result to have the same number of elements, but 'x' is [4, 8] and 'new_shape' [-3, 8]}}
  %r = mir.reshape %x to [-3, 8] sizes ["d0"] like %y dims [0] : tensor<4x8xf32>, tensor<3xi32>
  return
}

// -----

func.func @dim_c1_axis(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects 'axis' to be at least 0 and less than the rank, 2, but got -1}}
  %r = mir.dim %x axis -1 : tensor<4x8xf32> to tensor<i64>
  return
}

// -----

func.func @dim_c2_rank(%x: tensor<4x8xf32>) {
  // expected-error @below {{expects a result without dimensions, but it is 'tensor<1xi64>'}}
  %r = mir.dim %x axis 0 : tensor<4x8xf32> to tensor<1xi64>
  return
}

// -----

func.func @expand_c3_without_dims(%x: tensor<1x4xf32>, %y: tensor<?xf32>) {
  // expected-error @below {{expects 'like' and 'like_dims', with an entry for each of the 2 dimensions of the result, or neither, but got none with 'like'}}
  %r = mir.expand %x like %y : tensor<1x4xf32>, tensor<?xf32> to tensor<?x4xf32>
  return
}

// -----

func.func @expand_c3_entries(%x: tensor<1x4xf32>, %y: tensor<?xf32>) {
  // expected-error @below {{with an entry for each of the 2 dimensions of the result, or neither, but got [0] with 'like'}}
  %r = mir.expand %x like %y dims [0] : tensor<1x4xf32>, tensor<?xf32> to tensor<?x4xf32>
  return
}

// -----

func.func @expand_c4_dimension(%x: tensor<1x4xf32>, %y: tensor<?xf32>) {
  // expected-error @below {{expects entries of 'like_dims' to be -1 or dimensions of 'like', [?], of the size that the result has, [?, 4], but got 1 for dimension 0}}
  %r = mir.expand %x like %y dims [1, -1] : tensor<1x4xf32>, tensor<?xf32> to tensor<?x4xf32>
  return
}

// -----

func.func @expand_c4_size(%x: tensor<1x4xf32>, %y: tensor<3xf32>) {
  // expected-error @below {{of the size that the result has, [2, 4], but got 0 for dimension 0}}
  %r = mir.expand %x like %y dims [0, -1] : tensor<1x4xf32>, tensor<3xf32> to tensor<2x4xf32>
  return
}

// -----

func.func @expand_c5_open(%x: tensor<1x4xf32>) {
  // expected-error @below {{expects dynamic dimensions of the result to be those of 'x', [1, 4], or of 'like', but dimension 0 of [?, 4] is neither}}
  %r = mir.expand %x : tensor<1x4xf32> to tensor<?x4xf32>
  return
}

// -----

func.func @concat_c1_none() {
  // expected-error @below {{expects at least one input}}
  // expected-error @below {{failed to infer returned types}}
  %r = "mir.concat"() <{axis = 0 : i64}> : () -> tensor<4xf32>
  return
}

// -----

func.func @concat_c1_element_type(%x: tensor<4xf32>, %y: tensor<4xf16>) {
  // expected-error @below {{expects inputs of one rank and element type, but input 0 is 'tensor<4xf32>' and input 1 is 'tensor<4xf16>'}}
  %r = mir.concat %x, %y axis 0 : tensor<4xf32>, tensor<4xf16>
  return
}

// -----

func.func @concat_c1_rank(%x: tensor<4xf32>, %y: tensor<4x1xf32>) {
  // expected-error @below {{expects inputs of one rank and element type, but input 0 is 'tensor<4xf32>' and input 1 is 'tensor<4x1xf32>'}}
  %r = mir.concat %x, %y axis 0 : tensor<4xf32>, tensor<4x1xf32>
  return
}

// -----

func.func @concat_c2_axis(%x: tensor<4xf32>) {
  // expected-error @below {{expects 'axis' to be at least 0 and less than the rank, 1, but got -1}}
  %r = mir.concat %x, %x axis -1 : tensor<4xf32>, tensor<4xf32>
  return
}

// -----

func.func @concat_c3_sizes(%x: tensor<4x8xf32>, %y: tensor<5x8xf32>) {
  // expected-error @below {{expects inputs alike in dimension 0, but it is 4 in input 0 and 5 in input 1}}
  %r = mir.concat %x, %y axis 1 : tensor<4x8xf32>, tensor<5x8xf32>
  return
}

// -----

func.func @concat_c4_sum(%x: tensor<9223372036854775807x0xf32>) {
  // expected-error @below {{expects sizes along 'axis' with a sum below 2^63, but input 1 exceeds it with 9223372036854775807}}
  %r = mir.concat %x, %x axis 0 : tensor<9223372036854775807x0xf32>, tensor<9223372036854775807x0xf32>
  return
}

// -----

/// Rows of equal length may still hold different things.
func.func @concat_c5_encodings(%x: tensor<4x20xi8, #mir.packed<q4_1, k = 32>>, %y: tensor<4x20xi8, #mir.packed<f32, k = 5>>) {
  // expected-error @below {{expects inputs of one encoding, but input 0 is}}
  %r = mir.concat %x, %y axis 0 : tensor<4x20xi8, #mir.packed<q4_1, k = 32>>, tensor<4x20xi8, #mir.packed<f32, k = 5>>
  return
}

// -----

func.func @concat_c5_dense(%x: tensor<4x20xi8, #mir.packed<q4_1, k = 32>>, %y: tensor<4x20xi8>) {
  // expected-error @below {{expects inputs of one encoding, but input 0 is}}
  %r = mir.concat %x, %y axis 0 : tensor<4x20xi8, #mir.packed<q4_1, k = 32>>, tensor<4x20xi8>
  return
}

// -----

func.func @concat_c5_axis(%x: tensor<4x20xi8, #mir.packed<q4_1, k = 32>>) {
  // expected-error @below {{expects packed inputs in rows, joined along axis 0, but axis is 1 and input 0 is}}
  %r = mir.concat %x, %x axis 1 : tensor<4x20xi8, #mir.packed<q4_1, k = 32>>, tensor<4x20xi8, #mir.packed<q4_1, k = 32>>
  return
}

// -----

func.func @concat_c5_panels(%x: tensor<1x320xi8, #mir.packed<q4_1, k = 32, n = 16, layout = panels>>) {
  // expected-error @below {{expects packed inputs in rows, joined along axis 0, but axis is 0 and input 0 is}}
  %r = mir.concat %x, %x axis 0 : tensor<1x320xi8, #mir.packed<q4_1, k = 32, n = 16, layout = panels>>, tensor<1x320xi8, #mir.packed<q4_1, k = 32, n = 16, layout = panels>>
  return
}

// -----

func.func @expand_c1_rank(%x: tensor<1x8xf32>) {
  // expected-error @below {{expects the result to have at least the rank of 'x', 2, but its rank is 1}}
  %r = mir.expand %x : tensor<1x8xf32> to tensor<8xf32>
  return
}

// -----

func.func @expand_c2_size(%x: tensor<8xf32>) {
  // expected-error @below {{expects each size of 'x' to be 1 or that of the result, but 'x' is [8] and the result [8, 4]}}
  %r = mir.expand %x : tensor<8xf32> to tensor<8x4xf32>
  return
}

// -----

func.func @gather_c1_axis(%t: tensor<32x8xf32>, %i: tensor<3xi32>) {
  // expected-error @below {{expects 'axis' to be at least 0 and less than the rank, 2, but got 2}}
  %r = mir.gather %t, %i axis 2 : tensor<32x8xf32>, tensor<3xi32>
  return
}

// -----

func.func @gather_c2_axis(%t: tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, %i: tensor<3xi32>) {
  // expected-error @below {{expects axis 0 and layout rows or planes with a packed 'table', but got axis 1 and layout rows}}
  %r = mir.gather %t, %i axis 1 : tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, tensor<3xi32>
  return
}

// -----

func.func @gather_c2_layout(%t: tensor<2x320xi8, #mir.packed<q4_1, k = 32, n = 32, layout = panels>>, %i: tensor<3xi32>) {
  // expected-error @below {{expects axis 0 and layout rows or planes with a packed 'table', but got axis 0 and layout panels}}
  %r = mir.gather %t, %i axis 0 : tensor<2x320xi8, #mir.packed<q4_1, k = 32, n = 32, layout = panels>>, tensor<3xi32>
  return
}

// -----

func.func @gather_c3_above_axis(%t: tensor<4x32x8xf32>, %i: tensor<4x32xi32>) {
  // expected-error @below {{expects 'batch_dims' to be at least 0 and at most 'axis', 1, and the rank of 'indices', 2, but got 2}}
  %r = mir.gather %t, %i axis 1 batch_dims 2 : tensor<4x32x8xf32>, tensor<4x32xi32>
  return
}

// -----

func.func @gather_c3_above_rank(%t: tensor<4x32x8xf32>, %i: tensor<4xi32>) {
  // expected-error @below {{expects 'batch_dims' to be at least 0 and at most 'axis', 2, and the rank of 'indices', 1, but got 2}}
  %r = mir.gather %t, %i axis 2 batch_dims 2 : tensor<4x32x8xf32>, tensor<4xi32>
  return
}

// -----

func.func @gather_c3_negative(%t: tensor<4x32x8xf32>, %i: tensor<4xi32>) {
  // expected-error @below {{expects 'batch_dims' to be at least 0 and at most 'axis', 2, and the rank of 'indices', 1, but got -1}}
  %r = mir.gather %t, %i axis 2 batch_dims -1 : tensor<4x32x8xf32>, tensor<4xi32>
  return
}

// -----

func.func @gather_c3_packed(%t: tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, %i: tensor<32xi32>) {
  // expected-error @below {{expects 'batch_dims' to be at least 0 and at most 'axis', 0, and the rank of 'indices', 1, but got 1}}
  %r = mir.gather %t, %i axis 0 batch_dims 1 : tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, tensor<32xi32>
  return
}

// -----

func.func @gather_c4_batch(%t: tensor<?x4x8xf32>, %i: tensor<2x5x1xi32>) {
  // expected-error @below {{expects 'table' and 'indices' to be alike in dimension 1 of 'batch_dims', but got 4 and 5}}
  %r = mir.gather %t, %i axis 2 batch_dims 2 : tensor<?x4x8xf32>, tensor<2x5x1xi32>
  return
}

// -----

func.func @gather_c5_empty_table(%t: tensor<?x0x8xf32>, %i: tensor<2x1xi32>) {
  // expected-error @below {{expects 'table' to have an entry along axis 1 for indices [2, 1], but it is [?, 0, 8]}}
  %r = mir.gather %t, %i axis 1 : tensor<?x0x8xf32>, tensor<2x1xi32>
  return
}

// -----

func.func @gather_c5_empty_table_without_indices(%t: tensor<0x8xf32>, %i: tensor<2x0xi32>, %j: tensor<?xi32>) {
  %r = mir.gather %t, %i axis 0 : tensor<0x8xf32>, tensor<2x0xi32>
  %s = mir.gather %t, %j axis 0 : tensor<0x8xf32>, tensor<?xi32>
  return
}
