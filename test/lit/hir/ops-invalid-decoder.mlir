// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @llama_decoder_block_c1_rank(%x: tensor<3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'x' to have three dimensions, but got 2}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c2_weight_rank(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %o: tensor<1x8x8xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects the dense weight 'o_w' to have two dimensions, but got 3}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %o norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<1x8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c3_panels(%x: tensor<2x3x64xf32>, %g1: tensor<64xf32>, %q: tensor<64x8xf32>, %k: tensor<64x4xf32>, %o: tensor<8x64xf32>, %gate: tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects the packed weight 'gate_w' to have layout = rows, but got panels}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %o norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x64xf32>, tensor<64xf32>, tensor<64x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<8x64xf32>,
        tensor<64xf32>, tensor<1x640xi8, #mir.packed<q4_1, k = 64, n = 16, layout = panels>>, tensor<1x640xi8,
        #mir.packed<q4_1, k = 64, n = 16, layout = panels>>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c4_query_inputs(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<9x8xf32>, %k: tensor<8x4xf32>, %o: tensor<8x8xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'q_w' to have as many inputs as 'x' has columns, 8, but it has 9}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %o norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<9x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c4_output_inputs(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %o: tensor<9x8xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'o_w' to have as many inputs as num_heads * head_dim, 8, but it has 9}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %o norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<9x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c4_down_inputs(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<17x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'down_w' to have as many inputs as 'gate_w' has outputs, 16, but it has 17}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<17x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c5_weight_element_type(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf16>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects the dense weight 'down_w' to have the element type of 'x', 'f32', but got 'f16'}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf16>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c6_transposed_packed(%x: tensor<2x3x32xf32>, %g1: tensor<32xf32>, %q: tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, %k: tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, %gate: tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, %down: tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, %cos: tensor<64x8xf32>) {
  // expected-error @below {{expects 'transpose_weight' only with a dense weight, but every weight is packed}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 2 head_dim 16 transpose_weight
      : tensor<2x3x32xf32>, tensor<32xf32>, tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, tensor<32x20xi8,
        #mir.packed<q4_1, k = 32>>, tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, tensor<32x20xi8, #mir.packed<q4_1, k
        = 32>>, tensor<32xf32>, tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, tensor<32x20xi8, #mir.packed<q4_1, k =
        32>>, tensor<32x20xi8, #mir.packed<q4_1, k = 32>>, tensor<64x8xf32>, tensor<64x8xf32>
  return
}

// -----

func.func @llama_decoder_block_c7_query_outputs(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x12xf32>, %k: tensor<8x4xf32>, %o: tensor<8x8xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'q_w' to have as many outputs as num_heads * head_dim, 8, but it has 12}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %o norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x12xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c7_key_outputs(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x8xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'k_w' to have as many outputs as num_kv_heads * head_dim, 4, but it has 8}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c7_output_outputs(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %o: tensor<8x7xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'o_w' to have as many outputs as 'x' has columns, 8, but it has 7}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %o norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x7xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c7_up_outputs(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %up: tensor<8x17xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'up_w' to have as many outputs as 'gate_w' has outputs, 16, but it has 17}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %up down %down rope half %cos,
      %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x17xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c7_down_outputs(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x9xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'down_w' to have as many outputs as 'x' has columns, 8, but it has 9}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x9xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c8_gamma_length(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %g2: tensor<9xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'ln2_gamma' to be as long as the last dimension of 'x', 8, but its length is 9}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g2 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<9xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c8_beta_length(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %b1: tensor<7xf32>) {
  // expected-error @below {{expects 'ln1_beta' to be as long as the last dimension of 'x', 8, but its length is 7}}
  %y = hir.llama_decoder_block %x norm1 %g1 beta %b1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope
      half %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<7xf32>
  return
}

// -----

