// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @if_condition(%p: tensor<1xi1>, %x: tensor<4xf32>) {
  // expected-error @below {{operand #0 must be 0-d tensor of i1, but got 'tensor<1xi1>'}}
  %y = "mir.if"(%p, %x) ({
  ^bb0(%a: tensor<4xf32>):
    mir.yield %a : tensor<4xf32>
  }, {
  ^bb0(%a: tensor<4xf32>):
    mir.yield %a : tensor<4xf32>
  }) : (tensor<1xi1>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @if_c1_arguments(%p: tensor<i1>, %x: tensor<4xf32>) {
  // expected-error @below {{expects the arguments of region 'else_region' to be ('tensor<4xf32>'), but got ('tensor<4xi32>')}}
  %y = mir.if %p(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    mir.yield %a : tensor<4xf32>
  } else {
  ^bb0(%a: tensor<4xi32>):
    %b = mir.cast %a : tensor<4xi32> to tensor<4xf32>
    mir.yield %b : tensor<4xf32>
  }
  return
}

// -----

func.func @if_c2_yielded(%p: tensor<i1>, %x: tensor<4xf32>) {
  // expected-error @below {{expects region 'else_region' to yield ('tensor<4xf32>'), but got ('tensor<4xf32>', 'tensor<4xf32>')}}
  %y = mir.if %p(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    mir.yield %a : tensor<4xf32>
  } else {
  ^bb0(%a: tensor<4xf32>):
    mir.yield %a, %a : tensor<4xf32>, tensor<4xf32>
  }
  return
}

// -----

func.func @if_c3_nothing(%p: tensor<i1>) {
  // expected-error @below {{expects a result}}
  "mir.if"(%p) ({
    "mir.yield"() : () -> ()
  }, {
    "mir.yield"() : () -> ()
  }) : (tensor<i1>) -> ()
  return
}

// -----

func.func @if_outside(%p: tensor<i1>, %x: tensor<4xf32>) {
  // expected-note @below {{required by region isolation constraints}}
  %y = mir.if %p() : () -> tensor<4xf32> {
    // expected-error @below {{using value defined outside the region}}
    mir.yield %x : tensor<4xf32>
  } else {
    mir.yield %x : tensor<4xf32>
  }
  return
}

// -----

func.func @while_c1_arguments(%x: tensor<4xf32>, %w: tensor<f32>) {
  // expected-error @below {{expects the arguments of region 'body' to be ('tensor<4xf32>', 'tensor<f32>'), but got ('tensor<4xf32>')}}
  %y = mir.while (%x) with (%w) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32> cond {
  ^bb0(%a: tensor<4xf32>, %b: tensor<f32>):
    %go = mir.constant dense<false> : tensor<i1>
    mir.condition %go, %a : tensor<4xf32>
  } do {
  ^bb0(%a: tensor<4xf32>):
    mir.yield %a : tensor<4xf32>
  }
  return
}

// -----

func.func @while_c2_forwarded(%x: tensor<4xf32>) {
  // expected-error @below {{expects region 'cond' to forward its carried arguments, in their order}}
  %y:2 = mir.while (%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) cond {
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %go = mir.constant dense<false> : tensor<i1>
    mir.condition %go, %b, %a : tensor<4xf32>, tensor<4xf32>
  } do {
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    mir.yield %a, %b : tensor<4xf32>, tensor<4xf32>
  }
  return
}

// -----

func.func @while_c2_terminator(%x: tensor<4xf32>) {
  // expected-error @below {{expects region 'cond' to end with 'mir.condition', but it ends with 'mir.yield'}}
  %y = mir.while (%x) : (tensor<4xf32>) -> tensor<4xf32> cond {
  ^bb0(%a: tensor<4xf32>):
    mir.yield %a : tensor<4xf32>
  } do {
  ^bb0(%a: tensor<4xf32>):
    mir.yield %a : tensor<4xf32>
  }
  return
}

// -----

func.func @while_c3_yielded(%x: tensor<4xf32>) {
  // expected-error @below {{expects region 'body' to yield ('tensor<4xf32>'), but got ('tensor<4xf16>')}}
  %y = mir.while (%x) : (tensor<4xf32>) -> tensor<4xf32> cond {
  ^bb0(%a: tensor<4xf32>):
    %go = mir.constant dense<false> : tensor<i1>
    mir.condition %go, %a : tensor<4xf32>
  } do {
  ^bb0(%a: tensor<4xf32>):
    %b = mir.cast %a : tensor<4xf32> to tensor<4xf16>
    mir.yield %b : tensor<4xf16>
  }
  return
}

// -----

func.func @while_c3_results(%x: tensor<4xf32>) {
  // expected-error @below {{expects results ('tensor<4xf32>'), but got ('tensor<?xf32>')}}
  %y = mir.while (%x) : (tensor<4xf32>) -> tensor<?xf32> cond {
  ^bb0(%a: tensor<4xf32>):
    %go = mir.constant dense<false> : tensor<i1>
    mir.condition %go, %a : tensor<4xf32>
  } do {
  ^bb0(%a: tensor<4xf32>):
    mir.yield %a : tensor<4xf32>
  }
  return
}

// -----

func.func @while_c4_nothing(%x: tensor<4xf32>) {
  // expected-error @below {{expects a carried value}}
  "mir.while"(%x) <{operandSegmentSizes = array<i32: 0, 1>}> ({
  ^bb0(%a: tensor<4xf32>):
    %go = mir.constant dense<false> : tensor<i1>
    "mir.condition"(%go) : (tensor<i1>) -> ()
  }, {
  ^bb0(%a: tensor<4xf32>):
    "mir.yield"() : () -> ()
  }) : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @while_c5_limit(%x: tensor<4xf32>) {
  // expected-error @below {{expects 'limit' not to be negative, but got -1}}
  %y = mir.while (%x) limit -1 : (tensor<4xf32>) -> tensor<4xf32> cond {
  ^bb0(%a: tensor<4xf32>):
    %go = mir.constant dense<false> : tensor<i1>
    mir.condition %go, %a : tensor<4xf32>
  } do {
  ^bb0(%a: tensor<4xf32>):
    mir.yield %a : tensor<4xf32>
  }
  return
}

// -----

func.func @scan_c1_arguments(%x: tensor<8x4xf32>, %c: tensor<4xf32>) {
  // expected-error @below {{expects the arguments of region 'body' to be ('tensor<4xf32>', 'tensor<4xf32>'), but got ('tensor<4xf32>', 'tensor<8x4xf32>')}}
  %y = mir.scan (%c) over (%x) : (tensor<4xf32>, tensor<8x4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>, %own: tensor<8x4xf32>):
    mir.yield %a : tensor<4xf32>
  }
  return
}

// -----

func.func @scan_c2_yielded(%x: tensor<8x4xf32>, %c: tensor<f32>) {
  // expected-error @below {{expects region 'body' to yield ('tensor<f32>') and what is stacked, but got ('tensor<4xf32>')}}
  %y = mir.scan (%c) over (%x) : (tensor<f32>, tensor<8x4xf32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>, %own: tensor<4xf32>):
    mir.yield %own : tensor<4xf32>
  }
  return
}

