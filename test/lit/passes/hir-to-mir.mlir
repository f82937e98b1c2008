// RUN: rlx-opt %s --pass-pipeline='builtin.module(hir-to-mir{policy=direct})' | FileCheck %s --check-prefixes=CHECK,DIRECT
// RUN: rlx-opt %s --pass-pipeline='builtin.module(hir-to-mir)' | FileCheck %s --check-prefixes=CHECK,DIRECT
// RUN: rlx-opt %s --pass-pipeline='builtin.module(hir-to-mir{policy=fusable})' | FileCheck %s --check-prefixes=CHECK,FUSABLE
// RUN: rlx-opt %s --pass-pipeline='builtin.module(hir-to-mir{policy=fusable})' --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s --check-prefix=LOC
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(hir-to-mir{policy=fused})' 2>&1 | FileCheck %s --check-prefix=ERROR

// ERROR: error: pass 'hir-to-mir': {{.*}}option 'policy' expects one of direct, fusable, but got 'fused'

// CHECK-LABEL: func @constant
//       CHECK:   %[[C:.+]] = mir.constant dense<[5.000000e-01, 1.000000e+00]> : tensor<2xf32>
//       CHECK:   return %[[C]]
func.func @constant() -> tensor<2xf32> {
  %c = hir.constant dense<[0.5, 1.0]> : tensor<2xf32>
  return %c : tensor<2xf32>
}

/// Everything that a block becomes has the block's name and the line that built it.
// CHECK-LABEL: func @linear
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xf32>, %[[W:.+]]: tensor<8x16xf32>, %[[B:.+]]: tensor<16xf32>)
//      DIRECT:   %[[Y:.+]] = mir.fused_matmul_bias_act %[[X]], %[[W]], %[[B]] activation silu : tensor<4x8xf32>, tensor<8x16xf32>, tensor<16xf32>
//     FUSABLE:   %[[P:.+]] = mir.matmul %[[X]], %[[W]] : tensor<4x8xf32>, tensor<8x16xf32>
//     FUSABLE:   %[[S:.+]] = mir.add %[[P]], %[[B]] : tensor<4x16xf32>, tensor<16xf32>
//     FUSABLE:   %[[Y:.+]] = mir.silu %[[S]] : tensor<4x16xf32>
//       CHECK:   return %[[Y]]
//   LOC-LABEL: func @linear(
//         LOC:   mir.matmul {{.+}} loc("proj"("model.py":3:1))
//         LOC:   mir.add {{.+}} loc("proj"("model.py":3:1))
//         LOC:   mir.silu {{.+}} loc("proj"("model.py":3:1))
func.func @linear(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<4x16xf32> {
  %y = hir.linear %x, %w bias %b activation silu : tensor<4x8xf32>, tensor<8x16xf32>, tensor<16xf32> loc("proj"("model.py":3:1))
  return %y : tensor<4x16xf32>
}

/// Without a bias there is nothing to fuse.
// CHECK-LABEL: func @linear_no_bias
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x8xbf16>, %[[W:.+]]: tensor<16x8xbf16>)
//       CHECK:   %[[P:.+]] = mir.matmul %[[X]], %[[W]] transpose_rhs : tensor<2x?x8xbf16>, tensor<16x8xbf16>
//       CHECK:   %[[Y:.+]] = mir.gelu_approx %[[P]] : tensor<2x?x16xbf16>
//       CHECK:   return %[[Y]]
func.func @linear_no_bias(%x: tensor<2x?x8xbf16>, %w: tensor<16x8xbf16>) -> tensor<2x?x16xbf16> {
  %y = hir.linear %x, %w activation gelu_approx transpose_weight : tensor<2x?x8xbf16>, tensor<16x8xbf16>
  return %y : tensor<2x?x16xbf16>
}

