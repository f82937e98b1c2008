// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(rlx-verify-stage{stage=lir})'

/// Buffers 0 and 2 share memory: the one isn't read any more when the other is written.
module {
  func.func @main(%arena: memref<?xi8>, %x: memref<?x16xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["seq", ""]}, %c: memref<4xf32> {mir.name = "c", mir.kind = "input"},
                  %y: memref<?x16xf32> {mir.name = "y", mir.kind = "output", mir.dims = ["seq", ""]}, %d: memref<4xf32> {mir.name = "d", mir.kind = "output", mir.tied = "c"})
      attributes {mir.arena = 1024 : i64, mir.symbols = {seq = 8 : i64}} {
    %c0 = arith.constant 0 : index
    %c512 = arith.constant 512 : index
    %seq = memref.dim %x, %c0 : memref<?x16xf32>
    %0 = memref.view %arena[%c0][%seq] : memref<?xi8> to memref<?x16xf32>
    %1 = memref.view %arena[%c512][%seq] : memref<?xi8> to memref<?x16xf32>
    %2 = memref.view %arena[%c0][%seq] : memref<?xi8> to memref<?x16xf32>
    call @k(%x, %0) : (memref<?x16xf32>, memref<?x16xf32>) -> ()
    call @k(%0, %1) : (memref<?x16xf32>, memref<?x16xf32>) -> ()
    call @k(%1, %2) : (memref<?x16xf32>, memref<?x16xf32>) -> ()
    call @k(%2, %y) : (memref<?x16xf32>, memref<?x16xf32>) -> ()
    return
  }
  func.func private @k(memref<?x16xf32>, memref<?x16xf32>) attributes {mir.kernel = "rows"}
}

// -----

// expected-error @below {{function 'main': a planned function has attributes mir.arena, mir.symbols}}
module {
  func.func @main(%arena: memref<?xi8>) {
    return
  }
}

// -----

// expected-error @below {{'memref.alloc' at loc(}}
module {
  func.func @main(%arena: memref<?xi8>) attributes {mir.arena = 0 : i64, mir.symbols = {}} {
    %0 = memref.alloc() : memref<4xf32>
    return
  }
}

// -----

// expected-error @below {{function 'main': argument 1 is of tensor<4xf32>: all are buffers}}
module {
  func.func @main(%arena: memref<?xi8>, %x: tensor<4xf32> {mir.name = "x", mir.kind = "input"}) attributes {mir.arena = 0 : i64, mir.symbols = {}} {
    return
  }
}

// -----

// expected-error @below {{function 'main': the first argument is the arena, a memref<?xi8>}}
module {
  func.func @main(%x: memref<4xf32> {mir.name = "x", mir.kind = "input"}) attributes {mir.arena = 0 : i64, mir.symbols = {}} {
    return
  }
}

// -----

// expected-error @below {{function 'main': the maximum of symbol 'seq' is positive, but got 0}}
module {
  func.func @main(%arena: memref<?xi8>, %x: memref<?xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["seq"]}) attributes {mir.arena = 0 : i64, mir.symbols = {seq = 0 : i64}} {
    return
  }
}

// -----

// expected-error @below {{function 'main': argument 1 has a dimension 'rows' without a declared maximum}}
module {
  func.func @main(%arena: memref<?xi8>, %x: memref<?xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["2*rows*seq + 4"]}) attributes {mir.arena = 0 : i64, mir.symbols = {seq = 8 : i64}} {
    return
  }
}

// -----

// expected-error @below {{views are views of the arena}}
module {
  func.func @main(%arena: memref<?xi8>, %x: memref<64xi8> {mir.name = "x", mir.kind = "input"}) attributes {mir.arena = 0 : i64, mir.symbols = {}} {
    %c0 = arith.constant 0 : index
    %0 = memref.view %x[%c0][] : memref<64xi8> to memref<4xf32>
    return
  }
}

// -----

