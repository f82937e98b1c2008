// RUN: rlx-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{expected 'k', 'n' or 'layout', but got 'rows'}}
func.func @packed_word(%w: tensor<5x20xi8, #mir.packed<q4_1, k = 32, rows = 5>>) {
  return
}

// -----

// expected-error @below {{expects 'k' to be a positive multiple of the block length of q4_1, 32, but got 48}}
func.func @packed_c1_block(%w: tensor<5x20xi8, #mir.packed<q4_1, k = 48>>) {
  return
}

// -----

// expected-error @below {{expects 'k' to be a positive multiple of the block length of f32, 1, but got 0}}
func.func @packed_c1_missing(%w: tensor<5x20xi8, #mir.packed<f32>>) {
  return
}

// -----

// expected-error @below {{expects a packed weight with k = 32 of q4_1 to be a tensor of [rows, 20] x i8}}
func.func @packed_c2_bytes(%w: tensor<5x32xi8, #mir.packed<q4_1, k = 32>>) {
  return
}

// -----

// expected-error @below {{expects a packed weight with k = 32 of q4_1 to be a tensor of [rows, 20] x i8}}
func.func @packed_c2_element(%w: tensor<5x20xf32, #mir.packed<q4_1, k = 32>>) {
  return
}

// -----

// expected-error @below {{expects a packed weight with k = 32 of q4_1 to be a tensor of [rows, 20] x i8}}
func.func @packed_c2_rank(%w: tensor<1x5x20xi8, #mir.packed<q4_1, k = 32>>) {
  return
}

// -----

// expected-error @below {{expects a positive 'n' exactly with 'layout = panels', but 'n' is 0 and 'layout' is panels}}
func.func @packed_c3_n_missing(%w: tensor<1x320xi8, #mir.packed<q4_1, k = 32, layout = panels>>) {
  return
}

// -----

// expected-error @below {{expects a positive 'n' exactly with 'layout = panels', but 'n' is 5 and 'layout' is rows}}
func.func @packed_c3_n_of_rows(%w: tensor<5x20xi8, #mir.packed<q4_1, k = 32, n = 5>>) {
  return
}

// -----

// expected-error @below {{expects 2 panels for n = 17, but got 1}}
func.func @packed_c3_panels(%w: tensor<1x320xi8, #mir.packed<q4_1, k = 32, n = 17, layout = panels>>) {
  return
}

// -----

// expected-error @below {{expects 'layout = rows' for q8_k, which has no panels}}
func.func @packed_c4_layout(%w: tensor<1x4672xi8, #mir.packed<q8_k, k = 256, n = 16, layout = panels>>) {
  return
}

// -----

// expected-error @below {{expects a packed weight with k = 256 of q4_k to be a tensor of [rows, 160] x i8}}
func.func @packed_c2_planes(%w: tensor<5x144xi8, #mir.packed<q4_k, k = 256, layout = planes>>) {
  return
}

// -----

// expected-error @below {{expects a positive 'n' exactly with 'layout = panels', but 'n' is 5 and 'layout' is planes}}
func.func @packed_c3_n_of_planes(%w: tensor<5x160xi8, #mir.packed<q4_k, k = 256, n = 5, layout = planes>>) {
  return
}

// -----

// expected-error @below {{expects 'k' and 'n' below 2^31, but got 4294967296 and 0}}
func.func @packed_c5_size(%w: tensor<5x20xi8, #mir.packed<q4_1, k = 4294967296>>) {
  return
}

// -----

// expected-error @below {{unknown weight format 'q9_9', known are f32, f16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, q8_k, iq2_xxs, iq2_xs, iq3_xxs, iq1_s, iq4_nl, iq3_s, iq2_s, iq4_xs, iq1_m, bf16, tq1_0, tq2_0, mxfp4, nvfp4, q1_0}}
func.func @packed_c6_scheme(%w: tensor<5x20xi8, #mir.packed<q9_9, k = 32>>) {
  return
}

// -----

// expected-error @below {{argument 0: expects 'mir.name' to be a non-empty string, but got ""}}
func.func private @function_name(tensor<4xf32> {mir.name = ""})

// -----

// expected-error @below {{argument 1: expects 'mir.kind' to be "input", "param" or "output", but got "weight"}}
func.func private @function_kind(tensor<4xf32>, tensor<4xf32> {mir.kind = "weight"})

// -----

// expected-error @below {{result 0: has no attribute 'mir.kind'}}
func.func private @function_kind_of_result() -> (tensor<4xf32> {mir.kind = "input"})

// -----

// expected-error @below {{argument 0: expects 'mir.dims' to hold one string for each dimension of 'tensor<?x4xf32>', but got ["seq"]}}
func.func private @function_dims_number(tensor<?x4xf32> {mir.dims = ["seq"]})

// -----

// expected-error @below {{argument 0: expects 'mir.dims' to name exactly the dynamic dimensions of 'tensor<?x4xf32>', but dimension 0 has ""}}
func.func private @function_dims_dynamic(tensor<?x4xf32> {mir.dims = ["", ""]})

// -----

// expected-error @below {{argument 0: expects 'mir.dims' to name exactly the dynamic dimensions of 'tensor<?x4xf32>', but dimension 1 has "width"}}
func.func private @function_dims_static(tensor<?x4xf32> {mir.dims = ["seq", "width"]})

// -----

// expected-error @below {{argument 0: expects 'mir.tied' to be the name of an input, but got 0 : i64}}
func.func private @function_tied(tensor<4xf32> {mir.tied = 0})

// -----

// expected-error @below {{result 0: has no attribute 'mir.tied'}}
func.func private @function_tied_result() -> (tensor<4xf32> {mir.tied = "x"})

// -----

// expected-error @below {{argument 0: has no attribute 'mir.color'}}
func.func private @function_unknown(tensor<4xf32> {mir.color = 1})
