// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-outline-kernels)' | FileCheck %s
// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-outline-kernels{apart=true})' | FileCheck %s --check-prefix=APART

/// Layers of one shape share their kernels, whatever their names and places are.
// CHECK-LABEL: module
//       CHECK:   func.func private @[[ADD:matmul_add_0]](%[[X:.+]]: tensor<?x8xf32>, %[[W:.+]]: tensor<8x8xf32>, %[[R:.+]]: tensor<?x8xf32>) -> tensor<?x8xf32> attributes {mir.kernel = "gemm", mir.role = "kernel"}
//  CHECK-NEXT:     %[[P:.+]] = mir.matmul %[[X]], %[[W]]
//  CHECK-NEXT:     %[[S:.+]] = mir.add %[[R]], %[[P]]
//  CHECK-NEXT:     return %[[S]]
//       CHECK:   func.func private @[[NORM:rms_norm_0]](%[[X:.+]]: tensor<?x8xf32>, %[[G:.+]]: tensor<8xf32>) -> tensor<?x8xf32> attributes {mir.kernel = "rows", mir.role = "kernel"}
//  CHECK-NEXT:     %[[N:.+]] = mir.rms_norm %[[X]], %[[G]] eps 2.500000e-01
//  CHECK-NEXT:     return %[[N]]
//   CHECK-NOT:   private
//       CHECK:   func.func @layers(%[[X0:[a-z0-9]+]]: {{.+}}, %[[W0:[a-z0-9]+]]: {{.+}}, %[[W1:[a-z0-9]+]]: {{.+}}, %[[G0:[a-z0-9]+]]: {{.+}}, %[[G1:[a-z0-9]+]]: {{.+}}) -> (tensor<?x8xf32> {mir.name = "y"})
//  CHECK-NEXT:     %[[N0:.+]] = call @[[NORM]](%[[X0]], %[[G0]])
//  CHECK-NEXT:     %[[X1:.+]] = call @[[ADD]](%[[N0]], %[[W0]], %[[X0]])
//  CHECK-NEXT:     %[[N1:.+]] = call @[[NORM]](%[[X1]], %[[G1]])
//  CHECK-NEXT:     %[[X2:.+]] = call @[[ADD]](%[[N1]], %[[W1]], %[[X1]])
//  CHECK-NEXT:     return %[[X2]]

/// Or, to compare with, every operation is a kernel; equal ones are still one.
//      APART: func.func private @add_0(
// APART-NEXT:   mir.add
//      APART: func.func private @matmul_0(
// APART-NEXT:   mir.matmul
// APART-NEXT:   return
//      APART: func.func private @rms_norm_0(
//  APART-NOT: private
//      APART: func.func @layers(
// APART-NEXT:   call @rms_norm_0
// APART-NEXT:   call @matmul_0
// APART-NEXT:   call @add_0
// APART-NEXT:   call @rms_norm_0
func.func @layers(%x: tensor<?x8xf32>, %w0: tensor<8x8xf32>, %w1: tensor<8x8xf32>, %g0: tensor<8xf32>, %g1: tensor<8xf32>) -> (tensor<?x8xf32> {mir.name = "y"}) {
  %n0 = mir.rms_norm %x, %g0 eps 0.25 : tensor<?x8xf32>, tensor<8xf32> loc("layer0.norm")
  %p0 = mir.matmul %n0, %w0 : tensor<?x8xf32>, tensor<8x8xf32> loc("layer0.proj")
  %x1 = mir.add %x, %p0 : tensor<?x8xf32>
  %n1 = mir.rms_norm %x1, %g1 eps 0.25 : tensor<?x8xf32>, tensor<8xf32> loc("layer1.norm")
  %p1 = mir.matmul %n1, %w1 : tensor<?x8xf32>, tensor<8x8xf32> loc("layer1.proj")
  %x2 = mir.add %x1, %p1 : tensor<?x8xf32>
  return %x2 : tensor<?x8xf32>
}

// -----

