// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

/// Without betas; what is default isn't printed.
// CHECK-LABEL: func @qwen35_mtp_head
//  CHECK-SAME:   (%[[H:.+]]: tensor<?x?x8xf32>, %[[IDS:.+]]: tensor<?x?xi32>, %[[LAST:.+]]: tensor<?xi64>, %[[EMBED:[^:]+]]: tensor<12x8xf32>, %[[HN:[^:]+]]: tensor<8xf32>, %[[EN:[^:]+]]: tensor<8xf32>, %[[EH:[^:]+]]: tensor<16x8xf32>, %[[AN:[^:]+]]: tensor<8xf32>, %[[QG:[^:]+]]: tensor<8x16xf32>, %[[K:[^:]+]]: tensor<8x4xf32>, %[[V:[^:]+]]: tensor<8x4xf32>, %[[QN:[^:]+]]: tensor<4xf32>, %[[KN:[^:]+]]: tensor<4xf32>, %[[O:[^:]+]]: tensor<8x8xf32>, %[[PN:[^:]+]]: tensor<8xf32>, %[[GATE:[^:]+]]: tensor<8x16xf32>, %[[UP:[^:]+]]: tensor<8x16xf32>, %[[DOWN:[^:]+]]: tensor<16x8xf32>, %[[FN:[^:]+]]: tensor<8xf32>, %[[LM:[^:]+]]: tensor<8x12xf32>, %[[COS:[^:]+]]: tensor<16x2xf32>, %[[SIN:[^:]+]]: tensor<16x2xf32>)
//       CHECK:   %[[Y:.+]] = hir.qwen35_mtp_head %[[H]] ids %[[IDS]] last %[[LAST]] embed %[[EMBED]] hnorm %[[HN]] enorm %[[EN]] eh %[[EH]] attn_norm %[[AN]] q_gate %[[QG]] k %[[K]] v %[[V]] q_norm %[[QN]] k_norm %[[KN]] o %[[O]] post_norm %[[PN]] gate %[[GATE]] up %[[UP]] down %[[DOWN]] head_norm %[[FN]] lm_head %[[LM]] rope half %[[COS]], %[[SIN]] heads 2 kv_heads 1 head_dim 4 :
//       CHECK:   return %[[Y]] : tensor<?x1x12xf32>
func.func @qwen35_mtp_head(%h: tensor<?x?x8xf32>, %ids: tensor<?x?xi32>, %last: tensor<?xi64>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %en: tensor<8xf32>, %eh: tensor<16x8xf32>, %an: tensor<8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>, %qn: tensor<4xf32>, %kn: tensor<4xf32>, %o: tensor<8x8xf32>, %pn: tensor<8xf32>, %gate: tensor<8x16xf32>, %up: tensor<8x16xf32>, %down: tensor<16x8xf32>, %fn: tensor<8xf32>, %lm: tensor<8x12xf32>, %cos: tensor<16x2xf32>, %sin: tensor<16x2xf32>) -> tensor<?x1x12xf32> {
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn enorm %en eh %eh
      attn_norm %an q_gate %qg k %k v %v q_norm %qn k_norm %kn o %o post_norm %pn gate %gate up %up down %down
      head_norm %fn lm_head %lm rope half %cos, %sin heads 2 kv_heads 1 head_dim 4 eps 1.0e-5
      : tensor<?x?x8xf32>, tensor<?x?xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<?xi64>, tensor<12x8xf32>, tensor<8xf32>,
        tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>,
        tensor<8x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return %y : tensor<?x1x12xf32>
}

