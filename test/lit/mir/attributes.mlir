// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @packed
//  CHECK-SAME:   tensor<?x128xi8, #mir.packed<f32, k = 32>>
//  CHECK-SAME:   tensor<5x64xi8, #mir.packed<bf16, k = 32>>
//  CHECK-SAME:   tensor<5x34xi8, #mir.packed<q8_0, k = 32>>
//  CHECK-SAME:   tensor<5x210xi8, #mir.packed<q6_k, k = 256>>
//  CHECK-SAME:   tensor<2x384xi8, #mir.packed<q5_1, k = 32, n = 17, layout = panels>>
//  CHECK-SAME:   tensor<?x160xi8, #mir.packed<q4_k, k = 256, layout = planes>>
func.func @packed(%a: tensor<?x128xi8, #mir.packed<f32, k = 32>>,
                  %b: tensor<5x64xi8, #mir.packed<bf16, k = 32>>,
                  %c: tensor<5x34xi8, #mir.packed<q8_0, k = 32, layout = rows>>,
                  %d: tensor<5x210xi8, #mir.packed<q6_k, k = 256>>,
                  %e: tensor<2x384xi8, #mir.packed<q5_1, k = 32, layout = panels, n = 17>>,
                  %f: tensor<?x160xi8, #mir.packed<q4_k, layout = planes, k = 256>>) {
  return
}

// CHECK-LABEL: func @function
//  CHECK-SAME:   %{{.+}}: tensor<?x8xf32> {mir.dims = ["seq", ""], mir.kind = "input", mir.name = "x"}
//  CHECK-SAME:   %{{.+}}: tensor<8xf32> {mir.kind = "param", mir.name = "w"}
//  CHECK-SAME:   -> (tensor<?x8xf32> {mir.name = "y"})
func.func @function(%x: tensor<?x8xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["seq", ""]},
                    %w: tensor<8xf32> {mir.name = "w", mir.kind = "param"})
    -> (tensor<?x8xf32> {mir.name = "y"}) {
  return %x : tensor<?x8xf32>
}

/// After planning, results are buffers that the caller gives.
// CHECK-LABEL: func @planned
//  CHECK-SAME:   %{{.+}}: memref<?x8xf32> {mir.dims = ["seq", ""], mir.kind = "output", mir.name = "y", mir.tied = "x"}
func.func @planned(%y: memref<?x8xf32> {mir.name = "y", mir.kind = "output", mir.dims = ["seq", ""], mir.tied = "x"}) {
  return
}
