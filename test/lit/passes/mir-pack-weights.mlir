// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-pack-weights)' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-pack-weights{layout=planes},cse)' | FileCheck %s --check-prefix=PLANES

// CHECK-LABEL: func @packed
//  CHECK-SAME:   (%[[X:[a-z0-9]+]]: tensor<?x32xf32>, %[[W:[a-z0-9]+]]: tensor<24x20xi8, #mir.packed<q4_1, k = 32>>
//  CHECK-NEXT:   %[[P:.+]] = mir.repack %[[W]] : tensor<24x20xi8, #mir.packed<q4_1, k = 32>>
//  CHECK-NEXT:   %[[Y:.+]] = mir.dequant_matmul %[[X]], %[[P]] : tensor<?x32xf32>, tensor<2x320xi8, #mir.packed<q4_1, k = 32, n = 24, layout = panels>>
//  CHECK-NEXT:   return %[[Y]]
func.func @packed(%x: tensor<?x32xf32>, %w: tensor<24x20xi8, #mir.packed<q4_1, k = 32>> {mir.kind = "param"}) -> tensor<?x24xf32> {
  %y = mir.dequant_matmul %x, %w : tensor<?x32xf32>, tensor<24x20xi8, #mir.packed<q4_1, k = 32>>
  return %y : tensor<?x24xf32>
}

// CHECK-LABEL: func @block_dot
//  CHECK-SAME:   %[[W:[a-z0-9]+]]: tensor<16x34xi8, #mir.packed<q8_0, k = 32>>
//       CHECK:   %[[P:.+]] = mir.repack %[[W]]
//       CHECK:   mir.block_dot %{{.+}}, %{{.+}}, %{{.+}}, %[[P]]
func.func @block_dot(%x: tensor<?x32xf32>, %w: tensor<16x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param"}) -> tensor<?x16xf32> {
  %q, %d, %s = mir.block_quantize %x : tensor<?x32xf32>
  %y = mir.block_dot %q, %d, %s, %w : tensor<?x32xi8>, tensor<16x34xi8, #mir.packed<q8_0, k = 32>>
  return %y : tensor<?x16xf32>
}

/// Experts are repacked where each has whole panels of 16 rows.
// CHECK-LABEL: func @experts
//       CHECK:   %[[P:.+]] = mir.repack %{{.+}} : tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
//       CHECK:   mir.dequant_grouped_matmul %{{.+}}, %[[P]], %{{.+}} experts 2
//       CHECK:   mir.dequant_grouped_matmul %{{.+}}, %{{.+}}, %{{.+}} experts 4 : {{.*}}tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
func.func @experts(%x: tensor<?x32xf32>, %w: tensor<32x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param"}, %e: tensor<?xi32>) -> (tensor<?x16xf32>, tensor<?x8xf32>) {
  %y = mir.dequant_grouped_matmul %x, %w, %e experts 2 : tensor<?x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, tensor<?xi32>
  %z = mir.dequant_grouped_matmul %x, %w, %e experts 4 : tensor<?x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, tensor<?xi32>
  return %y, %z : tensor<?x16xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func @quantised_experts
//       CHECK:   %[[P:.+]] = mir.repack %{{.+}} : tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
//       CHECK:   mir.grouped_block_dot %{{.+}}, %[[P]], %{{.+}} experts 2
func.func @quantised_experts(%q: tensor<?x32xi8>, %d: tensor<?x1xf32>, %s: tensor<?x1xi32>, %w: tensor<32x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param"}, %e: tensor<?xi32>) -> tensor<?x16xf32> {
  %y = mir.grouped_block_dot %q, %d, %s, %w, %e experts 2 : tensor<?x32xi8>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, tensor<?xi32>
  return %y : tensor<?x16xf32>
}

/// A weight that is joined from parameters is repacked as a whole.
// CHECK-LABEL: func @joined
//       CHECK:   %[[W:.+]] = mir.concat
//       CHECK:   %[[P:.+]] = mir.repack %[[W]]
//       CHECK:   mir.dequant_matmul %{{.+}}, %[[P]]
func.func @joined(%x: tensor<?x32xf32>, %a: tensor<16x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param"}, %b: tensor<16x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param"}) -> tensor<?x32xf32> {
  %w = mir.concat %a, %b axis 0 : tensor<16x34xi8, #mir.packed<q8_0, k = 32>>, tensor<16x34xi8, #mir.packed<q8_0, k = 32>>
  %y = mir.dequant_matmul %x, %w : tensor<?x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
  return %y : tensor<?x32xf32>
}

