// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-hoist-params)' | FileCheck %s

/// What follows from parameters moves, in one function, in order; the entry function gets its results as parameters,
/// and loses the parameters that nothing reads any more.
// CHECK-LABEL: func @prepare(
//  CHECK-SAME:   %[[A:[a-z0-9]+]]: tensor<16x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param", mir.name = "a"},
//  CHECK-SAME:   %[[B:[a-z0-9]+]]: tensor<16x34xi8, #mir.packed<q8_0, k = 32>> {mir.kind = "param", mir.name = "b"},
//  CHECK-SAME:   %[[G:[a-z0-9]+]]: tensor<32xf32> {mir.kind = "param", mir.name = "g"})
//  CHECK-SAME:   -> (tensor<2x544xi8, #mir.packed<q8_0, k = 32, n = 32, layout = panels>> {mir.name = "a+b:panels"}, tensor<32xf32> {mir.name = "g:prepared"})
//  CHECK-SAME:   attributes {mir.role = "prepare"}
//  CHECK-NEXT:   %[[C:.+]] = mir.concat %[[A]], %[[B]] axis 0
//  CHECK-NEXT:   %[[P:.+]] = mir.repack %[[C]]
//  CHECK-NEXT:   %[[N:.+]] = mir.neg %[[G]]
//  CHECK-NEXT:   return %[[P]], %[[N]]
// CHECK-LABEL: func @main(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: tensor<?x32xf32> {mir.dims = ["seq", ""], mir.kind = "input", mir.name = "x"},
//  CHECK-SAME:   %[[G:[a-z0-9]+]]: tensor<32xf32> {mir.kind = "param", mir.name = "g"},
//  CHECK-SAME:   %[[W:[a-z0-9]+]]: tensor<2x544xi8, #mir.packed<q8_0, k = 32, n = 32, layout = panels>> {mir.kind = "param", mir.name = "a+b:panels"},
//  CHECK-SAME:   %[[N:[a-z0-9]+]]: tensor<32xf32> {mir.kind = "param", mir.name = "g:prepared"})
//  CHECK-SAME:   -> (tensor<?x32xf32> {mir.name = "y"})
//  CHECK-NEXT:   %[[Y:.+]] = mir.dequant_matmul %[[X]], %[[W]]
//  CHECK-NEXT:   %[[Z:.+]] = mir.add %[[Y]], %[[N]]
//  CHECK-NEXT:   %[[R:.+]] = mir.mul %[[Z]], %[[G]]
//  CHECK-NEXT:   return %[[R]]
func.func @main(%x: tensor<?x32xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["seq", ""]}, %a: tensor<16x34xi8, #mir.packed<q8_0, k = 32>> {mir.name = "a", mir.kind = "param"},
                %unused: tensor<4xf32> {mir.name = "unused", mir.kind = "param"}, %b: tensor<16x34xi8, #mir.packed<q8_0, k = 32>> {mir.name = "b", mir.kind = "param"},
                %g: tensor<32xf32> {mir.name = "g", mir.kind = "param"}) -> (tensor<?x32xf32> {mir.name = "y"}) {
  %c = mir.concat %a, %b axis 0 : tensor<16x34xi8, #mir.packed<q8_0, k = 32>>, tensor<16x34xi8, #mir.packed<q8_0, k = 32>>
  %p = mir.repack %c : tensor<32x34xi8, #mir.packed<q8_0, k = 32>>
  %y = mir.dequant_matmul %x, %p : tensor<?x32xf32>, tensor<2x544xi8, #mir.packed<q8_0, k = 32, n = 32, layout = panels>>
  %n = mir.neg %g : tensor<32xf32>
  %z = mir.add %y, %n : tensor<?x32xf32>, tensor<32xf32>
  %r = mir.mul %z, %g : tensor<?x32xf32>, tensor<32xf32>
  return %r : tensor<?x32xf32>
}

// -----

