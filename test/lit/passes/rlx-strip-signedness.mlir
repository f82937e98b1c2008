// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-strip-signedness)' | FileCheck %s

/// Arguments, results, constants, loops and buffers: all elements become signless, the casts in between go. Which
/// operations take their operands without sign is said by themselves; other types, and their casts, stay.
// CHECK-LABEL: func @f
//  CHECK-SAME:   (%[[X:.+]]: tensor<?xi8>, %[[I:.+]]: tensor<3xi8>) -> tensor<?xi8>
//       CHECK:   arith.constant dense<[0, -1, -128]> : tensor<3xi8>
//       CHECK:   arith.constant dense<-1> : tensor<9xi32>
//       CHECK:   %[[Y:.+]] = linalg.generic {{.+}} ins(%[[X]] : tensor<?xi8>) outs(%[[X]] : tensor<?xi8>)
//       CHECK:   ^bb0(%[[A:.+]]: i8, %{{.+}}: i8):
//  CHECK-NEXT:     %[[M:.+]] = arith.maxui %[[A]], %[[A]] : i8
//  CHECK-NEXT:     linalg.yield %[[M]] : i8
//       CHECK:   return %[[Y]] : tensor<?xi8>
func.func @f(%x: tensor<?xui8>, %i: tensor<3xi8>) -> tensor<?xui8> {
  %c = arith.constant dense<[0, 255, 128]> : tensor<3xui8>
  %d = arith.constant dense<4294967295> : tensor<9xui32>
  %y = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                       iterator_types = ["parallel"]} ins(%x : tensor<?xui8>) outs(%x : tensor<?xui8>) {
  ^bb0(%a: ui8, %b: ui8):
    %0 = builtin.unrealized_conversion_cast %a : ui8 to i8
    %1 = arith.maxui %0, %0 : i8
    %2 = builtin.unrealized_conversion_cast %1 : i8 to ui8
    linalg.yield %2 : ui8
  } -> tensor<?xui8>
  return %y : tensor<?xui8>
}

// CHECK: memref.global "private" constant @g : memref<2xi16> = dense<[1, -1]>
memref.global "private" constant @g : memref<2xui16> = dense<[1, 65535]>

// CHECK-LABEL: func @h
//  CHECK-SAME:   (%{{.+}}: memref<?xi32, strided<[2]>>, %[[B:.+]]: i64) -> index
//       CHECK:   memref.get_global @g : memref<2xi16>
//       CHECK:   builtin.unrealized_conversion_cast %[[B]] : i64 to index
func.func @h(%a: memref<?xui32, strided<[2]>>, %b: i64) -> index {
  %0 = memref.get_global @g : memref<2xui16>
  %1 = builtin.unrealized_conversion_cast %b : i64 to index
  return %1 : index
}
