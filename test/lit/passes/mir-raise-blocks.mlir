// RUN: rlx-opt %s --pass-pipeline='builtin.module(mir-raise-blocks)' | FileCheck %s

/// The weight goes into the norm, and ones that stood for it are dead.
// CHECK-LABEL: func @rms_norm
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x?x24xf32>, %[[W:.+]]: tensor<24xf32>)
//  CHECK-NEXT:   %[[Y:.+]] = mir.rms_norm %[[X]], %[[W]] eps 9.99999997E-7
//  CHECK-NEXT:   return %[[Y]]
func.func @rms_norm(%x: tensor<?x?x24xf32>, %w: tensor<24xf32>) -> tensor<?x?x24xf32> {
  %eps = mir.constant dense<1.0e-6> : tensor<f32>
  %square = mir.mul %x, %x : tensor<?x?x24xf32>
  %mean = mir.reduce mean %square axes [2] keep_dims : tensor<?x?x24xf32>
  %sum = mir.add %mean, %eps : tensor<?x?x1xf32>, tensor<f32>
  %scale = mir.rsqrt %sum : tensor<?x?x1xf32>
  %normed = mir.mul %x, %scale : tensor<?x?x24xf32>, tensor<?x?x1xf32>
  %y = mir.mul %w, %normed : tensor<24xf32>, tensor<?x?x24xf32>
  return %y : tensor<?x?x24xf32>
}

/// The mean of squares is of another value.
// CHECK-LABEL: func @no_norm
//   CHECK-NOT:   mir.rms_norm
//       CHECK:   mir.rsqrt
//   CHECK-NOT:   mir.rms_norm
//       CHECK:   return
func.func @no_norm(%x: tensor<?x24xf32>, %z: tensor<?x24xf32>) -> tensor<?x24xf32> {
  %eps = mir.constant dense<1.0e-6> : tensor<f32>
  %square = mir.mul %x, %x : tensor<?x24xf32>
  %mean = mir.reduce mean %square axes [1] keep_dims : tensor<?x24xf32>
  %sum = mir.add %mean, %eps : tensor<?x1xf32>, tensor<f32>
  %scale = mir.rsqrt %sum : tensor<?x1xf32>
  %y = mir.mul %z, %scale : tensor<?x24xf32>, tensor<?x1xf32>
  return %y : tensor<?x24xf32>
}

// CHECK-LABEL: func @layer_norm
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[W:.+]]: tensor<8xf32>, %[[B:.+]]: tensor<8xf32>)
//  CHECK-NEXT:   %[[Y:.+]] = mir.layer_norm %[[X]], %[[W]] beta(%[[B]] : tensor<8xf32>)
//  CHECK-NEXT:   return %[[Y]]
func.func @layer_norm(%x: tensor<?x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %eps = mir.constant dense<1.0e-5> : tensor<f32>
  %mean = mir.reduce mean %x axes [1] keep_dims : tensor<?x8xf32>
  %centred = mir.sub %x, %mean : tensor<?x8xf32>, tensor<?x1xf32>
  %square = mir.mul %centred, %centred : tensor<?x8xf32>
  %variance = mir.reduce mean %square axes [1] keep_dims : tensor<?x8xf32>
  %sum = mir.add %variance, %eps : tensor<?x1xf32>, tensor<f32>
  %deviation = mir.sqrt %sum : tensor<?x1xf32>
  %normed = mir.div %centred, %deviation : tensor<?x8xf32>, tensor<?x1xf32>
  %scaled = mir.mul %normed, %w : tensor<?x8xf32>, tensor<8xf32>
  %y = mir.add %scaled, %b : tensor<?x8xf32>, tensor<8xf32>
  return %y : tensor<?x8xf32>
}

// CHECK-LABEL: func @silu
//  CHECK-NEXT:   mir.silu
//  CHECK-NEXT:   return
func.func @silu(%x: tensor<?xf32>) -> tensor<?xf32> {
  %s = mir.sigmoid %x : tensor<?xf32>
  %y = mir.mul %s, %x : tensor<?xf32>
  return %y : tensor<?xf32>
}

