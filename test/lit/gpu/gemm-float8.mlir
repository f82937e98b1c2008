// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_89})' | FileCheck %s --check-prefixes=CHECK,ADA
// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_80})' | FileCheck %s --check-prefixes=CHECK,OLD
// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_90a})' | FileCheck %s --check-prefix=HOPPER
// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_90a choices=mm:fast_sums:1})' | FileCheck %s --check-prefix=FAST

module {
  func.func private @mm.mir(%x: tensor<4096x1024xf8E4M3FN>, %w: tensor<512x1024xf8E5M2>, %xs: tensor<4096xf32>, %ws: tensor<1xf32>, %b: tensor<512xbf16>) -> tensor<4096x512xbf16> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
    %0 = mir.scaled_matmul %x, %w lhs_scale %xs rhs_scale %ws transpose_rhs : tensor<4096x1024xf8E4M3FN>, tensor<512x1024xf8E5M2>, tensor<4096xf32>, tensor<1xf32> to tensor<4096x512xbf16>
    %1 = mir.add %0, %b : tensor<4096x512xbf16>, tensor<512xbf16>
    return %1 : tensor<4096x512xbf16>
  }
  func.func private @kn.mir(%x: tensor<4096x1024xf8E4M3FN>, %w: tensor<1024x512xf8E4M3FN>) -> tensor<4096x512xf32> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
    %0 = mir.scaled_matmul %x, %w : tensor<4096x1024xf8E4M3FN>, tensor<1024x512xf8E4M3FN> to tensor<4096x512xf32>
    return %0 : tensor<4096x512xf32>
  }

  func.func private @mm(memref<4096x1024xf8E4M3FN>, memref<512x1024xf8E5M2>, memref<4096xf32>, memref<1xf32>, memref<512xbf16>, memref<4096x512xbf16>)
  func.func private @kn(memref<4096x1024xf8E4M3FN>, memref<1024x512xf8E4M3FN>, memref<4096x512xf32>)
  func.func @p(%x: memref<4096x1024xf8E4M3FN> {mir.kind = "input", mir.name = "x"}, %w: memref<512x1024xf8E5M2> {mir.kind = "param", mir.name = "w"}, %xs: memref<4096xf32> {mir.kind = "input", mir.name = "xs"}, %ws: memref<1xf32> {mir.kind = "param", mir.name = "ws"}, %b: memref<512xbf16> {mir.kind = "param", mir.name = "b"}, %y: memref<4096x512xbf16> {mir.name = "y"}) {
    call @mm(%x, %w, %xs, %ws, %b, %y) : (memref<4096x1024xf8E4M3FN>, memref<512x1024xf8E5M2>, memref<4096xf32>, memref<1xf32>, memref<512xbf16>, memref<4096x512xbf16>) -> ()
    return
  }
}

/// No schedule reads columns: gpu-turn-float8 comes before.
// CHECK-LABEL: func private @kn.mir(
//  CHECK-SAME:   mir.template = "generic: {{.*}}along K

/// Bytes go through the ring as halves do, two products of 32 begin at zero, and their sums are added in f32. The scales
/// are of f32, and come before the bias.
//   ADA-LABEL: llvm.func @mm_
//    ADA-SAME:   %[[X:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[W:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[XS:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[WS:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[B:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[Y:.+]]: !llvm.ptr<1>
//    ADA-SAME:   rlx.ptx = 84 : i32
//         ADA:   %[[Z:.+]] = arith.constant 0.0{{.*}} : f32
//         ADA:   nvvm.cp.async.shared.global %{{.+}}, %{{.+}}, 16
//         ADA:   nvvm.ldmatrix %{{.+}} {{.*}}layout = #nvvm.mma_layout<row>
//         ADA:   %[[P:.+]] = llvm.inline_asm has_side_effects asm_dialect = att "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {{.*}} %[[Z]], %[[Z]], %[[Z]], %[[Z]] :
//         ADA:   llvm.extractvalue %[[P]][0]
//         ADA:   %[[Q:.+]] = llvm.inline_asm {{.*}}m16n8k32
//         ADA:   %[[Q0:.+]] = llvm.extractvalue %[[Q]][0]
//         ADA:   arith.addf %{{.+}}, %[[Q0]] : f32
//         ADA:   %[[XP:.+]] = llvm.getelementptr %[[XS]][%{{.+}}] : {{.*}}, f32
//         ADA:   %[[S:.+]] = llvm.load %[[XP]] {alignment = 4 : i64} : !llvm.ptr<1> -> f32
//         ADA:   %[[A:.+]] = arith.mulf %{{.+}}, %[[S]] : f32
//         ADA:   %[[T:.+]] = llvm.load %[[WS]] {alignment = 4 : i64} : !llvm.ptr<1> -> f32
//         ADA:   %[[C:.+]] = arith.mulf %[[A]], %[[T]] : f32
//         ADA-DAG: llvm.getelementptr %[[B]][%{{.+}}] : {{.*}}, bf16
//         ADA-DAG: %[[N:.+]] = arith.truncf %[[C]] : f32 to bf16
//         ADA-DAG: %[[R:.+]] = arith.extf %[[N]] : bf16 to f32
//         ADA:   arith.addf %[[R]], %{{.+}} : f32
//         ADA:   arith.truncf %{{.+}} : vector<8xf32> to vector<8xbf16>

/// Before sm_89, bytes become f16 on their way from the ring: e4m3 by arithmetic, e5m2 by its bits alone.
//   OLD-LABEL: llvm.func @mm_
//     OLD-NOT:   m16n8k32
//     OLD-NOT:   rlx.ptx
//         OLD:   prmt.b32 $0, $1, 0, 0x1404;
//         OLD:   mul.rn.f16x2
//         OLD:   fma.rn.f16x2
//         OLD:   nvvm.mma.sync {{.*}} : (vector<2xf16>, vector<2xf16>, f32)

/// On Hopper, the sums of a stage of 128 begin at zero in its first product alone. The row's scale is read beside the
/// sums.
// HOPPER-LABEL: llvm.func @mm_wgmma_0_
//       HOPPER:   nvvm.cp.async.bulk.tensor.shared.cluster.global
//       HOPPER:   %[[A:.+]] = nvvm.wgmma.mma_async %{{.+}} k = 32>, D{{ ?}}[<f32>, <zero>], A{{ ?}}[<e4m3>, <one>, <row>], B{{ ?}}[<e5m2>, <one>, <col>]
//       HOPPER:   nvvm.wgmma.mma_async %{{.+}}, %{{.+}}, %[[A]], {{.*}} D{{ ?}}[<f32>, <one>]
//       HOPPER:   nvvm.wgmma.commit.group.sync.aligned
//       HOPPER:   wgmma.wait_group.sync.aligned 0;
//       HOPPER:   arith.addf
//       HOPPER:   nvvm.stmatrix
//       HOPPER:   nvvm.cp.async.bulk.tensor.global.shared.cta
// HOPPER-LABEL: func.func private @mm.body(
//  HOPPER-SAME:   mir.template = "gemm_hopper"
//       HOPPER:   nvgpu.tma.create.descriptor %{{.+}} : memref<*xf8E4M3FN> -> {{.*}}<tensor = memref<{{[0-9]+}}x128xf8E4M3FN, 3>

/// As a choice, all sums are those of wgmma.
//   FAST-LABEL: llvm.func @mm_wgmma_0_
//     FAST-NOT:   <zero>
//         FAST:   nvvm.wgmma.wait.group.sync.aligned 1
