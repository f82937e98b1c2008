// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @constant
//       CHECK:   mir.constant dense<[2.500000e-01, 5.000000e-01]> : tensor<2xf32>
func.func @constant() -> tensor<2xf32> {
  %c = mir.constant dense<[0.25, 0.5]> : tensor<2xf32>
  return %c : tensor<2xf32>
}

// CHECK-LABEL: func @iota
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8x?xf16>)
//  CHECK-NEXT:   %[[A:.+]] = mir.iota axis 1 to tensor<2x4xi32>
//  CHECK-NEXT:   %[[B:.+]] = mir.iota axis 0 like %[[X]] dims [2] : tensor<?x8x?xf16> to tensor<?xi64>
//  CHECK-NEXT:   %[[C:.+]] = mir.iota axis 2 like %[[X]] dims [-1, 0, 1] : tensor<?x8x?xf16> to tensor<4x?x8xf32>
//  CHECK-NEXT:   return %[[A]], %[[B]], %[[C]]
func.func @iota(%x: tensor<?x8x?xf16>) -> (tensor<2x4xi32>, tensor<?xi64>, tensor<4x?x8xf32>) {
  %a = mir.iota axis 1 to tensor<2x4xi32>
  %b = mir.iota axis 0 like %x dims [2] : tensor<?x8x?xf16> to tensor<?xi64>
  %c = mir.iota axis 2 like %x dims [-1, 0, 1] : tensor<?x8x?xf16> to tensor<4x?x8xf32>
  return %a, %b, %c : tensor<2x4xi32>, tensor<?xi64>, tensor<4x?x8xf32>
}

// CHECK-LABEL: func @unary
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>)
//  CHECK-NEXT:   %[[GELU:.+]] = mir.gelu %[[X]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[APPROX:.+]] = mir.gelu_approx %[[GELU]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[SILU:.+]] = mir.silu %[[APPROX]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[RELU:.+]] = mir.relu %[[SILU]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[SIGMOID:.+]] = mir.sigmoid %[[RELU]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[TANH:.+]] = mir.tanh %[[SIGMOID]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[EXP:.+]] = mir.exp %[[TANH]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[LOG:.+]] = mir.log %[[EXP]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[SQRT:.+]] = mir.sqrt %[[LOG]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[RSQRT:.+]] = mir.rsqrt %[[SQRT]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[NEG:.+]] = mir.neg %[[RSQRT]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[ABS:.+]] = mir.abs %[[NEG]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[SIN:.+]] = mir.sin %[[ABS]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[COS:.+]] = mir.cos %[[SIN]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[TAN:.+]] = mir.tan %[[COS]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[ATAN:.+]] = mir.atan %[[TAN]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[ROUND:.+]] = mir.round %[[ATAN]] : tensor<?x8xf32>
//  CHECK-NEXT:   %[[ERFC:.+]] = mir.erfc %[[ROUND]] : tensor<?x8xf32>
//  CHECK-NEXT:   mir.gelu_slope %[[ERFC]] : tensor<?x8xf32>
//  CHECK-NEXT:   return %[[ERFC]]
func.func @unary(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = mir.gelu %x : tensor<?x8xf32>
  %1 = mir.gelu_approx %0 : tensor<?x8xf32>
  %2 = mir.silu %1 : tensor<?x8xf32>
  %3 = mir.relu %2 : tensor<?x8xf32>
  %4 = mir.sigmoid %3 : tensor<?x8xf32>
  %5 = mir.tanh %4 : tensor<?x8xf32>
  %6 = mir.exp %5 : tensor<?x8xf32>
  %7 = mir.log %6 : tensor<?x8xf32>
  %8 = mir.sqrt %7 : tensor<?x8xf32>
  %9 = mir.rsqrt %8 : tensor<?x8xf32>
  %10 = mir.neg %9 : tensor<?x8xf32>
  %11 = mir.abs %10 : tensor<?x8xf32>
  %12 = mir.sin %11 : tensor<?x8xf32>
  %13 = mir.cos %12 : tensor<?x8xf32>
  %14 = mir.tan %13 : tensor<?x8xf32>
  %15 = mir.atan %14 : tensor<?x8xf32>
  %16 = mir.round %15 : tensor<?x8xf32>
  %17 = mir.erfc %16 : tensor<?x8xf32>
  %slope = mir.gelu_slope %17 : tensor<?x8xf32>
  return %17 : tensor<?x8xf32>
}