// -----

func.func @scan_c3_stacked(%x: tensor<8x4xf32>, %c: tensor<4xf32>) {
  // expected-error @below {{expects results ('tensor<4xf32>', 'tensor<8x4xf32>'), but got ('tensor<4xf32>', 'tensor<4x8xf32>')}}
  %y:2 = mir.scan (%c) over (%x) : (tensor<4xf32>, tensor<8x4xf32>) -> (tensor<4xf32>, tensor<4x8xf32>) {
  ^bb0(%a: tensor<4xf32>, %own: tensor<4xf32>):
    mir.yield %a, %own : tensor<4xf32>, tensor<4xf32>
  }
  return
}

// -----

func.func @scan_c4_element(%x: tensor<f32>, %c: tensor<f32>) {
  // expected-error @below {{expects each of 'xs' to have a first dimension, but got 'tensor<f32>'}}
  %y = mir.scan (%c) over (%x) : (tensor<f32>, tensor<f32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>, %own: tensor<f32>):
    mir.yield %a : tensor<f32>
  }
  return
}

// -----

func.func @scan_c4_sizes(%x: tensor<8xf32>, %z: tensor<9xf32>) {
  // expected-error @below {{expects each of 'xs' to have 8 entries, but got 'tensor<9xf32>'}}
  %y = mir.scan () over (%x, %z) : (tensor<8xf32>, tensor<9xf32>) -> tensor<8xf32> {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    mir.yield %a : tensor<f32>
  }
  return
}

