// RUN: rlx-opt --help | FileCheck %s --check-prefix=HELP
// RUN: rlx-opt %s --pass-pipeline='builtin.module(func.func(canonicalize))' | FileCheck %s

// HELP-DAG: --rlx-expand-math
// HELP-DAG: --canonicalize

// CHECK-LABEL: func @f(
//  CHECK-SAME:   %[[X:.+]]: tensor<4xf32>)
//       CHECK:   %[[Y:.+]] = mir.silu %[[X]] : tensor<4xf32>
//       CHECK:   return %[[Y]]
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = mir.silu %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
