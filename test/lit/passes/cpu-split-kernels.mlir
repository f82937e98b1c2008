// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(cpu-split-kernels,canonicalize,cse)' | FileCheck %s

/// 16 columns are a unit: both nests are cut where the result's columns lie, and rows of the weight that one of them
/// computes for the other are kept for 16 columns at a time.
// CHECK-LABEL: func private @product.body(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<?x64xf32>, %[[W:[a-z0-9]+]]: memref<200x64xf32>, %[[Y:[a-z0-9]+]]: memref<?x200xf32>, %[[BEGIN:[a-z0-9]+]]: index, %[[END:[a-z0-9]+]]: index
//   CHECK-DAG:   %[[START:.+]] = arith.muli %[[BEGIN]], %c16
//   CHECK-DAG:   %[[LAST:.+]] = arith.muli %[[END]], %c16
//       CHECK:   %[[STOP:.+]] = arith.minsi %[[LAST]], %c200
//       CHECK:   %[[T:.+]] = memref.alloc() : memref<16x64xf32>
//       CHECK:   scf.for %[[BLOCK:.+]] = %[[START]] to %[[STOP]] step %c16 {
//       CHECK:     %[[NEXT:.+]] = arith.addi %[[BLOCK]], %c16
//       CHECK:     %[[LIMIT:.+]] = arith.minsi %[[NEXT]], %[[STOP]]
//       CHECK:     scf.for %[[N:.+]] = %[[BLOCK]] to %{{.+}} step
//       CHECK:       %[[LOCAL:.+]] = arith.subi %[[N]], %[[BLOCK]]
//       CHECK:       memref.load %[[W]][%[[N]], %[[K:.+]]]
//       CHECK:       memref.store %{{.+}}, %[[T]][%[[LOCAL]], %[[K]]]
//       CHECK:     scf.for %[[M:.+]] = %c0 to
//       CHECK:       scf.for %[[N:.+]] = %[[BLOCK]] to
//       CHECK:         %[[LOCAL:.+]] = arith.subi %[[N]], %[[BLOCK]]
//       CHECK:         memref.load %[[T]][%[[LOCAL]],
//       CHECK:         memref.store %{{.+}}, %[[Y]][%[[M]], %[[N]]]
//       CHECK:   return
// CHECK-LABEL: func private @product.units(
//       CHECK:   %[[UNITS:.+]] = arith.constant 13 : index
//       CHECK:   return %[[UNITS]]
func.func private @product.body(%x: memref<?x64xf32>, %w: memref<200x64xf32>, %y: memref<?x200xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "generic: a reason"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c200 = arith.constant 200 : index
  %m = memref.dim %x, %c0 : memref<?x64xf32>
  %t = memref.alloc() : memref<200x64xf32>
  scf.for %i = %c0 to %c200 step %c1 {
    scf.for %k = %c0 to %c64 step %c1 {
      %a = memref.load %w[%i, %k] : memref<200x64xf32>
      %b = arith.addf %a, %a : f32
      memref.store %b, %t[%i, %k] : memref<200x64xf32>
    }
  }
  scf.for %i = %c0 to %m step %c1 {
    scf.for %j = %c0 to %c200 step %c1 {
      scf.for %k = %c0 to %c64 step %c1 {
        %a = memref.load %x[%i, %k] : memref<?x64xf32>
        %b = memref.load %t[%j, %k] : memref<200x64xf32>
        %c = memref.load %y[%i, %j] : memref<?x200xf32>
        %d = arith.mulf %a, %b : f32
        %e = arith.addf %c, %d : f32
        memref.store %e, %y[%i, %j] : memref<?x200xf32>
      }
    }
  }
  return
}
func.func private @product.units(%x: memref<?x64xf32>, %w: memref<200x64xf32>, %y: memref<?x200xf32>) -> index attributes {mir.template = "generic: a reason"} {
  %c1 = arith.constant 1 : index
  return %c1 : index
}

// -----

