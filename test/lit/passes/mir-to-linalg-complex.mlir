// RUN: rlx-opt %s --pass-pipeline='builtin.module(func.func(mir-to-linalg))' | FileCheck %s

// CHECK-LABEL: func @parts
//  CHECK-SAME:   (%[[A:.+]]: tensor<?xf32>, %[[B:.+]]: tensor<?xf32>)
//       CHECK:   ^bb0(%[[RE:.+]]: f32, %[[IM:.+]]: f32, %{{.+}}: complex<f32>):
//       CHECK:     %[[Z:.+]] = complex.create %[[RE]], %[[IM]] : complex<f32>
//       CHECK:     linalg.yield %[[Z]]
//       CHECK:   ^bb0(%[[Z:.+]]: complex<f32>, %{{.+}}: complex<f32>):
//   CHECK-DAG:     %[[RE:.+]] = complex.re %[[Z]]
//   CHECK-DAG:     %[[IM:.+]] = complex.im %[[Z]]
//   CHECK-DAG:     %[[NEG:.+]] = arith.negf %[[IM]] : f32
//       CHECK:     complex.create %[[RE]], %[[NEG]] : complex<f32>
//       CHECK:   ^bb0(%[[Z:.+]]: complex<f32>, %{{.+}}: f32):
//       CHECK:     %[[IM:.+]] = complex.im %[[Z]]
//       CHECK:     linalg.yield %[[IM]] : f32
func.func @parts(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %0 = mir.complex %a, %b : tensor<?xf32>
  %1 = mir.conjugate %0 : tensor<?xcomplex<f32>>
  %2 = mir.imag %1 : tensor<?xcomplex<f32>>
  return %2 : tensor<?xf32>
}

/// (a + bi) (c + di) = (ac - bd) + (ad + bc)i
// CHECK-LABEL: func @mul
//       CHECK:   ^bb0(%[[X:.+]]: complex<f32>, %[[Y:.+]]: complex<f32>, %{{.+}}: complex<f32>):
//   CHECK-DAG:     %[[A:.+]] = complex.re %[[X]]
//   CHECK-DAG:     %[[B:.+]] = complex.im %[[X]]
//   CHECK-DAG:     %[[C:.+]] = complex.re %[[Y]]
//   CHECK-DAG:     %[[D:.+]] = complex.im %[[Y]]
//   CHECK-DAG:     %[[AC:.+]] = arith.mulf %[[A]], %[[C]]
//   CHECK-DAG:     %[[BD:.+]] = arith.mulf %[[B]], %[[D]]
//   CHECK-DAG:     %[[AD:.+]] = arith.mulf %[[A]], %[[D]]
//   CHECK-DAG:     %[[BC:.+]] = arith.mulf %[[B]], %[[C]]
//   CHECK-DAG:     %[[RE:.+]] = arith.subf %[[AC]], %[[BD]]
//   CHECK-DAG:     %[[IM:.+]] = arith.addf %[[AD]], %[[BC]]
//       CHECK:     complex.create %[[RE]], %[[IM]]
func.func @mul(%x: tensor<?xcomplex<f32>>, %y: tensor<?xcomplex<f32>>) -> tensor<?xcomplex<f32>> {
  %0 = mir.mul %x, %y : tensor<?xcomplex<f32>>
  return %0 : tensor<?xcomplex<f32>>
}

/// Parts are summed by themselves, in f32.
// CHECK-LABEL: func @sum
//       CHECK:   complex.re
//       CHECK:   complex.im
//       CHECK:   arith.addf
//       CHECK:   arith.addf
//       CHECK:   complex.create
func.func @sum(%z: tensor<?x9xcomplex<f32>>) -> tensor<?xcomplex<f32>> {
  %0 = mir.reduce sum %z axes [1] : tensor<?x9xcomplex<f32>>
  return %0 : tensor<?xcomplex<f32>>
}