/// Panels hold the rows of the transposed weight, [N, K]; bias and activation stay behind the product.
// CHECK-LABEL: func @dense
//  CHECK-SAME:   (%[[X:[a-z0-9]+]]: tensor<2x?x8xf32>, %[[W:[a-z0-9]+]]: tensor<8x20xf32> {{{.+}}}, %[[V:[a-z0-9]+]]: tensor<8x20xf32> {{{.+}}}, %[[B:[a-z0-9]+]]: tensor<8xf32>
//  CHECK-NEXT:   %[[T:.+]] = mir.transpose %[[W]] permutation [1, 0]
//  CHECK-NEXT:   %[[P:.+]] = mir.repack %[[T]] : tensor<20x8xf32>
//  CHECK-NEXT:   %[[Y:.+]] = mir.dequant_matmul %[[X]], %[[P]] : tensor<2x?x8xf32>, tensor<2x512xi8, #mir.packed<f32, k = 8, n = 20, layout = panels>>
//  CHECK-NEXT:   %[[Q:.+]] = mir.repack %[[V]] : tensor<8x20xf32>
//  CHECK-NEXT:   %[[Z:.+]] = mir.dequant_matmul %[[Y]], %[[Q]]
//  CHECK-NEXT:   %[[S:.+]] = mir.add %[[Z]], %[[B]]
//  CHECK-NEXT:   %[[R:.+]] = mir.silu %[[S]]
//  CHECK-NEXT:   return %[[R]]
func.func @dense(%x: tensor<2x?x8xf32>, %w: tensor<8x20xf32> {mir.kind = "param"}, %v: tensor<8x20xf32> {mir.kind = "param"}, %b: tensor<8xf32> {mir.kind = "param"}) -> tensor<2x?x8xf32> {
  %y = mir.matmul %x, %w : tensor<2x?x8xf32>, tensor<8x20xf32>
  %z = mir.fused_matmul_bias_act %y, %v, %b transpose_rhs activation silu : tensor<2x?x20xf32>, tensor<8x20xf32>, tensor<8xf32>
  return %z : tensor<2x?x8xf32>
}

/// A weight of f16 keeps its elements.
// CHECK-LABEL: func @half(
//  CHECK-SAME:   %[[X:.+]]: tensor<4x8xf16>, %[[W:.+]]: tensor<20x8xf16>
//  CHECK-NEXT:   %[[P:.+]] = mir.repack %[[W]] : tensor<20x8xf16>
//  CHECK-NEXT:   %[[Y:.+]] = mir.dequant_matmul %[[X]], %[[P]] : tensor<4x8xf16>, tensor<2x256xi8, #mir.packed<f16, k = 8, n = 20, layout = panels>>
//  CHECK-NEXT:   return %[[Y]]
func.func @half(%x: tensor<4x8xf16>, %w: tensor<20x8xf16> {mir.kind = "param"}) -> tensor<4x20xf16> {
  %y = mir.matmul %x, %w transpose_rhs : tensor<4x8xf16>, tensor<20x8xf16>
  return %y : tensor<4x20xf16>
}