// CHECK-LABEL: func @linear_transposed
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xf32>, %[[W:.+]]: tensor<16x8xf32>, %[[B:.+]]: tensor<16xf32>)
//      DIRECT:   mir.fused_matmul_bias_act %[[X]], %[[W]], %[[B]] transpose_rhs
//     FUSABLE:   %[[P:.+]] = mir.matmul %[[X]], %[[W]] transpose_rhs
//     FUSABLE:   mir.add %[[P]], %[[B]]
func.func @linear_transposed(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %b: tensor<16xf32>) -> tensor<4x16xf32> {
  %y = hir.linear %x, %w bias %b transpose_weight : tensor<4x8xf32>, tensor<16x8xf32>, tensor<16xf32>
  return %y : tensor<4x16xf32>
}

/// A packed weight has no fused operation under either policy.
// CHECK-LABEL: func @linear_packed
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x32xf32>, %[[W:.+]]: tensor<16x20xi8, #mir.packed<q4_1, k = 32>>, %[[B:.+]]: tensor<16xf32>)
//       CHECK:   %[[P:.+]] = mir.dequant_matmul %[[X]], %[[W]] : tensor<?x32xf32>, tensor<16x20xi8, #mir.packed<q4_1, k = 32>>
//       CHECK:   %[[S:.+]] = mir.add %[[P]], %[[B]]
//       CHECK:   %[[Y:.+]] = mir.relu %[[S]]
//       CHECK:   return %[[Y]]
func.func @linear_packed(%x: tensor<?x32xf32>, %w: tensor<16x20xi8, #mir.packed<q4_1, k = 32>>, %b: tensor<16xf32>) -> tensor<?x16xf32> {
  %y = hir.linear %x, %w bias %b activation relu : tensor<?x32xf32>, tensor<16x20xi8, #mir.packed<q4_1, k = 32>>, tensor<16xf32>
  return %y : tensor<?x16xf32>
}

