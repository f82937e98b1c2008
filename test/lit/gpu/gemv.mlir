// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_90a})' | FileCheck %s --check-prefixes=CHECK,RING
// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_80})' | FileCheck %s --check-prefixes=CHECK,WARPS

module {
  func.func private @ints.mir(%q: tensor<1x2048xi8>, %d: tensor<1x64xf32>, %s: tensor<1x64xi32>, %w: tensor<4096x1184xi8, #mir.packed<q4_k, k = 2048, layout = planes>>) -> tensor<1x4096xf32> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
    %0 = mir.block_dot %q, %d, %s, %w : tensor<1x2048xi8>, tensor<4096x1184xi8, #mir.packed<q4_k, k = 2048, layout = planes>>
    return %0 : tensor<1x4096xf32>
  }
  func.func private @twice.mir(%x: tensor<?x64xbf16>, %w: tensor<40x64xbf16>) -> tensor<?x40xbf16> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
    %0 = mir.matmul %x, %w transpose_rhs : tensor<?x64xbf16>, tensor<40x64xbf16>
    return %0 : tensor<?x40xbf16>
  }
  func.func private @columns.mir(%x: tensor<2x64xf32>, %w: tensor<64x40xf32>, %b: tensor<40xf32>) -> tensor<2x40xf32> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
    %0 = mir.fused_matmul_bias_act %x, %w, %b : tensor<2x64xf32>, tensor<64x40xf32>, tensor<40xf32>
    return %0 : tensor<2x40xf32>
  }

  func.func private @ints(memref<1x2048xi8>, memref<1x64xf32>, memref<1x64xi32>, memref<4096x1184xi8>, memref<1x4096xf32>)
  func.func private @twice(memref<?x64xbf16>, memref<40x64xbf16>, memref<?x40xbf16>)
  func.func private @columns(memref<2x64xf32>, memref<64x40xf32>, memref<40xf32>, memref<2x40xf32>)
  func.func @main(%q: memref<1x2048xi8> {mir.kind = "input", mir.name = "q"}, %d: memref<1x64xf32> {mir.kind = "input", mir.name = "d"}, %s: memref<1x64xi32> {mir.kind = "input", mir.name = "s"}, %w: memref<4096x1184xi8> {mir.kind = "param", mir.name = "w"}, %y: memref<1x4096xf32> {mir.kind = "output", mir.name = "y"}) {
    call @ints(%q, %d, %s, %w, %y) : (memref<1x2048xi8>, memref<1x64xf32>, memref<1x64xi32>, memref<4096x1184xi8>, memref<1x4096xf32>) -> ()
    return
  }
}

/// Weights are parameters, so constant; what other kernels write isn't.
// CHECK-LABEL: llvm.func @ints_gemv1(
//  CHECK-SAME:   %[[Q:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[D:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[S:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[W:.+]]: !llvm.ptr<1> {llvm.noalias, llvm.readonly}, %[[Y:.+]]: !llvm.ptr<1>)

/// One warp copies rows to shared memory, before the kernels before have ended. The others wait for these, and read x.
//        RING:   scf.if
//    RING-NOT:     nvvm.griddepcontrol wait
//        RING:     scf.for
//        RING:       nvvm.mbarrier.try_wait.parity
//        RING:       nvvm.mbarrier.arrive.expect_tx
//        RING:       %[[SOURCE:.+]] = llvm.getelementptr %[[W]][%{{.+}}]
//        RING:       nvvm.cp.async.bulk.shared.cluster.global %{{.+}}, %[[SOURCE]],
//        RING:   } else {
//        RING:     nvvm.griddepcontrol wait
//        RING:     llvm.getelementptr %[[Q]]
//        RING:     llvm.store %{{.+}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<3>
//        RING:     nvvm.barrier id =
//        RING:     scf.for
//        RING:       nvvm.mbarrier.try_wait.parity
//        RING:       llvm.load %{{.+}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xi32>
//        RING:       nvvm.dot.accumulate.4way %{{.+}} <unsigned>, %{{.+}} <signed>
//        RING:       nvvm.mbarrier.arrive
//        RING:       nvvm.shfl.sync
//        RING:       llvm.store %{{.+}}, %{{.+}} {alignment = 4 : i64} : f32, !llvm.ptr<1>

/// Warps load 16 bytes of rows by each of their threads.
//   WARPS-NOT:   !llvm.ptr<3>
//       WARPS:   llvm.load %{{.+}} invariant {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
//       WARPS:   nvvm.dot.accumulate.4way %{{.+}} <unsigned>, %{{.+}} <signed>
//       WARPS:   nvvm.shfl.sync
//       WARPS:   llvm.store %{{.+}}, %{{.+}} {alignment = 4 : i64} : f32, !llvm.ptr<1>

/// A dynamic number of rows: a kernel for each range of sizes, and beyond 8 rows a schedule for many.
// CHECK-LABEL: llvm.func @twice_gemv1(
// CHECK-LABEL: llvm.func @twice_gemv4(
// CHECK-LABEL: llvm.func @twice_gemv8(
// CHECK-LABEL: llvm.func @columns_gemv2(

// CHECK-LABEL: func.func private @ints.body(
//  CHECK-SAME:   %[[Q:[a-z0-9]+]]: memref<1x2048xi8>, %[[D:[a-z0-9]+]]: memref<1x64xf32>, %[[S:[a-z0-9]+]]: memref<1x64xi32>, %[[W:[a-z0-9]+]]: memref<4096x1184xi8>, %[[Y:[a-z0-9]+]]: memref<1x4096xf32>
//  CHECK-SAME:   mir.template = "gemv"
//        RING:   gpu.launch_func @kernels::@ints_gemv1 blocks in (%c132, %c1, %c1)
//       WARPS:   gpu.launch_func @kernels::@ints_gemv1 blocks in (%c{{[0-9]+}}, %c1, %c1) threads in (%c128, %c1, %c1)
//  CHECK-SAME:   args(%[[Q]] : memref<1x2048xi8>, %[[D]] : memref<1x64xf32>, %[[S]] : memref<1x64xi32>, %[[W]] : memref<4096x1184xi8>, %[[Y]] : memref<1x4096xf32>)
//   RING-SAME:   {rlx.pdl}

// CHECK-LABEL: func.func private @twice.body(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<?x64xbf16>
//       CHECK:   %[[M:.+]] = memref.dim %[[X]], %c0
//       CHECK:   %[[FEW:.+]] = arith.cmpi ule, %[[M]], %c8
//       CHECK:   scf.if %[[FEW]] {
//       CHECK:     gpu.launch_func @kernels::@twice_gemv1
//       CHECK:     gpu.launch_func @kernels::@twice_gemv8
//       CHECK:   } else {
//   CHECK-NOT:     twice_gemv
//       CHECK:     gpu.launch_func @kernels::@twice_

// CHECK-LABEL: func.func private @columns.body(
//  CHECK-SAME:   mir.template = "gemv"