// -----

func.func @scan_c4_length(%x: tensor<8xf32>) {
  // expected-error @below {{expects each of 'xs' to have 7 entries, but got 'tensor<8xf32>'}}
  %y = mir.scan () over (%x) length 7 : (tensor<8xf32>) -> tensor<7xf32> {
  ^bb0(%a: tensor<f32>):
    mir.yield %a : tensor<f32>
  }
  return
}

// -----

func.func @scan_c5_nothing(%c: tensor<f32>) {
  // expected-error @below {{expects 'length' or one of 'xs'}}
  %y = mir.scan (%c) : (tensor<f32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>):
    mir.yield %a : tensor<f32>
  }
  return
}

// -----

func.func @scan_c5_negative(%c: tensor<f32>) {
  // expected-error @below {{expects 'length' not to be negative, but got -2}}
  %y = mir.scan (%c) length -2 : (tensor<f32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>):
    mir.yield %a : tensor<f32>
  }
  return
}

// -----

func.func @scan_c6_nothing(%x: tensor<8xf32>) {
  // expected-error @below {{expects a result}}
  "mir.scan"(%x) <{operandSegmentSizes = array<i32: 0, 1, 0>}> ({
  ^bb0(%a: tensor<f32>):
    "mir.yield"() : () -> ()
  }) : (tensor<8xf32>) -> ()
  return
}

// -----

func.func @yield_elsewhere(%x: tensor<f32>) {
  // expected-error @below {{expects parent op to be one of 'mir.custom_fn, mir.if, mir.scan, mir.while'}}
  "mir.yield"(%x) : (tensor<f32>) -> ()
}

// -----

func.func @condition_elsewhere(%p: tensor<i1>, %x: tensor<f32>) {
  // expected-error @below {{expects parent op 'mir.while'}}
  "mir.condition"(%p, %x) : (tensor<i1>, tensor<f32>) -> ()
}

// -----

func.func @entry_view_c1_element(%x: memref<f32>, %t: index) {
  // expected-error @below {{expects a sequence with a first dimension, but got 'memref<f32>'}}
  %y = mir.entry_view %x[%t] : memref<f32> to memref<f32>
  return
}

// -----

func.func @entry_view_c2_sizes(%x: memref<8x4xf32>, %t: index) {
  // expected-error @below {{expects an entry with the elements and the sizes of 'memref<8x4xf32>' without its first one, but got 'memref<?xf32>'}}
  %y = mir.entry_view %x[%t] : memref<8x4xf32> to memref<?xf32>
  return
}

// -----

func.func @entry_view_c2_elements(%x: memref<8x4xf32>, %t: index) {
  // expected-error @below {{expects an entry with the elements and the sizes of 'memref<8x4xf32>' without its first one, but got 'memref<4xi32>'}}
  %y = mir.entry_view %x[%t] : memref<8x4xf32> to memref<4xi32>
  return
}

// -----

