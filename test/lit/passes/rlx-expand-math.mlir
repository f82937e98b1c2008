// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-expand-math)' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-expand-math{scalars=true})' | FileCheck %s --check-prefix=SCALARS

// CHECK-LABEL: func @vectors
//   CHECK-NOT:   math.exp
//   CHECK-NOT:   math.tanh
//   CHECK-NOT:   math.erf
//   CHECK-NOT:   math.log
//       CHECK:   return %{{.+}} : vector<8xf32>
// CHECK-LABEL: func @exp
//  CHECK-SAME:   (%[[X:.+]]: vector<8xf32>)
//       CHECK:   arith.{{.+}} %[[X]]
//       CHECK:   math.fma {{.+}} : vector<8xf32>
//       CHECK:   arith.select {{.+}} : vector<8xi1>, vector<8xf32>
func.func @vectors(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.exp %x : vector<8xf32>
  %1 = math.tanh %0 : vector<8xf32>
  %2 = math.erf %1 : vector<8xf32>
  %3 = math.log %2 : vector<8xf32>
  return %3 : vector<8xf32>
}

func.func @exp(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.exp %x : vector<8xf32>
  return %0 : vector<8xf32>
}

/// Angles have a pass of their own.
// CHECK-LABEL: func @angles
//       CHECK:   math.sin %{{.+}} : vector<8xf32>
//       CHECK:   math.cos %{{.+}} : vector<8xf32>
func.func @angles(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.sin %x : vector<8xf32>
  %1 = math.cos %0 : vector<8xf32>
  return %1 : vector<8xf32>
}

/// GPUs have no library: their scalars are expanded too.
// SCALARS-LABEL: func @no_expand
//  SCALARS-SAME:   (%[[X:.+]]: f32, %{{.+}}: vector<8xf32>)
//   SCALARS-NOT:   math.exp
//       SCALARS:   arith.{{.+}} %[[X]]
//       SCALARS:   math.fma {{.+}} : f32

/// Scalars are calls of the C library, which is the more accurate; square roots are instructions.
// CHECK-LABEL: func @no_expand
//       CHECK:   %[[E:.+]] = math.exp %{{.+}} : f32
//       CHECK:   %[[S:.+]] = math.sqrt %{{.+}} : vector<8xf32>
//       CHECK:   return %[[E]], %[[S]]
func.func @no_expand(%x: f32, %v: vector<8xf32>) -> (f32, vector<8xf32>) {
  %e = math.exp %x : f32
  %s = math.sqrt %v : vector<8xf32>
  return %e, %s : f32, vector<8xf32>
}
