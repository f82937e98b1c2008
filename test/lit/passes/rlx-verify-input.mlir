// RUN: rlx-opt %s --split-input-file --rlx-verify-input --canonicalize --verify-diagnostics

/// Order doesn't matter where nothing goes round in circles.
%1 = arith.addi %0, %0 : i32
%0 = arith.constant 1 : i32

// -----

%c0 = arith.constant 0 : i32
// expected-error @below {{depends on its own result, which passes can't fold: what is computed has to be defined before it is used}}
%0 = arith.addi %c0, %0 : i32

// -----

func.func @no_way_to_other(%x: i32) -> i32 {
  return %x : i32
^other:
  %c0 = arith.constant 0 : i32
  // expected-error @below {{depends on its own result}}
  %0 = arith.addi %c0, %1 : i32
  %1 = arith.addi %c0, %0 : i32
  cf.br ^other
}

// -----

/// Folding would ask the type.
func.func @no_dimension(%x: memref<?xf32>) -> index {
  %c = arith.constant -2147483648 : index
  // expected-error @below {{asks for dimension -2147483648 of a value of rank 1}}
  %d = memref.dim %x, %c : memref<?xf32>
  return %d : index
}

// -----

/// Locations are read, too, by whoever reports errors.
// expected-error @unknown {{"\FFab" is no text in UTF-8, a string of 'func.func'}}
func.func private @no_text() loc("\FFab")
