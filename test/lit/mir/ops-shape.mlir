// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @reshape_static
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x6xf32>)
//       CHECK:   %[[A:.+]] = mir.reshape %[[X]] to [2, -1] : tensor<4x6xf32>
//       CHECK:   %[[B:.+]] = mir.reshape %[[X]] to [24] : tensor<4x6xf32>
//       CHECK:   return %[[A]], %[[B]] : tensor<2x12xf32>, tensor<24xf32>
func.func @reshape_static(%x: tensor<4x6xf32>) -> (tensor<2x12xf32>, tensor<24xf32>) {
  %a = mir.reshape %x to [2, -1] : tensor<4x6xf32>
  %b = mir.reshape %x to [24] : tensor<4x6xf32>
  return %a, %b : tensor<2x12xf32>, tensor<24xf32>
}

/// Sizes that are taken over leave the rest static, so -1 is too.
// CHECK-LABEL: func @reshape_dynamic
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x?x12xf32>)
//       CHECK:   %[[A:.+]] = mir.reshape %[[X]] to [-2, -2, 3, -1] : tensor<?x?x12xf32>
//       CHECK:   %[[B:.+]] = mir.reshape %[[X]] to [-1, 12] : tensor<?x?x12xf32>
//       CHECK:   %[[C:.+]] = mir.reshape %[[X]] to [4, 3] : tensor<?x?x12xf32>
//       CHECK:   return %[[A]], %[[B]], %[[C]] : tensor<?x?x3x4xf32>, tensor<?x12xf32>, tensor<4x3xf32>
func.func @reshape_dynamic(%x: tensor<?x?x12xf32>) -> (tensor<?x?x3x4xf32>, tensor<?x12xf32>, tensor<4x3xf32>) {
  %a = mir.reshape %x to [-2, -2, 3, -1] : tensor<?x?x12xf32>
  %b = mir.reshape %x to [-1, 12] : tensor<?x?x12xf32>
  %c = mir.reshape %x to [4, 3] : tensor<?x?x12xf32>
  return %a, %b, %c : tensor<?x?x3x4xf32>, tensor<?x12xf32>, tensor<4x3xf32>
}

// CHECK-LABEL: func @reshape_scalar
//  CHECK-SAME:   (%[[X:.+]]: tensor<1xf32>)
//       CHECK:   mir.reshape %[[X]] to [] : tensor<1xf32>
func.func @reshape_scalar(%x: tensor<1xf32>) -> tensor<f32> {
  %a = mir.reshape %x to [] : tensor<1xf32>
  return %a : tensor<f32>
}

// CHECK-LABEL: func @transpose
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x8xi1>)
//       CHECK:   %[[R:.+]] = mir.transpose %[[X]] permutation [2, 0, 1] : tensor<2x?x8xi1>
//       CHECK:   return %[[R]] : tensor<8x2x?xi1>
func.func @transpose(%x: tensor<2x?x8xi1>) -> tensor<8x2x?xi1> {
  %r = mir.transpose %x permutation [2, 0, 1] : tensor<2x?x8xi1>
  return %r : tensor<8x2x?xi1>
}

// CHECK-LABEL: func @narrow
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>)
//       CHECK:   %[[A:.+]] = mir.narrow %[[X]] axis 1 start 6 length 2 : tensor<?x8xf32>
//       CHECK:   %[[B:.+]] = mir.narrow %[[X]] axis 0 start 6 length 0 : tensor<?x8xf32>
//       CHECK:   return %[[A]], %[[B]] : tensor<?x2xf32>, tensor<0x8xf32>
func.func @narrow(%x: tensor<?x8xf32>) -> (tensor<?x2xf32>, tensor<0x8xf32>) {
  %a = mir.narrow %x axis 1 start 6 length 2 : tensor<?x8xf32>
  %b = mir.narrow %x axis 0 start 6 length 0 : tensor<?x8xf32>
  return %a, %b : tensor<?x2xf32>, tensor<0x8xf32>
}

