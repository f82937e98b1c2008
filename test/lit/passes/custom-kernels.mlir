// RUN: rlx-opt %s --rlx-load=%S/Inputs/operations_for_lit.py --mir-outline-kernels | FileCheck %s --check-prefix=OUT
// RUN: rlx-opt %s --rlx-load=%S/Inputs/operations_for_lit.py --mir-outline-kernels --lir-plan --cpu-apply-templates \
// RUN:   | FileCheck %s

/// A kernel that calls gives all results of its operation; a constant that it reads is prepared once.
//   OUT-LABEL: func private @lit_called_0(
//    OUT-SAME:   %[[X:.+]]: tensor<?x3xf32>) -> (tensor<?x3xf32>, tensor<?x3xf32>) attributes {mir.kernel = "own", mir.role = "kernel"}
//         OUT:   %[[R:.+]]:2 = mir.custom "lit.called"(%[[X]])
//         OUT:   return %[[R]]#0, %[[R]]#1
//   OUT-LABEL: func @prepare() -> (tensor<4x3xf32> {mir.name = "constant:prepared"})
//         OUT:   mir.constant
//   OUT-LABEL: func @f(
//    OUT-SAME:   %[[C:[a-z0-9]+]]: tensor<4x3xf32> {mir.kind = "param", mir.name = "constant:prepared"}
//         OUT:   call @lit_called_1(%[[C]])

/// The addresses of operands and results, their sizes, and no parameters.
// CHECK-LABEL: func private @lit_called_0.body(
//  CHECK-SAME:   %[[X:.+]]: memref<?x3xf32>, %[[A:.+]]: memref<?x3xf32>, %[[B:.+]]: memref<?x3xf32>,
//       CHECK:   %[[N:.+]] = memref.dim %[[X]]
//       CHECK:   memref.dim %[[A]]
//       CHECK:   memref.dim %[[B]]
//       CHECK:   memref.extract_aligned_pointer_as_index %[[X]]
//       CHECK:   memref.extract_aligned_pointer_as_index %[[A]]
//       CHECK:   memref.extract_aligned_pointer_as_index %[[B]]
//       CHECK:   %[[P:.+]] = llvm.alloca %{{.+}} x !llvm.ptr
//       CHECK:   %[[I:.+]] = arith.index_cast %[[N]] : index to i64
//       CHECK:   %[[S:.+]] = llvm.alloca %{{.+}} x i64
//       CHECK:   llvm.store %[[I]]
//       CHECK:   %[[E:.+]] = llvm.call @own_lit_called_0(%[[P]], %[[S]], %{{.+}}) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i64
//       CHECK:   %[[BAD:.+]] = arith.cmpi ne, %[[E]]
//       CHECK:   scf.if %[[BAD]]
//       CHECK:     llvm.call @own_lit_called_0_failed(%[[E]])
// CHECK-LABEL: func private @lit_called_0.units
//       CHECK: llvm.func @own_lit_called_0(!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i64
//       CHECK: llvm.func @own_lit_called_0_failed(i64)
func.func @f(%x: tensor<?x3xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["n", ""]})
    -> (tensor<?x3xf32> {mir.name = "y"}, tensor<2x3xf32> {mir.name = "z"}) {
  %a, %b = mir.custom "lit.called"(%x) : (tensor<?x3xf32>) -> (tensor<?x3xf32>, tensor<?x3xf32>)
  %c = mir.constant dense<1.0> : tensor<4x3xf32>
  %d, %e = mir.custom "lit.called"(%c) : (tensor<4x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
  return %b, %d : tensor<?x3xf32>, tensor<2x3xf32>
}
