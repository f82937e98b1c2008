// RUN: rlx-opt %s --pass-pipeline='builtin.module(func.func(mir-to-linalg))' | FileCheck %s

//   CHECK-DAG: #[[$ALL:.+]] = affine_map<(d0, d1) -> (d0, d1)>
//   CHECK-DAG: #[[$ROW:.+]] = affine_map<(d0, d1) -> (0, d1)>
//   CHECK-DAG: #[[$X:.+]] = affine_map<(d0, d1, d2) -> (d0, d2)>
//   CHECK-DAG: #[[$W:.+]] = affine_map<(d0, d1, d2) -> (d1, d2)>
//   CHECK-DAG: #[[$Y:.+]] = affine_map<(d0, d1, d2) -> (d0, d1)>

/// Code of other dialects stays as it is.
// CHECK-LABEL: func @no_change_elsewhere
//  CHECK-SAME:   (%[[X:.+]]: tensor<4xf32>, %[[N:.+]]: index)
//       CHECK:   %[[R:.+]] = scf.for {{.+}} iter_args(%[[A:.+]] = %[[X]])
//       CHECK:     linalg.abs ins(%[[A]]
//       CHECK:     math.sqrt
//       CHECK:   return %[[R]]
func.func @no_change_elsewhere(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %r = scf.for %i = %zero to %n step %one iter_args(%a = %x) -> (tensor<4xf32>) {
    %b = linalg.abs ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    %e = tensor.extract %b[%zero] : tensor<4xf32>
    %s = math.sqrt %e : f32
    %c = tensor.insert %s into %b[%zero] : tensor<4xf32>
    scf.yield %c : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

/// f16 is computed in f32 and rounded once; the static 1 broadcasts to a size that is known at run time.
// CHECK-LABEL: func @add_broadcast
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf16>, %[[Y:.+]]: tensor<1x8xf16>)
//       CHECK:   %[[D:.+]] = tensor.dim %[[X]]
//       CHECK:   %[[E:.+]] = tensor.empty(%[[D]]) : tensor<?x8xf16>
//       CHECK:   linalg.generic {indexing_maps = [#[[$ALL]], #[[$ROW]], #[[$ALL]]], iterator_types = ["parallel", "parallel"]}
//  CHECK-SAME:     ins(%[[X]], %[[Y]] : {{.+}}) outs(%[[E]] : {{.+}})
//       CHECK:   ^bb0(%[[A:.+]]: f16, %[[B:.+]]: f16, %{{.+}}: f16):
//   CHECK-DAG:     %[[AW:.+]] = arith.extf %[[A]]
//   CHECK-DAG:     %[[BW:.+]] = arith.extf %[[B]]
//       CHECK:     %[[S:.+]] = arith.addf %[[AW]], %[[BW]] : f32
//       CHECK:     %[[T:.+]] = arith.truncf %[[S]] : f32 to f16
//       CHECK:     linalg.yield %[[T]]
func.func @add_broadcast(%x: tensor<?x8xf16>, %y: tensor<1x8xf16>) -> tensor<?x8xf16> {
  %z = mir.add %x, %y : tensor<?x8xf16>, tensor<1x8xf16>
  return %z : tensor<?x8xf16>
}

/// Rows of a transposed weight are read in order: k is the innermost loop.
// CHECK-LABEL: func @matmul_transposed
//       CHECK:   linalg.generic {indexing_maps = [#[[$X]], #[[$W]], #[[$Y]]], iterator_types = ["parallel", "parallel", "reduction"]}
//       CHECK:   ^bb0(%[[A:.+]]: bf16, %[[B:.+]]: bf16, %[[ACC:.+]]: f32):
//   CHECK-DAG:     %[[AW:.+]] = arith.extf %[[A]]
//   CHECK-DAG:     %[[BW:.+]] = arith.extf %[[B]]
//       CHECK:     %[[P:.+]] = arith.mulf %[[AW]], %[[BW]] fastmath<reassoc,contract> : f32
//       CHECK:     %[[S:.+]] = arith.addf %[[ACC]], %[[P]] fastmath<reassoc,contract> : f32
//       CHECK:     linalg.yield %[[S]]
//       CHECK:   arith.truncf {{.+}} : f32 to bf16
func.func @matmul_transposed(%x: tensor<?x8xbf16>, %w: tensor<16x8xbf16>) -> tensor<?x16xbf16> {
  %y = mir.matmul %x, %w transpose_rhs : tensor<?x8xbf16>, tensor<16x8xbf16>
  return %y : tensor<?x16xbf16>
}

/// Keys and values of a group are views of the operands: 2 of 4 heads, each for 2 heads of queries.
// CHECK-LABEL: func @attention_grouped
//  CHECK-SAME:   (%[[Q:.+]]: tensor<1x?x32xf32>, %[[K:.+]]: tensor<1x?x16xf32>, %[[V:.+]]: tensor<1x?x16xf32>)
//   CHECK-DAG:   %[[QH:.+]] = tensor.expand_shape %[[Q]] {{\[\[}}0], [1], [2, 3, 4]] {{.+}} into tensor<1x?x2x2x8xf32>
//   CHECK-DAG:   %[[KH:.+]] = tensor.expand_shape %[[K]] {{\[\[}}0], [1], [2, 3]] {{.+}} into tensor<1x?x2x8xf32>
//       CHECK:   linalg.generic {{.+}} ins(%[[QH]], %[[KH]] : {{.+}}) outs({{.+}} : tensor<1x2x2x?x?xf32>)
//       CHECK:   arith.select
//       CHECK:   %[[VH:.+]] = tensor.expand_shape %[[V]]
//       CHECK:   linalg.generic {{.+}} ins({{.+}}, %[[VH]] : {{.+}}) outs({{.+}} : tensor<1x?x2x2x8xf32>)
//       CHECK:   %[[R:.+]] = tensor.collapse_shape {{.+}} : tensor<1x?x2x2x8xf32> into tensor<1x?x32xf32>
//       CHECK:   return %[[R]]
func.func @attention_grouped(%q: tensor<1x?x32xf32>, %k: tensor<1x?x16xf32>, %v: tensor<1x?x16xf32>) -> tensor<1x?x32xf32> {
  %y = mir.attention %q, %k, %v heads 4 kv_heads 2 head_dim 8 masked causal : tensor<1x?x32xf32>, tensor<1x?x16xf32>
  return %y : tensor<1x?x32xf32>
}

/// One slice of the cache is written, and the cache carried through the loop over batches. Nothing outside is touched.
// CHECK-LABEL: func @cache_update
//  CHECK-SAME:   (%[[C:.+]]: tensor<2x64x8xf32>, %[[N:.+]]: tensor<2x3x8xf32>, %[[P:.+]]: tensor<2xi32>)
//       CHECK:   %[[LAST:.+]] = arith.subi %c64{{.*}}, %c3
//       CHECK:   %[[R:.+]] = scf.for %[[B:.+]] = {{.+}} iter_args(%[[A:.+]] = %[[C]])
//       CHECK:     %[[POS:.+]] = tensor.extract %[[P]][%[[B]]]
//       CHECK:     %[[AT:.+]] = arith.index_cast %[[POS]]
//       CHECK:     %[[MOST:.+]] = arith.minsi %[[AT]], %[[LAST]]
//       CHECK:     %[[ROW:.+]] = arith.maxsi %[[MOST]], %{{.+}}
//       CHECK:     %[[NEW:.+]] = tensor.extract_slice %[[N]][%[[B]], 0, 0] [1, 3, 8]
//       CHECK:     %[[OLD:.+]] = tensor.extract_slice %[[A]][%[[B]], %[[ROW]], 0] [1, 3, 8]
//       CHECK:     %[[W:.+]] = linalg.generic {{.+}} ins(%[[NEW]] : {{.+}}) outs(%[[OLD]] : {{.+}})
//       CHECK:     %[[I:.+]] = tensor.insert_slice %[[W]] into %[[A]][%[[B]], %[[ROW]], 0] [1, 3, 8]
//       CHECK:     scf.yield %[[I]]
//       CHECK:   return %[[R]]
func.func @cache_update(%c: tensor<2x64x8xf32>, %n: tensor<2x3x8xf32>, %p: tensor<2xi32>) -> tensor<2x64x8xf32> {
  %y = mir.cache_update %c, %n at %p : tensor<2x64x8xf32>, tensor<2x3x8xf32>, tensor<2xi32>
  return %y : tensor<2x64x8xf32>
}

/// The weight's bytes are read in place, and decoded into a matrix [n, k].
// CHECK-LABEL: func @dequant_matmul
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x32xf32>, %[[W:.+]]: tensor<16x20xi8, #mir.packed<q4_1, k = 32>>)
//       CHECK:   %[[D:.+]] = linalg.generic {{.+}} outs({{.+}} : tensor<16x32xf32>)
//       CHECK:     tensor.extract %[[W]]
//       CHECK:     arith.bitcast {{.+}} : i16 to f16
//       CHECK:   linalg.generic {{.+}} ins(%[[X]], %[[D]] : {{.+}}) outs({{.+}} : tensor<?x16xf32>)
func.func @dequant_matmul(%x: tensor<?x32xf32>, %w: tensor<16x20xi8, #mir.packed<q4_1, k = 32>>) -> tensor<?x16xf32> {
  %y = mir.dequant_matmul %x, %w : tensor<?x32xf32>, tensor<16x20xi8, #mir.packed<q4_1, k = 32>>
  return %y : tensor<?x16xf32>
}

/// A slice is a view; nothing is copied.
// CHECK-LABEL: func @narrow
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>)
//       CHECK:   %[[S:.+]] = tensor.extract_slice %[[X]][0, 2] [%{{.+}}, 4] [1, 1]
//       CHECK:   return %[[S]]
func.func @narrow(%x: tensor<?x8xf32>) -> tensor<?x4xf32> {
  %y = mir.narrow %x axis 1 start 2 length 4 : tensor<?x8xf32>
  return %y : tensor<?x4xf32>
}