/// Heads are rotated where they are, before the transpose; tables lose the half that they repeat.
// CHECK-LABEL: func @rope
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x6x16xf32>, %[[C:.+]]: tensor<6x4xf32>, %[[S:.+]]: tensor<6x4xf32>)
//  CHECK-NEXT:   %[[R:.+]] = mir.rope %[[X]], %[[C]], %[[S]] head_dim 8
//  CHECK-NEXT:   %[[H:.+]] = mir.reshape %[[R]] to [2, 6, 2, 8]
//  CHECK-NEXT:   %[[Y:.+]] = mir.transpose %[[H]] permutation [0, 2, 1, 3]
//  CHECK-NEXT:   return %[[Y]]
func.func @rope(%x: tensor<2x6x16xf32>, %c: tensor<6x4xf32>, %s: tensor<6x4xf32>) -> tensor<2x2x6x8xf32> {
  %heads = mir.reshape %x to [2, 6, 2, 8] : tensor<2x6x16xf32>
  %h = mir.transpose %heads permutation [0, 2, 1, 3] : tensor<2x6x2x8xf32>
  %cos = mir.concat %c, %c axis 1 : tensor<6x4xf32>, tensor<6x4xf32>
  %sin = mir.concat %s, %s axis 1 : tensor<6x4xf32>, tensor<6x4xf32>
  %b = mir.narrow %h axis 3 start 4 length 4 : tensor<2x2x6x8xf32>
  %minus = mir.neg %b : tensor<2x2x6x4xf32>
  %a = mir.narrow %h axis 3 start 0 length 4 : tensor<2x2x6x8xf32>
  %turned = mir.concat %minus, %a axis 3 : tensor<2x2x6x4xf32>, tensor<2x2x6x4xf32>
  %left = mir.mul %h, %cos : tensor<2x2x6x8xf32>, tensor<6x8xf32>
  %right = mir.mul %turned, %sin : tensor<2x2x6x8xf32>, tensor<6x8xf32>
  %y = mir.add %left, %right : tensor<2x2x6x8xf32>
  return %y : tensor<2x2x6x8xf32>
}

/// Nothing says that the tables' halves are equal.
// CHECK-LABEL: func @no_rope
//   CHECK-NOT:   mir.rope
//       CHECK:   return
func.func @no_rope(%h: tensor<2x2x6x8xf32>, %cos: tensor<6x8xf32>, %sin: tensor<6x8xf32>) -> tensor<2x2x6x8xf32> {
  %b = mir.narrow %h axis 3 start 4 length 4 : tensor<2x2x6x8xf32>
  %minus = mir.neg %b : tensor<2x2x6x4xf32>
  %a = mir.narrow %h axis 3 start 0 length 4 : tensor<2x2x6x8xf32>
  %turned = mir.concat %minus, %a axis 3 : tensor<2x2x6x4xf32>, tensor<2x2x6x4xf32>
  %left = mir.mul %h, %cos : tensor<2x2x6x8xf32>, tensor<6x8xf32>
  %right = mir.mul %turned, %sin : tensor<2x2x6x8xf32>, tensor<6x8xf32>
  %y = mir.add %left, %right : tensor<2x2x6x8xf32>
  return %y : tensor<2x2x6x8xf32>
}