// CHECK-LABEL: func @unary_element_types
//  CHECK-SAME:   (%[[A:.+]]: tensor<f16>, %[[B:.+]]: tensor<2xbf16>, %[[C:.+]]: tensor<2x0xf64>)
//       CHECK:   mir.exp %[[A]] : tensor<f16>
//       CHECK:   mir.exp %[[B]] : tensor<2xbf16>
//       CHECK:   mir.exp %[[C]] : tensor<2x0xf64>
func.func @unary_element_types(%a: tensor<f16>, %b: tensor<2xbf16>, %c: tensor<2x0xf64>) {
  %0 = mir.exp %a : tensor<f16>
  %1 = mir.exp %b : tensor<2xbf16>
  %2 = mir.exp %c : tensor<2x0xf64>
  return
}

// CHECK-LABEL: func @cast
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>)
//       CHECK:   mir.cast %[[X]] : tensor<?x8xf32> to tensor<?x8xi1>
func.func @cast(%x: tensor<?x8xf32>) -> tensor<?x8xi1> {
  %y = mir.cast %x : tensor<?x8xf32> to tensor<?x8xi1>
  return %y : tensor<?x8xi1>
}

/// One type is written where both are equal.
// CHECK-LABEL: func @binary
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xf32>, %[[Y:.+]]: tensor<8xf32>)
//  CHECK-NEXT:   %[[ADD:.+]] = mir.add %[[X]], %[[Y]] : tensor<4x8xf32>, tensor<8xf32>
//  CHECK-NEXT:   %[[SUB:.+]] = mir.sub %[[ADD]], %[[X]] : tensor<4x8xf32>
//  CHECK-NEXT:   %[[MUL:.+]] = mir.mul %[[Y]], %[[SUB]] : tensor<8xf32>, tensor<4x8xf32>
//  CHECK-NEXT:   %[[DIV:.+]] = mir.div %[[MUL]], %[[Y]] : tensor<4x8xf32>, tensor<8xf32>
//  CHECK-NEXT:   %[[MAX:.+]] = mir.max %[[DIV]], %[[X]] : tensor<4x8xf32>
//  CHECK-NEXT:   %[[MIN:.+]] = mir.min %[[MAX]], %[[X]] : tensor<4x8xf32>
//  CHECK-NEXT:   %[[POW:.+]] = mir.pow %[[MIN]], %[[X]] : tensor<4x8xf32>
//  CHECK-NEXT:   return %[[POW]]
func.func @binary(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<4x8xf32> {
  %0 = mir.add %x, %y : tensor<4x8xf32>, tensor<8xf32>
  %1 = mir.sub %0, %x : tensor<4x8xf32>, tensor<4x8xf32>
  %2 = mir.mul %y, %1 : tensor<8xf32>, tensor<4x8xf32>
  %3 = mir.div %2, %y : tensor<4x8xf32>, tensor<8xf32>
  %4 = mir.max %3, %x : tensor<4x8xf32>
  %5 = mir.min %4, %x : tensor<4x8xf32>
  %6 = mir.pow %5, %x : tensor<4x8xf32>
  return %6 : tensor<4x8xf32>
}

/// The results' types are what broadcasting infers; the returns check them.
// CHECK-LABEL: func @broadcast_dynamic
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x?xf32>, %[[Y:.+]]: tensor<4x1xf32>, %[[Z:.+]]: tensor<f32>)
//       CHECK:   %[[A:.+]] = mir.add %[[X]], %[[Y]]
//       CHECK:   %[[B:.+]] = mir.add %[[Y]], %[[X]]
//       CHECK:   %[[C:.+]] = mir.add %[[Z]], %[[X]]
//       CHECK:   return %[[A]], %[[B]], %[[C]] : tensor<4x?xf32>, tensor<4x?xf32>, tensor<?x?xf32>
func.func @broadcast_dynamic(%x: tensor<?x?xf32>, %y: tensor<4x1xf32>, %z: tensor<f32>)
    -> (tensor<4x?xf32>, tensor<4x?xf32>, tensor<?x?xf32>) {
  %a = mir.add %x, %y : tensor<?x?xf32>, tensor<4x1xf32>
  %b = mir.add %y, %x : tensor<4x1xf32>, tensor<?x?xf32>
  %c = mir.add %z, %x : tensor<f32>, tensor<?x?xf32>
  return %a, %b, %c : tensor<4x?xf32>, tensor<4x?xf32>, tensor<?x?xf32>
}

