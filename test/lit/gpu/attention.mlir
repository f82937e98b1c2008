// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_80})' | FileCheck %s --check-prefixes=CHECK,MMA
// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_90a})' | FileCheck %s --check-prefixes=CHECK,HOPPER
// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_90a disable=attention})' | FileCheck %s --check-prefix=OFF

/// Few queries: parts of the keys, then what joins them. Keys and values come by copies of 16 bytes, two steps ahead:
/// eight of keys and eight of values a lane. On sm_90 the launches of a chain overlap.
// CHECK-LABEL: llvm.func @decode_0_parts(
//  CHECK-SAME:   %{{.+}}: !llvm.ptr<1> {llvm.readonly}, %{{.+}}: !llvm.ptr<1> {llvm.readonly}, %{{.+}}: !llvm.ptr<1> {llvm.readonly}, %[[POS:.+]]: !llvm.ptr<1> {llvm.readonly}, %[[KEYS:.+]]: i32, %{{.+}}: !llvm.ptr<1>, %{{.+}}: !llvm.ptr<1>)
//  CHECK-SAME:   nvvm.maxntid = array<i32: 128, 1, 1>
//     MMA-NOT:   griddepcontrol
//  HOPPER-DAG:   nvvm.griddepcontrol launch_dependents
//  HOPPER-DAG:   nvvm.griddepcontrol wait
//       CHECK:   llvm.load %{{.+}} : !llvm.ptr<1> -> i32
// CHECK-COUNT-8: nvvm.cp.async.shared.global %{{.+}}, %{{.+}}, 16, cache = cg, %{{.+}} : !llvm.ptr<3>, !llvm.ptr<1>, i32
//  CHECK-NEXT:   }
//  CHECK-NEXT:   nvvm.cp.async.commit.group
// CHECK-COUNT-24: nvvm.cp.async.shared.global
//       CHECK:   scf.for
//   CHECK-NOT:   nvvm.cp.async.shared
//       CHECK:   nvvm.cp.async.wait.group 3
//       CHECK:   nvvm.shfl.sync
//       CHECK:   nvvm.bar.warp.sync
//       CHECK:   nvvm.cp.async.wait.group 2
// CHECK-COUNT-16: nvvm.cp.async.shared.global
//   CHECK-NOT:   nvvm.cp.async.shared
// CHECK-LABEL: llvm.func @decode_0_join(

/// Many queries: tensor cores of warps, or of warp groups.
//   MMA-LABEL: llvm.func @prompt_0_mma(
//         MMA:   nvvm.cp.async.shared.global %{{.+}}, %{{.+}}, 16, cache = cg, %{{.+}}
//         MMA:   scf.for
//         MMA:   nvvm.ldmatrix
//         MMA:   nvvm.mma.sync
//    MMA-SAME:   multiplicandAPtxType = #nvvm.mma_type<bf16>
//    MMA-SAME:   shape = #nvvm.shape<m = 16, n = 8, k = 16>
//         MMA:   ex2.approx
//         MMA:   nvvm.ldmatrix {{.+}}layout = #nvvm.mma_layout<col>
//         MMA:   nvvm.mma.sync
// HOPPER-LABEL: llvm.func @prompt_0_wgmma(
//  HOPPER-SAME:   %{{.+}}: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, nvvm.grid_constant}
//      HOPPER:   nvvm.setmaxregister decrease 24
//      HOPPER:   nvvm.cp.async.bulk.tensor.shared.cluster.global
//      HOPPER:   nvvm.setmaxregister increase 240
//      HOPPER:   nvvm.wgmma.mma_async
// HOPPER-SAME:   <m = 64, n = 128, k = 16>
//      HOPPER:   wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16
//      HOPPER:   nvvm.cp.async.bulk.tensor.global.shared.cta

/// f32 has no tensor cores that keep its bits.
// CHECK-LABEL: llvm.func @exact_0_f32(
//   CHECK-NOT:   mma