/// The sum of a row is one of its positions; rows are as many as there are at run time.
// CHECK-LABEL: func private @rows.body(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<?x8xf32>, %[[Y:[a-z0-9]+]]: memref<?x8xf32>, %[[BEGIN:[a-z0-9]+]]: index, %[[END:[a-z0-9]+]]: index
//       CHECK:   %[[ROWS:.+]] = memref.dim %[[Y]], %c0
//       CHECK:   %[[STOP:.+]] = arith.minsi %[[END]], %[[ROWS]]
//       CHECK:   %[[T:.+]] = memref.alloc() : memref<16xf32>
//       CHECK:   scf.for %[[BLOCK:.+]] = %[[BEGIN]] to %[[STOP]] step %c16
//       CHECK:     memref.store %{{.+}}, %[[T]][
//       CHECK:     memref.load %[[T]][
//       CHECK:     memref.store %{{.+}}, %[[Y]][
// CHECK-LABEL: func private @rows.units(
//  CHECK-SAME:   %{{.+}}: memref<?x8xf32>, %[[Y:[a-z0-9]+]]: memref<?x8xf32>)
//       CHECK:   %[[ROWS:.+]] = memref.dim %[[Y]], %c0
//       CHECK:   return %[[ROWS]]
func.func private @rows.body(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "generic: a reason"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %m = memref.dim %x, %c0 : memref<?x8xf32>
  %t = memref.alloc(%m) : memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    memref.store %zero, %t[%i] : memref<?xf32>
  }
  scf.for %i = %c0 to %m step %c1 {
    scf.for %j = %c0 to %c8 step %c1 {
      %a = memref.load %x[%i, %j] : memref<?x8xf32>
      %b = memref.load %t[%i] : memref<?xf32>
      %c = arith.addf %a, %b : f32
      memref.store %c, %t[%i] : memref<?xf32>
    }
  }
  scf.for %i = %c0 to %m step %c1 {
    scf.for %j = %c0 to %c8 step %c1 {
      %a = memref.load %x[%i, %j] : memref<?x8xf32>
      %b = memref.load %t[%i] : memref<?xf32>
      %c = arith.divf %a, %b : f32
      memref.store %c, %y[%i, %j] : memref<?x8xf32>
    }
  }
  return
}
func.func private @rows.units(%x: memref<?x8xf32>, %y: memref<?x8xf32>) -> index attributes {mir.template = "generic: a reason"} {
  %c1 = arith.constant 1 : index
  return %c1 : index
}

// -----

/// What every column reads of all columns stays whole: that nest isn't cut, and runs in each call.
// CHECK-LABEL: func private @whole.body(
//       CHECK:   %[[T:.+]] = memref.alloc() : memref<8192xf32>
//       CHECK:   scf.for %{{.+}} = %c0 to %c8192 step %c1
//       CHECK:   scf.for %{{.+}} = %{{.+}} to %{{.+}} step %c1
//       CHECK:     scf.for %{{.+}} = %c0 to %c8192 step %c1
// CHECK-LABEL: func private @whole.units(
//       CHECK:   arith.constant 512 : index
func.func private @whole.body(%x: memref<8192xf32>, %y: memref<8192xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "generic: a reason"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 8192 : index
  %t = memref.alloc() : memref<8192xf32>
  scf.for %i = %c0 to %n step %c1 {
    %a = memref.load %x[%i] : memref<8192xf32>
    %b = math.exp %a : f32
    memref.store %b, %t[%i] : memref<8192xf32>
  }
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %a = memref.load %t[%j] : memref<8192xf32>
      %b = memref.load %y[%i] : memref<8192xf32>
      %c = arith.addf %a, %b : f32
      memref.store %c, %y[%i] : memref<8192xf32>
    }
  }
  return
}
func.func private @whole.units(%x: memref<8192xf32>, %y: memref<8192xf32>) -> index attributes {mir.template = "generic: a reason"} {
  %c1 = arith.constant 1 : index
  return %c1 : index
}

// -----

/// 16 rows are one block: what they keep stays as it is, and there is no loop over blocks.
// CHECK-LABEL: func private @block.body(
//  CHECK-SAME:   memref<16xf32>, %[[BEGIN:[a-z0-9]+]]: index
//       CHECK:   memref.alloc() : memref<16x1024xf32>
//       CHECK:   scf.for %{{.+}} = %[[BEGIN]] to %[[STOP:.+]] step %c1 {
//  CHECK-NEXT:     scf.for %{{.+}} = %c0 to %c1024 step %c1 {
//       CHECK:   scf.for %{{.+}} = %[[BEGIN]] to %[[STOP]] step %c1 {
// CHECK-LABEL: func private @block.units(
func.func private @block.body(%x: memref<16x1024xf32>, %y: memref<16xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "generic: a reason"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c1024 = arith.constant 1024 : index
  %t = memref.alloc() : memref<16x1024xf32>
  scf.for %i = %c0 to %c16 step %c1 {
    scf.for %k = %c0 to %c1024 step %c1 {
      %a = memref.load %x[%i, %k] : memref<16x1024xf32>
      %b = math.exp %a : f32
      memref.store %b, %t[%i, %k] : memref<16x1024xf32>
    }
  }
  scf.for %i = %c0 to %c16 step %c1 {
    scf.for %k = %c0 to %c1024 step %c1 {
      %a = memref.load %t[%i, %k] : memref<16x1024xf32>
      %b = memref.load %y[%i] : memref<16xf32>
      %c = arith.addf %a, %b : f32
      memref.store %c, %y[%i] : memref<16xf32>
    }
  }
  return
}
func.func private @block.units(%x: memref<16x1024xf32>, %y: memref<16xf32>) -> index attributes {mir.template = "generic: a reason"} {
  %c1 = arith.constant 1 : index
  return %c1 : index
}

