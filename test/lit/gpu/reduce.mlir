// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-outline-kernels,lir-plan{maxima=s:16},gpu-apply-schedules{chip=sm_90a})' | FileCheck %s

func.func @main(%x: tensor<?x64xf32> {mir.dims = ["s", ""], mir.kind = "input", mir.name = "x"}) -> (tensor<64xf32> {mir.name = "c"}, tensor<?xf32> {mir.name = "r"}, tensor<?x64xf32> {mir.name = "s"}) {
  %c = mir.reduce mean %x axes [0] : tensor<?x64xf32>
  %r = mir.reduce max %x axes [1] : tensor<?x64xf32>
  %s = mir.cumsum %x axis 0 : tensor<?x64xf32>
  return %c, %r, %s : tensor<64xf32>, tensor<?xf32>, tensor<?x64xf32>
}

/// Sums of parts, then running sums that start from those of the parts before.
// CHECK-LABEL: llvm.func @cumsum_0_parts4(
// CHECK-LABEL: llvm.func @cumsum_0_scan4(
//  CHECK-SAME:   %[[X:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[OUT:.+]]: !llvm.ptr<1>, %[[SUMS:.+]]: !llvm.ptr<1> {llvm.readonly}
//       CHECK:   llvm.load %{{.+}} : !llvm.ptr<1> -> f32
//       CHECK:   llvm.store %{{.+}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>

/// A warp has a row of 64.
// CHECK-LABEL: llvm.func @reduce_1_pass04(
//   CHECK-NOT:   nvvm.barrier0
//       CHECK:   nvvm.shfl.sync
//       CHECK:   arith.maximumf

/// Columns: whole, in parts, and the join of the parts, which divides a mean.
// CHECK-LABEL: llvm.func @reduce_0_pass04(
//       CHECK:   arith.divf
// CHECK-LABEL: llvm.func @reduce_0_pass0_parts4(
//       CHECK:   llvm.load %{{.+}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
//       CHECK:   nvvm.barrier0
//   CHECK-NOT:   arith.divf
// CHECK-LABEL: llvm.func @reduce_0_pass0_join4(
//       CHECK:   arith.divf

// CHECK-LABEL: func private @reduce_0.body(
//       CHECK:   scf.if
//       CHECK:     gpu.launch_func @kernels::@reduce_0_pass04
//       CHECK:   } else {
//       CHECK:     gpu.launch_func @kernels::@reduce_0_pass0_parts4
//       CHECK:     gpu.launch_func @kernels::@reduce_0_pass0_join4
