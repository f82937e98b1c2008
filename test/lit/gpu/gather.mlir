// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-outline-kernels{gathers=true},lir-plan{maxima=s:16,d:4},gpu-apply-schedules{chip=sm_90a})' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-outline-kernels)' | FileCheck %s --check-prefix=APART

func.func @main(%ids: tensor<1x?xi32> {mir.dims = ["", "s"], mir.kind = "input", mir.name = "ids"}, %rows: tensor<32x20xi8, #mir.packed<q4_1, k = 32>> {mir.kind = "param", mir.name = "rows"}, %dense: tensor<?x5x32xbf16> {mir.dims = ["d", "", ""], mir.kind = "input", mir.name = "dense"}) -> (tensor<1x?x32xf32> {mir.name = "x"}, tensor<?x1x?x32xbf16> {mir.name = "y"}) {
  %c = mir.constant dense<2.0> : tensor<f32>
  %x = mir.gather %rows, %ids axis 0 : tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, tensor<1x?xi32>
  %s = mir.mul %x, %c : tensor<1x?x32xf32>, tensor<f32>
  %y = mir.gather %dense, %ids axis 1 : tensor<?x5x32xbf16>, tensor<1x?xi32>
  return %s, %y : tensor<1x?x32xf32>, tensor<?x1x?x32xbf16>
}

/// On CPUs what follows a gather is a kernel of rows.
//    APART-DAG: @gather_0(%{{.+}}) -> tensor<1x?x32xf32> attributes {mir.kernel = "gather"
//    APART-DAG: @mul_0(%{{.+}}) -> tensor<1x?x32xf32> attributes {mir.kernel = "rows"

/// A dense table is copied by 16 bytes.
// CHECK-LABEL: llvm.func @gather_0_gather8(
//       CHECK:   llvm.load %{{.+}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<8xbf16>
//       CHECK:   llvm.store %{{.+}} {alignment = 16 : i64} : vector<8xbf16>, !llvm.ptr<1>

/// The index is read after the wait, kept inside of the table, and names the row's bytes, which are decoded.
// CHECK-LABEL: llvm.func @gather_mul_0_gather4(
//  CHECK-SAME:   %[[TABLE:.+]]: !llvm.ptr<1> {llvm.noalias, llvm.readonly}, %[[IDS:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[OUT:.+]]: !llvm.ptr<1>
//       CHECK:   nvvm.griddepcontrol wait
//       CHECK:   %[[AT:.+]] = llvm.getelementptr %[[IDS]][%{{.+}}]
//       CHECK:   %[[READ:.+]] = llvm.load %[[AT]] {alignment = 4 : i64} : !llvm.ptr<1> -> i32
//       CHECK:   %[[WIDE:.+]] = arith.extsi %[[READ]] : i32 to i64
//       CHECK:   %[[LOW:.+]] = arith.minsi %[[WIDE]], %[[LAST:.+]] : i64
//       CHECK:   %[[INDEX:.+]] = arith.maxsi %[[LOW]], %{{.+}} : i64
//       CHECK:   %[[BYTE:.+]] = arith.muli %[[INDEX]], %{{.+}} : i64
//       CHECK:   llvm.getelementptr %[[TABLE]][%[[BYTE]]]
//       CHECK:   llvm.load %{{.+}} {alignment = 2 : i64} : !llvm.ptr<1> -> f16
//       CHECK:   arith.mulf
//       CHECK:   %[[TO:.+]] = llvm.getelementptr %[[OUT]][%{{.+}}]
//       CHECK:   llvm.store %{{.+}}, %[[TO]] {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>

// CHECK-LABEL: func private @gather_mul_0.body(
//       CHECK:   gpu.launch_func @kernels::@gather_mul_0_gather4
//  CHECK-SAME:   {rlx.pdl}
