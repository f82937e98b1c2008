// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-outline-kernels,lir-plan{maxima=n:2},gpu-apply-schedules{chip=sm_90a})' | FileCheck %s

func.func @main(%x: tensor<?x3x8x8xf32> {mir.dims = ["n", "", "", ""], mir.kind = "input", mir.name = "x"}, %w: tensor<32x3x3x3xf32> {mir.kind = "param", mir.name = "w"}) -> (tensor<?x32x8x8xf32> {mir.name = "y"}) {
  %y = mir.conv %x, %w padding [1, 1] : tensor<?x3x8x8xf32>, tensor<32x3x3x3xf32>
  return %y : tensor<?x32x8x8xf32>
}

/// Weights and pixels of a step in shared memory, read by four neighbours; outputs are written by vectors.
// CHECK-LABEL: llvm.func @conv_0_conv2d(
//  CHECK-SAME:   %[[X:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[W:.+]]: !llvm.ptr<1> {llvm.noalias, llvm.readonly}, %[[OUT:.+]]: !llvm.ptr<1>)
//       CHECK:   nvvm.griddepcontrol wait
//       CHECK:   llvm.getelementptr %[[W]]
//       CHECK:   llvm.getelementptr %[[X]]
//       CHECK:   nvvm.barrier0
//       CHECK:   scf.for
//       CHECK:     llvm.load %{{.+}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
//       CHECK:     llvm.intr.fma
//       CHECK:     nvvm.barrier0
//       CHECK:   llvm.getelementptr %[[OUT]]
//       CHECK:   llvm.store %{{.+}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>

// CHECK-LABEL: func private @conv_0.body(
//       CHECK:   gpu.launch_func @kernels::@conv_0_conv2d
//  CHECK-SAME:   {rlx.pdl}