func.func @llama_decoder_block_c9_gamma_element_type(%x: tensor<2x3x8xf32>, %g1: tensor<8xf16>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %g2: tensor<8xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'ln1_gamma' to have the element type of 'x', 'f32', but got 'f16'}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g2 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf16>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c9_beta_element_type(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %b2: tensor<8xf16>) {
  // expected-error @below {{expects 'ln2_beta' to have the element type of 'x', 'f32', but got 'f16'}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 beta %b2 gate %gate up %gate down %down rope
      half %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<8xf16>
  return
}

// -----

func.func @llama_decoder_block_c10_heads(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects positive 'num_heads', 'num_kv_heads' and 'head_dim', but got 2, 0 and 4}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 0 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c10_head_dim_odd(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects an even 'head_dim', but got 5}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 5
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c11_groups(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'num_heads' to be a multiple of 'num_kv_heads', 3, but got 4}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 4 kv_heads 3 head_dim 2
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c12_table_types(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %sin: tensor<64x2xf16>) {
  // expected-error @below {{expects 'cos' and 'sin' to have one type, but got 'tensor<64x2xf32>' and 'tensor<64x2xf16>'}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %sin heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf16>
  return
}

// -----

func.func @llama_decoder_block_c12_table_width(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x4xf32>) {
  // expected-error @below {{expects the tables to be [?, 2], but got [64, 4]}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>
  return
}

// -----

func.func @llama_decoder_block_c12_table_element_type(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf16>) {
  // expected-error @below {{expects the tables to be of f32 or of the element type of 'x', 'f32', but got 'f16'}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf16>, tensor<64x2xf16>
  return
}

// -----

func.func @llama_decoder_block_c13_table_rows(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<2x2xf32>) {
  // expected-error @below {{expects the tables to have a row for each token of 'x', 3, but they have 2}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c14_no_mask(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'mask' exactly with 'mask_kind' custom or bias, but 'mask_kind' is custom and 'mask' is not there}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4 mask custom
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c14_mask_with_causal(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %m: tensor<2x3xf32>) {
  // expected-error @below {{expects 'mask' exactly with 'mask_kind' custom or bias, but 'mask_kind' is causal and 'mask' is there}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4 mask causal %m
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<2x3xf32>
  return
}

// -----

func.func @llama_decoder_block_c15_mask_shape(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %m: tensor<2x4xf32>) {
  // expected-error @below {{expects 'mask' to be [2, 2, 3, 3] or [2, 3], or 1 in place of a dimension but the last, but got [2, 4]}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4 mask custom %m
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<2x4xf32>
  return
}

// -----

func.func @llama_decoder_block_c16_mask_element_type(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %m: tensor<1x2x3x3xf16>) {
  // expected-error @below {{expects 'mask' to have the element type of 'x', 'f32', but got 'f16'}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4 mask bias %m
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<1x2x3x3xf16>
  return
}

// -----

func.func @llama_decoder_block_c17_no_window(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'window' exactly with 'mask_kind' sliding_window, but 'mask_kind' is sliding_window and 'window' is not there}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4 mask sliding_window
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c17_window_negative(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects a positive 'window', but got -1}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4 mask sliding_window window -1
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c18_no_value_cache(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %kc: tensor<2x64x4xf32>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'k_cache' and 'v_cache' together or not at all, and with 'pos', but got 1 of the caches with 'pos'}}
  %y, %c:2 = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope
      half %cos, %cos heads 2 kv_heads 1 head_dim 4 caches %kc, at %pos
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<2x64x4xf32>, tensor<2xi32>
  return
}

// -----

func.func @llama_decoder_block_c18_no_positions(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %kc: tensor<2x64x4xf32>) {
  // expected-error @below {{expects 'k_cache' and 'v_cache' together or not at all, and with 'pos', but got 2 of the caches without 'pos'}}
  %y, %c:2 = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope
      half %cos, %cos heads 2 kv_heads 1 head_dim 4 caches %kc, %kc
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<2x64x4xf32>, tensor<2x64x4xf32>
  return
}