/// The host: the number of parts follows from the number of keys, and scratch holds their results.
// CHECK-LABEL: func private @decode_0.body(
//  CHECK-SAME:   %[[Q:[^:]+]]: memref<1x1x1024xbf16>, %[[K:[^:]+]]: memref<1x?x256xbf16>, %[[V:[^:]+]]: memref<1x?x256xbf16>, %[[P:[^:]+]]: memref<1xi32>, %[[OUT:[^:]+]]: memref<1x1x1024xbf16>
//  CHECK-SAME:   mir.template = "attention_decode"
//       CHECK:   %[[PARTS:.+]] = arith.maxsi
//       CHECK:   %[[MEMORY:.+]] = memref.view
//       CHECK:   %[[SUMS:.+]] = memref.view
//       CHECK:   gpu.launch_func @kernels::@decode_0_parts
//  CHECK-SAME:     args(%[[Q]] : memref<1x1x1024xbf16>, %[[K]] : memref<1x?x256xbf16>, %[[V]] : memref<1x?x256xbf16>, %[[P]] : memref<1xi32>, %{{.+}} : i32, %[[MEMORY]] : memref<?xf32>, %[[SUMS]] : memref<?xf32>)
//    MMA-NOT:    rlx.pdl
//  HOPPER-SAME:   rlx.pdl
//       CHECK:   gpu.launch_func @kernels::@decode_0_join
//  CHECK-SAME:     args(%[[P]] : memref<1xi32>, %[[OUT]] : memref<1x1x1024xbf16>,
// CHECK-LABEL: func private @prompt_0.body(
//  CHECK-SAME:   %[[Q:[^:]+]]: memref<1x?x1024xbf16>
//   MMA-SAME:    mir.template = "attention_mma"
//  HOPPER-SAME:   mir.template = "attention_hopper"
// HOPPER-COUNT-4: nvgpu.tma.create.descriptor
//  CHECK-LABEL: func private @exact_0.body(
//   CHECK-SAME:   mir.template = "attention_f32"

//     OFF-LABEL: func private @decode_0.mir(
//      OFF-SAME:   mir.template = "generic: schedules are disabled"

func.func private @decode_0.mir(%q: tensor<1x1x1024xbf16>, %k: tensor<1x?x256xbf16>, %v: tensor<1x?x256xbf16>, %pos: tensor<1xi32>) -> tensor<1x1x1024xbf16> attributes {mir.kernel = "attention", mir.role = "kernel"} {
  %0 = mir.attention %q, %k, %v pos(%pos : tensor<1xi32>) heads 8 kv_heads 2 head_dim 128 masked causal : tensor<1x1x1024xbf16>, tensor<1x?x256xbf16>
  return %0 : tensor<1x1x1024xbf16>
}
func.func private @prompt_0.mir(%q: tensor<1x?x1024xbf16>, %k: tensor<1x?x256xbf16>, %v: tensor<1x?x256xbf16>) -> tensor<1x?x1024xbf16> attributes {mir.kernel = "attention", mir.role = "kernel"} {
  %0 = mir.attention %q, %k, %v heads 8 kv_heads 2 head_dim 128 masked causal : tensor<1x?x1024xbf16>, tensor<1x?x256xbf16>
  return %0 : tensor<1x?x1024xbf16>
}
func.func private @exact_0.mir(%q: tensor<1x?x128xf32>, %k: tensor<1x?x128xf32>, %v: tensor<1x?x128xf32>) -> tensor<1x?x128xf32> attributes {mir.kernel = "attention", mir.role = "kernel"} {
  %0 = mir.attention %q, %k, %v heads 2 head_dim 64 masked causal : tensor<1x?x128xf32>, tensor<1x?x128xf32>
  return %0 : tensor<1x?x128xf32>
}
func.func private @decode_0(memref<1x1x1024xbf16>, memref<1x?x256xbf16>, memref<1x?x256xbf16>, memref<1xi32>, memref<1x1x1024xbf16>)
func.func private @prompt_0(memref<1x?x1024xbf16>, memref<1x?x256xbf16>, memref<1x?x256xbf16>, memref<1x?x1024xbf16>)
func.func private @exact_0(memref<1x?x128xf32>, memref<1x?x128xf32>, memref<1x?x128xf32>, memref<1x?x128xf32>)
func.func @main(%q: memref<1x1x1024xbf16> {mir.kind = "input", mir.name = "q"}, %k: memref<1x?x256xbf16> {mir.dims = ["", "s", ""], mir.kind = "input", mir.name = "k"}, %pos: memref<1xi32> {mir.kind = "input", mir.name = "pos"}, %y: memref<1x1x1024xbf16> {mir.name = "y"}) {
  call @decode_0(%q, %k, %k, %pos, %y) : (memref<1x1x1024xbf16>, memref<1x?x256xbf16>, memref<1x?x256xbf16>, memref<1xi32>, memref<1x1x1024xbf16>) -> ()
  return
}