func.func @entry_view_c3_strides(%x: memref<8x4xf32, strided<[8, 1]>>, %t: index) {
  // expected-error @below {{expects elements that lie one after the other, but got 'memref<8x4xf32, strided<[8, 1]>>'}}
  %y = mir.entry_view %x[%t] : memref<8x4xf32, strided<[8, 1]>> to memref<4xf32>
  return
}

// -----

func.func @scan_c7_checkpoints(%x: tensor<f32>) {
  // expected-error @below {{expects 'checkpoints' to be from 1 to the number of steps, 6, but got 7}}
  %y = mir.scan (%x) length 6 checkpoints 7 : (tensor<f32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>):
    mir.yield %a : tensor<f32>
  }
  return
}

// -----

func.func @custom_fn_c1_arguments(%x: tensor<f32>, %z: tensor<2xf32>) {
  // expected-error @below {{expects the arguments of region 'function' to be ('tensor<f32>'), but got ('tensor<2xf32>')}}
  %y = mir.custom_fn(%x) : (tensor<f32>) -> tensor<2xf32> {
  ^bb0(%a: tensor<2xf32>):
    mir.yield %a : tensor<2xf32>
  }
  return
}

// -----

func.func @custom_fn_c2_results(%x: tensor<f32>, %z: tensor<2xf32>) {
  // expected-error @below {{expects region 'function' to yield ('tensor<2xf32>'), but got ('tensor<f32>')}}
  %y = mir.custom_fn(%x) : (tensor<f32>) -> tensor<2xf32> {
  ^bb0(%a: tensor<f32>):
    mir.yield %a : tensor<f32>
  }
  return
}

// -----

func.func @custom_fn_c3_arguments(%x: tensor<f32>, %z: tensor<2xf32>) {
  // expected-error @below {{expects the arguments of region 'vjp' to be ('tensor<f32>', 'tensor<f32>', 'tensor<f32>'), but got ('tensor<f32>', 'tensor<f32>')}}
  %y = mir.custom_fn(%x) : (tensor<f32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>):
    mir.yield %a : tensor<f32>
  } vjp {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    mir.yield %b : tensor<f32>
  }
  return
}

// -----

func.func @custom_fn_c3_yielded(%x: tensor<f32>, %z: tensor<2xf32>) {
  // expected-error @below {{expects region 'vjp' to yield ('tensor<f32>'), but got ('tensor<f32>', 'tensor<f32>')}}
  %y = mir.custom_fn(%x) : (tensor<f32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>):
    mir.yield %a : tensor<f32>
  } vjp {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>):
    mir.yield %b, %c : tensor<f32>, tensor<f32>
  }
  return
}

// -----

func.func @custom_fn_c4_arguments(%x: tensor<f32>, %z: tensor<2xf32>) {
  // expected-error @below {{expects the arguments of region 'jvp' to be ('tensor<f32>', 'tensor<f32>'), but got ('tensor<f32>')}}
  %y = mir.custom_fn(%x) : (tensor<f32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>):
    mir.yield %a : tensor<f32>
  } jvp {
  ^bb0(%a: tensor<f32>):
    mir.yield %a : tensor<f32>
  }
  return
}

// -----

func.func @custom_fn_c4_yielded(%x: tensor<f32>, %z: tensor<2xf32>) {
  // expected-error @below {{expects region 'jvp' to yield ('tensor<f32>'), but got ()}}
  %y = mir.custom_fn(%x) : (tensor<f32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>):
    mir.yield %a : tensor<f32>
  } jvp {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    "mir.yield"() : () -> ()
  }
  return
}

// -----

func.func @custom_fn_c5_results(%x: tensor<f32>) {
  // expected-error @below {{expects a result}}
  mir.custom_fn(%x) : (tensor<f32>) -> () {
  ^bb0(%a: tensor<f32>):
    "mir.yield"() : () -> ()
  }
  return
}