/// Keys are shared by two heads of queries; the mask hides what comes later; no head is transposed.
// CHECK-LABEL: func @attention
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x6x32xf32>, %[[K:.+]]: tensor<2x6x16xf32>, %[[V:.+]]: tensor<2x6x16xf32>)
//  CHECK-NEXT:   %[[Y:.+]] = mir.attention %[[Q]], %[[K]], %[[V]] heads 4 kv_heads 2 head_dim 8 masked causal
//  CHECK-NEXT:   return %[[Y]]
func.func @attention(%q: tensor<2x6x32xf32>, %k: tensor<2x6x16xf32>, %v: tensor<2x6x16xf32>) -> tensor<2x6x32xf32> {
  %q0 = mir.reshape %q to [2, 6, 4, 8] : tensor<2x6x32xf32>
  %q1 = mir.transpose %q0 permutation [0, 2, 1, 3] : tensor<2x6x4x8xf32>
  %k0 = mir.reshape %k to [2, 6, 2, 8] : tensor<2x6x16xf32>
  %k1 = mir.transpose %k0 permutation [0, 2, 1, 3] : tensor<2x6x2x8xf32>
  %k2 = mir.reshape %k1 to [2, 2, 1, 6, 8] : tensor<2x2x6x8xf32>
  %k3 = mir.expand %k2 : tensor<2x2x1x6x8xf32> to tensor<2x2x2x6x8xf32>
  %k4 = mir.reshape %k3 to [2, 4, 6, 8] : tensor<2x2x2x6x8xf32>
  %v0 = mir.reshape %v to [2, 6, 2, 8] : tensor<2x6x16xf32>
  %v1 = mir.transpose %v0 permutation [0, 2, 1, 3] : tensor<2x6x2x8xf32>
  %v2 = mir.reshape %v1 to [2, 2, 1, 6, 8] : tensor<2x2x6x8xf32>
  %v3 = mir.expand %v2 : tensor<2x2x1x6x8xf32> to tensor<2x2x2x6x8xf32>
  %v4 = mir.reshape %v3 to [2, 4, 6, 8] : tensor<2x2x2x6x8xf32>
  %column = mir.iota axis 1 to tensor<1x6xi64>
  %row = mir.iota axis 0 to tensor<6x1xi64>
  %seen = mir.compare le %column, %row : tensor<1x6xi64>, tensor<6x1xi64>
  %zero = mir.constant dense<0.0> : tensor<f32>
  %low = mir.constant dense<0xFF800000> : tensor<f32>
  %mask = mir.where %seen, %zero, %low : tensor<6x6xi1>, tensor<f32>
  %scores = mir.matmul %q1, %k4 transpose_rhs : tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>
  %scale = mir.constant dense<0.25> : tensor<f32>
  %scaled = mir.mul %scores, %scale : tensor<2x4x6x6xf32>, tensor<f32>
  %masked = mir.add %scaled, %mask : tensor<2x4x6x6xf32>, tensor<6x6xf32>
  %weights = mir.softmax %masked axis 3 : tensor<2x4x6x6xf32>
  %heads = mir.matmul %weights, %v4 : tensor<2x4x6x6xf32>, tensor<2x4x6x8xf32>
  %turned = mir.transpose %heads permutation [0, 2, 1, 3] : tensor<2x4x6x8xf32>
  %y = mir.reshape %turned to [2, 6, 32] : tensor<2x6x4x8xf32>
  return %y : tensor<2x6x32xf32>
}

/// The weights are a result, too.
// CHECK-LABEL: func @no_attention
//   CHECK-NOT:   mir.attention
//       CHECK:   return
func.func @no_attention(%q: tensor<2x4x6x8xf32>, %v: tensor<2x4x6x8xf32>)
    -> (tensor<2x4x6x8xf32>, tensor<2x4x6x6xf32>) {
  %scores = mir.matmul %q, %q transpose_rhs : tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>
  %weights = mir.softmax %scores axis 3 : tensor<2x4x6x6xf32>
  %heads = mir.matmul %weights, %v : tensor<2x4x6x6xf32>, tensor<2x4x6x8xf32>
  return %heads, %weights : tensor<2x4x6x8xf32>, tensor<2x4x6x6xf32>
}

