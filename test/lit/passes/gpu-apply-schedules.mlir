// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_90a})' | FileCheck %s --check-prefixes=CHECK,NEW,ON
// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_80})' | FileCheck %s --check-prefixes=CHECK,OLD,ON
// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_90a disable=rows+gemm})' | FileCheck %s --check-prefixes=OFF
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{disable=rows+gem})' 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{chip=sm_70})' 2>&1 | FileCheck %s --check-prefix=CHIP
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(gpu-apply-schedules{choices=add_silu_0:4})' 2>&1 | FileCheck %s --check-prefix=CHOICE

// NAME: option 'disable' expects gemm, rows, {{.+}} or all, joined by +, but got 'gem'
// CHIP: option 'chip' expects one of sm_80, {{.+}}, but got 'sm_70'
// CHOICE: option 'choices' expects kernel:choice:number, joined by +, but got 'add_silu_0:4'

/// @prepare stays, for text to be compiled on from. Kernels that no schedule covers keep their MIR, and say why.
//       CHECK: func @prepare
// CHECK-LABEL: func private @gather_0.mir(
//  CHECK-SAME:   mir.template = "generic: gather_0: kernels of class 'generic' have no schedule"
//       CHECK:   mir.gather

//    ON-LABEL: gpu.module @kernels

/// Only parameters of the model, at every call, are constant; @other gives the vector as an input.
//          ON:   llvm.func @add_silu_0_pointwise(%{{[a-z0-9]+}}: !llvm.ptr<1> {llvm.readonly},
//     ON-SAME:     %{{[a-z0-9]+}}: !llvm.ptr<1> {llvm.noalias, llvm.readonly}, %{{[a-z0-9]+}}: !llvm.ptr<1>, %{{[a-z0-9]+}}: i64)
//     ON-SAME:     attributes {gpu.kernel, nvvm.kernel, nvvm.maxntid = array<i32: 256, 1, 1>}
//         NEW:     nvvm.griddepcontrol wait
//     OLD-NOT:     nvvm.griddepcontrol
//          ON:     llvm.load %{{.+}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
//          ON:   llvm.func @mul_0_pointwise(%{{[a-z0-9]+}}: !llvm.ptr<1> {llvm.readonly}, %{{[a-z0-9]+}}: !llvm.ptr<1> {llvm.readonly},

/// The host's part launches with pointers and sizes; a chain of kernels waits for each other from sm_90 on.
//    ON-LABEL: func private @add_silu_0.body(
//     ON-SAME:   %[[X:[a-z0-9]+]]: memref<?x64xf32>, %[[B:[a-z0-9]+]]: memref<64xf32>, %[[Y:[a-z0-9]+]]: memref<?x64xf32>
//     ON-SAME:   attributes {mir.template = "pointwise"}
//          ON:   %[[N:.+]] = memref.dim %[[X]], %c0
//          ON:   %[[COUNT:.+]] = arith.muli %[[N]], %c64
//          ON:   %[[NUMBER:.+]] = arith.index_cast %[[COUNT]] : index to i64
//          ON:   %[[BLOCKS:.+]] = arith.divui %{{.+}}, %c2048
//          ON:   gpu.launch_func @kernels::@add_silu_0_pointwise blocks in (%[[BLOCKS]], %c1, %c1) threads in (%c256, %c1, %c1)
//     ON-SAME:   args(%[[X]] : memref<?x64xf32>, %[[B]] : memref<64xf32>, %[[Y]] : memref<?x64xf32>, %[[NUMBER]] : i64)
//    NEW-SAME:   {rlx.pdl}
//     OLD-NOT:   rlx.pdl
//    ON-LABEL: func private @add_silu_0.units(
//     ON-SAME:   attributes {mir.template = "pointwise"}
//    ON-LABEL: func private @add_silu_0.scratch(

/// Element-wise operations of other types than rows have are those of class broadcast.
//    ON-LABEL: func private @integers_0.body(
//     ON-SAME:   attributes {mir.template = "broadcast"}

/// A softmax along another axis than the last.
//    ON-LABEL: func private @softmax_0.body(
//     ON-SAME:   attributes {mir.template = "norm"}

//     OFF-NOT: gpu.module
//   OFF-LABEL: func private @add_silu_0.mir(
//    OFF-SAME:   mir.template = "generic: schedules are disabled"

func.func @prepare(%g: tensor<4xf32> {mir.name = "g", mir.kind = "param"}) -> (tensor<4xf32> {mir.name = "g:prepared"}) attributes {mir.role = "prepare"} {
  %0 = mir.neg %g : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @gather_0.mir(%t: tensor<8x64xf32>, %i: tensor<?xi32>) -> tensor<?x64xf32> attributes {mir.kernel = "generic", mir.role = "kernel"} {
  %0 = mir.gather %t, %i axis 0 : tensor<8x64xf32>, tensor<?xi32>
  return %0 : tensor<?x64xf32>
}
func.func private @add_silu_0.mir(%x: tensor<?x64xf32>, %b: tensor<64xf32>) -> tensor<?x64xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.add %x, %b : tensor<?x64xf32>, tensor<64xf32>
  %1 = mir.silu %0 : tensor<?x64xf32>
  return %1 : tensor<?x64xf32>
}
func.func private @mul_0.mir(%x: tensor<?x64xf32>, %b: tensor<64xf32>) -> tensor<?x64xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.mul %x, %b : tensor<?x64xf32>, tensor<64xf32>
  return %0 : tensor<?x64xf32>
}
func.func private @add_silu_0(memref<?x64xf32>, memref<64xf32>, memref<?x64xf32>) attributes {mir.kernel = "rows"}
func.func private @mul_0(memref<?x64xf32>, memref<64xf32>, memref<?x64xf32>) attributes {mir.kernel = "rows"}
func.func @main(%arena: memref<?xi8>, %x: memref<?x64xf32> {mir.kind = "input", mir.name = "x"}, %c: memref<64xf32> {mir.kind = "input", mir.name = "c"}, %b: memref<64xf32> {mir.kind = "param", mir.name = "b"}, %y: memref<?x64xf32> {mir.kind = "output", mir.name = "y"}) {
  call @add_silu_0(%x, %b, %y) : (memref<?x64xf32>, memref<64xf32>, memref<?x64xf32>) -> ()
  call @mul_0(%x, %b, %y) : (memref<?x64xf32>, memref<64xf32>, memref<?x64xf32>) -> ()
  call @mul_0(%x, %c, %y) : (memref<?x64xf32>, memref<64xf32>, memref<?x64xf32>) -> ()
  return
}
func.func private @integers_0.mir(%x: tensor<?x64xi32>, %y: tensor<64xi32>) -> tensor<?x64xi32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.add %x, %y : tensor<?x64xi32>, tensor<64xi32>
  return %0 : tensor<?x64xi32>
}
func.func private @softmax_0.mir(%x: tensor<?x64xf32>) -> tensor<?x64xf32> attributes {mir.kernel = "norm", mir.role = "kernel"} {
  %0 = mir.softmax %x axis 0 : tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}
