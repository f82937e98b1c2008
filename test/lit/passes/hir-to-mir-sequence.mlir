// RUN: rlx-opt %s --pass-pipeline='builtin.module(hir-to-mir{policy=direct})' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(hir-to-mir{policy=fusable})' | FileCheck %s
// RUN: rlx-opt %s --pass-pipeline='builtin.module(hir-to-mir)' --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s --check-prefix=LOC

/// What came before stands first; then one row for each channel, with a group of its own.
// CHECK-LABEL: func @depthwise_conv1d_causal
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x16xf32>, %[[W:.+]]: tensor<16x1x1x3xf32>, %[[P:.+]]: tensor<2x2x16xf32>)
//       CHECK:   %[[C:.+]] = mir.concat %[[P]], %[[X]] axis 1 : tensor<2x2x16xf32>, tensor<2x?x16xf32>
//       CHECK:   %[[T:.+]] = mir.transpose %[[C]] permutation [0, 2, 1] : tensor<2x?x16xf32>
//       CHECK:   %[[R:.+]] = mir.reshape %[[T]] to [-2, -2, 1, -1] : tensor<2x16x?xf32>
//       CHECK:   %[[V:.+]] = mir.conv %[[R]], %[[W]] groups 16 : tensor<2x16x1x?xf32>, tensor<16x1x1x3xf32>
//       CHECK:   %[[S:.+]] = mir.reshape %[[V]] to [-2, -2, -1] : tensor<2x16x1x?xf32>
//       CHECK:   %[[Y:.+]] = mir.transpose %[[S]] permutation [0, 2, 1] : tensor<2x16x?xf32>
//       CHECK:   return %[[Y]] : tensor<2x?x16xf32>
//   LOC-LABEL: func @depthwise_conv1d_causal(
//         LOC:   mir.concat {{.+}} loc("depthwise_conv1d_causal"({{.+}}
//         LOC:   mir.conv {{.+}} loc("depthwise_conv1d_causal"({{.+}}
func.func @depthwise_conv1d_causal(%x: tensor<2x?x16xf32>, %w: tensor<16x1x1x3xf32>, %p: tensor<2x2x16xf32>) -> tensor<2x?x16xf32> {
  %y = hir.depthwise_conv1d_causal %x, %w after %p : tensor<2x?x16xf32>, tensor<16x1x1x3xf32>, tensor<2x2x16xf32>
  return %y : tensor<2x?x16xf32>
}

/// With a state the block has another name.
// CHECK-LABEL: func @gated_delta_net
//  CHECK-SAME:   (%[[Q:.+]]: tensor<1x?x2x8xf32>, %[[K:.+]]: tensor<1x?x2x8xf32>, %[[V:.+]]: tensor<1x?x2x8xf32>, %[[G:.+]]: tensor<1x?x2xf32>, %[[B:.+]]: tensor<1x?x2xf32>)
//       CHECK:   %[[Y:.+]], %[[S:.+]] = mir.gated_delta_net %[[Q]], %[[K]], %[[V]] decay %[[G]] beta %[[B]] : tensor<1x?x2x8xf32>, tensor<1x?x2xf32>
//       CHECK:   %[[Z:.+]], %[[T:.+]] = mir.gated_delta_net %[[Y]], %[[K]], %[[V]] decay %[[G]] beta %[[B]] state %[[S]] : tensor<1x?x2x8xf32>, tensor<1x?x2xf32>, tensor<1x2x8x8xf32>
//       CHECK:   return %[[Z]], %[[T]]
//   LOC-LABEL: func @gated_delta_net(
//         LOC:   mir.gated_delta_net {{.+}} loc("gated_delta_net"({{.+}}
//         LOC:   mir.gated_delta_net {{.+}} loc("gated_delta_net_carry"({{.+}}
func.func @gated_delta_net(%q: tensor<1x?x2x8xf32>, %k: tensor<1x?x2x8xf32>, %v: tensor<1x?x2x8xf32>, %g: tensor<1x?x2xf32>, %b: tensor<1x?x2xf32>) -> (tensor<1x?x2x8xf32>, tensor<1x2x8x8xf32>) {
  %y, %s = hir.gated_delta_net %q, %k, %v decay %g beta %b
      : tensor<1x?x2x8xf32>, tensor<1x?x2x8xf32>, tensor<1x?x2x8xf32>, tensor<1x?x2xf32>, tensor<1x?x2xf32>
  %z, %t = hir.gated_delta_net %y, %k, %v decay %g beta %b state %s
      : tensor<1x?x2x8xf32>, tensor<1x?x2x8xf32>, tensor<1x?x2x8xf32>, tensor<1x?x2xf32>, tensor<1x?x2xf32>, tensor<1x2x8x8xf32>
  return %z, %t : tensor<1x?x2x8xf32>, tensor<1x2x8x8xf32>
}