/// A block without a name is labelled by its kind.
// CHECK-LABEL: func @linear_fused
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xf32>, %[[W:.+]]: tensor<8x16xf32>, %[[B:.+]]: tensor<16xf32>)
//      DIRECT:   mir.fused_matmul_bias_act %[[X]], %[[W]], %[[B]] activation gelu
//     FUSABLE:   %[[P:.+]] = mir.matmul %[[X]], %[[W]]
//     FUSABLE:   %[[S:.+]] = mir.add %[[P]], %[[B]]
//     FUSABLE:   mir.gelu %[[S]]
//   LOC-LABEL: func @linear_fused(
//         LOC:   mir.gelu {{.+}} loc("linear_fused"("model.py":4:1))
func.func @linear_fused(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<4x16xf32> {
  %y = hir.linear_fused %x, %w, %b activation gelu : tensor<4x8xf32>, tensor<8x16xf32>, tensor<16xf32> loc("model.py":4:1)
  return %y : tensor<4x16xf32>
}

// CHECK-LABEL: func @shared_linear_pair
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x32xf32>, %[[A:.+]]: tensor<16x32xf32>, %[[B:.+]]: tensor<8x34xi8, #mir.packed<q8_0, k = 32>>)
//       CHECK:   %[[F:.+]] = mir.matmul %[[X]], %[[A]] transpose_rhs
//       CHECK:   %[[S:.+]] = mir.dequant_matmul %[[X]], %[[B]]
//       CHECK:   return %[[F]], %[[S]]
func.func @shared_linear_pair(%x: tensor<4x32xf32>, %a: tensor<16x32xf32>, %b: tensor<8x34xi8, #mir.packed<q8_0, k = 32>>) -> (tensor<4x16xf32>, tensor<4x8xf32>) {
  %first, %second = hir.shared_linear_pair %x, %a, %b transpose_weight
      : tensor<4x32xf32>, tensor<16x32xf32>, tensor<8x34xi8, #mir.packed<q8_0, k = 32>>
  return %first, %second : tensor<4x16xf32>, tensor<4x8xf32>
}

/// Weights come gate, up, down; fused_swiglu reads up, then gate.
// CHECK-LABEL: func @swiglu
//  CHECK-SAME:   (%[[X:.+]]: tensor<1x?x8xf32>, %[[G:.+]]: tensor<8x32xf32>, %[[U:.+]]: tensor<8x32xf32>, %[[D:.+]]: tensor<32x4xf32>)
//      DIRECT:   %[[W:.+]] = mir.concat %[[U]], %[[G]] axis 1
//      DIRECT:   %[[P:.+]] = mir.matmul %[[X]], %[[W]]
//      DIRECT:   %[[H:.+]] = mir.fused_swiglu %[[P]] : tensor<1x?x64xf32>
//     FUSABLE:   %[[PG:.+]] = mir.matmul %[[X]], %[[G]]
//     FUSABLE:   %[[PU:.+]] = mir.matmul %[[X]], %[[U]]
//     FUSABLE:   %[[S:.+]] = mir.silu %[[PG]]
//     FUSABLE:   %[[H:.+]] = mir.mul %[[S]], %[[PU]]
//       CHECK:   %[[Y:.+]] = mir.matmul %[[H]], %[[D]]
//       CHECK:   return %[[Y]]
//   LOC-LABEL: func @swiglu(
//         LOC:   mir.mul {{.+}} loc("swiglu_ffn"("model.py":5:1))
func.func @swiglu(%x: tensor<1x?x8xf32>, %g: tensor<8x32xf32>, %u: tensor<8x32xf32>, %d: tensor<32x4xf32>) -> tensor<1x?x4xf32> {
  %y = hir.swiglu %x gate %g up %u down %d : tensor<1x?x8xf32>, tensor<8x32xf32>, tensor<8x32xf32>, tensor<32x4xf32> loc("model.py":5:1)
  return %y : tensor<1x?x4xf32>
}

// CHECK-LABEL: func @swiglu_transposed
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xf32>, %[[G:.+]]: tensor<32x8xf32>, %[[U:.+]]: tensor<32x8xf32>, %[[D:.+]]: tensor<4x32xf32>)
//      DIRECT:   %[[W:.+]] = mir.concat %[[U]], %[[G]] axis 0
//      DIRECT:   mir.matmul %[[X]], %[[W]] transpose_rhs
//     FUSABLE:   mir.matmul %[[X]], %[[G]] transpose_rhs
//     FUSABLE:   mir.matmul %[[X]], %[[U]] transpose_rhs
//       CHECK:   mir.matmul %{{.+}}, %[[D]] transpose_rhs
func.func @swiglu_transposed(%x: tensor<4x8xf32>, %g: tensor<32x8xf32>, %u: tensor<32x8xf32>, %d: tensor<4x32xf32>) -> tensor<4x4xf32> {
  %y = hir.swiglu %x gate %g up %u down %d transpose_weight : tensor<4x8xf32>, tensor<32x8xf32>, tensor<32x8xf32>, tensor<4x32xf32>
  return %y : tensor<4x4xf32>
}

/// Packed weights aren't joined by the block: their kernel computes both products at once.
// CHECK-LABEL: func @swiglu_packed
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x32xf32>, %[[G:.+]]: tensor<32x34xi8, {{.+}}>, %[[U:.+]]: tensor<32x34xi8, {{.+}}>, %[[D:.+]]: tensor<32x8xf32>)
//       CHECK:   %[[PG:.+]] = mir.dequant_matmul %[[X]], %[[G]]
//       CHECK:   %[[PU:.+]] = mir.dequant_matmul %[[X]], %[[U]]
//       CHECK:   %[[S:.+]] = mir.silu %[[PG]]
//       CHECK:   %[[H:.+]] = mir.mul %[[S]], %[[PU]]
//       CHECK:   mir.matmul %[[H]], %[[D]]
func.func @swiglu_packed(%x: tensor<4x32xf32>, %g: tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, %u: tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, %d: tensor<32x8xf32>) -> tensor<4x8xf32> {
  %y = hir.swiglu %x gate %g up %u down %d : tensor<4x32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, tensor<32x8xf32>
  return %y : tensor<4x8xf32>
}

