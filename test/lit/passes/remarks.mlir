// RUN: rlx-opt %s --rlx-remarks --verify-diagnostics --pass-pipeline='builtin.module(rlx-fuse,mir-pack-weights)'

/// What fuses says so at the operation that it starts from.
func.func @fused(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<4x16xf32> {
  %y = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x16xf32>
  // expected-remark @below {{mir-fuse-matmul-bias-act: 'fuse_bias' rewrites 'mir.add'}}
  %z = mir.add %y, %b : tensor<4x16xf32>, tensor<16xf32>
  // expected-remark @below {{mir-fuse-matmul-bias-act: 'fuse_activation' rewrites 'mir.relu'}}
  %r = mir.relu %z : tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}

/// What nearly does says why not.
func.func @declined(%x: tensor<4x256xf32>, %w: tensor<16x292xi8, #mir.packed<q8_k, k = 256>> {mir.kind = "param", mir.name = "w"}) -> tensor<4x16xf32> {
  // expected-remark @below {{mir-pack-weights: 'pack_operand' declines 'mir.dequant_matmul': q8_k has no panels}}
  %y = mir.dequant_matmul %x, %w : tensor<4x256xf32>, tensor<16x292xi8, #mir.packed<q8_k, k = 256>>
  return %y : tensor<4x16xf32>
}
