// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_80})' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_80 choices=exact:tf32:1})' | FileCheck %s --check-prefix=TF32

module {
  func.func private @mm.mir(%x: tensor<?x256xbf16>, %w: tensor<512x256xbf16>, %b: tensor<512xbf16>) -> tensor<?x512xbf16> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
    %0 = mir.fused_matmul_bias_act %x, %w, %b transpose_rhs activation relu : tensor<?x256xbf16>, tensor<512x256xbf16>, tensor<512xbf16>
    return %0 : tensor<?x512xbf16>
  }

  func.func private @kn.mir(%x: tensor<100x64xf16>, %w: tensor<64x36xf16>) -> tensor<100x36xf16> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
    %0 = mir.matmul %x, %w : tensor<100x64xf16>, tensor<64x36xf16>
    return %0 : tensor<100x36xf16>
  }

  func.func private @exact.mir(%x: tensor<100x64xf32>, %w: tensor<64x36xf32>) -> tensor<100x36xf32> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
    %0 = mir.matmul %x, %w : tensor<100x64xf32>, tensor<64x36xf32>
    return %0 : tensor<100x36xf32>
  }

  func.func private @double.mir(%x: tensor<100x64xf64>, %w: tensor<64x36xf64>) -> tensor<100x36xf64> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
    %0 = mir.matmul %x, %w : tensor<100x64xf64>, tensor<64x36xf64>
    return %0 : tensor<100x36xf64>
  }

  func.func private @mm(memref<?x256xbf16>, memref<512x256xbf16>, memref<512xbf16>, memref<?x512xbf16>)
  func.func private @kn(memref<100x64xf16>, memref<64x36xf16>, memref<100x36xf16>)
  func.func private @exact(memref<100x64xf32>, memref<64x36xf32>, memref<100x36xf32>)
  func.func private @double(memref<100x64xf64>, memref<64x36xf64>, memref<100x36xf64>)
  func.func @p(%x: memref<?x256xbf16> {mir.dims = ["s", ""], mir.kind = "input", mir.name = "x"}, %w: memref<512x256xbf16> {mir.kind = "param", mir.name = "w"}, %b: memref<512xbf16> {mir.kind = "param", mir.name = "b"}, %y: memref<?x512xbf16> {mir.name = "y"}) {
    call @mm(%x, %w, %b, %y) : (memref<?x256xbf16>, memref<512x256xbf16>, memref<512xbf16>, memref<?x512xbf16>) -> ()
    return
  }
}

/// f64 has no tiles of its own.
// CHECK-LABEL: func private @double.mir(
//  CHECK-SAME:   mir.template = "generic: {{.*}}products of f64 have no schedule

/// Tiles of the weight, [N, K] (operand 1), and of x (operand 0) reach the ring by copies of 16 bytes. Rows beyond M
/// and elements beyond K become zeros, by a count of bytes. The weight is a parameter: its first copies come first.
// CHECK-LABEL: llvm.func @mm_128x128x32(
//  CHECK-SAME:   %[[X:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[W:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[B:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[Y:.+]]: !llvm.ptr<1>, %[[M:.+]]: i32)
//  CHECK-SAME:   nvvm.maxntid = array<i32: 128, 1, 1>
//       CHECK:   %[[WS:.+]] = llvm.getelementptr %[[W]][%{{.+}}] : {{.*}}, bf16
//       CHECK:   nvvm.cp.async.shared.global %{{.+}}, %[[WS]], 16
//       CHECK:   %[[XS:.+]] = llvm.getelementptr %[[X]][%{{.+}}] : {{.*}}, bf16
//       CHECK:   %[[XT:.+]] = arith.select %{{.+}}, %c16_i32, %c0_i32 : i32
//       CHECK:   nvvm.cp.async.shared.global %{{.+}}, %[[XS]], 16, cache = {{ ?}}cg, %[[XT]]
//       CHECK:   scf.for
//       CHECK:     nvvm.cp.async.wait.group 2
//  CHECK-NEXT:     nvvm.barrier0
//   CHECK-NOT:     layout = #nvvm.mma_layout<col>
//       CHECK:     nvvm.ldmatrix %{{.+}} {{.*}}layout = #nvvm.mma_layout<row>
//       CHECK:     nvvm.cp.async.shared.global
//       CHECK:     nvvm.cp.async.commit.group
//       CHECK:     nvvm.mma.sync {{.*}}multiplicandAPtxType = #nvvm.mma_type<bf16>{{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 16>
//       CHECK:     scf.yield