// CHECK-LABEL: func @residual_rms_norm
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[R:.+]]: tensor<?x8xf32>, %[[G:.+]]: tensor<8xf32>, %[[B:.+]]: tensor<8xf32>)
//      DIRECT:   %[[Y:.+]] = mir.fused_residual_rms_norm %[[X]], %[[R]], %[[G]] beta(%[[B]] : tensor<8xf32>) eps 2.500000e-01
//     FUSABLE:   %[[S:.+]] = mir.add %[[X]], %[[R]]
//     FUSABLE:   %[[Y:.+]] = mir.rms_norm %[[S]], %[[G]] beta(%[[B]] : tensor<8xf32>) eps 2.500000e-01
//       CHECK:   return %[[Y]]
func.func @residual_rms_norm(%x: tensor<?x8xf32>, %r: tensor<?x8xf32>, %g: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %y = hir.residual_rms_norm %x, %r, %g beta %b eps 0.25 : tensor<?x8xf32>, tensor<?x8xf32>, tensor<8xf32>, tensor<8xf32>
  return %y : tensor<?x8xf32>
}

// CHECK-LABEL: func @rms_norm
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xbf16>, %[[G:.+]]: tensor<8xbf16>)
//       CHECK:   %[[Y:.+]] = mir.rms_norm %[[X]], %[[G]] eps 2.500000e-01 : tensor<4x8xbf16>, tensor<8xbf16>
//       CHECK:   return %[[Y]]
func.func @rms_norm(%x: tensor<4x8xbf16>, %g: tensor<8xbf16>) -> tensor<4x8xbf16> {
  %y = hir.rms_norm %x, %g eps 0.25 : tensor<4x8xbf16>, tensor<8xbf16>
  return %y : tensor<4x8xbf16>
}

// CHECK-LABEL: func @rope
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x4x32xf32>, %[[C:.+]]: tensor<64x8xf32>, %[[S:.+]]: tensor<64x8xf32>, %[[P:.+]]: tensor<2xi32>)
//       CHECK:   %[[Y:.+]] = mir.rope %[[X]], %[[C]], %[[S]] pos(%[[P]] : tensor<2xi32>) head_dim 16 n_rot 8 style interleaved
//       CHECK:   %[[Z:.+]] = mir.rope %[[Y]], %[[C]], %[[S]] head_dim 16 :
//       CHECK:   return %[[Z]]
func.func @rope(%x: tensor<2x4x32xf32>, %c: tensor<64x8xf32>, %s: tensor<64x8xf32>, %p: tensor<2xi32>) -> tensor<2x4x32xf32> {
  %y = hir.rope interleaved %x, %c, %s at %p head_dim 16 n_rot 8 : tensor<2x4x32xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<2xi32>
  %z = hir.rope half %y, %c, %s head_dim 16 : tensor<2x4x32xf32>, tensor<64x8xf32>, tensor<64x8xf32>
  return %z : tensor<2x4x32xf32>
}

// CHECK-LABEL: func @dequant_matmul
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x256xf32>, %[[W:.+]]: tensor<16x144xi8, #mir.packed<q4_k, k = 256>>)
//       CHECK:   %[[Y:.+]] = mir.dequant_matmul %[[X]], %[[W]] : tensor<4x256xf32>, tensor<16x144xi8, #mir.packed<q4_k, k = 256>>
//       CHECK:   return %[[Y]]
func.func @dequant_matmul(%x: tensor<4x256xf32>, %w: tensor<16x144xi8, #mir.packed<q4_k, k = 256>>) -> tensor<4x16xf32> {
  %y = hir.dequant_matmul %x, %w : tensor<4x256xf32>, tensor<16x144xi8, #mir.packed<q4_k, k = 256>>
  return %y : tensor<4x16xf32>
}

