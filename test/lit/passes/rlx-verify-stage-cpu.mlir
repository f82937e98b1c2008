// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(rlx-verify-stage{stage=cpu})'

/// Memory whose size is data, and memory in loops, is allocated and freed.
module {
  func.func private @k.body(%x: memref<4xf32>, %y: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "rows"} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %e = memref.load %x[%c0] : memref<4xf32>
    %i = arith.fptosi %e : f32 to i32
    %n = arith.index_cast %i : i32 to index
    %a = memref.alloc(%n) : memref<?xf32>
    scf.for %k = %c0 to %n step %c1 {
      %b = memref.alloc() : memref<4xf32>
      memref.dealloc %b : memref<4xf32>
    }
    memref.dealloc %a : memref<?xf32>
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

// expected-error @below {{function 'abs_0.mir': a kernel that has code is no longer there as MIR}}
module {
  func.func private @abs_0.mir(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "generic", mir.role = "kernel"} {
    return %x : tensor<4xf32>
  }
}

// -----

// expected-error @below {{'bufferization.to_tensor' at loc(}}
module {
  func.func private @k.body(%x: memref<4xf32>, %y: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "rows"} {
    %t = bufferization.to_tensor %x restrict : memref<4xf32> to tensor<4xf32>
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

// expected-error @below {{'arith.constant' at loc(}}
module {
  func.func private @k.body(%x: memref<4xf32>, %y: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "rows"} {
    %t = arith.constant dense<0.0> : tensor<4xf32>
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

// expected-error @below {{memory whose size follows from the sizes of buffers is scratch memory}}
module {
  func.func private @k.body(%x: memref<4xf32>, %y: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "rows"} {
    %c0 = arith.constant 0 : index
    %n = memref.dim %x, %c0 : memref<4xf32>
    %a = memref.alloc(%n) : memref<?xf32>
    memref.dealloc %a : memref<?xf32>
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

// expected-error @below {{memory that is allocated is freed}}
module {
  func.func private @k.body(%x: memref<4xf32>, %y: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "rows"} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    scf.for %k = %c0 to %c1 step %c1 {
      %b = memref.alloc() : memref<4xf32>
    }
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

/// What holds for the functions of a kernel still holds.
// expected-error @below {{function 'k.body': it comes with a function 'k.scratch'}}
module {
  func.func private @k.body(%x: memref<4xf32>, %y: memref<4xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "rows"} {
    return
  }
}

// -----

// expected-error @below {{function 'prepare': what runs once has left the module}}
module {
  func.func @prepare() attributes {mir.role = "prepare"} {
    return
  }
}
