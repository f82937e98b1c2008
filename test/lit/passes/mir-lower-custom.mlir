// RUN: rlx-opt %s --rlx-load=%S/Inputs/operations_for_lit.py --mir-lower-custom | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: rlx-opt %s --rlx-load=%S/Inputs/operations_for_lit.py \
// RUN:   --mir-lower-custom=kernels=false | FileCheck %s --check-prefixes=CHECK,GPU

/// Parameters have the defaults of `infer` where the text doesn't say.
// CHECK-LABEL: func @lowered(
//  CHECK-SAME:   %[[X:.+]]: tensor<?x8xf32>)
//       CHECK:   %[[N:.+]] = mir.neg %[[X]] : tensor<?x8xf32>
//       CHECK:   %[[C:.+]] = mir.constant dense<-2.000000e+00> : tensor<f32>
//       CHECK:   %[[A:.+]] = mir.mul %[[N]], %[[C]]
//       CHECK:   %[[M:.+]] = mir.neg %[[A]] : tensor<?x8xf32>
//       CHECK:   %[[D:.+]] = mir.constant dense<-1.000000e+00> : tensor<f32>
//       CHECK:   %[[B:.+]] = mir.mul %[[M]], %[[D]]
//       CHECK:   return %[[B]]
func.func @lowered(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %a = mir.custom "lit.lowered"(%x) with {scale = 2.0} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %b = mir.custom "lit.lowered"(%a) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %b : tensor<?x8xf32>
}

/// CPUs call a kernel where there is one.
// CHECK-LABEL: func @both(
//   CPU-SAME:   %[[X:.+]]: tensor<4xf32>)
//        CPU:   %[[Y:.+]] = mir.custom "lit.both"(%[[X]]) with {scale = 3.000000e+00 : f64}
//        CPU:   return %[[Y]]
//        GPU:   mir.mul
func.func @both(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = mir.custom "lit.both"(%x) with {scale = 3.0} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
