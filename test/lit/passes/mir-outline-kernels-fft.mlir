// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-outline-kernels)' | FileCheck %s

/// Parts of the transform of real rows are one kernel with it, and with the zeros that are the imaginary parts: parts of
/// parts that lie in one half, and a part of both halves, as long as only parts of it are read.
// CHECK-LABEL: module
//       CHECK:   func.func private @[[FFT:.+]](%[[X:.+]]: tensor<2x32xf32>) -> (tensor<2x32xf32>, tensor<2x3xf32>, tensor<2x8xf32>) attributes {mir.kernel = "fft"
//       CHECK:     mir.concat %[[X]]
//  CHECK-NEXT:     mir.fft
//   CHECK-NOT:   private
//       CHECK:   func.func @parts(%[[X:[a-z0-9]+]]:
//  CHECK-NEXT:     %[[ALL:.+]]:3 = call @[[FFT]](%[[X]])
//  CHECK-NEXT:     return %[[ALL]]#0, %[[ALL]]#1, %[[ALL]]#2
func.func @parts(%x: tensor<2x32xf32> {mir.kind = "input", mir.name = "x"}) -> (tensor<2x32xf32> {mir.name = "re"}, tensor<2x3xf32> {mir.name = "im"}, tensor<2x8xf32> {mir.name = "low"}) {
  %zeros = mir.constant dense<0.0> : tensor<2x32xf32>
  %both = mir.concat %x, %zeros axis 1 : tensor<2x32xf32>, tensor<2x32xf32>
  %z = mir.fft %both : tensor<2x64xf32>
  %re = mir.narrow %z axis 1 start 0 length 32 : tensor<2x64xf32>
  %im = mir.narrow %z axis 1 start 32 length 32 : tensor<2x64xf32>
  %some = mir.narrow %im axis 1 start 1 length 3 : tensor<2x32xf32>
  %across = mir.narrow %z axis 1 start 16 length 32 : tensor<2x64xf32>
  %low = mir.narrow %across axis 1 start 8 length 8 : tensor<2x32xf32>
  return %re, %some, %low : tensor<2x32xf32>, tensor<2x3xf32>, tensor<2x8xf32>
}

// -----

/// What reads the last real part and the first imaginary one together has to have both beside each other.
// CHECK-LABEL: module
//       CHECK:   func.func private @fft_0(%{{.+}}: tensor<2x64xf32>) -> tensor<2x64xf32> attributes {mir.kernel = "fft"
//       CHECK:   func.func @across(
func.func @across(%x: tensor<2x32xf32> {mir.kind = "input", mir.name = "x"}) -> (tensor<2x32xf32> {mir.name = "re"}, tensor<2x2xf32> {mir.name = "across"}) {
  %zeros = mir.constant dense<0.0> : tensor<2x32xf32>
  %both = mir.concat %x, %zeros axis 1 : tensor<2x32xf32>, tensor<2x32xf32>
  %z = mir.fft %both : tensor<2x64xf32>
  %re = mir.narrow %z axis 1 start 0 length 32 : tensor<2x64xf32>
  %across = mir.narrow %z axis 1 start 31 length 2 : tensor<2x64xf32>
  return %re, %across : tensor<2x32xf32>, tensor<2x2xf32>
}

// -----

/// And so has what reads all parts.
// CHECK-LABEL: module
//       CHECK:   func.func private @fft_0(%{{.+}}: tensor<2x64xf32>) -> tensor<2x64xf32> attributes {mir.kernel = "fft"
//       CHECK:   func.func @whole(
func.func @whole(%x: tensor<2x32xf32> {mir.kind = "input", mir.name = "x"}) -> (tensor<2x32xf32> {mir.name = "re"}, tensor<2x64xf32> {mir.name = "z"}) {
  %zeros = mir.constant dense<0.0> : tensor<2x32xf32>
  %both = mir.concat %x, %zeros axis 1 : tensor<2x32xf32>, tensor<2x32xf32>
  %z = mir.fft %both : tensor<2x64xf32>
  %re = mir.narrow %z axis 1 start 0 length 32 : tensor<2x64xf32>
  return %re, %z : tensor<2x32xf32>, tensor<2x64xf32>
}

// -----

/// A part of rows is none of the transforms: of the first row everything is read.
// CHECK-LABEL: module
//       CHECK:   func.func private @fft_0(%{{.+}}: tensor<2x64xf32>) -> tensor<2x64xf32> attributes {mir.kernel = "fft"
//       CHECK:   func.func @rows(
func.func @rows(%x: tensor<2x32xf32> {mir.kind = "input", mir.name = "x"}) -> (tensor<2x32xf32> {mir.name = "re"}, tensor<1x64xf32> {mir.name = "row"}) {
  %zeros = mir.constant dense<0.0> : tensor<2x32xf32>
  %both = mir.concat %x, %zeros axis 1 : tensor<2x32xf32>, tensor<2x32xf32>
  %z = mir.fft %both : tensor<2x64xf32>
  %re = mir.narrow %z axis 1 start 0 length 32 : tensor<2x64xf32>
  %row = mir.narrow %z axis 0 start 0 length 1 : tensor<2x64xf32>
  return %re, %row : tensor<2x32xf32>, tensor<1x64xf32>
}
