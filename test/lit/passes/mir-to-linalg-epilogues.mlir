// RUN: rlx-opt %s --mir-to-linalg | FileCheck %s

/// Packed from a fused operation, which rounds once, as packing says.
// CHECK-LABEL: func private @rounded_once.mir(
//  CHECK-SAME:   %[[X:.+]]: tensor<4x64xf16>, %{{.+}}: tensor<2x2048xi8, {{.+}}>, %[[B:.+]]: tensor<32xf16>)
//       CHECK:   %[[P:.+]] = linalg.generic {{.+}} iterator_types = ["parallel", "parallel", "reduction"]
//   CHECK-NOT:   arith.truncf
//       CHECK:   linalg.generic {{.+}} ins(%[[P]], %{{.+}} : tensor<4x32xf32>, tensor<32xf32>)
//   CHECK-NOT:   arith.truncf
//       CHECK:   arith.maximumf
//   CHECK-NOT:   arith.truncf
//       CHECK:   arith.truncf %{{.+}} : f32 to f16
//   CHECK-NOT:   arith.truncf
//       CHECK:   return
func.func private @rounded_once.mir(%x: tensor<4x64xf16>, %w: tensor<2x2048xi8, #mir.packed<f16, k = 64, n = 32, layout = panels>>,
    %b: tensor<32xf16>) -> tensor<4x32xf16> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
  %p = mir.dequant_matmul %x, %w {mir.wide} : tensor<4x64xf16>, tensor<2x2048xi8, #mir.packed<f16, k = 64, n = 32, layout = panels>>
  %s = mir.add %p, %b {mir.wide} : tensor<4x32xf16>, tensor<32xf16>
  %y = mir.relu %s : tensor<4x32xf16>
  return %y : tensor<4x32xf16>
}

/// Operations that the graph has apart round where it says so.
// CHECK-LABEL: func private @no_widen_of_operations_apart.mir(
//       CHECK:   arith.truncf %{{.+}} : f32 to f16
//       CHECK:   arith.truncf %{{.+}} : f32 to f16
//       CHECK:   return
func.func private @no_widen_of_operations_apart.mir(%x: tensor<4x64xf16>, %w: tensor<2x2048xi8, #mir.packed<f16, k = 64, n = 32, layout = panels>>,
    %b: tensor<32xf16>) -> tensor<4x32xf16> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
  %p = mir.dequant_matmul %x, %w : tensor<4x64xf16>, tensor<2x2048xi8, #mir.packed<f16, k = 64, n = 32, layout = panels>>
  %s = mir.add %p, %b : tensor<4x32xf16>, tensor<32xf16>
  return %s : tensor<4x32xf16>
}

/// Casts that are written are kept.
// CHECK-LABEL: func private @no_widen_after_a_cast.mir(
//       CHECK:   arith.truncf %{{.+}} : f32 to bf16
//       CHECK:   arith.truncf %{{.+}} : f32 to f16
//       CHECK:   return
func.func private @no_widen_after_a_cast.mir(%x: tensor<4x64xbf16>, %w: tensor<2x2048xi8, #mir.packed<bf16, k = 64, n = 32, layout = panels>>)
    -> tensor<4x32xf16> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
  %p = mir.dequant_matmul %x, %w : tensor<4x64xbf16>, tensor<2x2048xi8, #mir.packed<bf16, k = 64, n = 32, layout = panels>>
  %c = mir.cast %p : tensor<4x32xbf16> to tensor<4x32xf16>
  %y = mir.relu %c : tensor<4x32xf16>
  return %y : tensor<4x32xf16>
}

/// Operations that each round, in a function that is no kernel.
// CHECK-LABEL: func @no_widen_outside_of_kernels(
//       CHECK:   arith.truncf
//       CHECK:   arith.truncf
//       CHECK:   return
func.func @no_widen_outside_of_kernels(%x: tensor<4x64xf16>, %w: tensor<32x128xi8, #mir.packed<f16, k = 64>>, %b: tensor<32xf16>) -> tensor<4x32xf16> {
  %p = mir.dequant_matmul %x, %w : tensor<4x64xf16>, tensor<32x128xi8, #mir.packed<f16, k = 64>>
  %s = mir.add %p, %b : tensor<4x32xf16>, tensor<32xf16>
  return %s : tensor<4x32xf16>
}