/// All 29 operands, each beta after its own gamma, and every clause; the batch is known from the indices alone.
// CHECK-LABEL: func @qwen35_mtp_head_clauses
//  CHECK-SAME:   (%[[H:[^:]+]]: tensor<?x3x8xf16>, %[[IDS:[^:]+]]: tensor<2x3xf32>, %[[LAST:[^:]+]]: tensor<2xf32>, %[[T:[^:]+]]: tensor<16x2xf32>, %[[EMBED:[^:]+]]: tensor<12x32xi8, #mir.packed<f32, k = 8>>, %[[W:[^:]+]]: tensor<8xf16>, %[[HB:[^:]+]]: tensor<8xf16>, %[[EB:[^:]+]]: tensor<8xf16>, %[[AB:[^:]+]]: tensor<8xf16>, %[[PB:[^:]+]]: tensor<8xf16>, %[[FB:[^:]+]]: tensor<8xf16>, %[[QN:[^:]+]]: tensor<4xf16>, %[[QB:[^:]+]]: tensor<4xf16>, %[[KB:[^:]+]]: tensor<4xf16>, %[[EH:[^:]+]]: tensor<8x16xf16>, %[[QG:[^:]+]]: tensor<16x8xf16>, %[[K:[^:]+]]: tensor<4x8xf16>, %[[O:[^:]+]]: tensor<8x8xf16>, %[[LM:[^:]+]]: tensor<12x16xi8, #mir.packed<f16, k = 8>>)
//       CHECK:   %[[Y:.+]] = hir.qwen35_mtp_head %[[H]] ids %[[IDS]] last %[[LAST]] embed %[[EMBED]] hnorm %[[W]] beta %[[HB]] enorm %[[W]] beta %[[EB]] eh %[[EH]] attn_norm %[[W]] beta %[[AB]] q_gate %[[QG]] k %[[K]] v %[[K]] q_norm %[[QN]] beta %[[QB]] k_norm %[[QN]] beta %[[KB]] o %[[O]] post_norm %[[W]] beta %[[PB]] gate %[[QG]] up %[[QG]] down %[[EH]] head_norm %[[W]] beta %[[FB]] lm_head %[[LM]] rope interleaved %[[T]], %[[T]] heads 2 kv_heads 1 head_dim 4 n_rot 2 eps 2.500000e-01 transpose_weight :
//       CHECK:   return %[[Y]] : tensor<2x1x12xf16>
func.func @qwen35_mtp_head_clauses(%h: tensor<?x3x8xf16>, %ids: tensor<2x3xf32>, %last: tensor<2xf32>, %t: tensor<16x2xf32>, %embed: tensor<12x32xi8, #mir.packed<f32, k = 8>>, %w: tensor<8xf16>, %hb: tensor<8xf16>, %eb: tensor<8xf16>, %ab: tensor<8xf16>, %pb: tensor<8xf16>, %fb: tensor<8xf16>, %qn: tensor<4xf16>, %qb: tensor<4xf16>, %kb: tensor<4xf16>, %eh: tensor<8x16xf16>, %qg: tensor<16x8xf16>, %k: tensor<4x8xf16>, %o: tensor<8x8xf16>, %lm: tensor<12x16xi8, #mir.packed<f16, k = 8>>) -> tensor<2x1x12xf16> {
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %w beta %hb enorm %w beta %eb eh %eh
      attn_norm %w beta %ab q_gate %qg k %k v %k q_norm %qn beta %qb k_norm %qn beta %kb o %o post_norm %w beta %pb gate %qg up %qg down %eh
      head_norm %w beta %fb lm_head %lm rope interleaved %t, %t heads 2 kv_heads 1 head_dim 4 n_rot 2 eps 0.25 transpose_weight
      : tensor<?x3x8xf16>, tensor<2x3xf32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<2xf32>, tensor<12x32xi8, #mir.packed<f32, k = 8>>,
        tensor<8xf16>, tensor<8xf16>, tensor<8xf16>, tensor<8xf16>, tensor<8x16xf16>, tensor<8xf16>, tensor<8xf16>, tensor<16x8xf16>,
        tensor<4x8xf16>, tensor<4x8xf16>, tensor<4xf16>, tensor<4xf16>, tensor<4xf16>, tensor<4xf16>, tensor<8x8xf16>, tensor<8xf16>,
        tensor<8xf16>, tensor<16x8xf16>, tensor<16x8xf16>, tensor<8x16xf16>, tensor<8xf16>, tensor<8xf16>, tensor<12x16xi8, #mir.packed<f16, k = 8>>
  return %y : tensor<2x1x12xf16>
}
