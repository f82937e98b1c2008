// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(lir-plan)' | FileCheck %s
// RUN: not rlx-opt %s --split-input-file --pass-pipeline='builtin.module(lir-plan{maxima=seq})' 2>&1 | FileCheck %s --check-prefix=TEXT
// RUN: not rlx-opt %s --split-input-file --pass-pipeline='builtin.module(lir-plan{maxima=rows:8})' 2>&1 | FileCheck %s --check-prefix=SYMBOL

// TEXT: error: pass 'lir-plan': option 'maxima' expects symbol:size, separated by commas, but got 'seq'
// SYMBOL: error: pass 'lir-plan': option 'maxima' names 'rows', but the symbols are seq

/// Values that aren't alive at one time share memory, at the largest size: 512 rows of 64 f32 are 131072 bytes, and two
/// of the three values suffice. The kernel stays as `.mir`, and is declared as it is called.
// CHECK-LABEL: func private @exp_0.mir(
//       CHECK:   mir.exp
// CHECK-LABEL: func @reuse(
//  CHECK-SAME:   %[[ARENA:[a-z0-9]+]]: memref<?xi8>,
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<?x64xf32> {mir.dims = ["seq", ""], mir.kind = "input", mir.name = "x"},
//  CHECK-SAME:   %[[Y:[a-z0-9]+]]: memref<?x64xf32> {mir.dims = ["seq", ""], mir.kind = "output", mir.name = "y"})
//  CHECK-SAME:   attributes {mir.arena = 262144 : i64, mir.arena_without_reuse = 393216 : i64, mir.fullest = 1 : i64, mir.symbols = {seq = 512 : i64}}
//   CHECK-DAG:   %[[C0:.+]] = arith.constant 0 : index
//   CHECK-DAG:   %[[C1:.+]] = arith.constant 131072 : index
//       CHECK:   %[[SEQ:.+]] = memref.dim %[[X]], %[[C0]]
//       CHECK:   %[[A:.+]] = memref.view %[[ARENA]][%[[C0]]][%[[SEQ]]] : memref<?xi8> to memref<?x64xf32>
//       CHECK:   %[[B:.+]] = memref.view %[[ARENA]][%[[C1]]][%[[SEQ]]] : memref<?xi8> to memref<?x64xf32>
//       CHECK:   %[[C:.+]] = memref.view %[[ARENA]][%[[C0]]][%[[SEQ]]] : memref<?xi8> to memref<?x64xf32>
//  CHECK-NEXT:   call @exp_0(%[[X]], %[[A]])
//  CHECK-NEXT:   call @exp_0(%[[A]], %[[B]])
//  CHECK-NEXT:   call @exp_0(%[[B]], %[[C]])
//  CHECK-NEXT:   call @exp_0(%[[C]], %[[Y]])
//  CHECK-NEXT:   return
// CHECK-LABEL: func private @exp_0(memref<?x64xf32>, memref<?x64xf32>) attributes {mir.kernel = "rows", mir.relations = array<i64: 1, 0, 2, -1, 1, 0, 1, 1, 1>}
func.func private @exp_0(%x: tensor<?x64xf32>) -> tensor<?x64xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.exp %x : tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}
func.func @reuse(%x: tensor<?x64xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["seq", ""]}) -> (tensor<?x64xf32> {mir.name = "y"}) {
  %a = call @exp_0(%x) : (tensor<?x64xf32>) -> tensor<?x64xf32>
  %b = call @exp_0(%a) : (tensor<?x64xf32>) -> tensor<?x64xf32>
  %c = call @exp_0(%b) : (tensor<?x64xf32>) -> tensor<?x64xf32>
  %d = call @exp_0(%c) : (tensor<?x64xf32>) -> tensor<?x64xf32>
  return %d : tensor<?x64xf32>
}

// -----