/// A maximum with -inf is none.
// CHECK-LABEL: func @softmax
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>)
//  CHECK-NEXT:   %[[Y:.+]] = mir.softmax %[[X]] axis 1
//  CHECK-NEXT:   return %[[Y]]
func.func @softmax(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %least = mir.constant dense<0xFF800000> : tensor<f32>
  %top = mir.reduce max %x axes [1] keep_dims : tensor<?x8xf32>
  %max = mir.max %least, %top : tensor<f32>, tensor<?x1xf32>
  %shifted = mir.sub %x, %max : tensor<?x8xf32>, tensor<?x1xf32>
  %power = mir.exp %shifted : tensor<?x8xf32>
  %sum = mir.reduce sum %power axes [1] keep_dims : tensor<?x8xf32>
  %y = mir.div %power, %sum : tensor<?x8xf32>, tensor<?x1xf32>
  return %y : tensor<?x8xf32>
}

/// The maximum is along another dimension than the sum.
// CHECK-LABEL: func @no_softmax
//   CHECK-NOT:   mir.softmax
//       CHECK:   return
func.func @no_softmax(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %max = mir.reduce max %x axes [0] keep_dims : tensor<8x8xf32>
  %shifted = mir.sub %x, %max : tensor<8x8xf32>, tensor<1x8xf32>
  %power = mir.exp %shifted : tensor<8x8xf32>
  %sum = mir.reduce sum %power axes [1] keep_dims : tensor<8x8xf32>
  %y = mir.div %power, %sum : tensor<8x8xf32>, tensor<8x1xf32>
  return %y : tensor<8x8xf32>
}

/// Something else reads the exponentials, which have to be computed.
// CHECK-LABEL: func @read_softmax
//   CHECK-NOT:   mir.softmax
//       CHECK:   return
func.func @read_softmax(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %max = mir.reduce max %x axes [1] keep_dims : tensor<4x8xf32>
  %shifted = mir.sub %x, %max : tensor<4x8xf32>, tensor<4x1xf32>
  %power = mir.exp %shifted : tensor<4x8xf32>
  %sum = mir.reduce sum %power axes [1] keep_dims : tensor<4x8xf32>
  %y = mir.div %power, %sum : tensor<4x8xf32>, tensor<4x1xf32>
  return %y, %power : tensor<4x8xf32>, tensor<4x8xf32>
}

/// The product with the weights is the other way round, and each of two heads of keys is read by two.
// CHECK-LABEL: func @turned_attention
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x9x4x8xf32>, %[[K:.+]]: tensor<2x9x2x8xf32>, %[[V:.+]]: tensor<2x9x2x8xf32>)
//       CHECK:   mir.attention {{.+}} heads 4 kv_heads 2 head_dim 8
//   CHECK-NOT:   mir.expand
//   CHECK-NOT:   mir.transpose
//       CHECK:   return
func.func @turned_attention(%q: tensor<2x9x4x8xf32>, %k: tensor<2x9x2x8xf32>, %v: tensor<2x9x2x8xf32>) -> tensor<2x9x4x8xf32> {
  %k0 = mir.reshape %k to [2, 9, 2, 1, 8] : tensor<2x9x2x8xf32>
  %k1 = mir.expand %k0 : tensor<2x9x2x1x8xf32> to tensor<2x9x2x2x8xf32>
  %k2 = mir.reshape %k1 to [2, 9, 4, 8] : tensor<2x9x2x2x8xf32>
  %v0 = mir.reshape %v to [2, 9, 2, 1, 8] : tensor<2x9x2x8xf32>
  %v1 = mir.expand %v0 : tensor<2x9x2x1x8xf32> to tensor<2x9x2x2x8xf32>
  %v2 = mir.reshape %v1 to [2, 9, 4, 8] : tensor<2x9x2x2x8xf32>
  %qt = mir.transpose %q permutation [0, 2, 1, 3] : tensor<2x9x4x8xf32>
  %kt = mir.transpose %k2 permutation [0, 2, 3, 1] : tensor<2x9x4x8xf32>
  %scores = mir.matmul %qt, %kt : tensor<2x4x9x8xf32>, tensor<2x4x8x9xf32>
  %weights = mir.softmax %scores axis 3 : tensor<2x4x9x9xf32>
  %vt = mir.transpose %v2 permutation [0, 2, 3, 1] : tensor<2x9x4x8xf32>
  %wt = mir.transpose %weights permutation [0, 1, 3, 2] : tensor<2x4x9x9xf32>
  %y = mir.matmul %vt, %wt : tensor<2x4x8x9xf32>, tensor<2x4x9x9xf32>
  %out = mir.transpose %y permutation [0, 3, 1, 2] : tensor<2x4x8x9xf32>
  return %out : tensor<2x9x4x8xf32>
}

