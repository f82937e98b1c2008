// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(lir-plan)' | FileCheck %s

/// What a loop carries, and what a step gives for it, take turns; entries are where they are. At the end the memory of what
/// is carried has it, here that of the result.
// CHECK-LABEL: func @scan(
//  CHECK-SAME:   %[[ARENA:[a-z0-9]+]]: memref<?xi8>, %[[C:[a-z0-9]+]]: memref<4xf32> {{.+}}, %[[X:[a-z0-9]+]]: memref<?x4xf32> {{.+}}, %[[W:[a-z0-9]+]]: memref<4xf32> {{.+}}, %[[LAST:[a-z0-9]+]]: memref<4xf32> {{.+}}, %[[ALL:[a-z0-9]+]]: memref<?x4xf32>
//       CHECK:   %[[T:.+]] = memref.dim %[[X]]
//       CHECK:   %[[NEXT:.+]] = memref.view %[[ARENA]]
//       CHECK:   call @copy(%[[C]], %[[LAST]])
//       CHECK:   %[[MOST:.+]] = arith.maxsi
//       CHECK:   %[[LOOP:.+]]:2 = scf.for %[[I:.+]] = %{{.+}} to %[[T]] step %{{.+}} iter_args(%[[A:.+]] = %[[LAST]], %[[B:.+]] = %[[NEXT]])
//  CHECK-NEXT:     %[[AT:.+]] = arith.subi %[[MOST]], %[[I]]
//  CHECK-NEXT:     %[[OWN:.+]] = mir.entry_view %[[X]][%[[AT]]]
//  CHECK-NEXT:     %[[ENTRY:.+]] = mir.entry_view %[[ALL]][%[[AT]]]
//  CHECK-NEXT:     func.call @step(%[[A]], %[[OWN]], %[[W]], %[[B]], %[[ENTRY]])
//  CHECK-NEXT:     scf.yield %[[B]], %[[A]]
//       CHECK:   memref.copy %[[LOOP]]#0, %[[LAST]]
func.func private @step(%c: tensor<4xf32>, %x: tensor<4xf32>, %w: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.add %c, %x : tensor<4xf32>
  %1 = mir.mul %0, %w : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
func.func private @copy(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "move", mir.role = "kernel"} {
  %0 = mir.concat %x axis 0 : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @scan(%c: tensor<4xf32> {mir.name = "c"}, %x: tensor<?x4xf32> {mir.name = "x", mir.dims = ["t", ""]}, %w: tensor<4xf32> {mir.name = "w"}) -> (tensor<4xf32> {mir.name = "last"}, tensor<?x4xf32> {mir.name = "all"}) {
  %i = call @copy(%c) : (tensor<4xf32>) -> tensor<4xf32>
  %y:2 = mir.scan (%i) over (%x) with (%w) reverse {mir.kept} : (tensor<4xf32>, tensor<?x4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<?x4xf32>) {
  ^bb0(%a: tensor<4xf32>, %own: tensor<4xf32>, %v: tensor<4xf32>):
    %s:2 = func.call @step(%a, %own, %v) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    mir.yield %s#0, %s#1 : tensor<4xf32>, tensor<4xf32>
  }
  return %y#0, %y#1 : tensor<4xf32>, tensor<?x4xf32>
}

// -----

/// The condition is computed in each step, but after the last one that the limit admits.
// CHECK-LABEL: func @while(
//  CHECK-SAME:   %{{.+}}: memref<?xi8>, %[[C:[a-z0-9]+]]: memref<4xf32> {{.+}}, %[[LAST:[a-z0-9]+]]: memref<4xf32>
//   CHECK-DAG:   %[[LIMIT:.+]] = arith.constant 9 : index
//       CHECK:   %[[FLAG:.+]] = memref.view %{{.+}} : memref<?xi8> to memref<i1>
//       CHECK:   %[[NEXT:.+]] = memref.view %{{.+}} : memref<?xi8> to memref<4xf32>
//       CHECK:   scf.while (%[[A:.+]] = %[[LAST]], %[[B:.+]] = %[[NEXT]], %[[I:.+]] = %{{.+}})
//       CHECK:     %[[WITHIN:.+]] = arith.cmpi slt, %[[I]], %[[LIMIT]]
//       CHECK:     %[[GO:.+]] = scf.if %[[WITHIN]]
//       CHECK:       func.call @goes_on(%[[A]], %[[FLAG]])
//       CHECK:       memref.load %[[FLAG]][]
//       CHECK:     scf.condition(%[[GO]])
//       CHECK:   ^bb0(%[[A2:.+]]: memref<4xf32>, %[[B2:.+]]: memref<4xf32>, %{{.+}}: index):
//       CHECK:     func.call @exp(%[[A2]], %[[B2]])
//       CHECK:     scf.yield %[[B2]], %[[A2]]
//       CHECK:   memref.copy %{{.+}}#0, %[[LAST]]
func.func private @copy(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "move", mir.role = "kernel"} {
  %0 = mir.concat %x axis 0 : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @goes_on(%x: tensor<4xf32>) -> tensor<i1> attributes {mir.kernel = "generic", mir.role = "kernel"} {
  %0 = mir.reduce max %x axes [0] : tensor<4xf32>
  %1 = mir.constant dense<1.0> : tensor<f32>
  %2 = mir.compare lt %0, %1 : tensor<f32>
  return %2 : tensor<i1>
}
func.func private @exp(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.exp %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @while(%c: tensor<4xf32> {mir.name = "c"}) -> (tensor<4xf32> {mir.name = "last"}) {
  %i = call @copy(%c) : (tensor<4xf32>) -> tensor<4xf32>
  %y = mir.while (%i) limit 9 {mir.kept} : (tensor<4xf32>) -> tensor<4xf32> cond {
  ^bb0(%a: tensor<4xf32>):
    %go = func.call @goes_on(%a) : (tensor<4xf32>) -> tensor<i1>
    mir.condition %go, %a : tensor<4xf32>
  } do {
  ^bb0(%a: tensor<4xf32>):
    %b = func.call @exp(%a) : (tensor<4xf32>) -> tensor<4xf32>
    mir.yield %b : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// -----

/// Both branches write where the result is.
// CHECK-LABEL: func @if(
//  CHECK-SAME:   %{{.+}}: memref<?xi8>, %[[P:[a-z0-9]+]]: memref<i1> {{.+}}, %[[C:[a-z0-9]+]]: memref<4xf32> {{.+}}, %[[Y:[a-z0-9]+]]: memref<4xf32>
//       CHECK:   %[[T:.+]] = memref.view
//       CHECK:   %[[FLAG:.+]] = memref.load %[[P]][]
//  CHECK-NEXT:   scf.if %[[FLAG]] {
//  CHECK-NEXT:     func.call @exp(%[[C]], %[[Y]])
//  CHECK-NEXT:   } else {
//  CHECK-NEXT:     func.call @exp(%[[C]], %[[T]])
//  CHECK-NEXT:     func.call @exp(%[[T]], %[[Y]])
func.func private @exp(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.exp %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @if(%p: tensor<i1> {mir.name = "p"}, %c: tensor<4xf32> {mir.name = "c"}) -> (tensor<4xf32> {mir.name = "y"}) {
  %y = mir.if %p(%c) {mir.kept} : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %b = func.call @exp(%a) : (tensor<4xf32>) -> tensor<4xf32>
    mir.yield %b : tensor<4xf32>
  } else {
  ^bb0(%a: tensor<4xf32>):
    %b = func.call @exp(%a) : (tensor<4xf32>) -> tensor<4xf32>
    %d = func.call @exp(%b) : (tensor<4xf32>) -> tensor<4xf32>
    mir.yield %d : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}
