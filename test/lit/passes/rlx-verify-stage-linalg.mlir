// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(rlx-verify-stage{stage=linalg})'

/// A kernel from a template, and a generic one.
module {
  func.func private @abs_0.mir(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "generic", mir.role = "kernel", mir.template = "generic: a reason"} {
    %0 = linalg.abs ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func private @k.body(%x: memref<4xf32>, %y: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "rows"} {
    return
  }
  func.func private @k.units(%x: memref<4xf32>, %y: memref<4xf32>) -> index {
    %c1 = arith.constant 1 : index
    return %c1 : index
  }
  func.func private @k.scratch(%x: memref<4xf32>, %y: memref<4xf32>) -> index {
    %c0 = arith.constant 0 : index
    return %c0 : index
  }
}

// -----

// expected-error @below {{function 'abs_0.mir': 'mir.abs' at loc(}}
module {
  func.func private @abs_0.mir(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "generic", mir.role = "kernel", mir.template = "generic: a reason"} {
    %0 = mir.abs %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

/// What runs once is MIR still.
module {
  func.func @prepare(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.role = "prepare"} {
    %0 = mir.abs %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

// expected-error @below {{function 'prepare': 'math.absf' at}}
module {
  func.func @prepare(%x: f32) -> f32 attributes {mir.role = "prepare"} {
    %0 = math.absf %x : f32
    return %0 : f32
  }
}

// -----

// expected-error @below {{function 'abs_0.mir': a generic kernel says in 'mir.template' why it is generic}}
module {
  func.func private @abs_0.mir(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "generic", mir.role = "kernel"} {
    return %x : tensor<4xf32>
  }
}

// -----

// expected-error @below {{function 'k.body': a body names its template in 'mir.template'}}
module {
  func.func private @k.body(%x: memref<4xf32>, %y: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) {
    return
  }
  func.func private @k.units(%x: memref<4xf32>, %y: memref<4xf32>) -> index {
    %c1 = arith.constant 1 : index
    return %c1 : index
  }
  func.func private @k.scratch(%x: memref<4xf32>, %y: memref<4xf32>) -> index {
    %c0 = arith.constant 0 : index
    return %c0 : index
  }
}

// -----

// expected-error @below {{function 'k.body': a body is a function of buffers, two indices and scratch memory, without results}}
module {
  func.func private @k.body(%x: memref<4xf32>, %begin: index, %end: index) attributes {mir.template = "rows"} {
    return
  }
}

// -----

// expected-error @below {{function 'k.body': operands and results are buffers of identity layout, but got memref<4xf32, strided<[2]>>}}
module {
  func.func private @k.body(%x: memref<4xf32, strided<[2]>>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "rows"} {
    return
  }
}

// -----

// expected-error @below {{function 'k.body': it comes with a function 'k.units'}}
module {
  func.func private @k.body(%x: memref<4xf32>, %y: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "rows"} {
    return
  }
  func.func private @k.scratch(%x: memref<4xf32>, %y: memref<4xf32>) -> index {
    %c0 = arith.constant 0 : index
    return %c0 : index
  }
}

// -----

// expected-error @below {{function 'k.units': it has the buffers of 'k.body', and one result, an index}}
module {
  func.func private @k.body(%x: memref<4xf32>, %y: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "rows"} {
    return
  }
  func.func private @k.units(%y: memref<4xf32>) -> index {
    %c1 = arith.constant 1 : index
    return %c1 : index
  }
  func.func private @k.scratch(%x: memref<4xf32>, %y: memref<4xf32>) -> index {
    %c0 = arith.constant 0 : index
    return %c0 : index
  }
}

// -----

// expected-error @below {{measuring uses sizes of buffers and arithmetic only}}
module {
  func.func private @k.body(%x: memref<4xf32>, %y: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "rows"} {
    return
  }
  func.func private @k.units(%x: memref<4xf32>, %y: memref<4xf32>) -> index {
    %c0 = arith.constant 0 : index
    %e = memref.load %x[%c0] : memref<4xf32>
    %c1 = arith.constant 1 : index
    return %c1 : index
  }
  func.func private @k.scratch(%x: memref<4xf32>, %y: memref<4xf32>) -> index {
    %c0 = arith.constant 0 : index
    return %c0 : index
  }
}
