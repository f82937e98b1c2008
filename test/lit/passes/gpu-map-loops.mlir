// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-map-loops,canonicalize,cse)' | FileCheck %s

/// One thread for each element, 256 in a block; the last block is cut off, and there is a block where there is nothing.
// CHECK-LABEL: func private @double.body(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<?x8xf32>, %[[Y:[a-z0-9]+]]: memref<?x8xf32>
//       CHECK:   %[[N:.+]] = memref.dim %[[X]]
//       CHECK:   %[[TOTAL:.+]] = arith.muli %[[N]], %c8
//       CHECK:   %[[BLOCKS:.+]] = arith.ceildivui %[[TOTAL]], %c256
//       CHECK:   %[[GRID:.+]] = arith.maxsi %[[BLOCKS]], %c1
//       CHECK:   gpu.launch blocks(%[[B:.+]], %{{.+}}, %{{.+}}) in (%{{.+}} = %[[GRID]], {{.+}}) threads(%[[T:.+]], %{{.+}}, %{{.+}}) in (%{{.+}} = %c256
//       CHECK:     %[[START:.+]] = arith.muli %[[B]], %c256
//       CHECK:     %[[PLACE:.+]] = arith.addi %[[START]], %[[T]]
//       CHECK:     %[[EXISTS:.+]] = arith.cmpi ult, %[[PLACE]], %[[TOTAL]]
//       CHECK:     scf.if %[[EXISTS]] {
//   CHECK-DAG:       %[[COLUMN:.+]] = arith.remui %[[PLACE]], %c8
//   CHECK-DAG:       %[[ROW:.+]] = arith.divui %[[PLACE]], %c8
//       CHECK:       %[[V:.+]] = memref.load %[[X]][%[[ROW]], %[[COLUMN]]]
//       CHECK:       %[[D:.+]] = arith.addf %[[V]], %[[V]]
//       CHECK:       memref.store %[[D]], %[[Y]][%[[ROW]], %[[COLUMN]]]
#id = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
func.func private @double.body(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
  ^bb0(%a: f32, %out: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  }
  return
}

/// A row that lies in memory is summed by a warp: neighbouring threads read neighbouring elements.
// CHECK-LABEL: func private @sum.body(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<?x64xf32>, %[[Y:[a-z0-9]+]]: memref<?xf32>
//       CHECK:   gpu.launch {{.+}} threads(%[[LANE:.+]], %[[WARP:.+]], %{{.+}}) in (%{{.+}} = %c32{{.*}}, %{{.+}} = %c8
//       CHECK:     %[[PART:.+]] = scf.if %{{.+}} -> (f32) {
//       CHECK:       %[[ACC:.+]] = scf.for %[[K:.+]] = %[[LANE]] to %c64{{.*}} step %c32{{.*}} iter_args(%[[S:.+]] = %cst
//       CHECK:         %[[V:.+]] = memref.load %[[X]][%{{.+}}, %[[K]]]
//       CHECK:         %[[N:.+]] = arith.addf %[[V]], %[[S]] fastmath<reassoc>
//       CHECK:         scf.yield %[[N]]
//       CHECK:       scf.yield %[[ACC]]
//       CHECK:     %[[ALL:.+]] = gpu.subgroup_reduce add %[[PART]] uniform : (f32) -> f32
//       CHECK:     scf.if
//       CHECK:       %[[BEFORE:.+]] = memref.load %[[Y]]
//       CHECK:       %[[AFTER:.+]] = arith.addf %[[BEFORE]], %[[ALL]] fastmath<reassoc>
//       CHECK:       memref.store %[[AFTER]], %[[Y]]
func.func private @sum.body(%x: memref<?x64xf32>, %y: memref<?xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) {
  linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]} ins(%x : memref<?x64xf32>) outs(%y : memref<?xf32>) {
  ^bb0(%a: f32, %total: f32):
    %s = arith.addf %a, %total fastmath<reassoc> : f32
    linalg.yield %s : f32
  }
  return
}

/// A sum whose order isn't free stays with one thread.
// CHECK-LABEL: func private @no_shared.body(
//   CHECK-NOT:   gpu.subgroup_reduce
//       CHECK:   gpu.launch {{.+}} in (%{{.+}} = %c256
//       CHECK:     scf.for %{{.+}} = %c0{{.*}} to %c64{{.*}} step %c1{{.*}} iter_args
//   CHECK-NOT:   gpu.subgroup_reduce
//       CHECK:   return
func.func private @no_shared.body(%x: memref<?x64xf32>, %y: memref<?xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) {
  linalg.generic {indexing_maps = [#id, #rows], iterator_types = ["parallel", "reduction"]} ins(%x : memref<?x64xf32>) outs(%y : memref<?xf32>) {
  ^bb0(%a: f32, %total: f32):
    %s = arith.addf %a, %total : f32
    linalg.yield %s : f32
  }
  return
}