// CHECK-LABEL: func @concat
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[Y:.+]]: tensor<2x4xf32>)
//       CHECK:   %[[A:.+]] = mir.concat %[[X]], %[[Y]], %[[X]] axis 1 : tensor<?x8xf32>, tensor<2x4xf32>, tensor<?x8xf32>
//       CHECK:   %[[B:.+]] = mir.concat %[[X]], %[[X]] axis 0 : tensor<?x8xf32>, tensor<?x8xf32>
//       CHECK:   %[[C:.+]] = mir.concat %[[X]] axis 0 : tensor<?x8xf32>
//       CHECK:   return %[[A]], %[[B]], %[[C]] : tensor<2x20xf32>, tensor<?x8xf32>, tensor<?x8xf32>
func.func @concat(%x: tensor<?x8xf32>, %y: tensor<2x4xf32>) -> (tensor<2x20xf32>, tensor<?x8xf32>, tensor<?x8xf32>) {
  %a = mir.concat %x, %y, %x axis 1 : tensor<?x8xf32>, tensor<2x4xf32>, tensor<?x8xf32>
  %b = mir.concat %x, %x axis 0 : tensor<?x8xf32>, tensor<?x8xf32>
  %c = mir.concat %x axis 0 : tensor<?x8xf32>
  return %a, %b, %c : tensor<2x20xf32>, tensor<?x8xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func @concat_packed
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x20xi8, #mir.packed<q4_1, k = 32>>, %[[Y:.+]]: tensor<?x20xi8, #mir.packed<q4_1, k = 32>>)
//       CHECK:   %[[R:.+]] = mir.concat %[[X]], %[[Y]] axis 0 : tensor<4x20xi8, #mir.packed<q4_1, k = 32>>, tensor<?x20xi8, #mir.packed<q4_1, k = 32>>
//       CHECK:   return %[[R]] : tensor<?x20xi8, #mir.packed<q4_1, k = 32>>
func.func @concat_packed(%x: tensor<4x20xi8, #mir.packed<q4_1, k = 32>>, %y: tensor<?x20xi8, #mir.packed<q4_1, k = 32>>) -> tensor<?x20xi8, #mir.packed<q4_1, k = 32>> {
  %r = mir.concat %x, %y axis 0 : tensor<4x20xi8, #mir.packed<q4_1, k = 32>>, tensor<?x20xi8, #mir.packed<q4_1, k = 32>>
  return %r : tensor<?x20xi8, #mir.packed<q4_1, k = 32>>
}

// CHECK-LABEL: func @expand
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x1xf32>)
//       CHECK:   mir.expand %[[X]] : tensor<?x1xf32> to tensor<2x?x4xf32>
func.func @expand(%x: tensor<?x1xf32>) -> tensor<2x?x4xf32> {
  %r = mir.expand %x : tensor<?x1xf32> to tensor<2x?x4xf32>
  return %r : tensor<2x?x4xf32>
}

/// Sizes of other values.
// CHECK-LABEL: func @expand_like
//  CHECK-SAME:   (%[[X:.+]]: tensor<8x1xf32>, %[[Y:.+]]: tensor<3x?x?xi1>)
//       CHECK:   %[[A:.+]] = mir.expand %[[X]] like %[[Y]] dims [2, -1, 1] : tensor<8x1xf32>, tensor<3x?x?xi1> to tensor<?x8x?xf32>
//       CHECK:   %[[B:.+]] = mir.expand %[[A]] like %[[Y]] dims [-1, 2, -1, 1] : tensor<?x8x?xf32>, tensor<3x?x?xi1> to tensor<2x?x8x?xf32>
//       CHECK:   return %[[B]]
func.func @expand_like(%x: tensor<8x1xf32>, %y: tensor<3x?x?xi1>) -> tensor<2x?x8x?xf32> {
  %a = mir.expand %x like %y dims [2, -1, 1] : tensor<8x1xf32>, tensor<3x?x?xi1> to tensor<?x8x?xf32>
  %b = mir.expand %a like %y dims [-1, 2, -1, 1] : tensor<?x8x?xf32>, tensor<3x?x?xi1> to tensor<2x?x8x?xf32>
  return %b : tensor<2x?x8x?xf32>
}