/// A value that is read again later keeps its memory. Views of static sizes need none; buffers start at multiples of 64.
// CHECK-LABEL: func @no_reuse(
//  CHECK-SAME:   %[[ARENA:[a-z0-9]+]]: memref<?xi8>, %[[X:[a-z0-9]+]]: memref<3xf32>
//  CHECK-SAME:   mir.arena = 192 : i64, mir.arena_without_reuse = 36 : i64, mir.fullest = 2 : i64, mir.symbols = {seq = 512 : i64}
//   CHECK-DAG:   %[[C0:.+]] = arith.constant 0 : index
//   CHECK-DAG:   %[[C64:.+]] = arith.constant 64 : index
//   CHECK-DAG:   %[[C128:.+]] = arith.constant 128 : index
//       CHECK:   %[[A:.+]] = memref.view %[[ARENA]][%[[C0]]][] : memref<?xi8> to memref<3xf32>
//       CHECK:   %[[B:.+]] = memref.view %[[ARENA]][%[[C64]]][]
//       CHECK:   %[[C:.+]] = memref.view %[[ARENA]][%[[C128]]][]
//       CHECK:   call @add_0(%[[X]], %[[X]], %[[A]])
//       CHECK:   call @add_0(%[[A]], %[[X]], %[[B]])
//       CHECK:   call @add_0(%[[A]], %[[B]], %[[C]])
//       CHECK:   call @add_0(%[[C]], %[[A]], %{{.+}})
func.func private @add_0(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.add %x, %y : tensor<3xf32>
  return %0 : tensor<3xf32>
}
func.func @no_reuse(%x: tensor<3xf32> {mir.name = "x", mir.kind = "input"}, %seq: tensor<?xf32> {mir.name = "seq", mir.kind = "input", mir.dims = ["seq"]}) -> (tensor<3xf32> {mir.name = "y"}) {
  %a = call @add_0(%x, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %b = call @add_0(%a, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %c = call @add_0(%a, %b) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %d = call @add_0(%c, %a) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %d : tensor<3xf32>
}

// -----

/// Reshapes are views of the same memory, also of an output, and sizes are products of symbols.
// CHECK-LABEL: func @views(
//  CHECK-SAME:   %[[ARENA:[a-z0-9]+]]: memref<?xi8>, %[[X:[a-z0-9]+]]: memref<?x?x8xf32> {{{[^}]+}}},
//  CHECK-SAME:   %[[Y:[a-z0-9]+]]: memref<?x4xf32> {mir.dims = ["2*b*seq", ""], mir.kind = "output", mir.name = "y"},
//  CHECK-SAME:   %[[Z:[a-z0-9]+]]: memref<?x8xf32> {mir.dims = ["b*seq", ""], mir.kind = "output", mir.name = "z"})
//  CHECK-SAME:   mir.symbols = {b = 512 : i64, seq = 512 : i64}
//       CHECK:   %[[B:.+]] = memref.dim %[[X]], %c0
//       CHECK:   %[[S:.+]] = memref.dim %[[X]], %c1
//       CHECK:   %[[STRIDE:.+]] = arith.muli %[[S]], %c8
//       CHECK:   %[[ZR:.+]] = memref.reinterpret_cast %[[Z]] to offset: [0], sizes: [%[[B]], %[[S]], %c8], strides: [%[[STRIDE]], %c8, %c1]
//       CHECK:   %[[ZV:.+]] = memref.cast %[[ZR]] : {{.+}} to memref<?x?x8xf32>
//       CHECK:   %[[A:.+]] = memref.view %[[ARENA]][%c0][%[[B]], %[[S]]] : memref<?xi8> to memref<?x?x8xf32>
//       CHECK:   call @exp_0(%[[X]], %[[A]])
//       CHECK:   %[[BS:.+]] = arith.muli %[[B]], %[[S]]
//       CHECK:   %[[BS2:.+]] = arith.muli %[[BS]], %c2
//       CHECK:   %[[AR:.+]] = memref.reinterpret_cast %[[A]] to offset: [0], sizes: [%[[BS2]], %c4], strides: [%c4, %c1]
//       CHECK:   %[[AV:.+]] = memref.cast %[[AR]] : {{.+}} to memref<?x4xf32>
//       CHECK:   call @silu_0(%[[AV]], %[[Y]])
//       CHECK:   call @exp_0(%[[A]], %[[ZV]])
func.func private @exp_0(%x: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.exp %x : tensor<?x?x8xf32>
  return %0 : tensor<?x?x8xf32>
}
func.func private @silu_0(%x: tensor<?x4xf32>) -> tensor<?x4xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.silu %x : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
func.func @views(%x: tensor<?x?x8xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["b", "seq", ""]}) -> (tensor<?x4xf32> {mir.name = "y"}, tensor<?x8xf32> {mir.name = "z"}) {
  %a = call @exp_0(%x) : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %r = mir.reshape %a to [-1, 4] : tensor<?x?x8xf32>
  %b = call @silu_0(%r) : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %c = call @exp_0(%a) : (tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %z = mir.reshape %c to [-1, 8] : tensor<?x?x8xf32>
  return %b, %z : tensor<?x4xf32>, tensor<?x8xf32>
}

// -----

/// The output of a tied cache has the cache's memory: its kernel reads and writes the output, and needs no slot.
// CHECK-LABEL: func @tied(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<1x?x8xf32> {{{[^}]+}}}, %[[C:[a-z0-9]+]]: memref<1x64x8xf32> {{{[^}]+}}}, %[[P:[a-z0-9]+]]: memref<1xi32> {{{[^}]+}}},
//  CHECK-SAME:   %[[Y:[a-z0-9]+]]: memref<1x64x8xf32> {mir.dims = ["", "", ""], mir.kind = "output", mir.name = "y"},
//  CHECK-SAME:   %[[N:[a-z0-9]+]]: memref<1x64x8xf32> {mir.dims = ["", "", ""], mir.kind = "output", mir.name = "cache_out", mir.tied = "cache"})
//  CHECK-SAME:   mir.arena = 0 : i64
//       CHECK:   call @cache_update_0(%[[X]], %[[P]], %[[N]], %[[N]])
//       CHECK:   call @exp_0(%[[N]], %[[Y]])
func.func private @cache_update_0(%new: tensor<1x?x8xf32>, %pos: tensor<1xi32>, %cache: tensor<1x64x8xf32>) -> tensor<1x64x8xf32> attributes {mir.kernel = "rows", mir.role = "kernel", mir.tied_arguments = array<i64: 2>} {
  %0 = mir.cache_update %cache, %new at %pos : tensor<1x64x8xf32>, tensor<1x?x8xf32>, tensor<1xi32>
  return %0 : tensor<1x64x8xf32>
}
func.func private @exp_0(%x: tensor<1x64x8xf32>) -> tensor<1x64x8xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.exp %x : tensor<1x64x8xf32>
  return %0 : tensor<1x64x8xf32>
}
func.func @tied(%x: tensor<1x?x8xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["", "seq", ""]}, %c: tensor<1x64x8xf32> {mir.name = "cache", mir.kind = "input"}, %p: tensor<1xi32> {mir.name = "pos", mir.kind = "input"})
    -> (tensor<1x64x8xf32> {mir.name = "y"}, tensor<1x64x8xf32> {mir.name = "cache_out"}) {
  %0 = call @cache_update_0(%x, %p, %c) : (tensor<1x?x8xf32>, tensor<1xi32>, tensor<1x64x8xf32>) -> tensor<1x64x8xf32>
  %1 = call @exp_0(%0) : (tensor<1x64x8xf32>) -> tensor<1x64x8xf32>
  return %1, %0 : tensor<1x64x8xf32>, tensor<1x64x8xf32>
}

