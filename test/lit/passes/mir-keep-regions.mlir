// RUN: rlx-opt %s --mir-keep-regions | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: rlx-opt %s --mir-keep-regions="loops=true alignment=16" | FileCheck %s --check-prefixes=CHECK,GPU

/// A product has a kernel that a loop in one kernel can't use. Entries of 12 bytes don't start where GPUs read 16.
// CHECK-LABEL: func @products
//         CPU:   mir.scan{{.+}} {mir.kept} :
//     GPU-NOT:   mir.kept
func.func @products(%c: tensor<1x3xf32>, %x: tensor<?x1x3xf32>, %w: tensor<3x3xf32>) -> tensor<1x3xf32> {
  %y = mir.scan (%c) over (%x) with (%w) : (tensor<1x3xf32>, tensor<?x1x3xf32>, tensor<3x3xf32>) -> tensor<1x3xf32> {
  ^bb0(%a: tensor<1x3xf32>, %own: tensor<1x3xf32>, %v: tensor<3x3xf32>):
    %s = mir.add %a, %own : tensor<1x3xf32>
    %p = mir.matmul %s, %v : tensor<1x3xf32>, tensor<3x3xf32>
    mir.yield %p : tensor<1x3xf32>
  }
  return %y : tensor<1x3xf32>
}

/// What holds such a loop is kept with it.
// CHECK-LABEL: func @choice
//       CHECK:   mir.if{{.+}} {mir.kept} :
//       CHECK:     mir.scan{{.+}} {mir.kept} :
func.func @choice(%t: tensor<i1>, %c: tensor<1x4xf32>, %w: tensor<4x4xf32>) -> tensor<1x4xf32> {
  %y = mir.if %t(%c, %w) : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32> {
  ^bb0(%a: tensor<1x4xf32>, %v: tensor<4x4xf32>):
    %z = mir.scan (%a) with (%v) length 100 : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32> {
    ^bb0(%b: tensor<1x4xf32>, %u: tensor<4x4xf32>):
      %p = mir.matmul %b, %u : tensor<1x4xf32>, tensor<4x4xf32>
      mir.yield %p : tensor<1x4xf32>
    }
    mir.yield %z : tensor<1x4xf32>
  } else {
  ^bb0(%a: tensor<1x4xf32>, %v: tensor<4x4xf32>):
    mir.yield %a : tensor<1x4xf32>
  }
  return %y : tensor<1x4xf32>
}

/// A small loop is one kernel on CPUs; on GPUs the host has to see what ends it.
// CHECK-LABEL: func @small
//     CPU-NOT:   mir.kept
//         GPU:   mir.while{{.+}} {mir.kept} :
func.func @small(%x: tensor<f32>) -> tensor<f32> {
  %y = mir.while (%x) : (tensor<f32>) -> tensor<f32> cond {
  ^bb0(%a: tensor<f32>):
    %bound = mir.constant dense<1.0> : tensor<f32>
    %go = mir.compare lt %a, %bound : tensor<f32>
    mir.condition %go, %a : tensor<f32>
  } do {
  ^bb0(%a: tensor<f32>):
    %b = mir.add %a, %a : tensor<f32>
    mir.yield %b : tensor<f32>
  }
  return %y : tensor<f32>
}