/// Step 1 is the default, which is not printed.
// CHECK-LABEL: func @slice
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x8xf16>)
//       CHECK:   %[[A:.+]] = mir.slice %[[X]] axis 1 start 1 : tensor<2x?x8xf16>
//       CHECK:   %[[B:.+]] = mir.slice %[[X]] axis 1 start -1 length 1 : tensor<2x?x8xf16>
//       CHECK:   %[[C:.+]] = mir.slice %[[X]] axis 2 start -2 stop 1 step -3 : tensor<2x?x8xf16>
//       CHECK:   %[[D:.+]] = mir.slice %[[X]] axis 0 stop -3 : tensor<2x?x8xf16>
//       CHECK:   return %[[A]], %[[B]], %[[C]], %[[D]] : tensor<2x?x8xf16>, tensor<2x1x8xf16>, tensor<2x?x2xf16>, tensor<0x?x8xf16>
func.func @slice(%x: tensor<2x?x8xf16>) -> (tensor<2x?x8xf16>, tensor<2x1x8xf16>, tensor<2x?x2xf16>, tensor<0x?x8xf16>) {
  %a = mir.slice %x axis 1 start 1 step 1 : tensor<2x?x8xf16>
  %b = mir.slice %x axis 1 start -1 length 1 : tensor<2x?x8xf16>
  %c = mir.slice %x axis 2 start -2 stop 1 step -3 : tensor<2x?x8xf16>
  %d = mir.slice %x axis 0 stop -3 : tensor<2x?x8xf16>
  return %a, %b, %c, %d : tensor<2x?x8xf16>, tensor<2x1x8xf16>, tensor<2x?x2xf16>, tensor<0x?x8xf16>
}

// CHECK-LABEL: func @dim
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xi1>)
//       CHECK:   %[[A:.+]] = mir.dim %[[X]] axis 0 : tensor<?x8xi1> to tensor<i32>
//       CHECK:   %[[B:.+]] = mir.dim %[[X]] axis 1 : tensor<?x8xi1> to tensor<bf16>
//       CHECK:   return %[[A]], %[[B]] : tensor<i32>, tensor<bf16>
func.func @dim(%x: tensor<?x8xi1>) -> (tensor<i32>, tensor<bf16>) {
  %a = mir.dim %x axis 0 : tensor<?x8xi1> to tensor<i32>
  %b = mir.dim %x axis 1 : tensor<?x8xi1> to tensor<bf16>
  return %a, %b : tensor<i32>, tensor<bf16>
}

// CHECK-LABEL: func @gather
//  CHECK-SAME:   (%[[T:.+]]: tensor<2x32x8xf16>, %[[I:.+]]: tensor<?x3xi64>, %[[F:.+]]: tensor<f32>)
//       CHECK:   %[[A:.+]] = mir.gather %[[T]], %[[I]] axis 1 : tensor<2x32x8xf16>, tensor<?x3xi64>
//       CHECK:   %[[B:.+]] = mir.gather %[[T]], %[[F]] axis 2 : tensor<2x32x8xf16>, tensor<f32>
//       CHECK:   return %[[A]], %[[B]] : tensor<2x?x3x8xf16>, tensor<2x32xf16>
func.func @gather(%t: tensor<2x32x8xf16>, %i: tensor<?x3xi64>, %f: tensor<f32>) -> (tensor<2x?x3x8xf16>, tensor<2x32xf16>) {
  %a = mir.gather %t, %i axis 1 : tensor<2x32x8xf16>, tensor<?x3xi64>
  %b = mir.gather %t, %f axis 2 : tensor<2x32x8xf16>, tensor<f32>
  return %a, %b : tensor<2x?x3x8xf16>, tensor<2x32xf16>
}

// CHECK-LABEL: func @gather_packed
//  CHECK-SAME:   (%[[T:.+]]: tensor<32x40xi8, #mir.packed<q4_1, k = 64>>, %[[I:.+]]: tensor<1x?xi32>)
//       CHECK:   %[[R:.+]] = mir.gather %[[T]], %[[I]] axis 0 : tensor<32x40xi8, #mir.packed<q4_1, k = 64>>, tensor<1x?xi32>
//       CHECK:   return %[[R]] : tensor<1x?x64xf32>
func.func @gather_packed(%t: tensor<32x40xi8, #mir.packed<q4_1, k = 64>>, %i: tensor<1x?xi32>) -> tensor<1x?x64xf32> {
  %r = mir.gather %t, %i axis 0 : tensor<32x40xi8, #mir.packed<q4_1, k = 64>>, tensor<1x?xi32>
  return %r : tensor<1x?x64xf32>
}