/// Kernels that differ in an attribute alone are two kernels.
// CHECK-LABEL: module
//   CHECK-DAG:   func.func private @rms_norm_0
//   CHECK-DAG:   func.func private @rms_norm_1
// CHECK-LABEL: func @attributes_differ
//       CHECK:   call @rms_norm_
//       CHECK:   call @softmax_0
//       CHECK:   call @rms_norm_
func.func @attributes_differ(%x: tensor<?x8xf32>, %g: tensor<8xf32>) -> (tensor<?x8xf32>) {
  %a = mir.rms_norm %x, %g eps 0.25 : tensor<?x8xf32>, tensor<8xf32>
  %b = mir.softmax %a axis 0 : tensor<?x8xf32>
  %c = mir.rms_norm %b, %g eps 0.5 : tensor<?x8xf32>, tensor<8xf32>
  return %c : tensor<?x8xf32>
}

// -----

/// Both products of a SwiGLU are one kernel, and so is what follows them; a constant moves into the kernel.
// CHECK-LABEL: func private @matmul_silu_mul_0
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[U:.+]]: tensor<8x16xf32>, %[[G:.+]]: tensor<8x16xf32>, %[[B:.+]]: tensor<16xf32>) -> tensor<?x16xf32> attributes {mir.kernel = "gemm", mir.role = "kernel"}
//   CHECK-DAG:   %[[TWO:.+]] = mir.constant dense<2.000000e+00> : tensor<1xf32>
//   CHECK-DAG:   %[[PU:.+]] = mir.matmul %[[X]], %[[U]]
//   CHECK-DAG:   %[[PG:.+]] = mir.matmul %[[X]], %[[G]]
//       CHECK:   %[[S:.+]] = mir.silu %[[PG]]
//       CHECK:   %[[M:.+]] = mir.mul %[[S]], %[[PU]]
//       CHECK:   %[[A:.+]] = mir.add %[[M]], %[[B]]
//       CHECK:   %[[D:.+]] = mir.mul %[[A]], %[[TWO]]
//       CHECK:   return %[[D]]
// CHECK-LABEL: func @twins
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[G:.+]]: tensor<8x16xf32>, %[[U:.+]]: tensor<8x16xf32>, %[[B:.+]]: tensor<16xf32>)
//  CHECK-NEXT:   %[[Y:.+]] = call @matmul_silu_mul_0(%[[X]], %[[U]], %[[G]], %[[B]])
//  CHECK-NEXT:   return %[[Y]]
func.func @twins(%x: tensor<?x8xf32>, %g: tensor<8x16xf32>, %u: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<?x16xf32> {
  %two = mir.constant dense<2.0> : tensor<1xf32>
  %up = mir.matmul %x, %u : tensor<?x8xf32>, tensor<8x16xf32>
  %gate = mir.matmul %x, %g : tensor<?x8xf32>, tensor<8x16xf32>
  %s = mir.silu %gate : tensor<?x16xf32>
  %m = mir.mul %s, %up : tensor<?x16xf32>
  %a = mir.add %m, %b : tensor<?x16xf32>, tensor<16xf32>
  %d = mir.mul %a, %two : tensor<?x16xf32>, tensor<1xf32>
  return %d : tensor<?x16xf32>
}

// -----

/// One template computes both products of twins alike: one of these reads its weight transposed.
// CHECK-LABEL: func @no_twins
//       CHECK:   %[[U:.+]] = call @matmul_0(
//       CHECK:   call @matmul_silu_mul_0(%{{.+}}, %{{.+}}, %[[U]])
func.func @no_twins(%x: tensor<4x8xf32>, %g: tensor<8x8xf32>, %u: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %gate = mir.matmul %x, %g transpose_rhs : tensor<4x8xf32>, tensor<8x8xf32>
  %up = mir.matmul %x, %u : tensor<4x8xf32>, tensor<8x8xf32>
  %s = mir.silu %gate : tensor<4x8xf32>
  %m = mir.mul %s, %up : tensor<4x8xf32>
  return %m : tensor<4x8xf32>
}

// -----

/// The sum of two products is the epilogue of one of them, not of both.
// CHECK-LABEL: func private @matmul_add_0
//       CHECK:   %[[P:.+]] = mir.matmul
//       CHECK:   mir.add %[[P]], %arg2
// CHECK-LABEL: func private @matmul_0
// CHECK-LABEL: func @sum_of_products
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xf32>, %[[W:.+]]: tensor<8x8xf32>, %[[V:.+]]: tensor<8x8xf32>)
//       CHECK:   %[[Q:.+]] = call @matmul_0(%[[X]], %[[V]])
//       CHECK:   %[[S:.+]] = call @matmul_add_0(%[[X]], %[[W]], %[[Q]])
//       CHECK:   return %[[S]]
func.func @sum_of_products(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %v: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %p = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %q = mir.matmul %x, %v : tensor<4x8xf32>, tensor<8x8xf32>
  %s = mir.add %p, %q : tensor<4x8xf32>
  return %s : tensor<4x8xf32>
}

