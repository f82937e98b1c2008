// RUN: rlx-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func @cast_same_type
//  CHECK-SAME:   (%[[X:.+]]: tensor<?xf32>)
//  CHECK-NEXT:   return %[[X]]
func.func @cast_same_type(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = mir.cast %x : tensor<?xf32> to tensor<?xf32>
  return %y : tensor<?xf32>
}

/// The narrow type between rounds: that is what the program asked for.
// CHECK-LABEL: func @no_fold_cast_chain
//       CHECK:   mir.cast {{.*}} to tensor<4xbf16>
//       CHECK:   mir.cast {{.*}} to tensor<4xf32>
func.func @no_fold_cast_chain(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = mir.cast %x : tensor<4xf32> to tensor<4xbf16>
  %z = mir.cast %y : tensor<4xbf16> to tensor<4xf32>
  return %z : tensor<4xf32>
}

// CHECK-LABEL: func @expand_same_type
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x1xf32>)
//  CHECK-NEXT:   return %[[X]]
func.func @expand_same_type(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %y = mir.expand %x : tensor<?x1xf32> to tensor<?x1xf32>
  return %y : tensor<?x1xf32>
}

// CHECK-LABEL: func @reshape_same_type
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x?x8xf32>)
//  CHECK-NEXT:   return %[[X]]
func.func @reshape_same_type(%x: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %y = mir.reshape %x to [-2, -1, 8] : tensor<?x?x8xf32>
  return %y : tensor<?x?x8xf32>
}

// CHECK-LABEL: func @reshape_of_reshape
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>)
//  CHECK-NEXT:   %[[R:.+]] = mir.reshape %[[X]] to [-1, 4] : tensor<?x8xf32>
//  CHECK-NEXT:   return %[[R]]
func.func @reshape_of_reshape(%x: tensor<?x8xf32>) -> tensor<?x4xf32> {
  %y = mir.reshape %x to [-2, 2, 4] : tensor<?x8xf32>
  %z = mir.reshape %y to [-1, 4] : tensor<?x2x4xf32>
  return %z : tensor<?x4xf32>
}

/// -2 names a size of what lies between.
// CHECK-LABEL: func @no_fold_reshape_that_takes_a_size
//       CHECK:   mir.reshape {{.*}} to [4, -1]
//       CHECK:   mir.reshape {{.*}} to [2, 2, -1]
//       CHECK:   mir.reshape {{.*}} to [-2, 1, 2, -1]
func.func @no_fold_reshape_that_takes_a_size(%x: tensor<?x8xf32>) -> tensor<2x1x2x?xf32> {
  %y = mir.reshape %x to [4, -1] : tensor<?x8xf32>
  %w = mir.exp %y : tensor<4x?xf32>
  %v = mir.reshape %w to [2, 2, -1] : tensor<4x?xf32>
  %z = mir.reshape %v to [-2, 1, 2, -1] : tensor<2x2x?xf32>
  return %z : tensor<2x1x2x?xf32>
}

// CHECK-LABEL: func @transpose_identity
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>)
//  CHECK-NEXT:   return %[[X]]
func.func @transpose_identity(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = mir.transpose %x permutation [0, 1] : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

/// Equal types don't make a transpose the identity.
// CHECK-LABEL: func @no_fold_transpose_of_square
//       CHECK:   mir.transpose
func.func @no_fold_transpose_of_square(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %y = mir.transpose %x permutation [1, 0] : tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}

// CHECK-LABEL: func @transpose_of_transpose
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x3x4xf32>)
//  CHECK-NEXT:   %[[R:.+]] = mir.transpose %[[X]] permutation [2, 1, 0] : tensor<2x3x4xf32>
//  CHECK-NEXT:   return %[[R]] : tensor<4x3x2xf32>
func.func @transpose_of_transpose(%x: tensor<2x3x4xf32>) -> tensor<4x3x2xf32> {
  %y = mir.transpose %x permutation [1, 2, 0] : tensor<2x3x4xf32>
  %z = mir.transpose %y permutation [1, 0, 2] : tensor<3x4x2xf32>
  return %z : tensor<4x3x2xf32>
}

