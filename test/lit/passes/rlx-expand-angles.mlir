// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-expand-angles)' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-expand-angles{scalars=true})' | FileCheck %s --check-prefix=SCALARS

/// The angle's size times each part of 2/pi, of which multiples of four quarter turns are left out.
// CHECK-LABEL: func @cos(
//  CHECK-SAME:   %[[X:.+]]: vector<8xf32>)
//       CHECK:   %[[W:.+]] = arith.extf %[[X]] : vector<8xf32> to vector<8xf64>
//       CHECK:   %[[A:.+]] = math.absf %[[W]]
//       CHECK:   %[[P:.+]] = arith.mulf %[[A]], %{{.+}} : vector<8xf64>
//       CHECK:   %[[Q:.+]] = arith.mulf %[[P]], %{{.+}} : vector<8xf64>
//       CHECK:   %[[F:.+]] = math.floor %[[Q]]
//       CHECK:   %[[M:.+]] = arith.mulf %[[F]], %{{.+}} : vector<8xf64>
//       CHECK:   arith.subf %[[P]], %[[M]]
// CHECK-COUNT-7:  math.floor
//       CHECK:   %[[TURNS:.+]] = math.roundeven
//   CHECK-NOT:   math.cos
//       CHECK:   %[[R:.+]] = arith.truncf %{{.+}} : vector<8xf64> to vector<8xf32>
//       CHECK:   return %[[R]]
func.func @cos(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.cos %x : vector<8xf32>
  return %0 : vector<8xf32>
}

/// Odd functions take the sign of the angle.
// CHECK-LABEL: func @odd(
//  CHECK-SAME:   %[[X:.+]]: vector<4xf32>)
//   CHECK-NOT:   math.sin
//       CHECK:   %[[S:.+]] = math.copysign
//       CHECK:   arith.mulf %{{.+}}, %[[S]]
//   CHECK-NOT:   math.tan
//       CHECK:   arith.divf
//       CHECK:   math.copysign
//       CHECK:   return
func.func @odd(%x: vector<4xf32>) -> vector<4xf32> {
  %0 = math.sin %x : vector<4xf32>
  %1 = math.tan %0 : vector<4xf32>
  return %1 : vector<4xf32>
}

/// The C library is for scalars, and for f64.
// CHECK-LABEL: func @no_scalars(
//       CHECK:   math.sin %{{.+}} : f32
//       CHECK:   math.cos %{{.+}} : vector<2xf64>
// SCALARS-LABEL: func @no_scalars(
//   SCALARS-NOT:   math.sin
//       SCALARS:   math.floor %{{.+}} : f64
//       SCALARS:   math.cos %{{.+}} : vector<2xf64>
func.func @no_scalars(%x: f32, %y: vector<2xf64>) -> (f32, vector<2xf64>) {
  %0 = math.sin %x : f32
  %1 = math.cos %y : vector<2xf64>
  return %0, %1 : f32, vector<2xf64>
}