// -----

/// An epilogue ends where the product, or what follows it, is read elsewhere and first by no function of it alone, and
/// before anything that isn't pointwise.
// CHECK-LABEL: func @epilogues_end
//       CHECK:   %[[P:.+]] = call @matmul_0
//       CHECK:   %[[S:.+]] = call @mul_0(%[[P]])
//       CHECK:   %[[Q:.+]] = call @matmul_exp_0
//       CHECK:   %[[R:.+]] = call @reduce_0(%[[Q]])
//       CHECK:   return %[[P]], %[[S]], %[[R]]
func.func @epilogues_end(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>) {
  %p = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %s = mir.mul %p, %p : tensor<4x8xf32>
  %q = mir.matmul %x, %w transpose_rhs : tensor<4x8xf32>, tensor<8x8xf32>
  %e = mir.exp %q : tensor<4x8xf32>
  %r = mir.reduce sum %e axes [1] : tensor<4x8xf32>
  return %p, %s, %r : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>
}

// -----

/// Work on rows of one space is one kernel, with a result for everything that is read outside of it.
// CHECK-LABEL: func private @silu_mul_rms_norm_0
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[G:.+]]: tensor<8xf32>) -> (tensor<?x8xf32>, tensor<?x4xf32>) attributes {mir.kernel = "rows", mir.role = "kernel"}
//  CHECK-NEXT:   %[[S:.+]] = mir.silu %[[X]]
//  CHECK-NEXT:   %[[M:.+]] = mir.mul %[[S]], %[[X]]
//  CHECK-NEXT:   %[[N:.+]] = mir.rms_norm %[[M]], %[[G]]
//  CHECK-NEXT:   %[[H:.+]] = mir.narrow %[[N]] axis 1 start 4 length 4
//  CHECK-NEXT:   return %[[M]], %[[H]]
// CHECK-LABEL: func @rows
//       CHECK:   %[[R:.+]]:2 = call @silu_mul_rms_norm_0
//       CHECK:   return %[[R]]#0, %[[R]]#1
func.func @rows(%x: tensor<?x8xf32>, %g: tensor<8xf32>) -> (tensor<?x8xf32>, tensor<?x4xf32>) {
  %s = mir.silu %x : tensor<?x8xf32>
  %m = mir.mul %s, %x : tensor<?x8xf32>
  %n = mir.rms_norm %m, %g : tensor<?x8xf32>, tensor<8xf32>
  %h = mir.narrow %n axis 1 start 4 length 4 : tensor<?x8xf32>
  return %m, %h : tensor<?x8xf32>, tensor<?x4xf32>
}

// -----

/// Numbers of rows that may differ are two kernels' business, though their types are equal.
// CHECK-LABEL: func @no_rows_of_other_symbols
//       CHECK:   call @silu_0(%arg0) : (tensor<?x8xf32>)
//       CHECK:   call @silu_0(%arg1) : (tensor<?x8xf32>)
func.func @no_rows_of_other_symbols(%x: tensor<?x8xf32> {mir.dims = ["a", ""]}, %y: tensor<?x8xf32> {mir.dims = ["b", ""]}) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %p = mir.silu %x : tensor<?x8xf32>
  %q = mir.silu %y : tensor<?x8xf32>
  return %p, %q : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

/// A reshape stays in the entry function, as a view; the rows after it are others.
// CHECK-LABEL: func @reshape_between
//       CHECK:   %[[P:.+]] = call @silu_0(%arg0)
//       CHECK:   %[[Q:.+]] = mir.reshape %[[P]] to [-1, 4] : tensor<?x8xf32>
//       CHECK:   %[[R:.+]] = call @silu_1(%[[Q]])
//       CHECK:   return %[[R]]
func.func @reshape_between(%x: tensor<?x8xf32> {mir.dims = ["a", ""]}) -> tensor<?x4xf32> {
  %p = mir.silu %x : tensor<?x8xf32>
  %q = mir.reshape %p to [-1, 4] : tensor<?x8xf32>
  %r = mir.silu %q : tensor<?x4xf32>
  return %r : tensor<?x4xf32>
}

// -----

