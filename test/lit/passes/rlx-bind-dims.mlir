// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-bind-dims{symbols=batch:2,seq:5})' | FileCheck %s --check-prefixes=CHECK,BOTH
// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-bind-dims{symbols=seq:5})' | FileCheck %s --check-prefixes=CHECK,SEQ
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(rlx-bind-dims{symbols=rows:5})' 2>&1 | FileCheck %s --check-prefix=ERROR

// ERROR: pass 'rlx-bind-dims': no argument has a dimension 'rows', the symbols are batch, seq

// CHECK-LABEL: func @main(
//   BOTH-SAME:   %[[X:[a-z0-9]+]]: tensor<2x5x8xf32> {mir.kind = "input", mir.name = "x"},
//    SEQ-SAME:   %[[X:[a-z0-9]+]]: tensor<?x5x8xf32> {mir.dims = ["batch", "", ""], mir.kind = "input", mir.name = "x"},
//  CHECK-SAME:   %[[W:[a-z0-9]+]]: tensor<8x6xf32>
//   BOTH-SAME:   -> (tensor<10x6xbf16>
//    SEQ-SAME:   -> (tensor<?x6xbf16>
//        BOTH:   %[[Y:.+]] = hir.linear %[[X]], %[[W]] : tensor<2x5x8xf32>, tensor<8x6xf32>
//        BOTH:   %[[C:.+]] = mir.cast %[[Y]] : tensor<2x5x6xf32> to tensor<2x5x6xbf16>
//         SEQ:   %[[Y:.+]] = hir.linear %[[X]], %[[W]] : tensor<?x5x8xf32>, tensor<8x6xf32>
//         SEQ:   %[[C:.+]] = mir.cast %[[Y]] : tensor<?x5x6xf32> to tensor<?x5x6xbf16>
//       CHECK:   %[[R:.+]] = mir.reshape %[[C]] to [-1, 6]
//       CHECK:   %[[H:.+]] = call @helper(%[[R]])
//       CHECK:   return %[[H]]
func.func @main(%x: tensor<?x?x8xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["batch", "seq", ""]},
                %w: tensor<8x6xf32> {mir.name = "w", mir.kind = "param"}) -> (tensor<?x6xbf16> {mir.name = "y"}) {
  %y = hir.linear %x, %w : tensor<?x?x8xf32>, tensor<8x6xf32>
  %c = mir.cast %y : tensor<?x?x6xf32> to tensor<?x?x6xbf16>
  %r = mir.reshape %c to [-1, 6] : tensor<?x?x6xbf16>
  %h = call @helper(%r) : (tensor<?x6xbf16>) -> tensor<?x6xbf16>
  return %h : tensor<?x6xbf16>
}

/// A function that is called takes the types of its call.
// CHECK-LABEL: func private @helper(
//   BOTH-SAME:   %[[X:.+]]: tensor<10x6xbf16>) -> tensor<10x6xbf16>
//    SEQ-SAME:   %[[X:.+]]: tensor<?x6xbf16>) -> tensor<?x6xbf16>
//       CHECK:   mir.silu %[[X]]
func.func private @helper(%x: tensor<?x6xbf16>) -> tensor<?x6xbf16> {
  %y = mir.silu %x : tensor<?x6xbf16>
  return %y : tensor<?x6xbf16>
}