/// The embedding comes first; queries and gates alternate by head; nothing repeats heads; each item has its own row.
// CHECK-LABEL: func @qwen35_mtp_head
//  CHECK-SAME:   (%[[H:.+]]: tensor<?x?x8xf32>, %[[IDS:.+]]: tensor<?x?xi32>, %[[LAST:.+]]: tensor<?xi32>, %[[EMBED:[^:]+]]: tensor<12x8xf32>, %[[HN:[^:]+]]: tensor<8xf32>, %[[HB:[^:]+]]: tensor<8xf32>, %[[EN:[^:]+]]: tensor<8xf32>, %[[EH:[^:]+]]: tensor<16x8xf32>, %[[AN:[^:]+]]: tensor<8xf32>, %[[QG:[^:]+]]: tensor<8x16xf32>, %[[K:[^:]+]]: tensor<8x4xf32>, %[[V:[^:]+]]: tensor<8x4xf32>, %[[QN:[^:]+]]: tensor<4xf32>, %[[KN:[^:]+]]: tensor<4xf32>, %[[KB:[^:]+]]: tensor<4xf32>, %[[O:[^:]+]]: tensor<8x8xf32>, %[[PN:[^:]+]]: tensor<8xf32>, %[[GATE:[^:]+]]: tensor<8x16xf32>, %[[UP:[^:]+]]: tensor<8x16xf32>, %[[DOWN:[^:]+]]: tensor<16x8xf32>, %[[FN:[^:]+]]: tensor<8xf32>, %[[LM:[^:]+]]: tensor<8x12xf32>, %[[COS:[^:]+]]: tensor<16x2xf32>, %[[SIN:[^:]+]]: tensor<16x2xf32>)
//   CHECK-DAG:   %[[E:.+]] = mir.gather %[[EMBED]], %[[IDS]] axis 0 : tensor<12x8xf32>, tensor<?x?xi32>
//   CHECK-DAG:   %[[EE:.+]] = mir.rms_norm %[[E]], %[[EN]] eps 2.500000e-01 : {{.+}}
//   CHECK-DAG:   %[[HH:.+]] = mir.rms_norm %[[H]], %[[HN]] beta(%[[HB]] : tensor<8xf32>) eps 2.500000e-01 : {{.+}}
//       CHECK:   %[[BOTH:.+]] = mir.concat %[[EE]], %[[HH]] axis 2 : tensor<?x?x8xf32>, tensor<?x?x8xf32>
//       CHECK:   %[[X:.+]] = mir.matmul %[[BOTH]], %[[EH]] : {{.+}}
//       CHECK:   %[[N:.+]] = mir.rms_norm %[[X]], %[[AN]] eps 2.500000e-01 : {{.+}}
//   CHECK-DAG:   %[[P:.+]] = mir.matmul %[[N]], %[[QG]] : {{.+}}
//   CHECK-DAG:   %[[PH:.+]] = mir.reshape %[[P]] to [-2, -2, 2, 8] : tensor<?x?x16xf32>
//   CHECK-DAG:   %[[Q0:.+]] = mir.narrow %[[PH]] axis 3 start 0 length 4 : tensor<?x?x2x8xf32>
//   CHECK-DAG:   %[[G0:.+]] = mir.narrow %[[PH]] axis 3 start 4 length 4 : tensor<?x?x2x8xf32>
//   CHECK-DAG:   %[[K0:.+]] = mir.matmul %[[N]], %[[K]] : {{.+}}
//   CHECK-DAG:   %[[K1:.+]] = mir.reshape %[[K0]] to [-2, -2, 1, 4] : tensor<?x?x4xf32>
//   CHECK-DAG:   %[[V0:.+]] = mir.matmul %[[N]], %[[V]] : {{.+}}
//   CHECK-DAG:   %[[Q2:.+]] = mir.rms_norm %[[Q0]], %[[QN]] eps 2.500000e-01 : tensor<?x?x2x4xf32>, tensor<4xf32>
//   CHECK-DAG:   %[[Q3:.+]] = mir.reshape %[[Q2]] to [-2, -2, 8] : {{.+}}
//   CHECK-DAG:   %[[Q4:.+]] = mir.rope %[[Q3]], %[[COS]], %[[SIN]] head_dim 4 n_rot 2 : {{.+}}
//   CHECK-DAG:   %[[K2:.+]] = mir.rms_norm %[[K1]], %[[KN]] beta(%[[KB]] : tensor<4xf32>) eps 2.500000e-01 : tensor<?x?x1x4xf32>, tensor<4xf32>
//   CHECK-DAG:   %[[K3:.+]] = mir.reshape %[[K2]] to [-2, -2, 4] : {{.+}}
//   CHECK-DAG:   %[[K4:.+]] = mir.rope %[[K3]], %[[COS]], %[[SIN]] head_dim 4 n_rot 2 : {{.+}}
//       CHECK:   %[[A:.+]] = mir.attention %[[Q4]], %[[K4]], %[[V0]] heads 2 kv_heads 1 head_dim 4 masked causal : {{.+}}
//       CHECK:   %[[G1:.+]] = mir.reshape %[[G0]] to [-2, -2, 8] : {{.+}}
//       CHECK:   %[[SG:.+]] = mir.sigmoid %[[G1]] : {{.+}}
//       CHECK:   %[[AG:.+]] = mir.mul %[[A]], %[[SG]] : {{.+}}
//       CHECK:   %[[AO:.+]] = mir.matmul %[[AG]], %[[O]] : {{.+}}
//       CHECK:   %[[H1:.+]] = mir.add %[[X]], %[[AO]] : {{.+}}
//       CHECK:   %[[M:.+]] = mir.rms_norm %[[H1]], %[[PN]] eps 2.500000e-01 : {{.+}}
//   CHECK-DAG:   %[[MG:.+]] = mir.matmul %[[M]], %[[GATE]] : {{.+}}
//   CHECK-DAG:   %[[MS:.+]] = mir.silu %[[MG]] : {{.+}}
//   CHECK-DAG:   %[[MU:.+]] = mir.matmul %[[M]], %[[UP]] : {{.+}}
//       CHECK:   %[[MM:.+]] = mir.mul %[[MS]], %[[MU]] : {{.+}}
//       CHECK:   %[[MD:.+]] = mir.matmul %[[MM]], %[[DOWN]] : {{.+}}
//       CHECK:   %[[H2:.+]] = mir.add %[[H1]], %[[MD]] : {{.+}}
//       CHECK:   %[[AT:.+]] = mir.reshape %[[LAST]] to [-2, 1] : tensor<?xi32>
//       CHECK:   %[[ROW:.+]] = mir.gather %[[H2]], %[[AT]] axis 1 batch_dims 1 : tensor<?x?x8xf32>, tensor<?x1xi32>
//       CHECK:   %[[F:.+]] = mir.rms_norm %[[ROW]], %[[FN]] eps 2.500000e-01 : {{.+}}
//       CHECK:   %[[Y:.+]] = mir.matmul %[[F]], %[[LM]] : {{.+}}
//       CHECK:   return %[[Y]] : tensor<?x1x12xf32>
//   LOC-LABEL: func @qwen35_mtp_head(
//         LOC:   mir.gather {{.+}} axis 0 {{.+}} loc("qwen35_mtp_head"({{.+}}
//         LOC:   mir.gather {{.+}} axis 1 {{.+}} loc("qwen35_mtp_head"({{.+}}
func.func @qwen35_mtp_head(%h: tensor<?x?x8xf32>, %ids: tensor<?x?xi32>, %last: tensor<?xi32>, %embed: tensor<12x8xf32>, %hn: tensor<8xf32>, %hb: tensor<8xf32>, %en: tensor<8xf32>, %eh: tensor<16x8xf32>, %an: tensor<8xf32>, %qg: tensor<8x16xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>, %qn: tensor<4xf32>, %kn: tensor<4xf32>, %kb: tensor<4xf32>, %o: tensor<8x8xf32>, %pn: tensor<8xf32>, %gate: tensor<8x16xf32>, %up: tensor<8x16xf32>, %down: tensor<16x8xf32>, %fn: tensor<8xf32>, %lm: tensor<8x12xf32>, %cos: tensor<16x2xf32>, %sin: tensor<16x2xf32>) -> tensor<?x1x12xf32> {
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %hn beta %hb enorm %en eh %eh
      attn_norm %an q_gate %qg k %k v %v q_norm %qn k_norm %kn beta %kb o %o post_norm %pn gate %gate up %up down %down
      head_norm %fn lm_head %lm rope half %cos, %sin heads 2 kv_heads 1 head_dim 4 n_rot 2 eps 0.25
      : tensor<?x?x8xf32>, tensor<?x?xi32>, tensor<16x2xf32>, tensor<16x2xf32>, tensor<?xi32>, tensor<12x8xf32>, tensor<8xf32>, tensor<8xf32>,
        tensor<8xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>,
        tensor<8x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<8x12xf32>
  return %y : tensor<?x1x12xf32>
}