/// An epilogue reads the first rows, and the second rows read it: one kernel for both would have to run before itself.
// CHECK-LABEL: func @epilogue_between
//       CHECK:   %[[R:.+]] = call @rms_norm_0(%arg1
//       CHECK:   %[[E:.+]] = call @matmul_add_0(%{{.+}}, %{{.+}}, %[[R]])
//       CHECK:   %[[S:.+]] = call @rms_norm_0(%[[E]]
//       CHECK:   return %[[S]]
func.func @epilogue_between(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %g: tensor<8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %p = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32>
  %r = mir.rms_norm %y, %g : tensor<4x8xf32>, tensor<8xf32>
  %e = mir.add %p, %r : tensor<4x8xf32>
  %s = mir.rms_norm %e, %g : tensor<4x8xf32>, tensor<8xf32>
  return %s : tensor<4x8xf32>
}

// -----

/// A cache that is an argument, read by nothing else and returned, is overwritten; its kernel says which argument that is.
// CHECK-LABEL: func private @rope_cache_update_0
//  CHECK-SAME:   (%[[K:.+]]: tensor<1x?x32xf32>, %[[T:.+]]: tensor<64x16xf32>, %[[P:.+]]: tensor<1xi32>, %[[C:.+]]: tensor<1x64x32xf32>) -> tensor<1x64x32xf32>
//  CHECK-SAME:   attributes {mir.kernel = "rows", mir.role = "kernel", mir.tied_arguments = array<i64: 3>}
//       CHECK:   %[[R:.+]] = mir.rope %[[K]], %[[T]], %[[T]] pos(%[[P]] : tensor<1xi32>) head_dim 32
//       CHECK:   %[[U:.+]] = mir.cache_update %[[C]], %[[R]] at %[[P]]
//       CHECK:   return %[[U]]
// CHECK-LABEL: func @cache
//       CHECK:   %[[C:.+]] = call @rope_cache_update_0(%arg0, %arg1, %arg3, %arg2)
//       CHECK:   %[[A:.+]] = call @attention_0(%arg0, %[[C]], %arg3)
//       CHECK:   return %[[A]], %[[C]]
func.func @cache(%k: tensor<1x?x32xf32>, %t: tensor<64x16xf32>, %c: tensor<1x64x32xf32>, %p: tensor<1xi32>) -> (tensor<1x?x32xf32>, tensor<1x64x32xf32>) {
  %r = mir.rope %k, %t, %t pos(%p : tensor<1xi32>) head_dim 32 : tensor<1x?x32xf32>, tensor<64x16xf32>
  %u = mir.cache_update %c, %r at %p : tensor<1x64x32xf32>, tensor<1x?x32xf32>, tensor<1xi32>
  %a = mir.attention %k, %u, %u pos(%p : tensor<1xi32>) heads 1 head_dim 32 masked causal : tensor<1x?x32xf32>, tensor<1x64x32xf32>
  return %a, %u : tensor<1x?x32xf32>, tensor<1x64x32xf32>
}

// -----

/// These caches have other readers, or aren't returned: they are copied.
// CHECK-LABEL: module
//   CHECK-NOT:   mir.tied_arguments
//       CHECK: func @no_tie(
func.func @no_tie(%n: tensor<1x2x8xf32>, %c: tensor<1x64x8xf32>, %d: tensor<1x64x8xf32>, %p: tensor<1xi32>) -> (tensor<1x64x8xf32>, tensor<1x64x8xf32>, tensor<1x64x8xf32>) {
  %u = mir.cache_update %c, %n at %p : tensor<1x64x8xf32>, tensor<1x2x8xf32>, tensor<1xi32>
  %old = mir.exp %c : tensor<1x64x8xf32>
  %v = mir.cache_update %d, %n at %p : tensor<1x64x8xf32>, tensor<1x2x8xf32>, tensor<1xi32>
  %e = mir.exp %v : tensor<1x64x8xf32>
  return %u, %old, %e : tensor<1x64x8xf32>, tensor<1x64x8xf32>, tensor<1x64x8xf32>
}

// -----