/// batch_dims 0 is the default, which is not printed; of two sizes the static one stays.
// CHECK-LABEL: func @gather_in_batches
//  CHECK-SAME:   (%[[T:.+]]: tensor<?x5x32x8xf16>, %[[I:.+]]: tensor<2x?x3xi64>, %[[R:.+]]: tensor<2xi32>)
//       CHECK:   %[[A:.+]] = mir.gather %[[T]], %[[I]] axis 2 batch_dims 1 : tensor<?x5x32x8xf16>, tensor<2x?x3xi64>
//       CHECK:   %[[B:.+]] = mir.gather %[[T]], %[[I]] axis 2 batch_dims 2 : tensor<?x5x32x8xf16>, tensor<2x?x3xi64>
//       CHECK:   %[[C:.+]] = mir.gather %[[T]], %[[R]] axis 1 batch_dims 1 : tensor<?x5x32x8xf16>, tensor<2xi32>
//       CHECK:   %[[D:.+]] = mir.gather %[[T]], %[[R]] axis 1 : tensor<?x5x32x8xf16>, tensor<2xi32>
//       CHECK:   return %[[A]], %[[B]], %[[C]], %[[D]] : tensor<2x5x?x3x8xf16>, tensor<2x5x3x8xf16>, tensor<2x32x8xf16>, tensor<?x2x32x8xf16>
func.func @gather_in_batches(%t: tensor<?x5x32x8xf16>, %i: tensor<2x?x3xi64>, %r: tensor<2xi32>) -> (tensor<2x5x?x3x8xf16>, tensor<2x5x3x8xf16>, tensor<2x32x8xf16>, tensor<?x2x32x8xf16>) {
  %a = mir.gather %t, %i axis 2 batch_dims 1 : tensor<?x5x32x8xf16>, tensor<2x?x3xi64>
  %b = mir.gather %t, %i axis 2 batch_dims 2 : tensor<?x5x32x8xf16>, tensor<2x?x3xi64>
  %c = mir.gather %t, %r axis 1 batch_dims 1 : tensor<?x5x32x8xf16>, tensor<2xi32>
  %d = mir.gather %t, %r axis 1 batch_dims 0 : tensor<?x5x32x8xf16>, tensor<2xi32>
  return %a, %b, %c, %d : tensor<2x5x?x3x8xf16>, tensor<2x5x3x8xf16>, tensor<2x32x8xf16>, tensor<?x2x32x8xf16>
}

/// What is known of bounds is in the type, whatever it follows from.
// CHECK-LABEL: func @slice_sizes
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x?xf32>, %[[Y:.+]]: tensor<?x3xi32>, %[[Z:.+]]: tensor<4x8xf32>)
//       CHECK:   %[[A:.+]] = mir.slice %[[X]] axis 1 start "max(d0 - 2, 0)" stop "d0" step 2 like %[[Y]] dims [0] : tensor<4x?xf32>, tensor<?x3xi32>
//       CHECK:   %[[B:.+]] = mir.slice %[[Z]] axis 1 start 1 stop "-d0" like %[[Y]] dims [1] : tensor<4x8xf32>, tensor<?x3xi32>
//       CHECK:   %[[C:.+]] = mir.slice %[[Z]] axis 1 start "d0" stop "d1 + ceildiv(d0, 4)*2 - mod(7, 4)" step -1 like %[[Y]], %[[Z]] dims [1, 0] : tensor<4x8xf32>, tensor<?x3xi32>, tensor<4x8xf32>
//       CHECK:   return %[[A]], %[[B]], %[[C]] : tensor<4x?xf32>, tensor<4x4xf32>, tensor<4x0xf32>
func.func @slice_sizes(%x: tensor<4x?xf32>, %y: tensor<?x3xi32>, %z: tensor<4x8xf32>)
    -> (tensor<4x?xf32>, tensor<4x4xf32>, tensor<4x0xf32>) {
  %a = mir.slice %x axis 1 start "max(d0 - 2, 0)" stop "d0" step 2 like %y dims [0] : tensor<4x?xf32>, tensor<?x3xi32>
  %b = mir.slice %z axis 1 start 1 stop "-d0" like %y dims [1] : tensor<4x8xf32>, tensor<?x3xi32>
  %c = mir.slice %z axis 1 start "d0" stop "d1 + ceildiv(d0, 4)*2 - mod(7, 4)" step -1 like %y, %z dims [1, 0]
      : tensor<4x8xf32>, tensor<?x3xi32>, tensor<4x8xf32>
  return %a, %b, %c : tensor<4x?xf32>, tensor<4x4xf32>, tensor<4x0xf32>
}

