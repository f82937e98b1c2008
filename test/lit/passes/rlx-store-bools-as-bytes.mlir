// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-store-bools-as-bytes)' | FileCheck %s

/// Constants, arguments, allocations, views: all memory of i1 becomes bytes; values stay i1.
//       CHECK: memref.global "private" constant @c : memref<3xi8> = dense<[1, 0, 1]>
// CHECK-LABEL: func @f
//  CHECK-SAME:   (%[[M:.+]]: memref<?x3xi8>, %[[I:.+]]: index, %[[N:.+]]: memref<3xf32>) -> memref<3xi8>
//       CHECK:   %[[C:.+]] = memref.get_global @c : memref<3xi8>
//       CHECK:   %[[A:.+]] = memref.alloc() : memref<3xi8>
//       CHECK:   %[[V:.+]] = memref.subview %[[M]]{{.+}} : memref<?x3xi8> to memref<3xi8, strided<[1], offset: ?>>
//       CHECK:   %[[X:.+]] = memref.load %[[C]][%[[I]]] : memref<3xi8>
//       CHECK:   %[[XB:.+]] = arith.trunci %[[X]] : i8 to i1
//       CHECK:   %[[Y:.+]] = memref.load %[[V]][%[[I]]]
//       CHECK:   %[[YB:.+]] = arith.trunci %[[Y]] : i8 to i1
//       CHECK:   %[[Z:.+]] = arith.andi %[[XB]], %[[YB]] : i1
//       CHECK:   %[[W:.+]] = arith.extui %[[Z]] : i1 to i8
//       CHECK:   memref.store %[[W]], %[[A]][%[[I]]] : memref<3xi8>
//       CHECK:   return %[[A]] : memref<3xi8>
memref.global "private" constant @c : memref<3xi1> = dense<[true, false, true]>
func.func @f(%m: memref<?x3xi1>, %i: index, %n: memref<3xf32>) -> memref<3xi1> {
  %c = memref.get_global @c : memref<3xi1>
  %a = memref.alloc() : memref<3xi1>
  %v = memref.subview %m[%i, 0] [1, 3] [1, 1] : memref<?x3xi1> to memref<3xi1, strided<[1], offset: ?>>
  %x = memref.load %c[%i] : memref<3xi1>
  %y = memref.load %v[%i] : memref<3xi1, strided<[1], offset: ?>>
  %z = arith.andi %x, %y : i1
  memref.store %z, %a[%i] : memref<3xi1>
  return %a : memref<3xi1>
}
