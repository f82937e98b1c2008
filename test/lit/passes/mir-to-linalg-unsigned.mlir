// RUN: rlx-opt %s --pass-pipeline='builtin.module(func.func(mir-to-linalg))' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(func.func(mir-to-linalg),rlx-strip-signedness)' | FileCheck %s --check-prefix=STRIPPED

/// Tensors stay as they are; bodies compute with signless integers, by operations without sign.
// CHECK-LABEL: func @f
//  CHECK-SAME:   (%[[X:.+]]: tensor<?xui8>)
//       CHECK:   linalg.generic {{.+}} ins(%[[X]], %[[X]] : tensor<?xui8>, tensor<?xui8>) outs(%{{.+}} : tensor<?xui8>)
//       CHECK:   ^bb0(%[[A:.+]]: ui8, %[[B:.+]]: ui8, %{{.+}}: ui8):
//       CHECK:     %[[AB:.+]] = builtin.unrealized_conversion_cast %[[A]] : ui8 to i8
//       CHECK:     %[[BB:.+]] = builtin.unrealized_conversion_cast %[[B]] : ui8 to i8
//       CHECK:     %[[M:.+]] = arith.maxui %[[AB]], %[[BB]] : i8
//       CHECK:     %[[R:.+]] = builtin.unrealized_conversion_cast %[[M]] : i8 to ui8
//       CHECK:     linalg.yield %[[R]] : ui8
//       CHECK:   arith.cmpi ult
//       CHECK:   arith.uitofp %{{.+}} : i8 to f32
// STRIPPED-LABEL: func @f
// STRIPPED-NOT:   ui8
// STRIPPED-NOT:   unrealized_conversion_cast
//     STRIPPED:   return
func.func @f(%x: tensor<?xui8>) -> (tensor<?xui8>, tensor<?xi1>, tensor<?xf32>) {
  %0 = mir.max %x, %x : tensor<?xui8>
  %1 = mir.compare lt %x, %0 : tensor<?xui8>
  %2 = mir.cast %x : tensor<?xui8> to tensor<?xf32>
  return %0, %1, %2 : tensor<?xui8>, tensor<?xi1>, tensor<?xf32>
}