// -----

func.func @llama_decoder_block_c19_cache_types(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %kc: tensor<2x64x4xf32>, %vc: tensor<2x64x4xf64>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'v_cache' to have the element type of 'x', or f16, bf16 or i8 where that is f32, but 'x' is of 'f32' and 'v_cache' of 'f64'}}
  %y, %c:2 = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope
      half %cos, %cos heads 2 kv_heads 1 head_dim 4 caches %kc, %vc at %pos
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<2x64x4xf32>, tensor<2x64x4xf64>, tensor<2xi32>
  return
}

// -----

func.func @llama_decoder_block_c19_cache_shape(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %kc: tensor<1x64x4xf32>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'k_cache' to be [2, ?, 4], but got [1, 64, 4]}}
  %y, %c:2 = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope
      half %cos, %cos heads 2 kv_heads 1 head_dim 4 caches %kc, %kc at %pos
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<1x64x4xf32>, tensor<1x64x4xf32>, tensor<2xi32>
  return
}

// -----

func.func @llama_decoder_block_c19_cache_element_type(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %kc: tensor<2x64x4xf64>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'k_cache' to have the element type of 'x', or f16, bf16 or i8 where that is f32, but 'x' is of 'f32' and 'k_cache' of 'f64'}}
  %y, %c:2 = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope
      half %cos, %cos heads 2 kv_heads 1 head_dim 4 caches %kc, %kc at %pos
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<2x64x4xf64>, tensor<2x64x4xf64>, tensor<2xi32>
  return
}

// -----

func.func @llama_decoder_block_c19_cache_length(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %kc: tensor<2x2x4xf32>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'k_cache' to be at least as long as 'x', 3, but its length is 2}}
  %y, %c:2 = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope
      half %cos, %cos heads 2 kv_heads 1 head_dim 4 caches %kc, %kc at %pos
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<2x2x4xf32>, tensor<2x2x4xf32>, tensor<2xi32>
  return
}

// -----

func.func @llama_decoder_block_c20_positions(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %pos: tensor<1xi32>) {
  // expected-error @below {{expects 'pos' to have one entry for each batch item, [2], but its shape is [1]}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4 at %pos
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<1xi32>
  return
}

// -----

func.func @llama_decoder_block_c21_eps(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got 0.000000e+00}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4 eps 0.0
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @llama_decoder_block_c22_no_scheme(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %kc: tensor<2x64x4xf16>, %vc: tensor<2x64x4xi8>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'v_scheme' exactly where 'v_cache' is of i8, but 'v_cache' is of 'i8' and 'v_scheme' is absent}}
  %y, %c:2 = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope
      half %cos, %cos heads 2 kv_heads 1 head_dim 4 caches %kc, %vc at %pos
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<2x64x4xf16>, tensor<2x64x4xi8>, tensor<2xi32>
  return
}

// -----

func.func @llama_decoder_block_c22_heads(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %kc: tensor<2x64x4xi8>, %vc: tensor<2x64x4xf16>, %pos: tensor<2xi32>) {
  // expected-error @below {{expects 'head_dim' to be a multiple of the block length of q4_0, 32, but got 4}}
  %y, %c:2 = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope
      half %cos, %cos heads 2 kv_heads 1 head_dim 4 caches %kc, %vc at %pos k_scheme q4_0
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>,
        tensor<2x64x4xi8>, tensor<2x64x4xf16>, tensor<2xi32>
  return
}

// -----

func.func @llama_decoder_block_c22_no_caches(%x: tensor<2x3x8xf32>, %g1: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %gate: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>) {
  // expected-error @below {{expects 'k_scheme' and 'v_scheme' only with caches, but there are none}}
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %k o %q norm2 %g1 gate %gate up %gate down %down rope half
      %cos, %cos heads 2 kv_heads 1 head_dim 4 v_scheme q8_0
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}
