// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @fft
//  CHECK-SAME:   (%[[Z:.+]]: tensor<?x97xcomplex<f32>>, %[[F:.+]]: tensor<2xf32>, %[[D:.+]]: tensor<3x?x0x1000xf64>)
//       CHECK:   mir.fft %[[Z]] : tensor<?x97xcomplex<f32>>
//       CHECK:   mir.fft %[[F]] inverse : tensor<2xf32>
//       CHECK:   mir.fft %[[Z]] norm forward : tensor<?x97xcomplex<f32>>
//       CHECK:   %[[Y:.+]] = mir.fft %[[D]] inverse norm ortho : tensor<3x?x0x1000xf64>
//       CHECK:   return %[[Y]] : tensor<3x?x0x1000xf64>
func.func @fft(%z: tensor<?x97xcomplex<f32>>, %f: tensor<2xf32>, %d: tensor<3x?x0x1000xf64>) -> tensor<3x?x0x1000xf64> {
  %0 = mir.fft %z norm backward : tensor<?x97xcomplex<f32>>
  %1 = mir.fft %f inverse : tensor<2xf32>
  %2 = mir.fft %z norm forward : tensor<?x97xcomplex<f32>>
  %3 = mir.fft %d inverse norm ortho : tensor<3x?x0x1000xf64>
  return %3 : tensor<3x?x0x1000xf64>
}
