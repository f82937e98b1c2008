// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_90a})' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_90})' | FileCheck %s --check-prefix=OLDER

/// Up to 16 rows: operands are exchanged, and a second kernel adds up two parts of K.
// CHECK-LABEL: llvm.func @linear_0_wgmma_0_16x64(
//  CHECK-SAME:   %{{.+}}: !llvm.ptr {{{.*}}llvm.byval = !llvm.array<128 x i8>
//  CHECK-SAME:   nvvm.maxntid = array<i32: 256, 1, 1>
//       CHECK:   nvvm.mbarrier.init
//       CHECK:   nvvm.fence.mbarrier.init
//       CHECK:   nvvm.griddepcontrol launch_dependents

/// The last range: one warpgroup loads, two multiply tiles of 128 x 256.
// CHECK-LABEL: llvm.func @linear_0_wgmma_{{[0-9]}}_128x256(
//  CHECK-SAME:   %[[X:.+]]: !llvm.ptr {{{.*}}}, %[[W:.+]]: !llvm.ptr {{{.*}}}, %[[OUT:.+]]: !llvm.ptr {{{.*}}}, %[[BIAS:.+]]: !llvm.ptr<1>
//  CHECK-SAME:   nvvm.maxntid = array<i32: 384, 1, 1>
//       CHECK:   nvvm.prefetch tensormap, %[[X]]
//       CHECK:   nvvm.prefetch tensormap, %[[W]]
//       CHECK:   nvvm.barrier0
/// The loading thread: weights are read before the kernels ahead end, x isn't.
//       CHECK:   nvvm.setmaxregister decrease 24
//       CHECK:   nvvm.elect.sync
//       CHECK:   nvvm.mbarrier.arrive.expect_tx {{.*}}
//   CHECK-NOT:   %[[X]]
//       CHECK:   nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}, %[[W]],
//       CHECK:   nvvm.griddepcontrol wait
//       CHECK:   nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}, %[[X]],
//       CHECK:   nvvm.mbarrier.try_wait.parity
//       CHECK:   nvvm.mbarrier.arrive.expect_tx
//       CHECK:   nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}, %[[X]],
//       CHECK:   nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}, %[[W]],
/// The multiplying threads: four steps of 16 for a stage, of which one more is under way when it is freed.
//       CHECK:   nvvm.setmaxregister increase 240
//       CHECK:   nvvm.griddepcontrol wait
//       CHECK:   nvvm.mbarrier.try_wait.parity
//       CHECK:   nvvm.wgmma.fence.aligned
// CHECK-COUNT-4: nvvm.wgmma.mma_async {{.*}}<m = 64, n = 256, k = 16>, {{.*}}A[<bf16>, <one>, <row>], B[<bf16>, <one>, <col>]
//       CHECK:   nvvm.wgmma.commit.group.sync.aligned
//       CHECK:   scf.for
//       CHECK:   nvvm.mbarrier.try_wait.parity
// CHECK-COUNT-4: nvvm.wgmma.mma_async
//       CHECK:   nvvm.wgmma.wait.group.sync.aligned 1
//       CHECK:   nvvm.mbarrier.arrive
/// Sums pass through the wait, the bias is added, and boxes are staged and stored.
//       CHECK:   llvm.inline_asm {{.*}}wgmma.wait_group.sync.aligned 0;
//       CHECK:   nvvm.cp.async.bulk.wait_group 0 {read}
//       CHECK:   llvm.getelementptr %[[BIAS]]
//       CHECK:   ex2.approx.f32
//       CHECK:   nvvm.stmatrix
//       CHECK:   nvvm.fence.proxy
//       CHECK:   nvvm.cp.async.bulk.tensor.global.shared.cta %[[OUT]]