// -----

/// A name needs quotes in text; sizes without a symbol are told apart by their argument.
// CHECK-LABEL: func @names(
//  CHECK-SAME:   memref<?x8xf32> {mir.dims = ["a__b___0", ""], mir.kind = "input", mir.name = "a \22b\22 "}
//  CHECK-SAME:   memref<?xf32> {mir.dims = ["arg1_0"], mir.kind = "input", mir.name = "arg1"}
//  CHECK-SAME:   memref<?x8xf32> {mir.dims = ["a__b___0", ""], mir.kind = "output", mir.name = "\22"}
//  CHECK-SAME:   mir.symbols = {a__b___0 = 512 : i64, arg1_0 = 512 : i64, seq = 512 : i64}
func.func private @exp_0(%x: tensor<?x8xf32>) -> tensor<?x8xf32> attributes {mir.kernel = "rows", mir.role = "kernel"} {
  %0 = mir.exp %x : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
func.func @names(%x: tensor<?x8xf32> {mir.name = "a \"b\" ", mir.kind = "input"}, %y: tensor<?xf32> {mir.kind = "input"}, %seq: tensor<?xf32> {mir.dims = ["seq"]}) -> (tensor<?x8xf32> {mir.name = "\""}) {
  %a = call @exp_0(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %a : tensor<?x8xf32>
}