/// Packed weights are read where they are; packed embeddings are decoded to f32, and rounded to the model's type.
// CHECK-LABEL: func @qwen35_mtp_head_packed
//  CHECK-SAME:   (%[[H:.+]]: tensor<2x3x32xbf16>, %{{.+}}: tensor<2x3xi32>, %{{.+}}: tensor<2xi32>, %[[EMBED:[^:]+]]: tensor<12x34xi8, #mir.packed<q8_0, k = 32>>, %{{[^:]+}}: tensor<32xbf16>, %[[EH:[^:]+]]: tensor<32x64xbf16>, %[[QG:[^:]+]]: tensor<64x34xi8, #mir.packed<q8_0, k = 32>>, %[[W:[^:]+]]: tensor<32x32xbf16>
//       CHECK:   %[[E:.+]] = mir.gather %[[EMBED]]
//       CHECK:   %[[C:.+]] = mir.cast %[[E]] : tensor<2x3x32xf32> to tensor<2x3x32xbf16>
//       CHECK:   mir.rms_norm %[[C]]
//       CHECK:   mir.matmul %{{.+}}, %[[EH]] transpose_rhs : {{.+}}
//       CHECK:   mir.dequant_matmul %{{.+}}, %[[QG]] : {{.+}}
//       CHECK:   mir.rope {{.+}} style interleaved
//       CHECK:   mir.matmul %{{.+}}, %[[W]] transpose_rhs : {{.+}}
//       CHECK:   mir.dequant_matmul %{{.+}}, %[[EMBED]] : {{.+}}
func.func @qwen35_mtp_head_packed(%h: tensor<2x3x32xbf16>, %ids: tensor<2x3xi32>, %last: tensor<2xi32>, %embed: tensor<12x34xi8, #mir.packed<q8_0, k = 32>>, %g: tensor<32xbf16>, %eh: tensor<32x64xbf16>, %qg: tensor<64x34xi8, #mir.packed<q8_0, k = 32>>, %w: tensor<32x32xbf16>, %d: tensor<16xbf16>, %t: tensor<16x8xf32>) -> tensor<2x1x12xbf16> {
  %y = hir.qwen35_mtp_head %h ids %ids last %last embed %embed hnorm %g enorm %g eh %eh
      attn_norm %g q_gate %qg k %w v %w q_norm %d k_norm %d o %w post_norm %g gate %w up %w down %w
      head_norm %g lm_head %embed rope interleaved %t, %t heads 2 kv_heads 2 head_dim 16 transpose_weight
      : tensor<2x3x32xbf16>, tensor<2x3xi32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<2xi32>, tensor<12x34xi8, #mir.packed<q8_0, k = 32>>,
        tensor<32xbf16>, tensor<32xbf16>, tensor<32x64xbf16>, tensor<32xbf16>, tensor<64x34xi8, #mir.packed<q8_0, k = 32>>,
        tensor<32x32xbf16>, tensor<32x32xbf16>, tensor<16xbf16>, tensor<16xbf16>, tensor<32x32xbf16>, tensor<32xbf16>,
        tensor<32x32xbf16>, tensor<32x32xbf16>, tensor<32x32xbf16>, tensor<32xbf16>, tensor<12x34xi8, #mir.packed<q8_0, k = 32>>
  return %y : tensor<2x1x12xbf16>
}