// CHECK-LABEL: func private @linear_0.body(
//  CHECK-SAME:   %[[ARG_X:.+]]: memref<?x4096xbf16>, %[[ARG_W:.+]]: memref<4096x4096xbf16>
//  CHECK-SAME:   attributes {mir.template = "{{(gemv.)?}}gemm_hopper"}
//       CHECK:   arith.cmpi ule, %{{.+}}, %c16
//       CHECK:   %[[X_VIEW:.+]] = memref.reinterpret_cast %[[ARG_X]]
//       CHECK:   %[[X_CAST:.+]] = memref.cast %[[X_VIEW]]
//       CHECK:   %[[X_MAP:.+]] = nvgpu.tma.create.descriptor %[[X_CAST]] box[%c16{{[_0-9]*}}, %c64{{[_0-9]*}}]
//       CHECK:   %[[W_VIEW:.+]] = memref.reinterpret_cast %[[ARG_W]]
//       CHECK:   %[[W_CAST:.+]] = memref.cast %[[W_VIEW]]
//       CHECK:   %[[W_MAP:.+]] = nvgpu.tma.create.descriptor %[[W_CAST]] box[%c64{{[_0-9]*}}, %c64{{[_0-9]*}}]
//       CHECK:   gpu.launch_func @kernels::@linear_0_wgmma_0_16x64 {{.*}}args(%[[W_MAP]] {{.*}}, %[[X_MAP]] {{.*}}rlx.pdl
//       CHECK:   gpu.launch_func @kernels::@linear_0_wgmma_0_16x64_sum {{.*}}rlx.pdl
//       CHECK:   gpu.launch_func @kernels::@linear_0_wgmma_{{[0-9]}}_128x256 {{.*}}threads in (%c384

/// Rows that TMA can't reach, and elements of 32 bits, are for other schedules.
// CHECK-LABEL: func private @no_wgmma_of_odd_rows.body(
//  CHECK-SAME:   mir.template = "gemm_mma"
// CHECK-LABEL: func private @no_wgmma_of_f32.body(
//  CHECK-SAME:   mir.template = "gemm_fma"

/// Other chips don't have wgmma.
// OLDER-NOT: wgmma.mma_async
// OLDER-NOT: gemm_hopper

func.func @f(%x: memref<?x4096xbf16> {mir.kind = "input", mir.name = "x", mir.dims = ["m", ""]},
    %w: memref<4096x4096xbf16> {mir.kind = "param", mir.name = "w"},
    %b: memref<4096xbf16> {mir.kind = "param", mir.name = "b"},
    %y: memref<?x4096xbf16> {mir.kind = "output", mir.name = "y"}) {
  call @linear_0(%x, %w, %b, %y) : (memref<?x4096xbf16>, memref<4096x4096xbf16>, memref<4096xbf16>, memref<?x4096xbf16>) -> ()
  return
}
func.func private @linear_0(memref<?x4096xbf16>, memref<4096x4096xbf16>, memref<4096xbf16>, memref<?x4096xbf16>) attributes {mir.kernel = "gemm"}
func.func private @linear_0.mir(%x: tensor<?x4096xbf16>, %w: tensor<4096x4096xbf16>, %b: tensor<4096xbf16>) -> tensor<?x4096xbf16> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
  %0 = mir.fused_matmul_bias_act %x, %w, %b transpose_rhs activation silu : tensor<?x4096xbf16>, tensor<4096x4096xbf16>, tensor<4096xbf16>
  return %0 : tensor<?x4096xbf16>
}
func.func private @no_wgmma_of_odd_rows.mir(%x: tensor<64x60xbf16>, %w: tensor<64x60xbf16>) -> tensor<64x64xbf16> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
  %0 = mir.matmul %x, %w transpose_rhs : tensor<64x60xbf16>, tensor<64x60xbf16>
  return %0 : tensor<64x64xbf16>
}
func.func private @no_wgmma_of_f32.mir(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> tensor<64x64xf32> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
  %0 = mir.matmul %x, %w transpose_rhs : tensor<64x64xf32>, tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}