// CHECK-LABEL: func @binary_integers
//  CHECK-SAME:   (%[[X:.+]]: tensor<4xi64>)
//       CHECK:   mir.add %[[X]], %[[X]] : tensor<4xi64>
func.func @binary_integers(%x: tensor<4xi64>) -> tensor<4xi64> {
  %y = mir.add %x, %x : tensor<4xi64>
  return %y : tensor<4xi64>
}

// CHECK-LABEL: func @logic
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x1xi1>, %[[Y:.+]]: tensor<?xi1>)
//  CHECK-NEXT:   %[[AND:.+]] = mir.and %[[X]], %[[Y]] : tensor<4x1xi1>, tensor<?xi1>
//  CHECK-NEXT:   %[[OR:.+]] = mir.or %[[AND]], %[[AND]] : tensor<4x?xi1>
//  CHECK-NEXT:   %[[XOR:.+]] = mir.xor %[[OR]], %[[Y]] : tensor<4x?xi1>, tensor<?xi1>
//  CHECK-NEXT:   %[[NOT:.+]] = mir.not %[[XOR]] : tensor<4x?xi1>
//  CHECK-NEXT:   return %[[NOT]]
func.func @logic(%x: tensor<4x1xi1>, %y: tensor<?xi1>) -> tensor<4x?xi1> {
  %0 = mir.and %x, %y : tensor<4x1xi1>, tensor<?xi1>
  %1 = mir.or %0, %0 : tensor<4x?xi1>
  %2 = mir.xor %1, %y : tensor<4x?xi1>, tensor<?xi1>
  %3 = mir.not %2 : tensor<4x?xi1>
  return %3 : tensor<4x?xi1>
}

// CHECK-LABEL: func @integers
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xi16>, %[[Y:.+]]: tensor<8xi16>)
//  CHECK-NEXT:   %[[A:.+]] = mir.floor_div %[[X]], %[[Y]] : tensor<?x8xi16>, tensor<8xi16>
//  CHECK-NEXT:   %[[B:.+]] = mir.floor_rem %[[A]], %[[Y]] : tensor<?x8xi16>, tensor<8xi16>
//  CHECK-NEXT:   %[[C:.+]] = mir.trunc_div %[[B]], %[[X]] : tensor<?x8xi16>
//  CHECK-NEXT:   %[[D:.+]] = mir.trunc_rem %[[C]], %[[X]] : tensor<?x8xi16>
//  CHECK-NEXT:   %[[E:.+]] = mir.pow %[[D]], %[[X]] : tensor<?x8xi16>
//  CHECK-NEXT:   %[[F:.+]] = mir.and %[[E]], %[[X]] : tensor<?x8xi16>
//  CHECK-NEXT:   return %[[F]]
func.func @integers(%x: tensor<?x8xi16>, %y: tensor<8xi16>) -> tensor<?x8xi16> {
  %0 = mir.floor_div %x, %y : tensor<?x8xi16>, tensor<8xi16>
  %1 = mir.floor_rem %0, %y : tensor<?x8xi16>, tensor<8xi16>
  %2 = mir.trunc_div %1, %x : tensor<?x8xi16>
  %3 = mir.trunc_rem %2, %x : tensor<?x8xi16>
  %4 = mir.pow %3, %x : tensor<?x8xi16>
  %5 = mir.and %4, %x : tensor<?x8xi16>
  return %5 : tensor<?x8xi16>
}

