// RUN: rlx-opt %s --pass-pipeline='builtin.module(cpu-order-sums)' | FileCheck %s

/// Blocks of 32 partial sums with 16 terms each; what joining blocks loses is carried along and added last.
// CHECK-LABEL: func @long(
//       CHECK:   %[[PARTS:.+]] = memref.alloca() : memref<32xf32>
//       CHECK:   %[[ALL:.+]]:2 = scf.for %[[FIRST:.+]] = %{{.+}} to %{{.+}} step %c512{{.*}} iter_args(%[[TOTAL:.+]] = %{{.+}}, %[[LOST:.+]] = %{{.+}})
//       CHECK:     memref.store %{{.+}}, %[[PARTS]]
//       CHECK:     scf.for %[[TURN:.+]] = %[[FIRST]] to %{{.+}} step %c32
//       CHECK:       scf.for %[[LANE:.+]] =
//       CHECK:         %[[AT:.+]] = arith.addi %[[TURN]], %[[LANE]]
//       CHECK:         %[[X:.+]] = memref.load %arg0[%[[AT]]]
//       CHECK:         %[[PART:.+]] = memref.load %[[PARTS]][%[[LANE]]]
//       CHECK:         %[[SUM:.+]] = arith.addf %[[PART]], %[[X]] : f32
//       CHECK:         memref.store %[[SUM]], %[[PARTS]][%[[LANE]]]
//       CHECK:     arith.addf %[[TOTAL]], %[[OWN:.+]] : f32
//       CHECK:   arith.cmpf ord, %[[ALL]]#1, %[[ALL]]#1
//   CHECK-NOT:   fastmath
func.func @long(%x: memref<?xf32>, %y: memref<f32>) attributes {mir.template = "generic: example"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %size = memref.dim %x, %c0 : memref<?xf32>
  scf.for %i = %c0 to %size step %c1 {
    %0 = memref.load %x[%i] : memref<?xf32>
    %1 = memref.load %y[] : memref<f32>
    %2 = arith.addf %1, %0 fastmath<reassoc,contract> : f32
    memref.store %2, %y[] : memref<f32>
  }
  return
}

/// A short one stays as it is, but for what would let LLVM reorder it.
// CHECK-LABEL: func @short(
//   CHECK-NOT:   alloca
//       CHECK:   scf.for
//       CHECK:     arith.addf %{{.+}}, %{{.+}} : f32
func.func @short(%x: memref<9xf32>, %y: memref<f32>) attributes {mir.template = "generic: example"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  scf.for %i = %c0 to %c9 step %c1 {
    %0 = memref.load %x[%i] : memref<9xf32>
    %1 = memref.load %y[] : memref<f32>
    %2 = arith.addf %1, %0 fastmath<reassoc,contract> : f32
    memref.store %2, %y[] : memref<f32>
  }
  return
}

/// Templates have an order of their own.
// CHECK-LABEL: func @template(
//       CHECK:   fastmath<reassoc>
func.func @template(%x: f32) -> f32 attributes {mir.template = "rows"} {
  %0 = arith.addf %x, %x fastmath<reassoc> : f32
  return %0 : f32
}
