// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @custom_c1_one_word(%x: tensor<4xf32>) {
  // expected-error @below {{expects 'op' to be a name such as "my.op", but got "op"}}
  %r = mir.custom "op"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @custom_c1_digit(%x: tensor<4xf32>) {
  // expected-error @below {{expects 'op' to be a name such as "my.op", but got "my.2op"}}
  %r = mir.custom "my.2op"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @custom_c1_character(%x: tensor<4xf32>) {
  // expected-error @below {{expects 'op' to be a name such as "my.op", but got "my.op-2"}}
  %r = mir.custom "my.op-2"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @custom_c1_empty_word(%x: tensor<4xf32>) {
  // expected-error @below {{expects 'op' to be a name such as "my.op", but got "my..op"}}
  %r = mir.custom "my..op"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @custom_c1_dialect(%x: tensor<4xf32>) {
  // expected-error @below {{expects 'op' to be a name such as "my.op", but got "mir.op"}}
  %r = mir.custom "mir.op"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @custom_c2_inputs() {
  // expected-error @below {{expects an input and a result, but got 0 and 1}}
  %r = mir.custom "my.op"() : () -> tensor<4xf32>
  return
}

// -----

func.func @custom_c2_results(%x: tensor<4xf32>) {
  // expected-error @below {{expects an input and a result, but got 1 and 0}}
  mir.custom "my.op"(%x) : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @custom_c3_name(%x: tensor<4xf32>) {
  // expected-error @below {{expects the name of a parameter to be a word, but got "a.b"}}
  %r = mir.custom "my.op"(%x) with {a.b = 1} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @custom_c3_width(%x: tensor<4xf32>) {
  // expected-error @below {{expects parameter 'n' to be a boolean, an i64, an f64, a string or an array of these, but got 1 : i32}}
  %r = mir.custom "my.op"(%x) with {n = 1 : i32} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @custom_c3_float(%x: tensor<4xf32>) {
  // expected-error @below {{expects parameter 'n' to be a boolean, an i64, an f64, a string or an array of these, but got 1.000000e+00 : f32}}
  %r = mir.custom "my.op"(%x) with {n = 1.0 : f32} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @custom_c3_kind(%x: tensor<4xf32>) {
  // expected-error @below {{expects parameter 'n' to be a boolean, an i64, an f64, a string or an array of these, but got tensor<4xf32>}}
  %r = mir.custom "my.op"(%x) with {n = tensor<4xf32>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @custom_c3_nested(%x: tensor<4xf32>) {
  // expected-error @below {{expects parameter 'n' to be a boolean, an i64, an f64, a string or an array of these, but got [1, [2]]}}
  %r = mir.custom "my.op"(%x) with {n = [1, [2]]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
