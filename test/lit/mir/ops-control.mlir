// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

/// What a branch doesn't read is captured still, and both regions have the same arguments.
// CHECK-LABEL: func @if
//  CHECK-SAME:   (%[[P:.+]]: tensor<i1>, %[[X:.+]]: tensor<?x4xf32>, %[[W:.+]]: tensor<4xf32>)
//       CHECK:   %[[Y:.+]] = mir.if %[[P]](%[[X]], %[[W]]) : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32> {
//       CHECK:   ^bb0(%[[A:.+]]: tensor<?x4xf32>, %[[B:.+]]: tensor<4xf32>):
//       CHECK:     %[[C:.+]] = mir.mul %[[A]], %[[B]]
//       CHECK:     mir.yield %[[C]] : tensor<?x4xf32>
//       CHECK:   } else {
//       CHECK:   ^bb0(%[[D:.+]]: tensor<?x4xf32>, %{{.+}}: tensor<4xf32>):
//       CHECK:     mir.yield %[[D]] : tensor<?x4xf32>
//       CHECK:   return %[[Y]]
func.func @if(%p: tensor<i1>, %x: tensor<?x4xf32>, %w: tensor<4xf32>) -> tensor<?x4xf32> {
  %y = mir.if %p(%x, %w) : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>, %b: tensor<4xf32>):
    %c = mir.mul %a, %b : tensor<?x4xf32>, tensor<4xf32>
    mir.yield %c : tensor<?x4xf32>
  } else {
  ^bb0(%a: tensor<?x4xf32>, %b: tensor<4xf32>):
    mir.yield %a : tensor<?x4xf32>
  }
  return %y : tensor<?x4xf32>
}

/// Nothing captured, two results.
// CHECK-LABEL: func @if_constants
//       CHECK:   %[[Y:.+]]:2 = mir.if %{{.+}}() : () -> (tensor<2xi32>, tensor<f32>) {
//       CHECK:   } else {
//       CHECK:   return %[[Y]]#0, %[[Y]]#1
func.func @if_constants(%p: tensor<i1>) -> (tensor<2xi32>, tensor<f32>) {
  %y:2 = mir.if %p() : () -> (tensor<2xi32>, tensor<f32>) {
    %a = mir.constant dense<1> : tensor<2xi32>
    %b = mir.constant dense<1.0> : tensor<f32>
    mir.yield %a, %b : tensor<2xi32>, tensor<f32>
  } else {
    %a = mir.constant dense<2> : tensor<2xi32>
    %b = mir.constant dense<2.0> : tensor<f32>
    mir.yield %a, %b : tensor<2xi32>, tensor<f32>
  }
  return %y#0, %y#1 : tensor<2xi32>, tensor<f32>
}

// CHECK-LABEL: func @while
//  CHECK-SAME:   (%[[X:.+]]: tensor<4xf32>, %[[N:.+]]: tensor<i32>, %[[W:.+]]: tensor<f32>)
//       CHECK:   %[[Y:.+]]:2 = mir.while(%[[X]], %[[N]]) with(%[[W]]) limit 100 : (tensor<4xf32>, tensor<i32>, tensor<f32>) -> (tensor<4xf32>, tensor<i32>) cond {
//       CHECK:   ^bb0(%[[A:.+]]: tensor<4xf32>, %[[I:.+]]: tensor<i32>, %{{.+}}: tensor<f32>):
//       CHECK:     mir.condition %{{.+}}, %[[A]], %[[I]] : tensor<4xf32>, tensor<i32>
//       CHECK:   } do {
//       CHECK:     mir.yield %{{.+}}, %{{.+}} : tensor<4xf32>, tensor<i32>
//       CHECK:   return %[[Y]]#0, %[[Y]]#1
func.func @while(%x: tensor<4xf32>, %n: tensor<i32>, %w: tensor<f32>) -> (tensor<4xf32>, tensor<i32>) {
  %y:2 = mir.while (%x, %n) with (%w) limit 100 : (tensor<4xf32>, tensor<i32>, tensor<f32>) -> (tensor<4xf32>, tensor<i32>) cond {
  ^bb0(%a: tensor<4xf32>, %i: tensor<i32>, %s: tensor<f32>):
    %zero = mir.constant dense<0> : tensor<i32>
    %go = mir.compare gt %i, %zero : tensor<i32>
    mir.condition %go, %a, %i : tensor<4xf32>, tensor<i32>
  } do {
  ^bb0(%a: tensor<4xf32>, %i: tensor<i32>, %s: tensor<f32>):
    %one = mir.constant dense<1> : tensor<i32>
    %b = mir.mul %a, %s : tensor<4xf32>, tensor<f32>
    %j = mir.sub %i, %one : tensor<i32>
    mir.yield %b, %j : tensor<4xf32>, tensor<i32>
  }
  return %y#0, %y#1 : tensor<4xf32>, tensor<i32>
}

