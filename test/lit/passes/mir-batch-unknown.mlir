// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-batch{inputs=camera})' | FileCheck %s

/// What has no rule goes one entry after the other.
// CHECK-LABEL: func @splats(
//  CHECK-SAME:   %[[M:[a-z0-9]+]]: tensor<?x23xf32>
//       CHECK:   %[[Y:.+]] = mir.scan() over(%[[M]]) with({{.+}}) : {{.+}} -> tensor<?x{{[0-9]+}}xf32> {
//       CHECK:     %[[B:.+]] = mir.gaussian_splat_prepare
//       CHECK:     mir.yield %[[B]]
//       CHECK:   return %[[Y]]
func.func @splats(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<24xf32>, %m: tensor<23xf32> {mir.name = "camera"}) -> tensor<12937xf32> {
  %y = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<24xf32>, tensor<23xf32>
  return %y : tensor<12937xf32>
}