/// Exporters to ONNX: queries and keys have half of the scale each, heads stand with batches while keys are transposed,
/// and the weights of a query that sees no key become zeros, as attention has them.
// CHECK-LABEL: func @exported_attention
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x4x6x8xf32>, %[[K:.+]]: tensor<2x4x5x8xf32>, %[[V:.+]]: tensor<2x4x5x8xf32>, %[[M:.+]]: tensor<2x1x1x5xf32>)
//  CHECK-NEXT:   %[[Y:.+]] = mir.attention %[[Q]], %[[K]], %[[V]] mask(%[[M]] : tensor<2x1x1x5xf32>) heads 4 head_dim 8 layout bhsd masked bias scale 2.500000e-01
//  CHECK-NEXT:   return %[[Y]]
func.func @exported_attention(%q: tensor<2x4x6x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x8xf32>, %mask: tensor<2x1x1x5xf32>) -> tensor<2x4x6x8xf32> {
  %half = mir.constant dense<0.5> : tensor<f32>
  %zero = mir.constant dense<0.0> : tensor<1xf32>
  %flat = mir.reshape %k to [8, 5, 8] : tensor<2x4x5x8xf32>
  %turned = mir.transpose %flat permutation [0, 2, 1] : tensor<8x5x8xf32>
  %kt = mir.reshape %turned to [2, 4, 8, 5] : tensor<8x8x5xf32>
  %qs = mir.mul %q, %half : tensor<2x4x6x8xf32>, tensor<f32>
  %ks = mir.mul %kt, %half : tensor<2x4x8x5xf32>, tensor<f32>
  %scores = mir.matmul %qs, %ks : tensor<2x4x6x8xf32>, tensor<2x4x8x5xf32>
  %masked = mir.add %scores, %mask : tensor<2x4x6x5xf32>, tensor<2x1x1x5xf32>
  %weights = mir.softmax %masked axis 3 : tensor<2x4x6x5xf32>
  %nan = mir.compare ne %weights, %weights : tensor<2x4x6x5xf32>
  %guarded = mir.where %nan, %zero, %weights : tensor<2x4x6x5xi1>, tensor<1xf32>, tensor<2x4x6x5xf32>
  %y = mir.matmul %guarded, %v : tensor<2x4x6x5xf32>, tensor<2x4x5x8xf32>
  return %y : tensor<2x4x6x8xf32>
}

/// Ones in the place of NaN are no guard.
// CHECK-LABEL: func @no_guard
//   CHECK-NOT:   mir.attention
//       CHECK:   return
func.func @no_guard(%q: tensor<2x4x6x8xf32>, %v: tensor<2x4x6x8xf32>) -> tensor<2x4x6x8xf32> {
  %one = mir.constant dense<1.0> : tensor<f32>
  %scores = mir.matmul %q, %q transpose_rhs : tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>
  %weights = mir.softmax %scores axis 3 : tensor<2x4x6x6xf32>
  %nan = mir.compare ne %weights, %weights : tensor<2x4x6x6xf32>
  %guarded = mir.where %nan, %one, %weights : tensor<2x4x6x6xi1>, tensor<f32>, tensor<2x4x6x6xf32>
  %y = mir.matmul %guarded, %v : tensor<2x4x6x6xf32>, tensor<2x4x6x8xf32>
  return %y : tensor<2x4x6x8xf32>
}

