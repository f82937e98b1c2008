// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(kernel-plan-scratch)' | FileCheck %s

/// Allocations follow each other in scratch memory, each rounded up to 64 bytes; the measuring function computes their
/// sum from the sizes of its own arguments.
// CHECK-LABEL: func private @f.body(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<?x8xf32>, %{{.+}}: index, %{{.+}}: index, %[[SCRATCH:[a-z0-9]+]]: memref<?xi8>)
//   CHECK-NOT:   memref.alloc
//       CHECK:   %[[DIM:.+]] = memref.dim %[[X]]
//       CHECK:   %[[START:.+]] = arith.constant 0 : index
//       CHECK:   memref.view %[[SCRATCH]][%[[START]]][] : memref<?xi8> to memref<3xf32>
//       CHECK:   %[[SECOND:.+]] = arith.addi %[[START]], %{{.+}}
//       CHECK:   memref.view %[[SCRATCH]][%[[SECOND]]][%[[DIM]]] : memref<?xi8> to memref<?x8xbf16>
//       CHECK:   return
// CHECK-LABEL: func private @f.scratch(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<?x8xf32>) -> index
//       CHECK:   %[[BYTES:.+]] = arith.constant 12 : index
//       CHECK:   %[[PADDED:.+]] = arith.addi %[[BYTES]], %c63
//       CHECK:   %[[BLOCKS:.+]] = arith.divui %[[PADDED]], %{{.+}}
//       CHECK:   %[[FIRST:.+]] = arith.muli %[[BLOCKS]], %{{.+}}
//       CHECK:   %[[D:.+]] = memref.dim %[[X]]
//       CHECK:   %[[ROW:.+]] = arith.constant 16 : index
//       CHECK:   arith.muli %[[ROW]], %[[D]]
//       CHECK:   %[[SUM:.+]] = arith.addi %[[FIRST]], %{{.+}}
//       CHECK:   return %[[SUM]]
func.func private @f.body(%x: memref<?x8xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %half = arith.constant 0.5 : bf16
  %d = memref.dim %x, %c0 : memref<?x8xf32>
  %a = memref.alloc() : memref<3xf32>
  memref.store %one, %a[%c0] : memref<3xf32>
  %b = memref.alloc(%d) : memref<?x8xbf16>
  memref.store %half, %b[%c0, %c0] : memref<?x8xbf16>
  return
}
func.func private @f.units(%x: memref<?x8xf32>) -> index {
  %c1 = arith.constant 1 : index
  return %c1 : index
}
func.func private @f.scratch(%x: memref<?x8xf32>) -> index {
  %c0 = arith.constant 0 : index
  return %c0 : index
}

// -----

/// A size that is data isn't known before, and a loop runs many times: this memory is allocated, and freed.
// CHECK-LABEL: func private @g.body(
//       CHECK:   %[[N:.+]] = arith.index_cast
//       CHECK:   %[[A:.+]] = memref.alloc(%[[N]])
//       CHECK:   scf.for
//       CHECK:     %[[B:.+]] = memref.alloc()
//       CHECK:     memref.store %{{.+}}, %[[B]]
//       CHECK:     memref.dealloc %[[B]]
//       CHECK:   }
//       CHECK:   memref.dealloc %[[A]]
//       CHECK:   return
// CHECK-LABEL: func private @g.scratch(
//       CHECK:   %[[ZERO:.+]] = arith.constant 0 : index
//       CHECK:   return %[[ZERO]]
func.func private @g.body(%x: memref<4xi32>, %begin: index, %end: index, %scratch: memref<?xi8>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %i = memref.load %x[%c0] : memref<4xi32>
  %n = arith.index_cast %i : i32 to index
  %a = memref.alloc(%n) : memref<?xi32>
  scf.for %k = %c0 to %c4 step %c1 {
    %b = memref.alloc() : memref<4xi32>
    memref.store %i, %b[%k] : memref<4xi32>
  }
  memref.store %i, %a[%c0] : memref<?xi32>
  return
}
func.func private @g.scratch(%x: memref<4xi32>) -> index {
  %c0 = arith.constant 0 : index
  return %c0 : index
}