/// Heads of keys and values stay grouped: nothing is repeated.
// CHECK-LABEL: func @attention
//  CHECK-SAME:   (%[[Q:.+]]: tensor<1x?x64xf32>, %[[K:.+]]: tensor<1x?x32xf32>, %[[V:.+]]: tensor<1x?x32xf32>, %[[M:.+]]: tensor<1x4x?x?xf32>, %[[S:.+]]: tensor<4xf32>)
//       CHECK:   %[[A:.+]] = mir.attention %[[Q]], %[[K]], %[[V]] mask(%[[M]] : tensor<1x4x?x?xf32>) heads 4 kv_heads 2 head_dim 16 masked bias scale 2.500000e-01 softcap 5.000000e+01
//       CHECK:   %[[B:.+]] = mir.attention %[[A]], %[[K]], %[[V]] sinks(%[[S]] : tensor<4xf32>) heads 4 kv_heads 2 head_dim 16 masked sliding_window window 8 :
//       CHECK:   return %[[B]]
func.func @attention(%q: tensor<1x?x64xf32>, %k: tensor<1x?x32xf32>, %v: tensor<1x?x32xf32>, %m: tensor<1x4x?x?xf32>, %s: tensor<4xf32>) -> tensor<1x?x64xf32> {
  %a = hir.attention %q, %k, %v heads 4 kv_heads 2 head_dim 16 mask bias %m scale 0.25 softcap 50.0
      : tensor<1x?x64xf32>, tensor<1x?x32xf32>, tensor<1x?x32xf32>, tensor<1x4x?x?xf32>
  %b = hir.attention %a, %k, %v heads 4 kv_heads 2 head_dim 16 mask sliding_window window 8 sinks %s
      : tensor<1x?x64xf32>, tensor<1x?x32xf32>, tensor<1x?x32xf32>, tensor<4xf32>
  return %b : tensor<1x?x64xf32>
}

/// New rows are written into the caches, which attention then reads, from the same positions.
// CHECK-LABEL: func @attention_cached
//  CHECK-SAME:   (%[[Q:.+]]: tensor<1x?x64xf32>, %[[K:.+]]: tensor<1x?x32xf32>, %[[V:.+]]: tensor<1x?x32xf32>, %[[KC:.+]]: tensor<1x128x32xf32>, %[[VC:.+]]: tensor<1x128x32xf32>, %[[P:.+]]: tensor<1xi32>)
//       CHECK:   %[[KN:.+]] = mir.cache_update %[[KC]], %[[K]] at %[[P]]
//       CHECK:   %[[VN:.+]] = mir.cache_update %[[VC]], %[[V]] at %[[P]]
//       CHECK:   %[[A:.+]] = mir.attention %[[Q]], %[[KN]], %[[VN]] pos(%[[P]] : tensor<1xi32>) heads 4 kv_heads 2 head_dim 16 masked causal
//       CHECK:   return %[[A]], %[[KN]], %[[VN]]
func.func @attention_cached(%q: tensor<1x?x64xf32>, %k: tensor<1x?x32xf32>, %v: tensor<1x?x32xf32>, %kc: tensor<1x128x32xf32>,
                            %vc: tensor<1x128x32xf32>, %p: tensor<1xi32>) -> (tensor<1x?x64xf32>, tensor<1x128x32xf32>, tensor<1x128x32xf32>) {
  %a, %c:2 = hir.attention %q, %k, %v heads 4 kv_heads 2 head_dim 16 mask causal caches %kc, %vc at %p
      : tensor<1x?x64xf32>, tensor<1x?x32xf32>, tensor<1x?x32xf32>, tensor<1x128x32xf32>, tensor<1x128x32xf32>, tensor<1xi32>
  return %a, %c#0, %c#1 : tensor<1x?x64xf32>, tensor<1x128x32xf32>, tensor<1x128x32xf32>
}

