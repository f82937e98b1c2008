// RUN: rlx-opt %s --pass-pipeline='builtin.module(func.func(mir-to-linalg))' | FileCheck %s

/// What a step gives is written to the memory of what is carried; what is captured is read where it is.
// CHECK-LABEL: func @while
//  CHECK-SAME:   (%[[X:.+]]: tensor<4xf32>, %[[B:.+]]: tensor<f32>)
//       CHECK:   %[[INIT:.+]] = bufferization.alloc_tensor() copy(%[[X]]) : tensor<4xf32>
//       CHECK:   %[[Y:.+]] = scf.while (%[[A:.+]] = %[[INIT]]) : (tensor<4xf32>) -> tensor<4xf32> {
//       CHECK:     %[[GO:.+]] = tensor.extract
//       CHECK:     scf.condition(%[[GO]]) %[[A]] : tensor<4xf32>
//       CHECK:   } do {
//       CHECK:   ^bb0(%[[C:.+]]: tensor<4xf32>):
//       CHECK:     %[[NEXT:.+]] = linalg.generic {{.+}} ins(%[[C]], %[[B]] : tensor<4xf32>, tensor<f32>)
//       CHECK:     %[[KEPT:.+]] = bufferization.materialize_in_destination %[[NEXT]] in %[[C]]
//       CHECK:     scf.yield %[[KEPT]] : tensor<4xf32>
//       CHECK:   return %[[Y]]
func.func @while(%x: tensor<4xf32>, %b: tensor<f32>) -> tensor<4xf32> {
  %y = mir.while (%x) with (%b) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32> cond {
  ^bb0(%a: tensor<4xf32>, %c: tensor<f32>):
    %sum = mir.reduce sum %a axes [0] : tensor<4xf32>
    %go = mir.compare lt %sum, %c : tensor<f32>
    mir.condition %go, %a : tensor<4xf32>
  } do {
  ^bb0(%a: tensor<4xf32>, %c: tensor<f32>):
    %next = mir.mul %a, %c : tensor<4xf32>, tensor<f32>
    mir.yield %next : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

/// With a limit, steps are counted, and the condition is computed where there may be a further one.
// CHECK-LABEL: func @limit
//       CHECK:   scf.while (%[[A:.+]] = %{{.+}}, %[[I:.+]] = %{{.+}}) : (tensor<f32>, index) -> (tensor<f32>, index) {
//       CHECK:     %[[LEFT:.+]] = arith.cmpi slt, %[[I]], %{{.+}} : index
//       CHECK:     %[[GO:.+]] = scf.if %[[LEFT]] -> (i1) {
//       CHECK:     scf.condition(%[[GO]]) %[[A]], %[[I]]
//       CHECK:   } do {
//       CHECK:     arith.addi
func.func @limit(%x: tensor<f32>, %p: tensor<i1>) -> tensor<f32> {
  %y = mir.while (%x) with (%p) limit 3 : (tensor<f32>, tensor<i1>) -> tensor<f32> cond {
  ^bb0(%a: tensor<f32>, %q: tensor<i1>):
    mir.condition %q, %a : tensor<f32>
  } do {
  ^bb0(%a: tensor<f32>, %q: tensor<i1>):
    %b = mir.neg %a : tensor<f32>
    mir.yield %b : tensor<f32>
  }
  return %y : tensor<f32>
}

/// Carried values that change places are copied before one of them is written.
// CHECK-LABEL: func @swap
//       CHECK:   scf.for %{{.+}} iter_args(%[[A:.+]] = %{{.+}}, %[[B:.+]] = %{{.+}}) -> (tensor<4xf32>, tensor<4xf32>) {
//       CHECK:     %[[OLD_B:.+]] = bufferization.alloc_tensor() copy(%[[B]])
//       CHECK:     %[[OLD_A:.+]] = bufferization.alloc_tensor() copy(%[[A]])
//       CHECK:     %[[NEW_A:.+]] = bufferization.materialize_in_destination %[[OLD_B]] in %[[A]]
//       CHECK:     %[[NEW_B:.+]] = bufferization.materialize_in_destination %[[OLD_A]] in %[[B]]
//       CHECK:     scf.yield %[[NEW_A]], %[[NEW_B]]
func.func @swap(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %z:2 = mir.scan (%x, %y) length 5 : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    mir.yield %b, %a : tensor<4xf32>, tensor<4xf32>
  }
  return %z#0, %z#1 : tensor<4xf32>, tensor<4xf32>
}

/// From the last entry to the first: entries are read and written at one place.
// CHECK-LABEL: func @reverse
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x4xf32>)
//       CHECK:   %[[N:.+]] = tensor.dim %[[X]]
//       CHECK:   scf.for %[[T:.+]] = %{{.+}} to %[[N]]
//       CHECK:     %[[AT:.+]] = arith.subi %{{.+}}, %[[T]] : index
//       CHECK:     tensor.extract_slice %[[X]][%[[AT]], 0] [1, 4] [1, 1]
//       CHECK:     tensor.insert_slice %{{.+}} into %{{.+}}[%[[AT]], 0] [1, 4] [1, 1]
func.func @reverse(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %z = mir.scan () over (%x) reverse : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %b = mir.neg %a : tensor<4xf32>
    mir.yield %b : tensor<4xf32>
  }
  return %z : tensor<?x4xf32>
}

/// Both branches write the result to one place, whose size is known before.
// CHECK-LABEL: func @if
//  CHECK-SAME:   (%[[P:.+]]: tensor<i1>, %[[X:.+]]: tensor<?xf32>)
//       CHECK:   %[[N:.+]] = tensor.dim %[[X]]
//       CHECK:   %[[PLACE:.+]] = tensor.empty(%[[N]]) : tensor<?xf32>
//       CHECK:   %[[C:.+]] = tensor.extract %[[P]][]
//       CHECK:   %[[Y:.+]] = scf.if %[[C]] -> (tensor<?xf32>) {
//       CHECK:     linalg.generic {{.+}} outs(%[[PLACE]] : tensor<?xf32>)
//       CHECK:   } else {
//       CHECK:     linalg.generic {{.+}} ins(%[[X]] : tensor<?xf32>) outs(%[[PLACE]] : tensor<?xf32>)
//       CHECK:   return %[[Y]]
func.func @if(%p: tensor<i1>, %x: tensor<?xf32>) -> tensor<?xf32> {
  %y = mir.if %p(%x) : (tensor<?xf32>) -> tensor<?xf32> {
  ^bb0(%a: tensor<?xf32>):
    %b = mir.neg %a : tensor<?xf32>
    mir.yield %b : tensor<?xf32>
  } else {
  ^bb0(%a: tensor<?xf32>):
    mir.yield %a : tensor<?xf32>
  }
  return %y : tensor<?xf32>
}
