// RUN: rlx-opt %s --pass-pipeline='builtin.module(rlx-fuse,mir-pack-weights)' 2>&1 | FileCheck %s --check-prefix=QUIET
// RUN: rlx-opt %s --rlx-remarks --pass-pipeline='builtin.module(hir-to-mir,rlx-fuse,mir-pack-weights)' 2>&1 | FileCheck %s --check-prefix=ALL
// RUN: rlx-opt %s --rlx-remarks=mir-pack-weights --pass-pipeline='builtin.module(rlx-fuse,mir-pack-weights)' 2>&1 | FileCheck %s --check-prefix=ONE
// RUN: rlx-opt %s --rlx-remarks=hir-to-mir --pass-pipeline='builtin.module(hir-to-mir)' 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: not rlx-opt %s '--rlx-remarks=(' 2>&1 | FileCheck %s --check-prefix=WRONG

// QUIET-NOT: remark:
//     QUIET: func.func @fused
// QUIET-NOT: remark:

//   ALL-NOT: hir-to-mir:
//       ALL: remarks-option.mlir:[[@LINE+14]]:8: remark: mir-fuse-matmul-bias-act: 'fuse_bias' rewrites 'mir.add'
//       ALL: remarks-option.mlir:[[@LINE+14]]:8: remark: mir-fuse-matmul-bias-act: 'fuse_activation' rewrites 'mir.relu'

//   ONE-NOT: mir-fuse
//       ONE: remarks-option.mlir:[[@LINE+21]]:8: remark: mir-pack-weights: 'pack_operand' declines 'mir.dequant_matmul': q8_k has no panels
//   ONE-NOT: mir-fuse

//     OTHER: remark: hir-to-mir: 'lower_{{.+}}' rewrites 'hir.rms_norm'
// OTHER-NOT: mir-fuse

//     WRONG: rlx-opt: expects a regular expression for names of passes, but got '('

func.func @fused(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<4x16xf32> {
  %y = mir.matmul %x, %w : tensor<4x8xf32>, tensor<8x16xf32>
  %z = mir.add %y, %b : tensor<4x16xf32>, tensor<16xf32>
  %r = mir.relu %z : tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}

func.func @block(%x: tensor<4x8xf32>, %g: tensor<8xf32>) -> tensor<4x8xf32> {
  %y = hir.rms_norm %x, %g : tensor<4x8xf32>, tensor<8xf32>
  return %y : tensor<4x8xf32>
}

func.func @declined(%x: tensor<4x256xf32>, %w: tensor<16x292xi8, #mir.packed<q8_k, k = 256>> {mir.kind = "param", mir.name = "w"}) -> tensor<4x16xf32> {
  %y = mir.dequant_matmul %x, %w : tensor<4x256xf32>, tensor<16x292xi8, #mir.packed<q8_k, k = 256>>
  return %y : tensor<4x16xf32>
}