/// Every result has a buffer of its own: arguments, constants and values that are returned twice are copied.
// CHECK-LABEL: func @copies
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x8xf32>, %[[B:.+]]: tensor<i1>)
//   CHECK-DAG:   %[[Y:.+]] = call @silu_0(%[[X]])
//   CHECK-DAG:   %[[Z:.+]] = call @concat_0(%[[X]])
//   CHECK-DAG:   %[[C:.+]]:2 = call @expand_0(%[[B]]) : (tensor<i1>) -> (tensor<f32>, tensor<i1>)
//   CHECK-DAG:   %[[R:.+]] = mir.reshape %[[Y]] to [16]
//   CHECK-DAG:   %[[S:.+]] = call @concat_{{[0-9]}}(%[[R]])
//       CHECK:   return %[[Y]], %[[Z]], %[[C]]#0, %[[C]]#1, %[[S]]
func.func @copies(%x: tensor<2x8xf32>, %b: tensor<i1>) -> (tensor<2x8xf32>, tensor<2x8xf32>, tensor<f32>, tensor<i1>, tensor<16xf32>) {
  %c = mir.constant dense<1.0> : tensor<f32>
  %y = mir.silu %x : tensor<2x8xf32>
  %r = mir.reshape %y to [16] : tensor<2x8xf32>
  return %y, %x, %c, %b, %r : tensor<2x8xf32>, tensor<2x8xf32>, tensor<f32>, tensor<i1>, tensor<16xf32>
}

// -----

/// Names of the module's own functions aren't taken, and what nothing reads isn't computed.
// CHECK-LABEL: module
//       CHECK:   func.func private @silu_1(
//  CHECK-NEXT:     mir.silu
//  CHECK-NEXT:     return
//       CHECK:   func.func @silu_0(
//  CHECK-NEXT:     call @silu_1
func.func @silu_0(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %p = mir.silu %x : tensor<2x8xf32>
  %dead = mir.exp %x : tensor<2x8xf32>
  return %p : tensor<2x8xf32>
}

// -----

/// Quantisation is a kernel of its own, which products of one input share.
// CHECK-LABEL: func private @block_dot_0
//  CHECK-SAME:   mir.kernel = "gemm"
// CHECK-LABEL: func private @block_quantize_0
//  CHECK-SAME:   -> (tensor<?x32xi8>, tensor<?x1xf32>, tensor<?x1xi32>) attributes {mir.kernel = "quantize", mir.role = "kernel"}
// CHECK-LABEL: func @quantized
//       CHECK:   %[[Q:.+]]:3 = call @block_quantize_0(%arg0)
//       CHECK:   call @block_dot_0(%[[Q]]#0, %[[Q]]#1, %[[Q]]#2, %arg1)
//       CHECK:   call @block_dot_0(%[[Q]]#0, %[[Q]]#1, %[[Q]]#2, %arg2)
func.func @quantized(%x: tensor<?x32xf32>, %w: tensor<16x34xi8, #mir.packed<q8_0, k = 32>>, %v: tensor<16x34xi8, #mir.packed<q8_0, k = 32>>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
  %q, %d, %s = mir.block_quantize %x : tensor<?x32xf32>
  %a = mir.block_dot %q, %d, %s, %w : tensor<?x32xi8>, tensor<16x34xi8, #mir.packed<q8_0, k = 32>>
  %b = mir.block_dot %q, %d, %s, %v : tensor<?x32xi8>, tensor<16x34xi8, #mir.packed<q8_0, k = 32>>
  return %a, %b : tensor<?x16xf32>, tensor<?x16xf32>
}

// -----

/// Twins feed any function of one element: here the gate of a GeGLU.
// CHECK-LABEL: func private @matmul_gelu_approx_mul_0
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[G:.+]]: tensor<8x16xf32>, %[[U:.+]]: tensor<8x16xf32>)
//   CHECK-DAG:   %[[PG:.+]] = mir.matmul %[[X]], %[[G]]
//   CHECK-DAG:   %[[PU:.+]] = mir.matmul %[[X]], %[[U]]
//       CHECK:   %[[S:.+]] = mir.gelu_approx %[[PG]]
//       CHECK:   %[[M:.+]] = mir.mul %[[PU]], %[[S]]
//       CHECK:   return %[[M]]
// CHECK-LABEL: func @geglu
//  CHECK-NEXT:   call @matmul_gelu_approx_mul_0(
func.func @geglu(%x: tensor<?x8xf32>, %g: tensor<8x16xf32>, %u: tensor<8x16xf32>) -> tensor<?x16xf32> {
  %gate = mir.matmul %x, %g : tensor<?x8xf32>, tensor<8x16xf32>
  %up = mir.matmul %x, %u : tensor<?x8xf32>, tensor<8x16xf32>
  %s = mir.gelu_approx %gate : tensor<?x16xf32>
  %m = mir.mul %up, %s : tensor<?x16xf32>
  return %m : tensor<?x16xf32>
}

