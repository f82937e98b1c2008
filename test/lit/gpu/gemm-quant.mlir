// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_80})' | FileCheck %s

module {
  func.func private @ints.mir(%q: tensor<64x96xi8>, %d: tensor<64x3xf32>, %s: tensor<64x3xi32>, %w: tensor<40x64xi8, #mir.packed<q4_1, k = 96, layout = planes>>) -> tensor<64x40xf32> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
    %0 = mir.block_dot %q, %d, %s, %w : tensor<64x96xi8>, tensor<40x64xi8, #mir.packed<q4_1, k = 96, layout = planes>>
    return %0 : tensor<64x40xf32>
  }

  func.func private @halves.mir(%x: tensor<64x96xbf16>, %w: tensor<40x64xi8, #mir.packed<q4_1, k = 96, layout = planes>>) -> tensor<64x40xbf16> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
    %0 = mir.dequant_matmul %x, %w : tensor<64x96xbf16>, tensor<40x64xi8, #mir.packed<q4_1, k = 96, layout = planes>>
    return %0 : tensor<64x40xbf16>
  }

  func.func private @rows.mir(%x: tensor<64x96xf32>, %w: tensor<40x60xi8, #mir.packed<q4_1, k = 96>>) -> tensor<64x40xf32> attributes {mir.kernel = "gemm", mir.role = "kernel"} {
    %0 = mir.dequant_matmul %x, %w : tensor<64x96xf32>, tensor<40x60xi8, #mir.packed<q4_1, k = 96>>
    return %0 : tensor<64x40xf32>
  }

  func.func private @ints(memref<64x96xi8>, memref<64x3xf32>, memref<64x3xi32>, memref<40x64xi8>, memref<64x40xf32>)
  func.func private @halves(memref<64x96xbf16>, memref<40x64xi8>, memref<64x40xbf16>)
  func.func private @rows(memref<64x96xf32>, memref<40x60xi8>, memref<64x40xf32>)
  func.func @p(%x: memref<64x96xf32> {mir.kind = "input", mir.name = "x"}) {
    return
  }
}

/// Kernels read planes, not rows in the order of files.
// CHECK-LABEL: func private @rows.mir(
//  CHECK-SAME:   mir.template = "generic: {{.*}}rows: expects [N, K] weights in planes, but they are rows [40, 96]

/// Scales and sums of x's blocks, and the weight's integers, reach the ring as they are; the weight's scales are loaded
/// before a step's products and stored after them.
// CHECK-LABEL: llvm.func @ints_
//  CHECK-SAME:   %[[Q:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[D:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[S:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[W:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[Y:.+]]: !llvm.ptr<1>)
//       CHECK:   llvm.getelementptr %[[Q]][%{{.+}}] : {{.*}}, i8
//       CHECK:   %[[DS:.+]] = llvm.getelementptr %[[D]][%{{.+}}] : {{.*}}, f32
//       CHECK:   nvvm.cp.async.shared.global %{{.+}}, %[[DS]], 4
//       CHECK:   %[[SS:.+]] = llvm.getelementptr %[[S]][%{{.+}}] : {{.*}}, f32
//       CHECK:   nvvm.cp.async.shared.global %{{.+}}, %[[SS]], 4
//       CHECK:   %[[ROW:.+]] = llvm.getelementptr %[[W]][%{{.+}}] : {{.*}}, i8
//       CHECK:   %[[RECORD:.+]] = llvm.getelementptr %[[ROW]][%{{.+}}] : {{.*}}, i8
//       CHECK:   nvvm.cp.async.shared.global %{{.+}}, %[[RECORD]], 16
//       CHECK:   scf.for
//       CHECK:     %[[SCALE:.+]] = llvm.load %{{.+}} : !llvm.ptr<1> -> f16
//       CHECK:     %[[WIDE:.+]] = arith.extf %[[SCALE]] : f16 to f32
//       CHECK:     %[[DOTS:.+]] = nvvm.mma.sync {{.*}} {intOverflowBehavior = #nvvm.mma_int_overflow<wrapped>, {{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 32>}
//       CHECK:     %[[DOT:.+]] = llvm.extractvalue %[[DOTS]][0]
//       CHECK:     %[[BITS:.+]] = llvm.bitcast %[[DOT]] : i32 to f32
//       CHECK:     %[[SCALED:.+]] = llvm.intr.fma(%[[BITS]], %{{.+}}, %{{.+}})
//       CHECK:     llvm.intr.fma(%{{.+}}, %{{.+}}, %[[SCALED]])
//       CHECK:     llvm.store %[[WIDE]], %{{.+}} : f32, !llvm.ptr<3>
//       CHECK:     scf.yield

/// The weight's integers are exact in the type of x. Each run's products begin at zero, after the sum of x, a product
/// with ones; accumulators of f32 add them up by scale and minimum.
// CHECK-LABEL: llvm.func @halves_
//       CHECK:   prmt.b32
//       CHECK:   %[[V:.+]] = arith.subf %{{.+}}, %{{.+}} : f32
//       CHECK:   vector.from_elements %[[V]], %{{.+}} : vector<2xf32>
//       CHECK:   arith.truncf %{{.+}} : vector<2xf32> to vector<2xbf16>
//       CHECK:   llvm.store %{{.+}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<3>
//       CHECK:   llvm.store %{{.+}} {alignment = 4 : i64} : f32, !llvm.ptr<3>
//       CHECK:   scf.for {{.*}} iter_args(%{{[a-z0-9]+}} = %{{[^,]+}}, %[[SUM:[a-z0-9]+]] = %[[ZERO:[a-z0-9_]+]], %{{[a-z0-9]+}} = %[[ZERO]],
//       CHECK:     nvvm.mma.sync A[%{{.+}}]  B[%[[ONES:.+]], %[[ONES]]]  C[%[[ZERO]], %[[ZERO]], %[[ZERO]], %[[ZERO]]]
//       CHECK:     %[[ALL:.+]] = nvvm.mma.sync A[%{{.+}}]  B[%[[ONES]], %[[ONES]]]
//       CHECK:     %[[X:.+]] = llvm.extractvalue %[[ALL]][0]
//       CHECK:     nvvm.mma.sync A[%{{.+}}]  B[%{{.+}}]  C[%[[ZERO]], %[[ZERO]], %[[ZERO]], %[[ZERO]]]
//       CHECK:     %[[PART:.+]] = nvvm.mma.sync A[%{{.+}}]  B[%{{.+}}]
//       CHECK:     %[[DOT:.+]] = llvm.extractvalue %[[PART]][0]
//       CHECK:     %[[SCALED:.+]] = llvm.intr.fma(%[[DOT]], %{{.+}}, %[[SUM]])
//       CHECK:     llvm.intr.fma(%[[X]], %{{.+}}, %[[SCALED]])
//       CHECK:     scf.yield

// CHECK-LABEL: func.func private @ints.body(
//  CHECK-SAME:   mir.template = "gemm_block_dot"
// CHECK-LABEL: func.func private @halves.body(
//  CHECK-SAME:   mir.template = "gemm_decoded"
