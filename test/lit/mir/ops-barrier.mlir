// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --emit-bytecode | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --cse | FileCheck %s --check-prefix=CSE
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-outline-kernels)' | FileCheck %s --check-prefix=KERNELS

/// Operations on both sides of it are two; kernels know nothing of it.
//   CHECK-LABEL: func @again(
//         CHECK:   %[[Y:.+]] = mir.exp %[[X:.+]] : tensor<?x8xf32>
//         CHECK:   %[[B:.+]] = mir.barrier %[[X]] : tensor<?x8xf32>
//         CHECK:   %[[Z:.+]] = mir.exp %[[B]] : tensor<?x8xf32>
//         CHECK:   return %[[Y]], %[[Z]]
//     CSE-LABEL: func @again(
// CSE-COUNT-2:     mir.exp
//   KERNELS-NOT: mir.barrier
// KERNELS-LABEL: func @again(
//       KERNELS:   call @exp
func.func @again(%x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %y = mir.exp %x : tensor<?x8xf32>
  %b = mir.barrier %x : tensor<?x8xf32>
  %z = mir.exp %b : tensor<?x8xf32>
  return %y, %z : tensor<?x8xf32>, tensor<?x8xf32>
}

/// Of any type and shape.
//   CHECK-LABEL: func private @any(
//         CHECK:   mir.barrier %{{.+}} : tensor<i1>
//         CHECK:   mir.barrier %{{.+}} : tensor<0x4xi64>
func.func private @any(%p: tensor<i1>, %x: tensor<0x4xi64>) -> (tensor<i1>, tensor<0x4xi64>) {
  %q = mir.barrier %p : tensor<i1>
  %y = mir.barrier %x : tensor<0x4xi64>
  return %q, %y : tensor<i1>, tensor<0x4xi64>
}