/// Inputs change at each call; f64 products and schemes without panels take the generic path.
// CHECK-LABEL: func @no_pack
//   CHECK-NOT:   mir.repack
//       CHECK:   return
func.func @no_pack(%x: tensor<4x8xf32>, %w: tensor<8x20xf32>, %h: tensor<4x8xf64>, %v: tensor<8x20xf64> {mir.kind = "param"}, %k: tensor<4x256xf32>, %q: tensor<16x292xi8, #mir.packed<q8_k, k = 256>>)
    -> (tensor<4x20xf32>, tensor<4x20xf64>, tensor<4x16xf32>) {
  %0 = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x20xf32>
  %1 = mir.matmul %h, %v : tensor<4x8xf64>, tensor<8x20xf64>
  %2 = mir.dequant_matmul %k, %q : tensor<4x256xf32>, tensor<16x292xi8, #mir.packed<q8_k, k = 256>>
  return %0, %1, %2 : tensor<4x20xf32>, tensor<4x20xf64>, tensor<4x16xf32>
}

/// What looks up rows of a weight that products read in planes reads these too.
// PLANES-LABEL: func @table
//  PLANES-SAME:   %[[W:[a-z0-9]+]]: tensor<24x20xi8, #mir.packed<q4_1, k = 32>> {mir.kind = "param"}, %[[V:[a-z0-9]+]]: tensor<
//  PLANES-NEXT:   %[[P:.+]] = mir.repack %[[W]] layout planes : tensor<24x20xi8, #mir.packed<q4_1, k = 32>>
//  PLANES-NEXT:   %[[Y:.+]] = mir.dequant_matmul %{{.+}}, %[[P]] : tensor<?x32xf32>, tensor<24x32xi8, #mir.packed<q4_1, k = 32, layout = planes>>
//  PLANES-NEXT:   %[[G:.+]] = mir.gather %[[P]]
/// One that is only looked up stays, and dense weights keep their rows.
//  PLANES-NEXT:   %[[H:.+]] = mir.gather %[[V]]
//  PLANES-NEXT:   %[[Z:.+]] = mir.matmul
//  PLANES-NEXT:   return %[[Y]], %[[G]], %[[H]], %[[Z]]
// CHECK-LABEL: func @table
//       CHECK:   mir.gather %{{.+}} axis 0 : tensor<24x20xi8, #mir.packed<q4_1, k = 32>>
func.func @table(%x: tensor<?x32xf32>, %i: tensor<3xi32>, %w: tensor<24x20xi8, #mir.packed<q4_1, k = 32>> {mir.kind = "param"}, %v: tensor<24x20xi8, #mir.packed<q4_1, k = 32>> {mir.kind = "param"}, %d: tensor<32x8xf32> {mir.kind = "param"}) -> (tensor<?x24xf32>, tensor<3x32xf32>, tensor<3x32xf32>, tensor<?x8xf32>) {
  %y = mir.dequant_matmul %x, %w : tensor<?x32xf32>, tensor<24x20xi8, #mir.packed<q4_1, k = 32>>
  %g = mir.gather %w, %i axis 0 : tensor<24x20xi8, #mir.packed<q4_1, k = 32>>, tensor<3xi32>
  %h = mir.gather %v, %i axis 0 : tensor<24x20xi8, #mir.packed<q4_1, k = 32>>, tensor<3xi32>
  %z = mir.matmul %x, %d : tensor<?x32xf32>, tensor<32x8xf32>
  return %y, %g, %h, %z : tensor<?x24xf32>, tensor<3x32xf32>, tensor<3x32xf32>, tensor<?x8xf32>
}

/// Of f16, the fused operation rounds once: what it is taken apart into says so.
// CHECK-LABEL: func.func @one_rounding(
//       CHECK:   mir.dequant_matmul {{.*}}{mir.wide}
//       CHECK:   mir.add {{.*}}{mir.wide}
//       CHECK:   mir.silu
//   CHECK-NOT:   mir.wide
//       CHECK:   return
func.func @one_rounding(%x: tensor<2x32xf16> {mir.kind = "input", mir.name = "x"},
                        %w: tensor<32x16xf16> {mir.kind = "param", mir.name = "w"},
                        %b: tensor<16xf16> {mir.kind = "param", mir.name = "b"}) -> tensor<2x16xf16> {
  %y = mir.fused_matmul_bias_act %x, %w, %b activation silu : tensor<2x32xf16>, tensor<32x16xf16>, tensor<16xf16>
  return %y : tensor<2x16xf16>
}

// -----

/// A parameter to which an output is tied changes from call to call: it is read as it is. One that is returned as it is stays.
// CHECK-LABEL: func @tied(
//       CHECK:   mir.matmul %arg2, %arg0
//       CHECK:   %[[R:.+]] = mir.repack
//       CHECK:   mir.dequant_matmul %arg2, %[[R]]
func.func @tied(%w: tensor<8x8xf32> {mir.name = "w", mir.kind = "param"}, %k: tensor<8x8xf32> {mir.name = "k", mir.kind = "param"}, %x: tensor<8x8xf32>)
    -> (tensor<8x8xf32>, tensor<8x8xf32> {mir.name = "w2"}, tensor<8x8xf32>, tensor<8x8xf32> {mir.name = "k2"}) attributes {mir.ties = {w2 = "w", k2 = "k"}} {
  %p = mir.matmul %x, %w : tensor<8x8xf32>, tensor<8x8xf32>
  %d = mir.sub %w, %x : tensor<8x8xf32>
  %q = mir.matmul %x, %k : tensor<8x8xf32>, tensor<8x8xf32>
  return %p, %d, %q, %k : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

/// Kernels of images become panels, [Co / 16, sum, 16], behind a barrier: putting them back in order isn't prepared. Those
/// of a call's input, of f16, of 24 outputs, and of a channel each stay.
// CHECK-LABEL: func @images(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: tensor<1x4x?x9xf32>, %[[W:[a-z0-9]+]]: tensor<32x4x3x3xf32> {{{.+}}}, %[[IN:[a-z0-9]+]]: tensor<32x4x3x3xf32>,
//       CHECK:   %[[R:.+]] = mir.reshape %[[W]] to [2, 16, 36] : tensor<32x4x3x3xf32>
//       CHECK:   %[[T:.+]] = mir.transpose %[[R]] permutation [0, 2, 1] : tensor<2x16x36xf32>
//       CHECK:   %[[B:.+]] = mir.barrier %[[T]]
//       CHECK:   %[[U:.+]] = mir.transpose %[[B]] permutation [0, 2, 1] : tensor<2x36x16xf32>
//       CHECK:   %[[K:.+]] = mir.reshape %[[U]] to [32, 4, 3, 3]
//       CHECK:   mir.conv %[[X]], %[[K]] padding [1, 1]
//       CHECK:   mir.conv %[[X]], %[[IN]]
//   CHECK-NOT:   mir.barrier
//       CHECK:   return
// PLANES-LABEL: func @images(
//   PLANES-NOT:   mir.barrier
func.func @images(%x: tensor<1x4x?x9xf32>, %w: tensor<32x4x3x3xf32> {mir.kind = "param"}, %v: tensor<32x4x3x3xf32>,
                  %few: tensor<24x4x3x3xf32> {mir.kind = "param"}, %own: tensor<64x1x3x3xf32> {mir.kind = "param"},
                  %h: tensor<1x4x?x9xf16>, %half: tensor<32x4x3x3xf16> {mir.kind = "param"})
    -> (tensor<1x32x?x9xf32>, tensor<1x32x?x7xf32>, tensor<1x24x?x7xf32>, tensor<1x64x?x5xf32>, tensor<1x32x?x7xf16>) {
  %a = mir.conv %x, %w padding [1, 1] : tensor<1x4x?x9xf32>, tensor<32x4x3x3xf32>
  %b = mir.conv %x, %v : tensor<1x4x?x9xf32>, tensor<32x4x3x3xf32>
  %c = mir.conv %x, %few : tensor<1x4x?x9xf32>, tensor<24x4x3x3xf32>
  %m = mir.conv %b, %own groups 32 : tensor<1x32x?x7xf32>, tensor<64x1x3x3xf32>
  %d = mir.conv %h, %half : tensor<1x4x?x9xf16>, tensor<32x4x3x3xf16>
  return %a, %b, %c, %m, %d : tensor<1x32x?x9xf32>, tensor<1x32x?x7xf32>, tensor<1x24x?x7xf32>, tensor<1x64x?x5xf32>, tensor<1x32x?x7xf16>
}