/// Before accumulators take the place of the ring, all copies are done and all warps have read it.
//       CHECK:   nvvm.cp.async.wait.group 0
//  CHECK-NEXT:   nvvm.barrier0
//       CHECK:   llvm.store %{{.+}} : vector<2xf32>, !llvm.ptr<3>
//       CHECK:   nvvm.bar.warp.sync

/// The epilogue: eight columns at a time of rows that exist, bias and relu in f32, one rounding.
//       CHECK:   scf.for
//       CHECK:     llvm.load %{{.+}} : !llvm.ptr<3> -> vector<4xf32>
//       CHECK:     arith.cmpi slt, %{{.+}}, %[[M]] : i32
//       CHECK:     scf.if
//       CHECK:       %[[BS:.+]] = llvm.getelementptr %[[B]][%{{.+}}]
//       CHECK:       llvm.load %[[BS]] {alignment = 16 : i64} : !llvm.ptr<1> -> vector<8xbf16>
//       CHECK:       arith.extf
//       CHECK:       arith.addf
//       CHECK:       arith.maximumf
//       CHECK:       %[[R:.+]] = arith.truncf %{{.+}} : vector<8xf32> to vector<8xbf16>
//       CHECK:       %[[YS:.+]] = llvm.getelementptr %[[Y]][%{{.+}}]
//       CHECK:       llvm.store %[[R]], %[[YS]] {alignment = 16 : i64} : vector<8xbf16>, !llvm.ptr<1>

/// Weights [K, N]: ldmatrix transposes. Lines of 72 bytes are copied in pieces of 8, and outputs written one by one.
// CHECK-LABEL: llvm.func @kn_
//       CHECK:   nvvm.cp.async.shared.global %{{.+}}, %{{.+}}, 16
//       CHECK:   nvvm.cp.async.shared.global %{{.+}}, %{{.+}}, 8, cache = {{ ?}}ca
//       CHECK:   nvvm.ldmatrix %{{.+}} {{.*}}layout = #nvvm.mma_layout<row>
//       CHECK:   nvvm.ldmatrix %{{.+}} {{.*}}layout = #nvvm.mma_layout<col>
//       CHECK:   nvvm.mma.sync {{.*}} : (vector<2xf16>, vector<2xf16>, f32)
//       CHECK:   llvm.store %{{.+}} {alignment = 2 : i64} : f16, !llvm.ptr<1>

/// f32 is exact: fused multiply-adds, no tensor cores. x is transposed on the way, four bytes at a time.
// CHECK-LABEL: llvm.func @exact_
//   CHECK-NOT:   nvvm.mma
//       CHECK:   nvvm.cp.async.shared.global %{{.+}}, %{{.+}}, 4, cache = {{ ?}}ca
//       CHECK:   nvvm.cp.async.shared.global %{{.+}}, %{{.+}}, 16
//       CHECK:   llvm.intr.fma
//   CHECK-NOT:   nvvm.mma

/// Few rows have a tile of their own; the number of rows is a parameter.
// CHECK-LABEL: func.func private @mm.body(
//  CHECK-SAME:   attributes {mir.template = "{{(gemv\|)?}}gemm_mma"}
//       CHECK:   %[[FEW:.+]] = arith.cmpi ule, %[[ROWS:[a-z0-9_]+]], %c64{{(_[0-9]+)?}} : index
//  CHECK-NEXT:   scf.if %[[FEW]] {
//       CHECK:     %[[COUNT:.+]] = arith.index_cast %[[ROWS]] : index to i32
//       CHECK:     gpu.launch_func @kernels::@mm_16x64x128 {{.*}}, %[[COUNT]] : i32)
//       CHECK:   } else {
//       CHECK:     gpu.launch_func @kernels::@mm_128x128x32 blocks in (%{{.+}}, %c1{{.*}}, %c1{{.*}}) threads in (%c128{{.*}}, %c1{{.*}}, %c1{{.*}}) dynamic_shared_memory_size

/// tf32 is a choice: operands are rounded before tensor cores multiply them.
// TF32-LABEL: llvm.func @exact_
//       TF32:   nvvm.ldmatrix
//       TF32:   cvt.rna.tf32.f32
//       TF32:   nvvm.mma.sync {{.*}}multiplicandAPtxType = #nvvm.mma_type<tf32>{{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 8>
// TF32-LABEL: func.func private @exact.body(
//  TF32-SAME:   mir.template = "gemm_tf32"
