// RUN: rlx-opt %s --pass-pipeline='builtin.module(func.func(gpu-guard-divisions))' | FileCheck %s

// CHECK-LABEL: func @size(
//  CHECK-SAME:   %[[A:[a-z0-9]+]]: index, %[[B:[a-z0-9]+]]: index
//       CHECK:   %[[ONE:.+]] = arith.constant 1 : index
//       CHECK:   %[[D:.+]] = arith.maxui %[[B]], %[[ONE]]
//       CHECK:   arith.divui %[[A]], %[[D]]
func.func @size(%a: index, %b: index) -> index {
  %q = arith.divui %a, %b : index
  return %q : index
}

/// Constants aren't 0, and elements that exist have sizes that aren't.
// CHECK-LABEL: func @no_guard(
//   CHECK-NOT:   arith.maxui
//       CHECK:   return
func.func @no_guard(%a: index, %b: index, %x: memref<?xindex>) -> index {
  linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%x : memref<?xindex>) {
  ^bb0(%out: index):
    %i = linalg.index 0 : index
    %r = arith.remui %i, %b : index
    linalg.yield %r : index
  }
  %c8 = arith.constant 8 : index
  %q = arith.divui %a, %c8 : index
  return %q : index
}