/// Heads and batches that are joined are parted in other numbers: what is read isn't a transpose of keys that are there.
// CHECK-LABEL: func @no_keys
//   CHECK-NOT:   mir.attention
//       CHECK:   return
func.func @no_keys(%q: tensor<4x2x6x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<4x2x5x8xf32>) -> tensor<4x2x6x8xf32> {
  %flat = mir.reshape %k to [8, 5, 8] : tensor<2x4x5x8xf32>
  %turned = mir.transpose %flat permutation [0, 2, 1] : tensor<8x5x8xf32>
  %kt = mir.reshape %turned to [4, 2, 8, 5] : tensor<8x8x5xf32>
  %scores = mir.matmul %q, %kt : tensor<4x2x6x8xf32>, tensor<4x2x8x5xf32>
  %weights = mir.softmax %scores axis 3 : tensor<4x2x6x5xf32>
  %y = mir.matmul %weights, %v : tensor<4x2x6x5xf32>, tensor<4x2x5x8xf32>
  return %y : tensor<4x2x6x8xf32>
}

/// A slice between numbers is a part of a head, as exporters to ONNX write halves.
// CHECK-LABEL: func @sliced_rope
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x6x8xf32>, %[[C:.+]]: tensor<6x4xf32>, %[[S:.+]]: tensor<6x4xf32>)
//       CHECK:   %[[Y:.+]] = mir.rope %[[X]], %{{.+}}, %{{.+}} head_dim 8
//  CHECK-NEXT:   return %[[Y]]
func.func @sliced_rope(%x: tensor<2x6x8xf32>, %c: tensor<6x4xf32>, %s: tensor<6x4xf32>) -> tensor<2x6x8xf32> {
  %cos = mir.concat %c, %c axis 1 : tensor<6x4xf32>, tensor<6x4xf32>
  %sin = mir.concat %s, %s axis 1 : tensor<6x4xf32>, tensor<6x4xf32>
  %b = mir.slice %x axis 2 start -4 : tensor<2x6x8xf32>
  %minus = mir.neg %b : tensor<2x6x4xf32>
  %a = mir.slice %x axis 2 start 0 stop 4 : tensor<2x6x8xf32>
  %turned = mir.concat %minus, %a axis 2 : tensor<2x6x4xf32>, tensor<2x6x4xf32>
  %left = mir.mul %x, %cos : tensor<2x6x8xf32>, tensor<6x8xf32>
  %right = mir.mul %turned, %sin : tensor<2x6x8xf32>, tensor<6x8xf32>
  %y = mir.add %left, %right : tensor<2x6x8xf32>
  return %y : tensor<2x6x8xf32>
}

/// Slices with a step, along a dimension of unknown size, and of nothing stay; one of everything is what it is of.
// CHECK-LABEL: func @slices
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>)
//  CHECK-NEXT:   mir.slice %[[X]] axis 1 step 2
//  CHECK-NEXT:   mir.slice %[[X]] axis 0 start 1
//  CHECK-NEXT:   mir.slice %[[X]] axis 1 start 3 stop 3
//  CHECK-NEXT:   mir.narrow %[[X]] axis 1 start 6 length 2
//  CHECK-NEXT:   return %{{.+}}, %{{.+}}, %{{.+}}, %[[X]], %{{.+}}
func.func @slices(%x: tensor<?x8xf32>) -> (tensor<?x4xf32>, tensor<?x8xf32>, tensor<?x0xf32>, tensor<?x8xf32>, tensor<?x2xf32>) {
  %steps = mir.slice %x axis 1 step 2 : tensor<?x8xf32>
  %rows = mir.slice %x axis 0 start 1 : tensor<?x8xf32>
  %none = mir.slice %x axis 1 start 3 stop 3 : tensor<?x8xf32>
  %all = mir.slice %x axis 1 start 0 stop 99 : tensor<?x8xf32>
  %last = mir.slice %x axis 1 start -2 : tensor<?x8xf32>
  return %steps, %rows, %none, %all, %last : tensor<?x4xf32>, tensor<?x8xf32>, tensor<?x0xf32>, tensor<?x8xf32>, tensor<?x2xf32>
}