// CHECK-LABEL: func @transpose_back
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x3x4xf32>)
//  CHECK-NEXT:   return %[[X]]
func.func @transpose_back(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %y = mir.transpose %x permutation [1, 2, 0] : tensor<2x3x4xf32>
  %z = mir.transpose %y permutation [2, 0, 1] : tensor<3x4x2xf32>
  return %z : tensor<2x3x4xf32>
}

// CHECK-LABEL: func @narrow_all
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>)
//  CHECK-NEXT:   return %[[X]]
func.func @narrow_all(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = mir.narrow %x axis 1 start 0 length 8 : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// CHECK-LABEL: func @concat_one
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>)
//  CHECK-NEXT:   return %[[X]]
func.func @concat_one(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = mir.concat %x axis 0 : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// CHECK-LABEL: func @logic_of_one_value
//  CHECK-SAME:   (%[[X:.+]]: tensor<4xi1>, %[[Y:.+]]: tensor<?xi1>)
//   CHECK-DAG:   %[[NONE:.+]] = mir.constant dense<false> : tensor<4xi1>
//   CHECK-DAG:   %[[XOR:.+]] = mir.xor %[[Y]], %[[Y]]
//       CHECK:   return %[[X]], %[[X]], %[[X]], %[[NONE]], %[[XOR]]
func.func @logic_of_one_value(%x: tensor<4xi1>, %y: tensor<?xi1>)
    -> (tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<?xi1>) {
  %0 = mir.and %x, %x : tensor<4xi1>
  %1 = mir.or %x, %x : tensor<4xi1>
  %2 = mir.not %x : tensor<4xi1>
  %3 = mir.not %2 : tensor<4xi1>
  %4 = mir.xor %x, %x : tensor<4xi1>
  %5 = mir.xor %y, %y : tensor<?xi1>
  return %0, %1, %3, %4, %5 : tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<?xi1>
}

// CHECK-LABEL: func @logic_with_constants
//  CHECK-SAME:   (%[[X:.+]]: tensor<4xi1>)
//   CHECK-DAG:   %[[NONE:.+]] = mir.constant dense<false> : tensor<4xi1>
//   CHECK-DAG:   %[[EVERY:.+]] = mir.constant dense<true> : tensor<4xi1>
//       CHECK:   return %[[X]], %[[NONE]], %[[X]], %[[EVERY]], %[[X]]
func.func @logic_with_constants(%x: tensor<4xi1>)
    -> (tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>) {
  %none = mir.constant dense<false> : tensor<i1>
  %every = mir.constant dense<true> : tensor<4xi1>
  %0 = mir.and %every, %x : tensor<4xi1>
  %1 = mir.and %x, %none : tensor<4xi1>, tensor<i1>
  %2 = mir.or %x, %none : tensor<4xi1>, tensor<i1>
  %3 = mir.or %none, %every : tensor<i1>, tensor<4xi1>
  %4 = mir.xor %none, %x : tensor<i1>, tensor<4xi1>
  return %0, %1, %2, %3, %4 : tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>, tensor<4xi1>
}

/// The result has a shape that the operand lacks.
// CHECK-LABEL: func @no_fold_logic_that_broadcasts
//       CHECK:   mir.and
func.func @no_fold_logic_that_broadcasts(%x: tensor<1xi1>) -> tensor<4xi1> {
  %every = mir.constant dense<true> : tensor<4xi1>
  %0 = mir.and %every, %x : tensor<4xi1>, tensor<1xi1>
  return %0 : tensor<4xi1>
}

/// -1 is all bits of an integer.
// CHECK-LABEL: func @bits_with_constants
//  CHECK-SAME:   (%[[X:.+]]: tensor<4xi8>)
//       CHECK:   %[[AND:.+]] = mir.and %[[X]]
//       CHECK:   return %[[X]], %[[AND]]
func.func @bits_with_constants(%x: tensor<4xi8>) -> (tensor<4xi8>, tensor<4xi8>) {
  %ones = mir.constant dense<-1> : tensor<i8>
  %one = mir.constant dense<1> : tensor<i8>
  %0 = mir.and %x, %ones : tensor<4xi8>, tensor<i8>
  %1 = mir.and %x, %one : tensor<4xi8>, tensor<i8>
  return %0, %1 : tensor<4xi8>, tensor<4xi8>
}

// CHECK-LABEL: func @division
//  CHECK-SAME:   (%[[X:.+]]: tensor<4xi32>)
//   CHECK-DAG:   %[[ZEROS:.+]] = mir.constant dense<0> : tensor<4xi32>
//   CHECK-DAG:   %[[REM:.+]] = mir.floor_rem %[[X]]
//       CHECK:   return %[[X]], %[[X]], %[[ZEROS]], %[[ZEROS]], %[[ZEROS]], %[[REM]]
func.func @division(%x: tensor<4xi32>)
    -> (tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) {
  %zero = mir.constant dense<0> : tensor<i32>
  %one = mir.constant dense<1> : tensor<i32>
  %minus = mir.constant dense<-1> : tensor<i32>
  %two = mir.constant dense<2> : tensor<i32>
  %0 = mir.floor_div %x, %one : tensor<4xi32>, tensor<i32>
  %1 = mir.trunc_div %x, %one : tensor<4xi32>, tensor<i32>
  %2 = mir.floor_rem %x, %one : tensor<4xi32>, tensor<i32>
  %3 = mir.trunc_rem %x, %zero : tensor<4xi32>, tensor<i32>
  %4 = mir.trunc_rem %x, %minus : tensor<4xi32>, tensor<i32>
  %5 = mir.floor_rem %x, %two : tensor<4xi32>, tensor<i32>
  return %0, %1, %2, %3, %4, %5
      : tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>
}

// CHECK-LABEL: func @iota_of_one
//       CHECK:   %[[ZEROS:.+]] = mir.constant dense<0.000000e+00> : tensor<4x1xf32>
//       CHECK:   %[[COUNT:.+]] = mir.iota axis 0
//       CHECK:   return %[[ZEROS]], %[[COUNT]]
func.func @iota_of_one() -> (tensor<4x1xf32>, tensor<4x1xf32>) {
  %0 = mir.iota axis 1 to tensor<4x1xf32>
  %1 = mir.iota axis 0 to tensor<4x1xf32>
  return %0, %1 : tensor<4x1xf32>, tensor<4x1xf32>
}

/// All bits are the largest number where there is no sign, not -1: its remainders stay, those of 1 are 0.
// CHECK-LABEL: func @unsigned_remainders
//  CHECK-SAME:   (%[[X:.+]]: tensor<4xui8>)
//   CHECK-DAG:   %[[MOST:.+]] = mir.constant dense<255> : tensor<ui8>
//   CHECK-DAG:   %[[ZEROS:.+]] = mir.constant dense<0> : tensor<4xui8>
//       CHECK:   %[[FLOOR:.+]] = mir.floor_rem %[[X]], %[[MOST]]
//       CHECK:   %[[TRUNC:.+]] = mir.trunc_rem %[[X]], %[[MOST]]
//       CHECK:   return %[[FLOOR]], %[[TRUNC]], %[[ZEROS]], %[[X]]
func.func @unsigned_remainders(%x: tensor<4xui8>) -> (tensor<4xui8>, tensor<4xui8>, tensor<4xui8>, tensor<4xui8>) {
  %most = mir.constant dense<255> : tensor<ui8>
  %one = mir.constant dense<1> : tensor<ui8>
  %0 = mir.floor_rem %x, %most : tensor<4xui8>, tensor<ui8>
  %1 = mir.trunc_rem %x, %most : tensor<4xui8>, tensor<ui8>
  %2 = mir.floor_rem %x, %one : tensor<4xui8>, tensor<ui8>
  %3 = mir.and %x, %most : tensor<4xui8>, tensor<ui8>
  return %0, %1, %2, %3 : tensor<4xui8>, tensor<4xui8>, tensor<4xui8>, tensor<4xui8>
}

/// Sizes of other values that are known become numbers, and nothing reads these values any more.
// CHECK-LABEL: func @sizes_that_are_known
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[Y:.+]]: tensor<6xi32>, %[[I:.+]]: tensor<i32>)
//       CHECK:   %[[A:.+]] = mir.slice %[[X]] axis 0 start 3 stop -6 : tensor<?x8xf32>
//       CHECK:   %[[B:.+]] = mir.dynamic_slice %[[X]] at %[[I]] axis 0 length 2 : tensor<?x8xf32>, tensor<i32>
//       CHECK:   %[[C:.+]] = mir.reshape %[[X]] to [6, -1, 2] : tensor<?x8xf32>
//       CHECK:   return %[[A]], %[[B]], %[[C]]
func.func @sizes_that_are_known(%x: tensor<?x8xf32>, %y: tensor<6xi32>, %i: tensor<i32>)
    -> (tensor<?x8xf32>, tensor<2x8xf32>, tensor<6x?x2xf32>) {
  %a = mir.slice %x axis 0 start "floordiv(d0, 2)" stop "-d0" like %y dims [0] : tensor<?x8xf32>, tensor<6xi32>
  %b = mir.dynamic_slice %x at %i axis 0 length "mod(d0, 4)" like %y dims [0] : tensor<?x8xf32>, tensor<i32>, tensor<6xi32>
  %c = mir.reshape %x to [-3, -1, -3] sizes ["d0", "d0 - 4"] like %y dims [0] : tensor<?x8xf32>, tensor<6xi32>
  return %a, %b, %c : tensor<?x8xf32>, tensor<2x8xf32>, tensor<6x?x2xf32>
}