// CHECK-LABEL: func @scan
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x4xf32>, %[[C:.+]]: tensor<4xf32>, %[[W:.+]]: tensor<f32>)
//       CHECK:   %[[Y:.+]]:2 = mir.scan(%[[C]]) over(%[[X]]) with(%[[W]]) reverse : (tensor<4xf32>, tensor<?x4xf32>, tensor<f32>) -> (tensor<4xf32>, tensor<?x4xf32>) {
//       CHECK:   ^bb0(%[[M:.+]]: tensor<4xf32>, %[[O:.+]]: tensor<4xf32>, %[[D:.+]]: tensor<f32>):
//       CHECK:     mir.yield %[[N:.+]], %[[N]] : tensor<4xf32>, tensor<4xf32>
//       CHECK:   return %[[Y]]#0, %[[Y]]#1
func.func @scan(%x: tensor<?x4xf32>, %c: tensor<4xf32>, %w: tensor<f32>) -> (tensor<4xf32>, tensor<?x4xf32>) {
  %y:2 = mir.scan (%c) over (%x) with (%w) reverse : (tensor<4xf32>, tensor<?x4xf32>, tensor<f32>) -> (tensor<4xf32>, tensor<?x4xf32>) {
  ^bb0(%m: tensor<4xf32>, %own: tensor<4xf32>, %d: tensor<f32>):
    %p = mir.mul %m, %d : tensor<4xf32>, tensor<f32>
    %n = mir.add %p, %own : tensor<4xf32>
    mir.yield %n, %n : tensor<4xf32>, tensor<4xf32>
  }
  return %y#0, %y#1 : tensor<4xf32>, tensor<?x4xf32>
}

/// Steps without a sequence, and without what is carried; one loop in another one.
// CHECK-LABEL: func @scan_length
//       CHECK:   mir.scan(%{{.+}}) length 8 : (tensor<f32>) -> tensor<f32> {
//       CHECK:     %[[Y:.+]] = mir.scan() over(%{{.+}}) : (tensor<8xf32>) -> tensor<8xf32> {
//       CHECK:     mir.yield
//       CHECK:   mir.yield
func.func @scan_length(%x: tensor<f32>) -> tensor<f32> {
  %y = mir.scan (%x) length 8 : (tensor<f32>) -> tensor<f32> {
  ^bb0(%c: tensor<f32>):
    %all = mir.expand %c : tensor<f32> to tensor<8xf32>
    %z = mir.scan () over (%all) : (tensor<8xf32>) -> tensor<8xf32> {
    ^bb0(%own: tensor<f32>):
      %n = mir.neg %own : tensor<f32>
      mir.yield %n : tensor<f32>
    }
    %s = mir.reduce sum %z axes [0] : tensor<8xf32>
    mir.yield %s : tensor<f32>
  }
  return %y : tensor<f32>
}

/// An entry of a buffer, where it is.
// CHECK-LABEL: func @entry_view
//       CHECK:   %{{.+}} = mir.entry_view %{{.+}}[%{{.+}}] : memref<?x4xf32> to memref<4xf32>
//       CHECK:   %{{.+}} = mir.entry_view %{{.+}}[%{{.+}}] : memref<8xi1> to memref<i1>
func.func @entry_view(%x: memref<?x4xf32>, %p: memref<8xi1>, %t: index) -> (memref<4xf32>, memref<i1>) {
  %y = mir.entry_view %x[%t] : memref<?x4xf32> to memref<4xf32>
  %q = mir.entry_view %p[%t] : memref<8xi1> to memref<i1>
  return %y, %q : memref<4xf32>, memref<i1>
}

// CHECK-LABEL: func @scan_with_checkpoints
//       CHECK:   mir.scan(%{{.+}}) length 6 checkpoints 2 : (tensor<f32>) -> tensor<f32> {
func.func @scan_with_checkpoints(%x: tensor<f32>) -> tensor<f32> {
  %y = mir.scan (%x) length 6 checkpoints 2 : (tensor<f32>) -> tensor<f32> {
  ^bb0(%a: tensor<f32>):
    %b = mir.tanh %a : tensor<f32>
    mir.yield %b : tensor<f32>
  }
  return %y : tensor<f32>
}

/// Regions of gradients are there or empty.
// CHECK-LABEL: func @custom_fn
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x4xf32>, %[[W:.+]]: tensor<4xf32>)
//       CHECK:   %[[Y:.+]] = mir.custom_fn(%[[X]], %[[W]]) : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32> {
//       CHECK:   ^bb0(%[[A:.+]]: tensor<?x4xf32>, %[[B:.+]]: tensor<4xf32>):
//       CHECK:     %[[C:.+]] = mir.mul %[[A]], %[[B]]
//       CHECK:     mir.yield %[[C]]
//       CHECK:   } vjp {
//       CHECK:   ^bb0(%{{.+}}: tensor<?x4xf32>, %[[V:.+]]: tensor<4xf32>, %{{.+}}: tensor<?x4xf32>, %[[D:.+]]: tensor<?x4xf32>):
//       CHECK:     mir.yield %[[D]], %[[V]] : tensor<?x4xf32>, tensor<4xf32>
//       CHECK:   }
//       CHECK:   mir.custom_fn(%[[Y]])
//       CHECK:   } jvp {
//       CHECK:   ^bb0(%{{.+}}: tensor<?x4xf32>, %[[T:.+]]: tensor<?x4xf32>):
//       CHECK:     mir.yield %[[T]]
func.func @custom_fn(%x: tensor<?x4xf32>, %w: tensor<4xf32>) -> tensor<?x4xf32> {
  %y = mir.custom_fn(%x, %w) : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>, %b: tensor<4xf32>):
    %c = mir.mul %a, %b : tensor<?x4xf32>, tensor<4xf32>
    mir.yield %c : tensor<?x4xf32>
  } vjp {
  ^bb0(%a: tensor<?x4xf32>, %b: tensor<4xf32>, %c: tensor<?x4xf32>, %d: tensor<?x4xf32>):
    mir.yield %d, %b : tensor<?x4xf32>, tensor<4xf32>
  }
  %z = mir.custom_fn(%y) : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    mir.yield %a : tensor<?x4xf32>
  } jvp {
  ^bb0(%a: tensor<?x4xf32>, %t: tensor<?x4xf32>):
    mir.yield %t : tensor<?x4xf32>
  }
  return %z : tensor<?x4xf32>
}
