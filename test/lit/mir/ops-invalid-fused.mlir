// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @fused_swiglu_c1_odd(%x: tensor<4x15xf32>) {
  // expected-error @below {{expects the last dimension of 'x' to be even, but 'x' is [4, 15]}}
  %r = mir.fused_swiglu %x : tensor<4x15xf32>
  return
}

// -----

func.func @fused_swiglu_c1_rank(%x: tensor<f32>) {
  // expected-error @below {{expects the last dimension of 'x' to be even, but 'x' is []}}
  %r = mir.fused_swiglu %x : tensor<f32>
  return
}

// -----

func.func @fused_attention_block_c1_rule(%h: tensor<5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %m: tensor<2x5xi1>) {
  // expected-error @below {{expects 'hidden' to have three dimensions, but its rank is 2}}
  %y = mir.fused_attention_block %h, %qkv, %o, %m heads 2 head_dim 4 : tensor<5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<2x5xi1>
  return
}

// -----

func.func @fused_attention_block_c2_rule(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %m: tensor<2x5xi1>) {
  // expected-error @below {{expects positive 'num_heads' and 'head_dim', three times whose product is below 2^31, but got 2 and 0}}
  %y = mir.fused_attention_block %h, %qkv, %o, %m heads 2 head_dim 0 : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<2x5xi1>
  return
}

// -----

func.func @fused_attention_block_c2_large(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %m: tensor<2x5xi1>) {
  // expected-error @below {{three times whose product is below 2^31, but got 65536 and 65536}}
  %y = mir.fused_attention_block %h, %qkv, %o, %m heads 65536 head_dim 65536 : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<2x5xi1>
  return
}

// -----

func.func @fused_attention_block_c3_shape(%h: tensor<2x5x8xf32>, %qkv: tensor<8x25xf32>, %o: tensor<8x8xf32>, %m: tensor<2x5xi1>) {
  // expected-error @below {{expects 'qkv_w' to be [8, 24] of 'f32', but got 'tensor<8x25xf32>'}}
  %y = mir.fused_attention_block %h, %qkv, %o, %m heads 2 head_dim 4 : tensor<2x5x8xf32>, tensor<8x25xf32>, tensor<8x8xf32>, tensor<2x5xi1>
  return
}

// -----

func.func @fused_attention_block_c3_type(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf16>, %m: tensor<2x5xi1>) {
  // expected-error @below {{expects 'out_w' to be [8, 8] of 'f32', but got 'tensor<8x8xf16>'}}
  %y = mir.fused_attention_block %h, %qkv, %o, %m heads 2 head_dim 4 : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf16>, tensor<2x5xi1>
  return
}

// -----

func.func @fused_attention_block_c3_bias(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %m: tensor<2x5xi1>, %b: tensor<8xf32>) {
  // expected-error @below {{expects 'qkv_b' to be [24] of 'f32', but got 'tensor<8xf32>'}}
  %y = mir.fused_attention_block %h, %qkv, %o, %m qkv_b %b heads 2 head_dim 4
      : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<2x5xi1>, tensor<8xf32>
  return
}

// -----

func.func @fused_attention_block_c4_shape(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %m: tensor<2x1xi1>) {
  // expected-error @below {{expects 'mask' to be [2, 5], where all but the last may be 1, of i1 or 'f32', but got 'tensor<2x1xi1>'}}
  %y = mir.fused_attention_block %h, %qkv, %o, %m heads 2 head_dim 4 : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<2x1xi1>
  return
}

// -----

func.func @fused_attention_block_c4_type(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %m: tensor<2x2x1x5xf16>) {
  // expected-error @below {{expects 'mask' to be [2, 2, 5, 5], where all but the last may be 1, of i1 or 'f32', but got 'tensor<2x2x1x5xf16>'}}
  %y = mir.fused_attention_block %h, %qkv, %o, %m heads 2 head_dim 4 : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<2x2x1x5xf16>
  return
}

// -----