/// Equal types of sizes that follow from others needn't be equal shapes.
// CHECK-LABEL: func @no_fold_sizes_that_are_open
//       CHECK:   %[[A:.+]] = mir.slice
//       CHECK:   %[[B:.+]] = mir.reshape
//       CHECK:   %[[C:.+]] = mir.reshape %[[B]]
//       CHECK:   %[[D:.+]] = mir.dynamic_slice
//       CHECK:   return %[[A]], %[[C]], %[[D]]
func.func @no_fold_sizes_that_are_open(%x: tensor<?x?xf32>, %y: tensor<?x?xi32>, %i: tensor<i32>)
    -> (tensor<?x?xf32>, tensor<?xf32>, tensor<?x?xf32>) {
  %a = mir.slice %x axis 0 stop "d0" like %y dims [0] : tensor<?x?xf32>, tensor<?x?xi32>
  %b = mir.reshape %x to [-3, -3] sizes ["d0", "d1"] like %y, %y dims [0, 1] : tensor<?x?xf32>, tensor<?x?xi32>, tensor<?x?xi32>
  %c = mir.reshape %b to [-1] : tensor<?x?xf32>
  %d = mir.dynamic_slice %x at %i axis 1 length "d0" like %y dims [0] : tensor<?x?xf32>, tensor<i32>, tensor<?x?xi32>
  return %a, %c, %d : tensor<?x?xf32>, tensor<?xf32>, tensor<?x?xf32>
}