// CHECK-LABEL: func @compare
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x1xf32>, %[[Y:.+]]: tensor<8xf32>)
//       CHECK:   mir.compare eq %[[X]], %[[Y]] : tensor<4x1xf32>, tensor<8xf32>
//       CHECK:   mir.compare ne %[[Y]], %[[Y]] : tensor<8xf32>
//       CHECK:   mir.compare lt %[[X]], %[[X]] : tensor<4x1xf32>
//       CHECK:   mir.compare le %[[X]], %[[X]] : tensor<4x1xf32>
//       CHECK:   mir.compare gt %[[X]], %[[X]] : tensor<4x1xf32>
//       CHECK:   mir.compare ge %[[X]], %[[X]] : tensor<4x1xf32>
func.func @compare(%x: tensor<4x1xf32>, %y: tensor<8xf32>) -> tensor<4x8xi1> {
  %0 = mir.compare eq %x, %y : tensor<4x1xf32>, tensor<8xf32>
  %1 = mir.compare ne %y, %y : tensor<8xf32>
  %2 = mir.compare lt %x, %x : tensor<4x1xf32>
  %3 = mir.compare le %x, %x : tensor<4x1xf32>
  %4 = mir.compare gt %x, %x : tensor<4x1xf32>
  %5 = mir.compare ge %x, %x : tensor<4x1xf32>
  return %0 : tensor<4x8xi1>
}

// CHECK-LABEL: func @where
//  CHECK-SAME:   (%[[C:.+]]: tensor<2x1x1xi1>, %[[X:.+]]: tensor<?x8xf32>, %[[Y:.+]]: tensor<f32>)
//       CHECK:   %[[R:.+]] = mir.where %[[C]], %[[X]], %[[Y]] : tensor<2x1x1xi1>, tensor<?x8xf32>, tensor<f32>
//       CHECK:   mir.where %[[C]], %[[R]], %[[R]] : tensor<2x1x1xi1>, tensor<2x?x8xf32>
func.func @where(%c: tensor<2x1x1xi1>, %x: tensor<?x8xf32>, %y: tensor<f32>) -> tensor<2x?x8xf32> {
  %0 = mir.where %c, %x, %y : tensor<2x1x1xi1>, tensor<?x8xf32>, tensor<f32>
  %1 = mir.where %c, %0, %0 : tensor<2x1x1xi1>, tensor<2x?x8xf32>
  return %1 : tensor<2x?x8xf32>
}

/// Integers without sign have what signed ones have; products of bytes may mix them.
// CHECK-LABEL: func @unsigned
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xui8>, %[[Y:.+]]: tensor<8x4xi8>, %[[I:.+]]: tensor<3xui16>)
//       CHECK:   %[[C:.+]] = mir.constant dense<[0, 1, 2, 3, 128, 200, 254, 255]> : tensor<8xui8>
//       CHECK:   %[[S:.+]] = mir.add %[[X]], %[[C]] : tensor<?x8xui8>, tensor<8xui8>
//       CHECK:   mir.trunc_rem %[[S]], %[[X]] : tensor<?x8xui8>
//       CHECK:   mir.compare lt %[[S]], %[[C]] : tensor<?x8xui8>, tensor<8xui8>
//       CHECK:   mir.cast %[[S]] : tensor<?x8xui8> to tensor<?x8xui32>
//       CHECK:   mir.iota axis 0 to tensor<4xui16>
//       CHECK:   mir.gather %[[C]], %[[I]] axis 0 : tensor<8xui8>, tensor<3xui16>
//       CHECK:   %[[P:.+]] = mir.matmul %[[S]], %[[Y]] : tensor<?x8xui8>, tensor<8x4xi8>
//       CHECK:   return %[[P]] : tensor<?x4xi32>
func.func @unsigned(%x: tensor<?x8xui8>, %y: tensor<8x4xi8>, %i: tensor<3xui16>) -> tensor<?x4xi32> {
  %c = mir.constant dense<[0, 1, 2, 3, 128, 200, 254, 255]> : tensor<8xui8>
  %0 = mir.add %x, %c : tensor<?x8xui8>, tensor<8xui8>
  %1 = mir.trunc_rem %0, %x : tensor<?x8xui8>
  %2 = mir.compare lt %0, %c : tensor<?x8xui8>, tensor<8xui8>
  %3 = mir.cast %0 : tensor<?x8xui8> to tensor<?x8xui32>
  %4 = mir.iota axis 0 to tensor<4xui16>
  %5 = mir.gather %c, %i axis 0 : tensor<8xui8>, tensor<3xui16>
  %6 = mir.matmul %0, %y : tensor<?x8xui8>, tensor<8x4xi8>
  return %6 : tensor<?x4xi32>
}