// CHECK-LABEL: func @dynamic_slice
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x?xi1>, %[[I:.+]]: tensor<i64>, %[[Y:.+]]: tensor<?x3xi32>)
//       CHECK:   %[[A:.+]] = mir.dynamic_slice %[[X]] at %[[I]] axis 1 length 5 : tensor<4x?xi1>, tensor<i64>
//       CHECK:   %[[B:.+]] = mir.dynamic_slice %[[X]] at %[[I]] axis 0 length "d0" like %[[Y]] dims [0] : tensor<4x?xi1>, tensor<i64>, tensor<?x3xi32>
//       CHECK:   return %[[A]], %[[B]] : tensor<4x5xi1>, tensor<?x?xi1>
func.func @dynamic_slice(%x: tensor<4x?xi1>, %i: tensor<i64>, %y: tensor<?x3xi32>) -> (tensor<4x5xi1>, tensor<?x?xi1>) {
  %a = mir.dynamic_slice %x at %i axis 1 length 5 : tensor<4x?xi1>, tensor<i64>
  %b = mir.dynamic_slice %x at %i axis 0 length "d0" like %y dims [0] : tensor<4x?xi1>, tensor<i64>, tensor<?x3xi32>
  return %a, %b : tensor<4x5xi1>, tensor<?x?xi1>
}

// CHECK-LABEL: func @dynamic_update_slice
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xbf16>, %[[U:.+]]: tensor<4x?xbf16>, %[[I:.+]]: tensor<i32>)
//       CHECK:   %[[R:.+]] = mir.dynamic_update_slice %[[X]], %[[U]] at %[[I]] axis 1 : tensor<?x8xbf16>, tensor<4x?xbf16>, tensor<i32>
//       CHECK:   return %[[R]] : tensor<?x8xbf16>
func.func @dynamic_update_slice(%x: tensor<?x8xbf16>, %u: tensor<4x?xbf16>, %i: tensor<i32>) -> tensor<?x8xbf16> {
  %r = mir.dynamic_update_slice %x, %u at %i axis 1 : tensor<?x8xbf16>, tensor<4x?xbf16>, tensor<i32>
  return %r : tensor<?x8xbf16>
}

// CHECK-LABEL: func @reshape_sizes
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[Y:.+]]: tensor<?x3xi32>)
//       CHECK:   %[[A:.+]] = mir.reshape %[[X]] to [-3, -3, 8] sizes ["d0", "floordiv(d1, 2)"] like %[[Y]], %[[X]] dims [0, 0] : tensor<?x8xf32>, tensor<?x3xi32>, tensor<?x8xf32>
//       CHECK:   %[[B:.+]] = mir.reshape %[[X]] to [-3, -1] sizes ["d0"] like %[[Y]] dims [1] : tensor<?x8xf32>, tensor<?x3xi32>
//       CHECK:   return %[[A]], %[[B]] : tensor<?x?x8xf32>, tensor<3x?xf32>
func.func @reshape_sizes(%x: tensor<?x8xf32>, %y: tensor<?x3xi32>) -> (tensor<?x?x8xf32>, tensor<3x?xf32>) {
  %a = mir.reshape %x to [-3, -3, 8] sizes ["d0", "floordiv(d1, 2)"] like %y, %x dims [0, 0]
      : tensor<?x8xf32>, tensor<?x3xi32>, tensor<?x8xf32>
  %b = mir.reshape %x to [-3, -1] sizes ["d0"] like %y dims [1] : tensor<?x8xf32>, tensor<?x3xi32>
  return %a, %b : tensor<?x?x8xf32>, tensor<3x?xf32>
}
