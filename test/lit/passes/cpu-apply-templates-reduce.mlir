// RUN: rlx-opt %s --pass-pipeline='builtin.module(cpu-apply-templates{features=+avx2,+fma,+f16c})' | FileCheck %s

/// Reductions and norms of groups: what the templates decline keeps its MIR, and says why.
// CHECK-LABEL: func private @reduce_2.mir(
//  CHECK-SAME:   mir.template = "generic: reduce_2: dimension 1 lies between those that are reduced, (0, 2)"
//       CHECK:   mir.reduce
// CHECK-LABEL: func private @group_norm_1.mir(
//  CHECK-SAME:   mir.template = "generic: group_norm_1: norms of groups of f64 have no template"
//       CHECK:   mir.group_norm

/// Columns in registers: 3 vectors of 8, 40 rows in blocks of 32.
// CHECK-LABEL: func private @reduce_0.body(
//  CHECK-SAME:   memref<?x40x24xf32>, %{{.+}}: memref<?x24xf32>, {{.+}}) attributes {mir.template = "reduce"}
//       CHECK:   scf.for {{.+}} step %c32
//       CHECK:   scf.for
// CHECK-COUNT-3:   vector.load {{.+}} vector<8xf32>

/// Rows of integers: lanes run along them.
// CHECK-LABEL: func private @reduce_1.body(
//       CHECK:   arith.maxsi {{.+}} : vector<8xi32>
//       CHECK:   vector.reduction <maxsi>

/// Two channels of 5 are a group; factors in the order of the operation.
// CHECK-LABEL: func private @group_norm_0.body(
//  CHECK-SAME:   %[[BETA:[^:]+]]: memref<10xf32>, %[[GAMMA:[^:]+]]: memref<10xf32>, %{{[^:]+}}: memref<?x10x7x9xf32>,
//       CHECK:   math.sqrt {{.+}} : f64
//       CHECK:   memref.load %[[GAMMA]]
//       CHECK:   memref.load %[[BETA]]

func.func private @reduce_0.mir(%x: tensor<?x40x24xf32>) -> tensor<?x24xf32> attributes {mir.kernel = "reduce", mir.role = "kernel"} {
  %0 = mir.reduce sum %x axes [1] : tensor<?x40x24xf32>
  return %0 : tensor<?x24xf32>
}
func.func private @reduce_1.mir(%x: tensor<?x40x24xi32>) -> tensor<?xi32> attributes {mir.kernel = "reduce", mir.role = "kernel"} {
  %0 = mir.reduce max %x axes [1, 2] : tensor<?x40x24xi32>
  return %0 : tensor<?xi32>
}
func.func private @reduce_2.mir(%x: tensor<4x40x24xf32>) -> tensor<40xf32> attributes {mir.kernel = "reduce", mir.role = "kernel"} {
  %0 = mir.reduce sum %x axes [0, 2] : tensor<4x40x24xf32>
  return %0 : tensor<40xf32>
}
func.func private @group_norm_0.mir(%b: tensor<10xf32>, %g: tensor<10xf32>, %x: tensor<?x10x7x9xf32>) -> tensor<?x10x7x9xf32> attributes {mir.kernel = "group_norm", mir.role = "kernel"} {
  %0 = mir.group_norm %x, %g beta(%b : tensor<10xf32>) groups 5 : tensor<?x10x7x9xf32>, tensor<10xf32>
  return %0 : tensor<?x10x7x9xf32>
}
func.func private @group_norm_1.mir(%x: tensor<1x10x7x9xf64>, %g: tensor<10xf64>) -> tensor<1x10x7x9xf64> attributes {mir.kernel = "group_norm", mir.role = "kernel"} {
  %0 = mir.group_norm %x, %g groups 5 : tensor<1x10x7x9xf64>, tensor<10xf64>
  return %0 : tensor<1x10x7x9xf64>
}
