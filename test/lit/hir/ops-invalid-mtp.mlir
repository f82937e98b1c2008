// RUN: rlx-opt %s --split-input-file --verify-diagnostics

func.func @qwen35_mtp_head_c1_rank(%h: tensor<3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'h_pre_norm' to have three dimensions, but got 2}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c2_ids(%h: tensor<2x3x8xf32>, %ids: tensor<2x4xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'input_ids' to be [2, 3], but got [2, 4]}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x4xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c2_ids_rank(%h: tensor<2x3x8xf32>, %ids: tensor<6xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'input_ids' to be [2, 3], but got [6]}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<6xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c2_last(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<3xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'last_token_idx' to be [2], but got [3]}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<3xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c2_last_rank(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2x1xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'last_token_idx' to be [2], but got [2, 1]}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2x1xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c3_width(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x9xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'embed_w' to be rows of 8, dense of 'f32' or packed, but got 'tensor<12x9xf32>'}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x9xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c3_element(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf16>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'embed_w' to be rows of 8, dense of 'f32' or packed, but got 'tensor<12x8xf16>'}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf16>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c3_packed_width(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x34xi8, #mir.packed<q8_0, k = 32>>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'embed_w' to be rows of 8, dense of 'f32' or packed, but got}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x34xi8, #mir.packed<q8_0, k = 32>>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>,
        tensor<8x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>,
        tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c4_weight_rank(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<1x8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects the dense weight 'o_w' to have two dimensions, but got 3}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<1x8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c5_panels(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<1x512xi8, #mir.packed<f32, k = 8, n = 12, layout = panels>>) {
  // expected-error @below {{expects the packed weight 'lm_head_w' to have layout = rows, but got panels}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>,
        tensor<1x512xi8, #mir.packed<f32, k = 8, n = 12, layout = panels>>
  return
}

// -----

func.func @qwen35_mtp_head_c6_joined_inputs(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<8x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %down: tensor<16x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'eh_w' to have as many inputs as twice the columns of 'h_pre_norm', 16, but it has 8}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %eh post_norm %hn
      gate %qg up %qg down %down head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c6_output_inputs(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<9x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'o_w' to have as many inputs as num_heads * head_dim, 8, but it has 9}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<9x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c6_down_inputs(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %down: tensor<15x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'down_w' to have as many inputs as 'gate_w' has outputs, 16, but it has 15}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %down head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<15x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c6_scores_inputs(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<9x12xf32>) {
  // expected-error @below {{expects 'lm_head_w' to have as many inputs as 'h_pre_norm' has columns, 8, but it has 9}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<9x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c7_element(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xbf16>, %v: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects the dense weight 'k_w' to have the element type of 'h_pre_norm', 'f32', but got 'bf16'}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %v q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xbf16>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

/// The embeddings are dense, but always rows.
func.func @qwen35_mtp_head_c8_nothing_to_transpose(%h: tensor<2x3x32xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x8xf32>, %last: tensor<2xi32>, %embed: tensor<12x32xf32>, %hn: tensor<32xf32>, %eh: tensor<32x68xi8, #mir.packed<q8_0, k = 64>>, %qg: tensor<64x34xi8, #mir.packed<q8_0, k = 32>>, %k: tensor<16x34xi8, #mir.packed<q8_0, k = 32>>, %qn: tensor<16xf32>, %o: tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, %lm: tensor<12x34xi8, #mir.packed<q8_0, k = 32>>) {
  // expected-error @below {{expects 'transpose_weight' only with a dense weight, but every weight is packed}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %o up %o down %o head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 16 transpose_weight
      : tensor<2x3x32xf32>, tensor<2x3xi32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<2xi32>,
        tensor<12x32xf32>, tensor<32xf32>, tensor<32xf32>, tensor<32x68xi8, #mir.packed<q8_0, k = 64>>,
        tensor<32xf32>, tensor<64x34xi8, #mir.packed<q8_0, k = 32>>,
        tensor<16x34xi8, #mir.packed<q8_0, k = 32>>, tensor<16x34xi8, #mir.packed<q8_0, k = 32>>,
        tensor<16xf32>, tensor<16xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, tensor<32xf32>,
        tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>,
        tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, tensor<32xf32>,
        tensor<12x34xi8, #mir.packed<q8_0, k = 32>>
  return
}

// -----

/// A query without its gate.
func.func @qwen35_mtp_head_c9_query_outputs(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x8xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %gate: tensor<8x16xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'q_gate_w' to have as many outputs as 2 * num_heads * head_dim, 16, but it has 8}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %qg post_norm %hn
      gate %gate up %gate down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x8xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c9_key_outputs(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x8xf32>, %v: tensor<8x4xf32>, %qn: tensor<4xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'k_w' to have as many outputs as num_kv_heads * head_dim, 4, but it has 8}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %v q_norm %qn k_norm %qn o %k post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x8xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c9_up_outputs(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %up: tensor<8x17xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'up_w' to have as many outputs as 'gate_w' has outputs, 16, but it has 17}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %up down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x17xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c10_width(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'post_norm_w' to be as long as the last dimension of 'h_pre_norm', 8, but its length is 4}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %qn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<4xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c10_beta(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>, %beta: tensor<9xf32>) {
  // expected-error @below {{expects 'hnorm_b' to be as long as the last dimension of 'h_pre_norm', 8, but its length is 9}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn beta %beta enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<9xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>,
        tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c10_head(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %kn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'q_norm_w' to be as long as 'head_dim', 4, but its length is 8}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %hn k_norm %kn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c10_rank(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %en: tensor<1x8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'enorm_w' to have one dimension, but got 2}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %en eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<1x8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c11_element(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %kn: tensor<4xf16>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'k_norm_w' to have the element type of 'h_pre_norm', 'f32', but got 'f16'}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %kn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf16>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c12_no_head(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects positive 'num_heads', 'num_kv_heads' and 'head_dim', but got 2, 0 and 4}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 0 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c12_odd(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects an even 'head_dim', but got 3}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 3
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c13_groups(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'num_heads' to be a multiple of 'num_kv_heads', 2, but got 3}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 3 kv_heads 2 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c14_too_many(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects a positive, even 'n_rot' of at most 'head_dim', 4, but got 6}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4 n_rot 6
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c14_odd(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects a positive, even 'n_rot' of at most 'head_dim', 4, but got 3}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4 n_rot 3
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c15_types(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %sin: tensor<15x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects 'cos' and 'sin' to have one type, but got 'tensor<16x2xf32>' and 'tensor<15x2xf32>'}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %sin
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<15x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

/// The columns are those of the whole head, also where only a part turns.
func.func @qwen35_mtp_head_c15_columns(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x4xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects the tables to be [?, 2], but got [16, 4]}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4 n_rot 2
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x4xf32>, tensor<16x4xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c15_element(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf16>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects the tables to be of f32 or of the element type of 'h_pre_norm', 'f32', but got 'f16'}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf16>, tensor<16x2xf16>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c16_rows(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<2x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects the tables to have a row for each token of 'h_pre_norm', 3, but they have 2}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c17_eps(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects a positive, finite 'eps', but got 0}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 2 kv_heads 1 head_dim 4 eps 0.0
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}

// -----

func.func @qwen35_mtp_head_c18_overflow(%h: tensor<2x3x8xf32>, %ids: tensor<2x3xi32>, %cos: tensor<16x2xf32>, %last: tensor<2xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %eh: tensor<16x8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %qn: tensor<4xf32>, %o: tensor<8x8xf32>, %lm: tensor<8x12xf32>) {
  // expected-error @below {{expects twice the last dimension of 'h_pre_norm', 8, and twice num_heads * head_dim, 4611686018427387904, to be below 2^63}}
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %hn eh %eh
      attn_norm %hn q_gate %qg k %k v %k q_norm %qn k_norm %qn o %o post_norm %hn
      gate %qg up %qg down %eh head_norm %hn lm_head %lm rope half %cos, %cos
      heads 1152921504606846976 kv_heads 1 head_dim 4
      : tensor<2x3x8xf32>, tensor<2x3xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xi32>,
        tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>,
        tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return
}