/// The composite block is the same primitives under every policy.
// CHECK-LABEL: func @llama_decoder_block
//  CHECK-SAME:   (%[[X:.+]]: tensor<1x?x64xf32>, %[[G1:.+]]: tensor<64xf32>, %[[Q:.+]]: tensor<64x64xf32>, %[[K:.+]]: tensor<64x32xf32>, %[[V:.+]]: tensor<64x32xf32>,
//  CHECK-SAME:    %[[O:.+]]: tensor<64x64xf32>, %[[G2:.+]]: tensor<64xf32>, %[[GATE:.+]]: tensor<64x96xf32>, %[[UP:.+]]: tensor<64x96xf32>, %[[DOWN:.+]]: tensor<96x64xf32>,
//  CHECK-SAME:    %[[C:.+]]: tensor<512x8xf32>, %[[S:.+]]: tensor<512x8xf32>)
//       CHECK:   %[[N1:.+]] = mir.rms_norm %[[X]], %[[G1]] eps 2.500000e-01
//       CHECK:   %[[PQ:.+]] = mir.matmul %[[N1]], %[[Q]]
//       CHECK:   %[[PK:.+]] = mir.matmul %[[N1]], %[[K]]
//       CHECK:   %[[PV:.+]] = mir.matmul %[[N1]], %[[V]]
//       CHECK:   %[[RQ:.+]] = mir.rope %[[PQ]], %[[C]], %[[S]] head_dim 16 style interleaved
//       CHECK:   %[[RK:.+]] = mir.rope %[[PK]], %[[C]], %[[S]] head_dim 16 style interleaved
//       CHECK:   %[[A:.+]] = mir.attention %[[RQ]], %[[RK]], %[[PV]] heads 4 kv_heads 2 head_dim 16 masked causal
//       CHECK:   %[[PO:.+]] = mir.matmul %[[A]], %[[O]]
//       CHECK:   %[[H:.+]] = mir.add %[[X]], %[[PO]]
//       CHECK:   %[[N2:.+]] = mir.rms_norm %[[H]], %[[G2]] eps 2.500000e-01
//       CHECK:   %[[PG:.+]] = mir.matmul %[[N2]], %[[GATE]]
//       CHECK:   %[[PU:.+]] = mir.matmul %[[N2]], %[[UP]]
//       CHECK:   %[[SG:.+]] = mir.silu %[[PG]]
//       CHECK:   %[[M:.+]] = mir.mul %[[SG]], %[[PU]]
//       CHECK:   %[[PD:.+]] = mir.matmul %[[M]], %[[DOWN]]
//       CHECK:   %[[Y:.+]] = mir.add %[[H]], %[[PD]]
//       CHECK:   return %[[Y]]
//   LOC-LABEL: func @llama_decoder_block(
//         LOC:   mir.attention {{.+}} loc("layer0"("model.py":6:1))
func.func @llama_decoder_block(%x: tensor<1x?x64xf32>, %g1: tensor<64xf32>, %q: tensor<64x64xf32>, %k: tensor<64x32xf32>, %v: tensor<64x32xf32>,
                               %o: tensor<64x64xf32>, %g2: tensor<64xf32>, %gate: tensor<64x96xf32>, %up: tensor<64x96xf32>, %down: tensor<96x64xf32>,
                               %cos: tensor<512x8xf32>, %sin: tensor<512x8xf32>) -> tensor<1x?x64xf32> {
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %v o %o norm2 %g2 gate %gate up %up down %down
      rope interleaved %cos, %sin heads 4 kv_heads 2 head_dim 16 mask causal eps 0.25
      : tensor<1x?x64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x64xf32>, tensor<64xf32>,
        tensor<64x96xf32>, tensor<64x96xf32>, tensor<96x64xf32>, tensor<512x8xf32>, tensor<512x8xf32> loc("layer0"("model.py":6:1))
  return %y : tensor<1x?x64xf32>
}

