// RUN: rlx-opt %s --gpu-select-branches | FileCheck %s

// CHECK-LABEL: func @if
//  CHECK-SAME:   (%[[P:.+]]: tensor<i1>, %[[X:.+]]: tensor<?xf32>)
//  CHECK-NEXT:   %[[N:.+]] = mir.neg %[[X]]
//  CHECK-NEXT:   %[[E:.+]] = mir.exp %[[X]]
//  CHECK-NEXT:   %[[Y:.+]] = mir.where %[[P]], %[[N]], %[[E]]
//  CHECK-NEXT:   return %[[Y]]
func.func @if(%p: tensor<i1>, %x: tensor<?xf32>) -> tensor<?xf32> {
  %y = mir.if %p(%x) : (tensor<?xf32>) -> tensor<?xf32> {
  ^bb0(%a: tensor<?xf32>):
    %b = mir.neg %a : tensor<?xf32>
    mir.yield %b : tensor<?xf32>
  } else {
  ^bb0(%a: tensor<?xf32>):
    %b = mir.exp %a : tensor<?xf32>
    mir.yield %b : tensor<?xf32>
  }
  return %y : tensor<?xf32>
}

/// A branch that might not end isn't run where it isn't taken.
// CHECK-LABEL: func @loop
//       CHECK:   mir.if
//       CHECK:     mir.while
func.func @loop(%p: tensor<i1>, %x: tensor<f32>) -> tensor<f32> {
  %y = mir.if %p(%p, %x) : (tensor<i1>, tensor<f32>) -> tensor<f32> {
  ^bb0(%q: tensor<i1>, %a: tensor<f32>):
    %b = mir.while (%a) with (%q) : (tensor<f32>, tensor<i1>) -> tensor<f32> cond {
    ^bb0(%c: tensor<f32>, %r: tensor<i1>):
      mir.condition %r, %c : tensor<f32>
    } do {
    ^bb0(%c: tensor<f32>, %r: tensor<i1>):
      mir.yield %c : tensor<f32>
    }
    mir.yield %b : tensor<f32>
  } else {
  ^bb0(%q: tensor<i1>, %a: tensor<f32>):
    mir.yield %a : tensor<f32>
  }
  return %y : tensor<f32>
}