func.func @fused_attention_block_c5_one(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %m: tensor<2x5xi1>, %t: tensor<5x2xf32>) {
  // expected-error @below {{expects 'cos' and 'sin' together, but got one of them}}
  %y = mir.fused_attention_block %h, %qkv, %o, %m sin %t heads 2 head_dim 4
      : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<2x5xi1>, tensor<5x2xf32>
  return
}

// -----

func.func @fused_attention_block_c5_types(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %m: tensor<2x5xi1>, %t: tensor<5x2xf32>, %u: tensor<6x2xf32>) {
  // expected-error @below {{expects 'cos' and 'sin' to have one type, but got 'tensor<5x2xf32>' and 'tensor<6x2xf32>'}}
  %y = mir.fused_attention_block %h, %qkv, %o, %m cos %t sin %u heads 2 head_dim 4
      : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<2x5xi1>, tensor<5x2xf32>, tensor<6x2xf32>
  return
}

// -----

func.func @fused_attention_block_c5_rows(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %m: tensor<2x5xi1>, %t: tensor<4x2xf32>) {
  // expected-error @below {{expects 'cos' and 'sin' to be [P, head_dim / 2] of f32 or 'f32', with an even 'head_dim' and P at least 5, but 'head_dim' is 4 and 'cos' 'tensor<4x2xf32>'}}
  %y = mir.fused_attention_block %h, %qkv, %o, %m cos %t sin %t heads 2 head_dim 4
      : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<2x5xi1>, tensor<4x2xf32>, tensor<4x2xf32>
  return
}

// -----

func.func @fused_transformer_layer_c1_fc1(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %g: tensor<8xf32>, %w2: tensor<16x8xf32>, %m: tensor<2x5xi1>) {
  // expected-error @below {{expects 'fc1_w' to have two dimensions, but its rank is 1}}
  %y = mir.fused_transformer_layer %h, %qkv, %o, %g, %g, %w2, %g, %m heads 2 head_dim 4 activation gelu
      : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<2x5xi1>
  return
}

// -----

func.func @fused_transformer_layer_c2_rule(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %g: tensor<8xf32>, %w1: tensor<8x16xf32>, %w2: tensor<16x8xf32>, %m: tensor<2x5xi1>) {
  // expected-error @below {{expects positive 'num_heads' and 'head_dim', three times whose product is below 2^31, but got -2 and 4}}
  %y = mir.fused_transformer_layer %h, %qkv, %o, %g, %w1, %w2, %g, %m heads -2 head_dim 4 activation gelu
      : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<2x5xi1>
  return
}

// -----

func.func @fused_transformer_layer_c3_rule(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %g: tensor<8xf32>, %w1: tensor<8x16xf32>, %w2: tensor<17x8xf32>, %m: tensor<2x5xi1>) {
  // expected-error @below {{expects 'fc2_w' to be [16, 8] of 'f32', but got 'tensor<17x8xf32>'}}
  %y = mir.fused_transformer_layer %h, %qkv, %o, %g, %w1, %w2, %g, %m heads 2 head_dim 4 activation gelu
      : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<17x8xf32>, tensor<8xf32>, tensor<2x5xi1>
  return
}

// -----

func.func @fused_transformer_layer_c4_rule(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %g: tensor<8xf32>, %w1: tensor<8x16xf32>, %w2: tensor<16x8xf32>, %m: tensor<3x5xi1>) {
  // expected-error @below {{expects 'mask' to be [2, 5], where all but the last may be 1, of i1 or 'f32', but got 'tensor<3x5xi1>'}}
  %y = mir.fused_transformer_layer %h, %qkv, %o, %g, %w1, %w2, %g, %m heads 2 head_dim 4 activation gelu
      : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<3x5xi1>
  return
}

// -----

func.func @fused_transformer_layer_c5_rule(%h: tensor<2x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %g: tensor<8xf32>, %w1: tensor<8x16xf32>, %w2: tensor<16x8xf32>, %m: tensor<2x5xi1>) {
  // expected-error @below {{expects a positive, finite 'eps2', but got 0.0}}
  %y = mir.fused_transformer_layer %h, %qkv, %o, %g, %w1, %w2, %g, %m heads 2 head_dim 4 activation gelu eps2 0.0
      : tensor<2x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<2x5xi1>
  return
}