// expected-error @below {{offsets are constants}}
module {
  func.func @main(%arena: memref<?xi8>, %x: memref<?xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["seq"]}) attributes {mir.arena = 64 : i64, mir.symbols = {seq = 8 : i64}} {
    %c0 = arith.constant 0 : index
    %seq = memref.dim %x, %c0 : memref<?xf32>
    %0 = memref.view %arena[%seq][] : memref<?xi8> to memref<4xf32>
    return
  }
}

// -----

// expected-error @below {{every kernel that is called is declared, with its 'mir.kernel'}}
module {
  func.func @main(%arena: memref<?xi8>, %x: memref<4xf32> {mir.name = "x", mir.kind = "input"}, %y: memref<4xf32> {mir.name = "y", mir.kind = "output"}) attributes {mir.arena = 0 : i64, mir.symbols = {}} {
    call @k(%x, %y) : (memref<4xf32>, memref<4xf32>) -> ()
    return
  }
  func.func private @k(%x: memref<4xf32>, %y: memref<4xf32>) {
    return
  }
}

// -----

// expected-error-re @below {{function 'k': a kernel has a 'mir.kernel' of gemm, {{.*}}, own, but got None}}
module {
  func.func @main(%arena: memref<?xi8>, %x: memref<4xf32> {mir.name = "x", mir.kind = "input"}, %y: memref<4xf32> {mir.name = "y", mir.kind = "output"}) attributes {mir.arena = 0 : i64, mir.symbols = {}} {
    call @k(%x, %y) : (memref<4xf32>, memref<4xf32>) -> ()
    return
  }
  func.func private @k(memref<4xf32>, memref<4xf32>)
}

// -----

// expected-error @below {{function 'main': no call writes output 'y'}}
module {
  func.func @main(%arena: memref<?xi8>, %y: memref<4xf32> {mir.name = "y", mir.kind = "output"}) attributes {mir.arena = 0 : i64, mir.symbols = {}} {
    return
  }
}

// -----

// expected-error @below {{function 'main': output 'y' is tied to 'cache', which is no input or parameter}}
module {
  func.func @main(%arena: memref<?xi8>, %y: memref<4xf32> {mir.name = "y", mir.kind = "output", mir.tied = "cache"}) attributes {mir.arena = 0 : i64, mir.symbols = {}} {
    return
  }
}

// -----

// expected-error @below {{function 'main': buffer 0 starts at 16, which is no multiple of 64}}
module {
  func.func @main(%arena: memref<?xi8>) attributes {mir.arena = 64 : i64, mir.symbols = {}} {
    %c16 = arith.constant 16 : index
    %0 = memref.view %arena[%c16][] : memref<?xi8> to memref<4xf32>
    return
  }
}

// -----

// expected-error @below {{function 'main': buffer 0 is [64, 192) where sizes are largest, outside of the arena of 128 bytes}}
module {
  func.func @main(%arena: memref<?xi8>, %x: memref<?xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["seq"]}) attributes {mir.arena = 128 : i64, mir.symbols = {seq = 32 : i64}} {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %seq = memref.dim %x, %c0 : memref<?xf32>
    %0 = memref.view %arena[%c64][%seq] : memref<?xi8> to memref<?xf32>
    return
  }
}

// -----

// expected-error @below {{function 'main': buffers 0 at [0, 128) and 1 at [64, 192) overlap, and both are alive at call 1}}
module {
  func.func @main(%arena: memref<?xi8>, %x: memref<32xf32> {mir.name = "x", mir.kind = "input"}, %y: memref<32xf32> {mir.name = "y", mir.kind = "output"}) attributes {mir.arena = 192 : i64, mir.symbols = {}} {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %0 = memref.view %arena[%c0][] : memref<?xi8> to memref<32xf32>
    %1 = memref.view %arena[%c64][] : memref<?xi8> to memref<32xf32>
    call @k(%x, %0) : (memref<32xf32>, memref<32xf32>) -> ()
    call @k(%0, %1) : (memref<32xf32>, memref<32xf32>) -> ()
    call @k(%1, %y) : (memref<32xf32>, memref<32xf32>) -> ()
    return
  }
  func.func private @k(memref<32xf32>, memref<32xf32>) attributes {mir.kernel = "rows"}
}