/// Nothing to do: no function appears, and no parameter goes.
// CHECK-LABEL: module
//   CHECK-NOT:   @prepare
//       CHECK:   func.func @main(%{{.+}}: tensor<4xf32> {mir.kind = "input", mir.name = "x"}, %{{.+}}: tensor<4xf32> {mir.kind = "param", mir.name = "g"})
func.func @main(%x: tensor<4xf32> {mir.name = "x", mir.kind = "input"}, %g: tensor<4xf32> {mir.name = "g", mir.kind = "param"}) -> (tensor<4xf32> {mir.name = "y"}) {
  %y = mir.mul %x, %g : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

/// A result of the entry function may be prepared; the name @prepare may be taken; equal sources are numbered.
// CHECK-LABEL: func @prepare_(
//  CHECK-SAME:   -> (tensor<4xf32> {mir.name = "g:prepared"}, tensor<4xf32> {mir.name = "g:prepared#2"})
//  CHECK-SAME:   attributes {mir.role = "prepare"}
//       CHECK:   %[[N:.+]] = mir.neg
//       CHECK:   %[[E:.+]] = mir.mul
//       CHECK:   return %[[N]], %[[E]]
// CHECK-LABEL: func @prepare(
//  CHECK-SAME:   %[[N:[a-z0-9]+]]: tensor<4xf32> {mir.kind = "param", mir.name = "g:prepared"}, %[[E:[a-z0-9]+]]: tensor<4xf32> {mir.kind = "param", mir.name = "g:prepared#2"}) -> (tensor<4xf32> {mir.name = "n"}, tensor<4xf32> {mir.name = "e"})
//  CHECK-NEXT:   return %[[N]], %[[E]]
func.func @prepare(%g: tensor<4xf32> {mir.name = "g", mir.kind = "param"}) -> (tensor<4xf32> {mir.name = "n"}, tensor<4xf32> {mir.name = "e"}) {
  %n = mir.neg %g : tensor<4xf32>
  %e = mir.mul %g, %g : tensor<4xf32>
  return %n, %e : tensor<4xf32>, tensor<4xf32>
}

// -----

/// What numpy can't do when parameters are set stays; what reads it does, too.
// CHECK-LABEL: func @prepare(
//       CHECK:   %[[N:.+]] = mir.neg
//  CHECK-NEXT:   return %[[N]]
// CHECK-LABEL: func @main(
//  CHECK-SAME:   %[[G:[a-z0-9]+]]: tensor<4xf32> {mir.kind = "param", mir.name = "g"}, %[[N:[a-z0-9]+]]: tensor<4xf32> {mir.kind = "param", mir.name = "g:prepared"})
//  CHECK-NEXT:   %[[E:.+]] = mir.exp %[[G]]
//  CHECK-NEXT:   %[[S:.+]] = mir.add %[[E]], %[[N]]
//  CHECK-NEXT:   return %[[S]]
func.func @main(%g: tensor<4xf32> {mir.name = "g", mir.kind = "param"}) -> (tensor<4xf32> {mir.name = "y"}) {
  %e = mir.exp %g : tensor<4xf32>
  %n = mir.neg %g : tensor<4xf32>
  %s = mir.add %e, %n : tensor<4xf32>
  return %s : tensor<4xf32>
}

// -----

/// Constants go with the parameters that they meet, and so does what follows from constants; those that inputs read stay.
// CHECK-LABEL: func @prepare(
//  CHECK-SAME:   %[[G:[a-z0-9]+]]: tensor<4xf32> {mir.kind = "param", mir.name = "g"})
//  CHECK-SAME:   -> (tensor<4xf32> {mir.name = "g:prepared"})
//   CHECK-DAG:   %[[ONE:.+]] = mir.constant dense<1.000000e+00>
//   CHECK-DAG:   %[[TWO:.+]] = mir.constant dense<2.000000e+00>
//   CHECK-NOT:   mir.constant
//       CHECK:   %[[SUM:.+]] = mir.add %[[ONE]], %[[TWO]]
//  CHECK-NEXT:   %[[P:.+]] = mir.mul %[[G]], %[[SUM]]
//  CHECK-NEXT:   return %[[P]]
// CHECK-LABEL: func @main(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: tensor<4xf32> {mir.kind = "input", mir.name = "x"}, %[[P:[a-z0-9]+]]: tensor<4xf32> {mir.kind = "param", mir.name = "g:prepared"})
//  CHECK-NEXT:   %[[TWO:.+]] = mir.constant dense<2.000000e+00>
//  CHECK-NEXT:   %[[THREE:.+]] = mir.constant dense<3.000000e+00>
//  CHECK-NEXT:   %[[A:.+]] = mir.add %[[X]], %[[TWO]]
//  CHECK-NEXT:   %[[B:.+]] = mir.mul %[[A]], %[[P]]
//  CHECK-NEXT:   %[[C:.+]] = mir.sub %[[B]], %[[THREE]]
//  CHECK-NEXT:   return %[[C]]
func.func @main(%x: tensor<4xf32> {mir.name = "x", mir.kind = "input"}, %g: tensor<4xf32> {mir.name = "g", mir.kind = "param"}) -> (tensor<4xf32> {mir.name = "y"}) {
  %one = mir.constant dense<1.0> : tensor<4xf32>
  %two = mir.constant dense<2.0> : tensor<4xf32>
  %three = mir.constant dense<3.0> : tensor<4xf32>
  %sum = mir.add %one, %two : tensor<4xf32>, tensor<4xf32>
  %p = mir.mul %g, %sum : tensor<4xf32>, tensor<4xf32>
  %a = mir.add %x, %two : tensor<4xf32>, tensor<4xf32>
  %b = mir.mul %a, %p : tensor<4xf32>, tensor<4xf32>
  %c = mir.sub %b, %three : tensor<4xf32>, tensor<4xf32>
  return %c : tensor<4xf32>
}

// -----

/// A parameter to which an output is tied stays an argument, whether anything reads it or not; nothing of it is prepared.
// CHECK-LABEL: func @tied(
//  CHECK-SAME:   mir.name = "w"}, %[[U:[a-z0-9]+]]: tensor<4x2xf32> {mir.kind = "param", mir.name = "unread"},
//       CHECK:   mir.transpose %arg0
//       CHECK:   return
func.func @tied(%w: tensor<4x2xf32> {mir.name = "w", mir.kind = "param"}, %u: tensor<4x2xf32> {mir.name = "unread", mir.kind = "param"}, %k: tensor<4x2xf32> {mir.name = "k", mir.kind = "param"}, %x: tensor<4x2xf32>)
    -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<4x2xf32> {mir.name = "w2"}, tensor<4x2xf32> {mir.name = "u2"}) attributes {mir.ties = {w2 = "w", u2 = "unread"}} {
  %t = mir.transpose %w permutation [1, 0] : tensor<4x2xf32>
  %h = mir.transpose %k permutation [1, 0] : tensor<4x2xf32>
  %d = mir.sub %w, %x : tensor<4x2xf32>
  %e = mir.neg %x : tensor<4x2xf32>
  return %t, %h, %d, %e : tensor<2x4xf32>, tensor<2x4xf32>, tensor<4x2xf32>, tensor<4x2xf32>
}
