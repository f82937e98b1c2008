// RUN: rlx-opt %s --pass-pipeline='builtin.module(kernel-add-entry-points)' | FileCheck %s

/// The planned entry function and declarations of kernels have left; what measures isn't changed.
//   CHECK-NOT: @main
//   CHECK-NOT: func private @k(
// CHECK-LABEL: func private @k.body(

/// Buffers come as pointers, and all dynamic sizes, in order, as one array; strides are products of sizes.
// CHECK-LABEL: func @k(
//  CHECK-SAME:   %[[BUFFERS:.+]]: !llvm.ptr, %[[DIMS:.+]]: !llvm.ptr, %[[FIRST:.+]]: i64, %[[LAST:.+]]: i64, %[[MEMORY:.+]]: !llvm.ptr)
//       CHECK:   %[[AT0:.+]] = llvm.getelementptr %[[BUFFERS]][0]
//       CHECK:   %[[P0:.+]] = llvm.load %[[AT0]] : !llvm.ptr -> !llvm.ptr
//       CHECK:   %[[DIM0:.+]] = llvm.getelementptr %[[DIMS]][0]
//       CHECK:   %[[S0:.+]] = llvm.load %[[DIM0]] : !llvm.ptr -> i64
//       CHECK:   %[[EIGHT:.+]] = llvm.mlir.constant(8 : i64)
//       CHECK:   llvm.insertvalue %[[P0]], %{{.+}}[1]
//       CHECK:   llvm.insertvalue %[[S0]], %{{.+}}[3, 0]
//       CHECK:   llvm.insertvalue %[[EIGHT]], %{{.+}}[3, 1]
//       CHECK:   llvm.insertvalue %{{.+}}, %{{.+}}[4, 0]
//       CHECK:   %[[B0:.+]] = builtin.unrealized_conversion_cast %{{.+}} to memref<?x8xf32>
//       CHECK:   %[[AT1:.+]] = llvm.getelementptr %[[BUFFERS]][1]
//       CHECK:   %[[DIM1:.+]] = llvm.getelementptr %[[DIMS]][1]
//       CHECK:   %[[S1:.+]] = llvm.load %[[DIM1]]
//       CHECK:   %[[DIM2:.+]] = llvm.getelementptr %[[DIMS]][2]
//       CHECK:   %[[S2:.+]] = llvm.load %[[DIM2]]
//       CHECK:   %[[STRIDE:.+]] = llvm.mul %{{.+}}, %[[S2]]
//       CHECK:   llvm.insertvalue %[[STRIDE]], %{{.+}}[4, 0]
//       CHECK:   %[[B1:.+]] = builtin.unrealized_conversion_cast %{{.+}} to memref<?x?xbf16>
//       CHECK:   %[[BEGIN:.+]] = arith.index_cast %[[FIRST]] : i64 to index
//       CHECK:   %[[END:.+]] = arith.index_cast %[[LAST]] : i64 to index
//       CHECK:   llvm.insertvalue %[[MEMORY]]
//       CHECK:   %[[SCRATCH:.+]] = builtin.unrealized_conversion_cast %{{.+}} to memref<?xi8>
//       CHECK:   call @k.body(%[[B0]], %[[B1]], %[[BEGIN]], %[[END]], %[[SCRATCH]])
// CHECK-LABEL: func @k_units(%{{.+}}: !llvm.ptr) -> i64
//       CHECK:   llvm.mlir.zero : !llvm.ptr
//       CHECK:   %[[U:.+]] = call @k.units(
//       CHECK:   %[[R:.+]] = arith.index_cast %[[U]] : index to i64
//       CHECK:   return %[[R]]
// CHECK-LABEL: func @k_scratch(%{{.+}}: !llvm.ptr) -> i64
//       CHECK:   call @k.scratch(
func.func @main(%arena: memref<?xi8>, %x: memref<?x8xf32> {mir.name = "x", mir.kind = "input"}, %y: memref<?x?xbf16> {mir.name = "y", mir.kind = "output"}) {
  call @k(%x, %y) : (memref<?x8xf32>, memref<?x?xbf16>) -> ()
  return
}
func.func private @k(memref<?x8xf32>, memref<?x?xbf16>) attributes {mir.kernel = "generic"}
func.func private @k.body(%x: memref<?x8xf32>, %y: memref<?x?xbf16>, %begin: index, %end: index, %scratch: memref<?xi8>) {
  return
}
func.func private @k.units(%x: memref<?x8xf32>, %y: memref<?x?xbf16>) -> index {
  %c0 = arith.constant 0 : index
  %n = memref.dim %x, %c0 : memref<?x8xf32>
  return %n : index
}
func.func private @k.scratch(%x: memref<?x8xf32>, %y: memref<?x?xbf16>) -> index {
  %c0 = arith.constant 0 : index
  return %c0 : index
}
