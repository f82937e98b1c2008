// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-outline-kernels,lir-plan{maxima=s:16},gpu-apply-schedules{chip=sm_80})' | FileCheck %s

func.func @main(%x: tensor<?x64xbf16> {mir.dims = ["s", ""], mir.kind = "input", mir.name = "x"}, %y: tensor<?x24xbf16> {mir.dims = ["s", ""], mir.kind = "input", mir.name = "y"}) -> (tensor<64x?xbf16> {mir.name = "t"}, tensor<?x88xbf16> {mir.name = "c"}, tensor<3x?x64xbf16> {mir.name = "e"}) {
  %t = mir.transpose %x permutation [1, 0] : tensor<?x64xbf16>
  %c = mir.concat %x, %y axis 1 : tensor<?x64xbf16>, tensor<?x24xbf16>
  %e = mir.expand %x : tensor<?x64xbf16> to tensor<3x?x64xbf16>
  return %t, %c, %e : tensor<64x?xbf16>, tensor<?x88xbf16>, tensor<3x?x64xbf16>
}

// CHECK-LABEL: llvm.func @expand_0_copy8(
//   CHECK-NOT:   nvvm.griddepcontrol

/// Both inputs are one launch.
// CHECK-LABEL: llvm.func @concat_0_copy8(
//  CHECK-SAME:   %[[X:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[Y:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[OUT:.+]]: !llvm.ptr<1>,
//       CHECK:   llvm.getelementptr %[[X]]
//       CHECK:   llvm.load %{{.+}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
//       CHECK:   llvm.getelementptr %[[OUT]]
//       CHECK:   llvm.getelementptr %[[Y]]
//       CHECK:   llvm.load %{{.+}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
//       CHECK:   llvm.getelementptr %[[OUT]]

/// Squares of eight vectors of eight elements, and a tile in shared memory where the number of rows isn't whole vectors.
// CHECK-LABEL: llvm.func @transpose_0_turn(
// CHECK-COUNT-8: llvm.load %{{.+}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<8xi16>
// CHECK-COUNT-8: llvm.store %{{.+}} {alignment = 16 : i64} : vector<8xi16>, !llvm.ptr<1>
// CHECK-LABEL: llvm.func @transpose_0_tiles(
//       CHECK:   llvm.store %{{.+}} {alignment = 2 : i64} : i16, !llvm.ptr<3>
//       CHECK:   nvvm.barrier0
//       CHECK:   llvm.load %{{.+}} {alignment = 2 : i64} : !llvm.ptr<3> -> i16

// CHECK-LABEL: func private @expand_0.body(
// CHECK-LABEL: func private @concat_0.body(
// CHECK-COUNT-1: gpu.launch_func
//   CHECK-NOT:   gpu.launch_func
// CHECK-LABEL: func private @concat_0.units(
// CHECK-LABEL: func private @transpose_0.body(
//       CHECK:   scf.if
//       CHECK:     gpu.launch_func @kernels::@transpose_0_turn
//       CHECK:   } else {
//       CHECK:     gpu.launch_func @kernels::@transpose_0_tiles
