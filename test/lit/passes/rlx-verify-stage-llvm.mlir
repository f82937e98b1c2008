// RUN: rlx-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(rlx-verify-stage{stage=llvm})'

/// A kernel is three functions of C; it may call others, which are declared.
module {
  llvm.func @expf(f32) -> f32
  llvm.func @k(%buffers: !llvm.ptr, %dims: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr) {
    %0 = llvm.mlir.constant(1.0 : f32) : f32
    %1 = llvm.call @expf(%0) : (f32) -> f32
    llvm.return
  }
  llvm.func @k_units(%dims: !llvm.ptr) -> i64 {
    %0 = llvm.mlir.constant(1 : i64) : i64
    llvm.return %0 : i64
  }
  llvm.func @k_scratch(%dims: !llvm.ptr) -> i64 {
    %0 = llvm.mlir.constant(0 : i64) : i64
    llvm.return %0 : i64
  }
}

// -----

// expected-error @below {{'func.func' at loc(}}
module {
  func.func @k() {
    return
  }
}

// -----

// expected-error @below {{function 'k_units': 'arith.constant' at loc(}}
module {
  llvm.func @k_units(%dims: !llvm.ptr) -> i64 {
    %0 = arith.constant 1 : i64
    llvm.return %0 : i64
  }
}

// -----

// expected-error @below {{function 'k': a kernel comes with a function 'k_scratch'}}
module {
  llvm.func @k() {
    llvm.return
  }
  llvm.func @k_units(%dims: !llvm.ptr) -> i64 {
    %0 = llvm.mlir.constant(1 : i64) : i64
    llvm.return %0 : i64
  }
}