// -----

/// A function that something else reads too doesn't join twins; nor do two functions.
// CHECK-LABEL: func @no_twins_of_other_readers
//       CHECK:   call @matmul_exp_0
//       CHECK:   call @matmul_mul_0
//       CHECK:   call @matmul_sigmoid_0
//       CHECK:   call @matmul_tanh_mul_0
func.func @no_twins_of_other_readers(%x: tensor<4x8xf32>, %g: tensor<8x8xf32>, %u: tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %g0 = mir.matmul %x, %g : tensor<4x8xf32>, tensor<8x8xf32>
  %u0 = mir.matmul %x, %u : tensor<4x8xf32>, tensor<8x8xf32>
  %e = mir.exp %g0 : tensor<4x8xf32>
  %m = mir.mul %e, %u0 : tensor<4x8xf32>
  %g1 = mir.matmul %x, %g : tensor<4x8xf32>, tensor<8x8xf32>
  %u1 = mir.matmul %x, %u : tensor<4x8xf32>, tensor<8x8xf32>
  %t = mir.tanh %g1 : tensor<4x8xf32>
  %s = mir.sigmoid %u1 : tensor<4x8xf32>
  %n = mir.mul %t, %s : tensor<4x8xf32>
  return %e, %m, %n : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

/// Heads are rows: what works on whole positions (rope, the cache) and can work on a head joins the norm of each head.
// CHECK-LABEL: func private @rms_norm_rope_cache_update_0
//  CHECK-SAME:   (%[[K:.+]]: tensor<1x?x2x16xf32>, %[[G:.+]]: tensor<16xf32>, %[[T:.+]]: tensor<64x8xf32>, %[[P:.+]]: tensor<1xi32>, %[[C:.+]]: tensor<1x64x32xf32>)
//  CHECK-SAME:   attributes {mir.kernel = "rows", mir.role = "kernel", mir.tied_arguments = array<i64: 4>}
//  CHECK-NEXT:   %[[N:.+]] = mir.rms_norm %[[K]], %[[G]]
//  CHECK-NEXT:   %[[F:.+]] = mir.reshape %[[N]] to [-2, -2, 32]
//  CHECK-NEXT:   %[[R:.+]] = mir.rope %[[F]], %[[T]], %[[T]]
//  CHECK-NEXT:   %[[U:.+]] = mir.cache_update %[[C]], %[[R]] at %[[P]]
//  CHECK-NEXT:   return %[[U]]
// CHECK-LABEL: func @heads
//       CHECK:   %[[H:.+]] = mir.reshape %arg0 to [-2, -2, 2, 16]
//  CHECK-NEXT:   %[[U:.+]] = call @rms_norm_rope_cache_update_0(%[[H]],
//  CHECK-NEXT:   return %[[U]]
func.func @heads(%k: tensor<1x?x32xf32>, %g: tensor<16xf32>, %t: tensor<64x8xf32>, %c: tensor<1x64x32xf32>, %p: tensor<1xi32>) -> tensor<1x64x32xf32> {
  %h = mir.reshape %k to [-2, -2, 2, 16] : tensor<1x?x32xf32>
  %n = mir.rms_norm %h, %g eps 0.25 : tensor<1x?x2x16xf32>, tensor<16xf32>
  %f = mir.reshape %n to [-2, -2, 32] : tensor<1x?x2x16xf32>
  %r = mir.rope %f, %t, %t pos(%p : tensor<1xi32>) head_dim 16 : tensor<1x?x32xf32>, tensor<64x8xf32>
  %u = mir.cache_update %c, %r at %p : tensor<1x64x32xf32>, tensor<1x?x32xf32>, tensor<1xi32>
  return %u : tensor<1x64x32xf32>
}

// -----

/// A row of two heads can't be normed head by head, and rope of wider heads needs them whole: they aren't split.
// CHECK-LABEL: func @no_heads
//       CHECK:   %[[N:.+]] = call @rms_norm_0(
//       CHECK:   %[[F:.+]] = mir.reshape %[[N]] to [-2, -2, 32]
//       CHECK:   call @rms_norm_1(%[[F]],
//       CHECK:   %[[O:.+]] = call @rms_norm_0(
//       CHECK:   %[[E:.+]] = mir.reshape %[[O]] to [-2, -2, 32]
//       CHECK:   call @rope_0(%[[E]],
func.func @no_heads(%h: tensor<1x?x2x16xf32>, %g: tensor<16xf32>, %w: tensor<32xf32>, %t: tensor<64x16xf32>) -> (tensor<1x?x32xf32>, tensor<1x?x32xf32>) {
  %n = mir.rms_norm %h, %g eps 0.25 : tensor<1x?x2x16xf32>, tensor<16xf32>
  %f = mir.reshape %n to [-2, -2, 32] : tensor<1x?x2x16xf32>
  %y = mir.rms_norm %f, %w eps 0.25 : tensor<1x?x32xf32>, tensor<32xf32>
  %o = mir.rms_norm %h, %g eps 0.25 : tensor<1x?x2x16xf32>, tensor<16xf32>
  %e = mir.reshape %o to [-2, -2, 32] : tensor<1x?x2x16xf32>
  %z = mir.rope %e, %t, %t head_dim 32 : tensor<1x?x32xf32>, tensor<64x16xf32>
  return %y, %z : tensor<1x?x32xf32>, tensor<1x?x32xf32>
}

// -----

/// A reshape that nothing in the kernel reads is a view of its result.
// CHECK-LABEL: func @reshape_of_result
//       CHECK:   %[[N:.+]] = call @rms_norm_0(
//  CHECK-NEXT:   %[[F:.+]] = mir.reshape %[[N]] to [-2, -2, 32]
//  CHECK-NEXT:   return %[[F]]
func.func @reshape_of_result(%h: tensor<1x?x2x16xf32>, %g: tensor<16xf32>) -> tensor<1x?x32xf32> {
  %n = mir.rms_norm %h, %g eps 0.25 : tensor<1x?x2x16xf32>, tensor<16xf32>
  %f = mir.reshape %n to [-2, -2, 32] : tensor<1x?x2x16xf32>
  return %f : tensor<1x?x32xf32>
}

// -----

/// What takes the memory of an argument that it reads is a kernel of its own where the whole wouldn't be element-wise.
// CHECK-LABEL: func private @sub_0
//       CHECK:   %[[S:.+]] = mir.sub
//       CHECK:   return %[[S]]
// CHECK-LABEL: func private @matmul_0
//       CHECK:   %[[P:.+]] = mir.matmul
//       CHECK:   return %[[P]]
// CHECK-LABEL: func @cut(
//       CHECK:   %[[G:.+]] = call @matmul_0(%arg1, %arg2)
//       CHECK:   call @sub_0(%arg0, %[[G]])
func.func @cut(%w: tensor<8x8xf32> {mir.name = "w", mir.kind = "input"}, %x: tensor<8x4xf32>, %y: tensor<4x8xf32>) -> (tensor<8x8xf32> {mir.name = "next"}) attributes {mir.ties = {next = "w"}} {
  %g = mir.matmul %x, %y : tensor<8x4xf32>, tensor<4x8xf32>
  %s = mir.sub %w, %g : tensor<8x8xf32>
  return %s : tensor<8x8xf32>
}

// -----

/// What is summed beside it, of other values, stays in its kernel.
// CHECK-LABEL: func private @mul_reduce_sub_0
//       CHECK:   mir.reduce
//       CHECK:   mir.sub
// CHECK-LABEL: func @beside(
//       CHECK:   %[[R:.+]]:2 = call @mul_reduce_sub_0(%arg1, %arg0)
//       CHECK:   return %[[R]]#1, %[[R]]#0
func.func @beside(%w: tensor<4x8xf32> {mir.name = "w", mir.kind = "input"}, %g: tensor<4x8xf32>) -> (tensor<4x8xf32> {mir.name = "next"}, tensor<4x1xf32>) attributes {mir.ties = {next = "w"}} {
  %a = mir.mul %g, %g : tensor<4x8xf32>
  %n = mir.reduce sum %a axes [1] keep_dims : tensor<4x8xf32>
  %s = mir.sub %w, %g : tensor<4x8xf32>
  return %s, %n : tensor<4x8xf32>, tensor<4x1xf32>
}

// -----

/// So it is beside other readers of the argument, and it comes after them.
// CHECK-LABEL: func @late(
//       CHECK:   %[[Q:.+]] = call @softmax_0(%arg0)
//       CHECK:   %[[T:.+]] = call @transpose_0(%arg0)
//       CHECK:   %[[N:.+]] = call @sub_0(%arg0, %arg1)
//       CHECK:   return %[[N]], %[[Q]], %[[T]]
func.func @late(%w: tensor<8x8xf32> {mir.name = "w", mir.kind = "input"}, %g: tensor<8x8xf32>) -> (tensor<8x8xf32> {mir.name = "next"}, tensor<8x8xf32>, tensor<8x8xf32>) attributes {mir.ties = {next = "w"}} {
  %s = mir.sub %w, %g : tensor<8x8xf32>
  %q = mir.softmax %w : tensor<8x8xf32>
  %t = mir.transpose %w permutation [1, 0] : tensor<8x8xf32>
  return %s, %q, %t : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

/// Element-wise operations stay one kernel with several results; an argument that is returned as it is isn't copied.
// CHECK-LABEL: func @together(
//       CHECK:   %[[R:.+]]:2 = call @mul_sub_0(
//   CHECK-NOT:   call
//       CHECK:   return %[[R]]#0, %[[R]]#1, %arg2
func.func @together(%m: tensor<8x8xf32> {mir.name = "m"}, %w: tensor<8x8xf32> {mir.name = "w"}, %k: tensor<8x8xf32> {mir.name = "k"}) -> (tensor<8x8xf32> {mir.name = "m2"}, tensor<8x8xf32> {mir.name = "w2"}, tensor<8x8xf32> {mir.name = "k2"}) attributes {mir.ties = {m2 = "m", w2 = "w", k2 = "k"}} {
  %a = mir.mul %m, %m : tensor<8x8xf32>
  %b = mir.sub %w, %a : tensor<8x8xf32>
  return %a, %b, %k : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

/// An update overwrites an input that nothing else reads, step by step; another one is copied first.
// CHECK-LABEL: func.func private @dynamic_update_slice_0(
//  CHECK-SAME:   mir.kernel = "generic"
//  CHECK-SAME:   mir.tied_arguments = array<i64: 0>
// CHECK-LABEL: func @updates(
//       CHECK:   %[[A:.+]] = call @dynamic_update_slice_0(%arg0, %arg2, %arg3)
//       CHECK:   %[[B:.+]] = call @dynamic_update_slice_0(%[[A]], %arg2, %arg3)
//       CHECK:   %[[C:.+]] = call @concat_0(%arg1)
//       CHECK:   %[[D:.+]] = call @dynamic_update_slice_0(%[[C]], %arg2, %arg3)
//       CHECK:   %[[E:.+]] = call @transpose_0(%arg1)
//       CHECK:   return %[[B]], %[[D]], %[[E]]
func.func @updates(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>, %u: tensor<2x4xf32>, %i: tensor<i32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>) {
  %a = mir.dynamic_update_slice %x, %u at %i axis 0 : tensor<8x4xf32>, tensor<2x4xf32>, tensor<i32>
  %b = mir.dynamic_update_slice %a, %u at %i axis 0 : tensor<8x4xf32>, tensor<2x4xf32>, tensor<i32>
  %c = mir.dynamic_update_slice %y, %u at %i axis 0 : tensor<8x4xf32>, tensor<2x4xf32>, tensor<i32>
  %d = mir.transpose %y permutation [1, 0] : tensor<8x4xf32>
  return %b, %c, %d : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>
}

// -----

/// A reshape to sizes of another value is a view where it has as many elements by these, else a kernel of its own.
// CHECK-LABEL: func @sizes(
//       CHECK:   mir.reshape %arg0 to [-3, -3] sizes ["d0", "d1"] like %arg0, %arg0
//       CHECK:   call @reshape_0(%arg0, %arg1)
func.func @sizes(%x: tensor<?x?xf32>, %y: tensor<?x8xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  %e = mir.exp %x : tensor<?x?xf32>
  %a = mir.reshape %x to [-3, -3] sizes ["d0", "d1"] like %x, %x dims [1, 0] : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>
  %f = mir.exp %a : tensor<?x?xf32>
  %b = mir.reshape %x to [-3, -1] sizes ["d0"] like %y dims [0] : tensor<?x?xf32>, tensor<?x8xf32>
  return %f, %b : tensor<?x?xf32>, tensor<?x?xf32>
}