/// Windows of one element; a sum of one makes 0 of -0.
// CHECK-LABEL: func @pools_of_one_element
//  CHECK-SAME:   (%[[X:.+]]: tensor<1x2x?x8xf32>
//       CHECK:   %[[S:.+]] = mir.pool sum
//       CHECK:   %[[M:.+]] = mir.pool max
//       CHECK:   return %[[X]], %[[X]], %[[X]], %[[S]], %[[M]]
func.func @pools_of_one_element(%x: tensor<1x2x?x8xf32>)
    -> (tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x4xf32>) {
  %a = mir.pool max %x kernel [1, 1] : tensor<1x2x?x8xf32>
  %b = mir.pool min %x kernel [1, 1] : tensor<1x2x?x8xf32>
  %c = mir.pool prod %x kernel [1, 1] : tensor<1x2x?x8xf32>
  %d = mir.pool sum %x kernel [1, 1] : tensor<1x2x?x8xf32>
  %e = mir.pool max %x kernel [1, 1] stride [1, 2] : tensor<1x2x?x8xf32>
  return %a, %b, %c, %d, %e : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x4xf32>
}

// CHECK-LABEL: func @slices_of_everything
//  CHECK-SAME:   (%[[X:.+]]: tensor<6x8xf32>
//  CHECK-NEXT:   return %[[X]], %[[X]]
func.func @slices_of_everything(%x: tensor<6x8xf32>, %i: tensor<i32>, %y: tensor<6xi32>) -> (tensor<6x8xf32>, tensor<6x8xf32>) {
  %a = mir.slice %x axis 0 stop "d0 + 1" like %y dims [0] : tensor<6x8xf32>, tensor<6xi32>
  %b = mir.dynamic_slice %x at %i axis 0 length "d0" like %y dims [0] : tensor<6x8xf32>, tensor<i32>, tensor<6xi32>
  return %a, %b : tensor<6x8xf32>, tensor<6x8xf32>
}