// -----

/// A nest that runs in each call writes again what a nest before it, which is cut, has read: blocks would come after
/// both, so that there are none, and what lies along the cut stays whole.
// CHECK-LABEL: func private @written_again.body(
//   CHECK-NOT:   memref<16xf32>
//       CHECK:   return
// CHECK-LABEL: func private @written_again.units(
//       CHECK:   arith.constant 512 : index
func.func private @written_again.body(%x: memref<8192xf32>, %y: memref<8192xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "generic: a reason"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 8192 : index
  %t = memref.alloc() : memref<8192xf32>
  %u = memref.alloc() : memref<8192xf32>
  scf.for %i = %c0 to %n step %c1 {
    %a = memref.load %x[%i] : memref<8192xf32>
    memref.store %a, %t[%i] : memref<8192xf32>
  }
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %a = memref.load %t[%j] : memref<8192xf32>
      %b = memref.load %u[%i] : memref<8192xf32>
      %c = arith.addf %a, %b : f32
      memref.store %c, %u[%i] : memref<8192xf32>
    }
  }
  scf.for %i = %c0 to %n step %c1 {
    %a = memref.load %x[%i] : memref<8192xf32>
    %b = math.exp %a : f32
    memref.store %b, %t[%i] : memref<8192xf32>
  }
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %a = memref.load %t[%j] : memref<8192xf32>
      %b = memref.load %u[%i] : memref<8192xf32>
      %c = arith.mulf %a, %b : f32
      memref.store %c, %y[%i] : memref<8192xf32>
    }
  }
  return
}
func.func private @written_again.units(%x: memref<8192xf32>, %y: memref<8192xf32>) -> index attributes {mir.template = "generic: a reason"} {
  %c1 = arith.constant 1 : index
  return %c1 : index
}

// -----

/// Each element needs the one before it; one result changes an operand in place; a template has units of its own.
// CHECK-LABEL: func private @no_cut_scan.units(
//       CHECK:   arith.constant 1 : index
// CHECK-LABEL: func private @no_cut_tied.units(
//       CHECK:   arith.constant 1 : index
// CHECK-LABEL: func private @no_cut_template.units(
//       CHECK:   arith.constant 1 : index
func.func private @no_cut_scan.body(%x: memref<?xf32>, %y: memref<?xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "generic: a reason"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = memref.dim %x, %c0 : memref<?xf32>
  scf.for %i = %c1 to %m step %c1 {
    %before = arith.subi %i, %c1 : index
    %a = memref.load %x[%i] : memref<?xf32>
    %b = memref.load %y[%before] : memref<?xf32>
    %c = arith.addf %a, %b : f32
    memref.store %c, %y[%i] : memref<?xf32>
  }
  return
}
func.func private @no_cut_scan.units(%x: memref<?xf32>, %y: memref<?xf32>) -> index {
  %c1 = arith.constant 1 : index
  return %c1 : index
}
func.func private @no_cut_tied.body(%x: memref<?xf32>, %y: memref<?xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "generic: a reason", mir.tied_arguments = array<i64: 0>} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = memref.dim %x, %c0 : memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %a = memref.load %x[%i] : memref<?xf32>
    memref.store %a, %y[%i] : memref<?xf32>
  }
  return
}
func.func private @no_cut_tied.units(%x: memref<?xf32>, %y: memref<?xf32>) -> index {
  %c1 = arith.constant 1 : index
  return %c1 : index
}
func.func private @no_cut_template.body(%x: memref<?xf32>, %y: memref<?xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {mir.template = "rows"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = memref.dim %x, %c0 : memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %a = memref.load %x[%i] : memref<?xf32>
    memref.store %a, %y[%i] : memref<?xf32>
  }
  return
}
func.func private @no_cut_template.units(%x: memref<?xf32>, %y: memref<?xf32>) -> index {
  %c1 = arith.constant 1 : index
  return %c1 : index
}