/// Caches, masks and betas of the composite block reach the primitives.
// CHECK-LABEL: func @llama_decoder_block_cached
//  CHECK-SAME:    %[[B1:[a-z0-9]+]]: tensor<64xf32>, %[[B2:[a-z0-9]+]]: tensor<64xf32>, %[[KC:[a-z0-9]+]]: tensor<1x128x32xf32>, %[[VC:[a-z0-9]+]]: tensor<1x128x32xf32>, %[[P:[a-z0-9]+]]: tensor<1xi32>)
//       CHECK:   mir.rms_norm %{{.+}}, %{{.+}} beta(%[[B1]] :
//       CHECK:   mir.dequant_matmul
//       CHECK:   mir.matmul {{.+}} transpose_rhs
//       CHECK:   mir.rope {{.+}} pos(%[[P]] : tensor<1xi32>) head_dim 16 :
//       CHECK:   %[[RK:.+]] = mir.rope {{.+}} pos(%[[P]] : tensor<1xi32>) head_dim 16 :
//       CHECK:   %[[KN:.+]] = mir.cache_update %[[KC]], %[[RK]] at %[[P]]
//       CHECK:   %[[VN:.+]] = mir.cache_update %[[VC]], %{{.+}} at %[[P]]
//       CHECK:   mir.attention %{{.+}}, %[[KN]], %[[VN]] pos(%[[P]] : tensor<1xi32>) heads 4 kv_heads 2 head_dim 16 masked sliding_window window 16
//       CHECK:   mir.rms_norm %{{.+}}, %{{.+}} beta(%[[B2]] :
//       CHECK:   return %{{.+}}, %[[KN]], %[[VN]]
func.func @llama_decoder_block_cached(%x: tensor<1x?x64xf32>, %g: tensor<64xf32>, %q: tensor<64x40xi8, #mir.packed<q4_1, k = 64>>, %k: tensor<32x64xf32>,
                                      %o: tensor<64x64xf32>, %gate: tensor<96x64xf32>, %down: tensor<64x96xf32>, %cos: tensor<512x8xf32>,
                                      %b1: tensor<64xf32>, %b2: tensor<64xf32>, %kc: tensor<1x128x32xf32>, %vc: tensor<1x128x32xf32>, %p: tensor<1xi32>)
                                      -> (tensor<1x?x64xf32>, tensor<1x128x32xf32>, tensor<1x128x32xf32>) {
  %y, %c:2 = hir.llama_decoder_block %x norm1 %g beta %b1 q %q k %k v %k o %o norm2 %g beta %b2 gate %gate up %gate down %down
      rope half %cos, %cos heads 4 kv_heads 2 head_dim 16 mask sliding_window window 16 caches %kc, %vc at %p transpose_weight
      : tensor<1x?x64xf32>, tensor<64xf32>, tensor<64x40xi8, #mir.packed<q4_1, k = 64>>, tensor<32x64xf32>, tensor<32x64xf32>, tensor<64x64xf32>, tensor<64xf32>,
        tensor<96x64xf32>, tensor<96x64xf32>, tensor<64x96xf32>, tensor<512x8xf32>, tensor<512x8xf32>, tensor<64xf32>, tensor<64xf32>,
        tensor<1x128x32xf32>, tensor<1x128x32xf32>, tensor<1xi32>
  return %y, %c#0, %c#1 : tensor<1x?x64xf32>, tensor<1x128x32xf32>, tensor<1x128x32xf32>
}

/// Operations of MIR among the blocks stay as they are.
// CHECK-LABEL: func @mir
//       CHECK:   %[[Y:.+]] = mir.cumsum %{{.+}} : tensor<4x8xf32>
//       CHECK:   return %[[Y]]
func.func @mir(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %y = mir.cumsum %x : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
