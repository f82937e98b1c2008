// RUN: rlx-opt %s --split-input-file --mir-transform-kernels | FileCheck %s
// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(mir-transform-kernels,rlx-to-kernels)' | FileCheck %s --check-prefix=KERNELS

/// Behind the panels of the weights lie those of their transforms, by 16 numbers; a mark says that they do. The
/// convolution reads what it did. Its kernel has both as one operand, which is prepared once.
// CHECK-LABEL: func @panels
//  CHECK-SAME:   (%[[X:[a-z0-9]+]]: tensor<?x16x?x?xf32>{{.*}}, %[[W:[a-z0-9]+]]: tensor<32x16x3x3xf32> {
//       CHECK:   %[[HALF:.+]] = mir.constant dense<5.000000e-01> : tensor<1xf32>
//       CHECK:   %[[A:.+]] = mir.narrow %[[W]] axis 2 start 0 length 1
//       CHECK:   %[[B:.+]] = mir.narrow %[[W]] axis 2 start 1 length 1
//       CHECK:   %[[C:.+]] = mir.narrow %[[W]] axis 2 start 2 length 1
//       CHECK:   %[[E:.+]] = mir.add %[[A]], %[[C]]
//       CHECK:   %[[P:.+]] = mir.add %[[E]], %[[B]]
//       CHECK:   %[[M:.+]] = mir.sub %[[E]], %[[B]]
//       CHECK:   %[[P2:.+]] = mir.mul %[[P]], %[[HALF]]
//       CHECK:   %[[M2:.+]] = mir.mul %[[M]], %[[HALF]]
//       CHECK:   %[[ROWS:.+]] = mir.concat %[[A]], %[[P2]], %[[M2]], %[[C]] axis 2
//       CHECK:   mir.narrow %[[ROWS]] axis 3 start 0 length 1
//       CHECK:   %[[U:.+]] = mir.concat {{.+}} axis 3
//       CHECK:   %[[N:.+]] = mir.transpose %[[U]] permutation [0, 2, 3, 1] : tensor<32x16x4x4xf32>
//       CHECK:   %[[WR:.+]] = mir.reshape %[[W]] to [2, 16, 144]
//       CHECK:   %[[WP:.+]] = mir.transpose %[[WR]] permutation [0, 2, 1]
//       CHECK:   %[[NR:.+]] = mir.reshape %[[N]] to [2, 16, 256]
//       CHECK:   %[[NP:.+]] = mir.transpose %[[NR]] permutation [0, 2, 1]
//       CHECK:   %[[BOTH:.+]] = mir.concat %[[WP]], %[[NP]] axis 1
//       CHECK:   %[[K:.+]] = mir.barrier %[[BOTH]]
//       CHECK:   %[[FIRST:.+]] = mir.narrow %[[K]] axis 1 start 0 length 144 {mir.transforms}
//       CHECK:   %[[T:.+]] = mir.transpose %[[FIRST]] permutation [0, 2, 1]
//       CHECK:   %[[BACK:.+]] = mir.reshape %[[T]] to [32, 16, 3, 3]
//       CHECK:   mir.conv %[[X]], %[[BACK]] padding [1, 1]
// KERNELS-LABEL: module
//       KERNELS: func.func private @[[K:.+]](%[[P:[a-z0-9]+]]: tensor<2x400x16xf32>, %{{.+}}: tensor<?x16x?x?xf32>) {{.*}}mir.kernel = "conv2d"
//       KERNELS:   mir.narrow %[[P]] axis 1 start 0 length 144 {mir.transforms}
//       KERNELS: func.func @panels(%[[X:[a-z0-9]+]]: {{.*}}, %[[BOTH:[a-z0-9]+]]: tensor<2x400x16xf32> {mir.kind = "param", mir.name = "w:prepared"})
//  KERNELS-NEXT:   call @[[K]](%[[BOTH]], %[[X]])
func.func @panels(%x: tensor<?x16x?x?xf32> {mir.dims = ["n", "", "h", "w"], mir.name = "x"}, %w: tensor<32x16x3x3xf32> {mir.kind = "param", mir.name = "w"})
    -> (tensor<?x32x?x?xf32> {mir.name = "y"}) {
  %y = mir.conv %x, %w padding [1, 1] : tensor<?x16x?x?xf32>, tensor<32x16x3x3xf32>
  return %y : tensor<?x32x?x?xf32>
}

// -----

/// Not so weights that calls bring, strides, groups, few channels, or few places.
// CHECK-LABEL: func @others
//   CHECK-NOT:   mir.barrier
func.func @others(%x: tensor<1x16x9x9xf32>, %given: tensor<16x16x3x3xf32>, %w: tensor<16x16x3x3xf32> {mir.kind = "param"},
                  %g: tensor<32x8x3x3xf32> {mir.kind = "param"}, %few: tensor<1x15x9x9xf32>, %v: tensor<16x15x3x3xf32> {mir.kind = "param"},
                  %small: tensor<1x16x3x3xf32>)
    -> (tensor<1x16x7x7xf32>, tensor<1x16x4x4xf32>, tensor<1x32x7x7xf32>, tensor<1x16x7x7xf32>, tensor<1x16x3x3xf32>) {
  %0 = mir.conv %x, %given : tensor<1x16x9x9xf32>, tensor<16x16x3x3xf32>
  %1 = mir.conv %x, %w stride [2, 2] : tensor<1x16x9x9xf32>, tensor<16x16x3x3xf32>
  %2 = mir.conv %x, %g groups 2 : tensor<1x16x9x9xf32>, tensor<32x8x3x3xf32>
  %3 = mir.conv %few, %v : tensor<1x15x9x9xf32>, tensor<16x15x3x3xf32>
  %4 = mir.conv %small, %w padding [1, 1] : tensor<1x16x3x3xf32>, tensor<16x16x3x3xf32>
  return %0, %1, %2, %3, %4 : tensor<1x16x7x7xf32>, tensor<1x16x4x4xf32>, tensor<1x32x7x7xf32>, tensor<1x16x7x7xf32>, tensor<1x16x3x3xf32>
}
