// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @constant
//       CHECK:   %[[C:.+]] = hir.constant dense<[5.000000e-01, 1.000000e+00]> : tensor<2xf32>
//       CHECK:   return %[[C]] : tensor<2xf32>
func.func @constant() -> tensor<2xf32> {
  %c = hir.constant dense<[0.5, 1.0]> : tensor<2xf32>
  return %c : tensor<2xf32>
}

// CHECK-LABEL: func @linear
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xf32>, %[[W:.+]]: tensor<8x16xf32>)
//       CHECK:   %[[Y:.+]] = hir.linear %[[X]], %[[W]] : tensor<4x8xf32>, tensor<8x16xf32>
//       CHECK:   return %[[Y]] : tensor<4x16xf32>
func.func @linear(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %y = hir.linear %x, %w : tensor<4x8xf32>, tensor<8x16xf32>
  return %y : tensor<4x16xf32>
}

// CHECK-LABEL: func @linear_bias
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x8xbf16>, %[[W:.+]]: tensor<16x8xbf16>, %[[B:.+]]: tensor<16xbf16>)
//       CHECK:   %[[Y:.+]] = hir.linear %[[X]], %[[W]] bias %[[B]] activation silu transpose_weight : tensor<2x?x8xbf16>, tensor<16x8xbf16>, tensor<16xbf16>
//       CHECK:   return %[[Y]] : tensor<2x?x16xbf16>
func.func @linear_bias(%x: tensor<2x?x8xbf16>, %w: tensor<16x8xbf16>, %b: tensor<16xbf16>) -> tensor<2x?x16xbf16> {
  %y = hir.linear %x, %w bias %b activation silu transpose_weight
      : tensor<2x?x8xbf16>, tensor<16x8xbf16>, tensor<16xbf16>
  return %y : tensor<2x?x16xbf16>
}

// CHECK-LABEL: func @linear_packed
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x64xf32>, %[[W:.+]]: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>)
//       CHECK:   %[[Y:.+]] = hir.linear %[[X]], %[[W]] activation gelu_approx : tensor<?x64xf32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>
//       CHECK:   return %[[Y]] : tensor<?x16xf32>
func.func @linear_packed(%x: tensor<?x64xf32>, %w: tensor<16x40xi8, #mir.packed<q4_1, k = 64>>) -> tensor<?x16xf32> {
  %y = hir.linear %x, %w activation gelu_approx : tensor<?x64xf32>, tensor<16x40xi8, #mir.packed<q4_1, k = 64>>
  return %y : tensor<?x16xf32>
}

/// Sizes that aren't known are compared with nothing; the bias knows the outputs.
// CHECK-LABEL: func @linear_dynamic_weight
//       CHECK:   hir.linear %{{.+}}, %{{.+}} bias %{{.+}} : tensor<?x?xf32>, tensor<?x?xf32>, tensor<16xf32>
//       CHECK:   return %{{.+}} : tensor<?x16xf32>
func.func @linear_dynamic_weight(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>, %b: tensor<16xf32>) -> tensor<?x16xf32> {
  %y = hir.linear %x, %w bias %b : tensor<?x?xf32>, tensor<?x?xf32>, tensor<16xf32>
  return %y : tensor<?x16xf32>
}

// CHECK-LABEL: func @linear_fused
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xf32>, %[[W:.+]]: tensor<8x16xf32>, %[[T:.+]]: tensor<16x8xf32>, %[[B:.+]]: tensor<16xf32>)
//       CHECK:   %[[Y:.+]] = hir.linear_fused %[[X]], %[[W]], %[[B]] : tensor<4x8xf32>, tensor<8x16xf32>, tensor<16xf32>
//       CHECK:   %[[Z:.+]] = hir.linear_fused %[[X]], %[[T]], %[[B]] activation relu transpose_weight : tensor<4x8xf32>, tensor<16x8xf32>, tensor<16xf32>
//       CHECK:   return %[[Y]], %[[Z]] : tensor<4x16xf32>, tensor<4x16xf32>
func.func @linear_fused(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %t: tensor<16x8xf32>, %b: tensor<16xf32>) -> (tensor<4x16xf32>, tensor<4x16xf32>) {
  %y = hir.linear_fused %x, %w, %b : tensor<4x8xf32>, tensor<8x16xf32>, tensor<16xf32>
  %z = hir.linear_fused %x, %t, %b activation relu transpose_weight : tensor<4x8xf32>, tensor<16x8xf32>, tensor<16xf32>
  return %y, %z : tensor<4x16xf32>, tensor<4x16xf32>
}

// CHECK-LABEL: func @shared_linear_pair
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xf32>, %[[A:.+]]: tensor<8x16xf32>, %[[B:.+]]: tensor<8x32xf32>)
//       CHECK:   %[[F:.+]], %[[S:.+]] = hir.shared_linear_pair %[[X]], %[[A]], %[[B]] : tensor<4x8xf32>, tensor<8x16xf32>, tensor<8x32xf32>
//       CHECK:   return %[[F]], %[[S]] : tensor<4x16xf32>, tensor<4x32xf32>
func.func @shared_linear_pair(%x: tensor<4x8xf32>, %a: tensor<8x16xf32>, %b: tensor<8x32xf32>) -> (tensor<4x16xf32>, tensor<4x32xf32>) {
  %first, %second = hir.shared_linear_pair %x, %a, %b : tensor<4x8xf32>, tensor<8x16xf32>, tensor<8x32xf32>
  return %first, %second : tensor<4x16xf32>, tensor<4x32xf32>
}

/// One weight is dense and transposed, the other one packed in its own order.
// CHECK-LABEL: func @shared_linear_pair_mixed
//       CHECK:   hir.shared_linear_pair %{{.+}}, %{{.+}}, %{{.+}} transpose_weight : tensor<4x32xf32>, tensor<16x32xf32>, tensor<8x34xi8, #mir.packed<q8_0, k = 32>>
//       CHECK:   return %{{.+}}, %{{.+}} : tensor<4x16xf32>, tensor<4x8xf32>
func.func @shared_linear_pair_mixed(%x: tensor<4x32xf32>, %a: tensor<16x32xf32>, %b: tensor<8x34xi8, #mir.packed<q8_0, k = 32>>) -> (tensor<4x16xf32>, tensor<4x8xf32>) {
  %first, %second = hir.shared_linear_pair %x, %a, %b transpose_weight
      : tensor<4x32xf32>, tensor<16x32xf32>, tensor<8x34xi8, #mir.packed<q8_0, k = 32>>
  return %first, %second : tensor<4x16xf32>, tensor<4x8xf32>
}

// CHECK-LABEL: func @swiglu
//  CHECK-SAME:   (%[[X:.+]]: tensor<1x?x8xf16>, %[[G:.+]]: tensor<8x32xf16>, %[[U:.+]]: tensor<8x32xf16>, %[[D:.+]]: tensor<32x4xf16>)
//       CHECK:   %[[Y:.+]] = hir.swiglu %[[X]] gate %[[G]] up %[[U]] down %[[D]] : tensor<1x?x8xf16>, tensor<8x32xf16>, tensor<8x32xf16>, tensor<32x4xf16>
//       CHECK:   return %[[Y]] : tensor<1x?x4xf16>
func.func @swiglu(%x: tensor<1x?x8xf16>, %g: tensor<8x32xf16>, %u: tensor<8x32xf16>, %d: tensor<32x4xf16>) -> tensor<1x?x4xf16> {
  %y = hir.swiglu %x gate %g up %u down %d : tensor<1x?x8xf16>, tensor<8x32xf16>, tensor<8x32xf16>, tensor<32x4xf16>
  return %y : tensor<1x?x4xf16>
}

// CHECK-LABEL: func @swiglu_transposed
//       CHECK:   hir.swiglu %{{.+}} gate %{{.+}} up %{{.+}} down %{{.+}} transpose_weight : tensor<4x8xf32>, tensor<32x8xf32>, tensor<32x8xf32>, tensor<8x32xf32>
func.func @swiglu_transposed(%x: tensor<4x8xf32>, %g: tensor<32x8xf32>, %u: tensor<32x8xf32>, %d: tensor<8x32xf32>) -> tensor<4x8xf32> {
  %y = hir.swiglu %x gate %g up %u down %d transpose_weight : tensor<4x8xf32>, tensor<32x8xf32>, tensor<32x8xf32>, tensor<8x32xf32>
  return %y : tensor<4x8xf32>
}

// CHECK-LABEL: func @dequant_matmul
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x256xf32>, %[[W:.+]]: tensor<?x144xi8, #mir.packed<q4_k, k = 256>>)
//       CHECK:   %[[Y:.+]] = hir.dequant_matmul %[[X]], %[[W]] : tensor<2x?x256xf32>, tensor<?x144xi8, #mir.packed<q4_k, k = 256>>
//       CHECK:   return %[[Y]] : tensor<2x?x?xf32>
func.func @dequant_matmul(%x: tensor<2x?x256xf32>, %w: tensor<?x144xi8, #mir.packed<q4_k, k = 256>>) -> tensor<2x?x?xf32> {
  %y = hir.dequant_matmul %x, %w : tensor<2x?x256xf32>, tensor<?x144xi8, #mir.packed<q4_k, k = 256>>
  return %y : tensor<2x?x?xf32>
}

// CHECK-LABEL: func @rms_norm
//  CHECK-SAME:   (%[[X:.+]]: tensor<4x8xbf16>, %[[G:.+]]: tensor<8xbf16>, %[[B:.+]]: tensor<8xbf16>)
//       CHECK:   %[[Y:.+]] = hir.rms_norm %[[X]], %[[G]] : tensor<4x8xbf16>, tensor<8xbf16>
//       CHECK:   %[[Z:.+]] = hir.rms_norm %[[Y]], %[[G]] beta %[[B]] eps 2.500000e-01 : tensor<4x8xbf16>, tensor<8xbf16>, tensor<8xbf16>
//       CHECK:   return %[[Z]]
func.func @rms_norm(%x: tensor<4x8xbf16>, %g: tensor<8xbf16>, %b: tensor<8xbf16>) -> tensor<4x8xbf16> {
  %y = hir.rms_norm %x, %g : tensor<4x8xbf16>, tensor<8xbf16>
  %z = hir.rms_norm %y, %g beta %b eps 0.25 : tensor<4x8xbf16>, tensor<8xbf16>, tensor<8xbf16>
  return %z : tensor<4x8xbf16>
}

// CHECK-LABEL: func @residual_rms_norm
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x8xf32>, %[[R:.+]]: tensor<?x8xf32>, %[[G:.+]]: tensor<8xf32>, %[[B:.+]]: tensor<8xf32>)
//       CHECK:   %[[Y:.+]] = hir.residual_rms_norm %[[X]], %[[R]], %[[G]] eps 2.500000e-01 : tensor<?x8xf32>, tensor<?x8xf32>, tensor<8xf32>
//       CHECK:   %[[Z:.+]] = hir.residual_rms_norm %[[Y]], %[[R]], %[[G]] beta %[[B]] : tensor<?x8xf32>, tensor<?x8xf32>, tensor<8xf32>, tensor<8xf32>
//       CHECK:   return %[[Z]]
func.func @residual_rms_norm(%x: tensor<?x8xf32>, %r: tensor<?x8xf32>, %g: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %y = hir.residual_rms_norm %x, %r, %g eps 0.25 : tensor<?x8xf32>, tensor<?x8xf32>, tensor<8xf32>
  %z = hir.residual_rms_norm %y, %r, %g beta %b : tensor<?x8xf32>, tensor<?x8xf32>, tensor<8xf32>, tensor<8xf32>
  return %z : tensor<?x8xf32>
}

// CHECK-LABEL: func @attention
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x?x32xf32>, %[[K:.+]]: tensor<2x?x16xf32>, %[[V:.+]]: tensor<2x?x16xf32>)
//       CHECK:   %[[A:.+]] = hir.attention %[[Q]], %[[K]], %[[V]] heads 4 kv_heads 2 head_dim 8 : tensor<2x?x32xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>
//       CHECK:   %[[B:.+]] = hir.attention %[[A]], %[[K]], %[[V]] heads 4 kv_heads 2 head_dim 8 mask causal : tensor<2x?x32xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>
//       CHECK:   %[[C:.+]] = hir.attention %[[B]], %[[K]], %[[V]] heads 4 kv_heads 2 head_dim 8 mask sliding_window window 3 scale 5.000000e-01 softcap 3.000000e+01 : tensor<2x?x32xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>
//       CHECK:   return %[[C]]
func.func @attention(%q: tensor<2x?x32xf32>, %k: tensor<2x?x16xf32>, %v: tensor<2x?x16xf32>) -> tensor<2x?x32xf32> {
  %a = hir.attention %q, %k, %v heads 4 kv_heads 2 head_dim 8 : tensor<2x?x32xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>
  %b = hir.attention %a, %k, %v heads 4 kv_heads 2 head_dim 8 mask causal : tensor<2x?x32xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>
  %c = hir.attention %b, %k, %v heads 4 kv_heads 2 head_dim 8 mask sliding_window window 3 scale 0.5 softcap 30.0
      : tensor<2x?x32xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>
  return %c : tensor<2x?x32xf32>
}

// CHECK-LABEL: func @attention_as_many_kv_heads
//       CHECK:   hir.attention %{{.+}}, %{{.+}}, %{{.+}} heads 4 head_dim 8 : tensor<2x3x32xf64>, tensor<2x5x32xf64>, tensor<2x5x32xf64>
func.func @attention_as_many_kv_heads(%q: tensor<2x3x32xf64>, %k: tensor<2x5x32xf64>) -> tensor<2x3x32xf64> {
  %a = hir.attention %q, %k, %k heads 4 head_dim 8 : tensor<2x3x32xf64>, tensor<2x5x32xf64>, tensor<2x5x32xf64>
  return %a : tensor<2x3x32xf64>
}

// CHECK-LABEL: func @attention_masks
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x3x32xf32>, %[[K:.+]]: tensor<2x5x16xf32>, %[[R:.+]]: tensor<2x5xi1>, %[[F:.+]]: tensor<1x4x3x5xf32>)
//       CHECK:   %[[A:.+]] = hir.attention %[[Q]], %[[K]], %[[K]] heads 4 kv_heads 2 head_dim 8 mask custom %[[R]] : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<2x5xi1>
//       CHECK:   %[[B:.+]] = hir.attention %[[A]], %[[K]], %[[K]] heads 4 kv_heads 2 head_dim 8 mask custom %[[F]] : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<1x4x3x5xf32>
//       CHECK:   %[[C:.+]] = hir.attention %[[B]], %[[K]], %[[K]] heads 4 kv_heads 2 head_dim 8 mask bias %[[F]] : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<1x4x3x5xf32>
//       CHECK:   return %[[C]]
func.func @attention_masks(%q: tensor<2x3x32xf32>, %k: tensor<2x5x16xf32>, %r: tensor<2x5xi1>, %f: tensor<1x4x3x5xf32>) -> tensor<2x3x32xf32> {
  %a = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask custom %r
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<2x5xi1>
  %b = hir.attention %a, %k, %k heads 4 kv_heads 2 head_dim 8 mask custom %f
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<1x4x3x5xf32>
  %c = hir.attention %b, %k, %k heads 4 kv_heads 2 head_dim 8 mask bias %f
      : tensor<2x3x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>, tensor<1x4x3x5xf32>
  return %c : tensor<2x3x32xf32>
}

// CHECK-LABEL: func @attention_caches
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x?x32xf32>, %[[K:.+]]: tensor<2x?x16xf32>, %[[KC:.+]]: tensor<2x64x16xf32>, %[[VC:.+]]: tensor<2x64x16xf32>, %[[P:.+]]: tensor<2xi32>, %[[M:.+]]: tensor<2x64xf32>)
//       CHECK:   %[[A:.+]], %[[C:.+]]:2 = hir.attention %[[Q]], %[[K]], %[[K]] heads 4 kv_heads 2 head_dim 8 mask causal caches %[[KC]], %[[VC]] at %[[P]] : tensor<2x?x32xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>, tensor<2x64x16xf32>, tensor<2x64x16xf32>, tensor<2xi32>
//       CHECK:   %[[B:.+]], %[[D:.+]]:2 = hir.attention %[[A]], %[[K]], %[[K]] heads 4 kv_heads 2 head_dim 8 mask custom %[[M]] caches %[[C]]#0, %[[C]]#1 at %[[P]] : tensor<2x?x32xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>, tensor<2x64xf32>, tensor<2x64x16xf32>, tensor<2x64x16xf32>, tensor<2xi32>
//       CHECK:   return %[[B]], %[[D]]#0, %[[D]]#1 : tensor<2x?x32xf32>, tensor<2x64x16xf32>, tensor<2x64x16xf32>
func.func @attention_caches(%q: tensor<2x?x32xf32>, %k: tensor<2x?x16xf32>, %kc: tensor<2x64x16xf32>, %vc: tensor<2x64x16xf32>, %pos: tensor<2xi32>, %m: tensor<2x64xf32>) -> (tensor<2x?x32xf32>, tensor<2x64x16xf32>, tensor<2x64x16xf32>) {
  %a, %c:2 = hir.attention %q, %k, %k heads 4 kv_heads 2 head_dim 8 mask causal caches %kc, %vc at %pos
      : tensor<2x?x32xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>, tensor<2x64x16xf32>, tensor<2x64x16xf32>, tensor<2xi32>
  %b, %d:2 = hir.attention %a, %k, %k heads 4 kv_heads 2 head_dim 8 mask custom %m caches %c#0, %c#1 at %pos
      : tensor<2x?x32xf32>, tensor<2x?x16xf32>, tensor<2x?x16xf32>, tensor<2x64xf32>, tensor<2x64x16xf32>, tensor<2x64x16xf32>, tensor<2xi32>
  return %b, %d#0, %d#1 : tensor<2x?x32xf32>, tensor<2x64x16xf32>, tensor<2x64x16xf32>
}

// CHECK-LABEL: func @rope
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x32xbf16>, %[[C:.+]]: tensor<64x4xf32>, %[[S:.+]]: tensor<64x4xf32>, %[[P:.+]]: tensor<2xi32>)
//       CHECK:   %[[Y:.+]] = hir.rope half %[[X]], %[[C]], %[[S]] head_dim 8 : tensor<2x?x32xbf16>, tensor<64x4xf32>, tensor<64x4xf32>
//       CHECK:   %[[Z:.+]] = hir.rope interleaved %[[Y]], %[[C]], %[[S]] at %[[P]] head_dim 8 n_rot 4 : tensor<2x?x32xbf16>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<2xi32>
//       CHECK:   return %[[Z]]
func.func @rope(%x: tensor<2x?x32xbf16>, %cos: tensor<64x4xf32>, %sin: tensor<64x4xf32>, %pos: tensor<2xi32>) -> tensor<2x?x32xbf16> {
  %y = hir.rope half %x, %cos, %sin head_dim 8 : tensor<2x?x32xbf16>, tensor<64x4xf32>, tensor<64x4xf32>
  %z = hir.rope interleaved %y, %cos, %sin at %pos head_dim 8 n_rot 4
      : tensor<2x?x32xbf16>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<2xi32>
  return %z : tensor<2x?x32xbf16>
}

// CHECK-LABEL: func @llama_decoder_block
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x8xf32>, %[[G1:[^:]+]]: tensor<8xf32>, %[[G2:[^:]+]]: tensor<8xf32>, %[[Q:[^:]+]]: tensor<8x8xf32>, %[[K:[^:]+]]: tensor<8x4xf32>, %[[V:[^:]+]]: tensor<8x4xf32>, %[[O:[^:]+]]: tensor<8x8xf32>, %[[GATE:[^:]+]]: tensor<8x16xf32>, %[[UP:[^:]+]]: tensor<8x16xf32>, %[[DOWN:[^:]+]]: tensor<16x8xf32>, %[[COS:[^:]+]]: tensor<64x2xf32>, %[[SIN:[^:]+]]: tensor<64x2xf32>)
//       CHECK:   %[[Y:.+]] = hir.llama_decoder_block %[[X]] norm1 %[[G1]] q %[[Q]] k %[[K]] v %[[V]] o %[[O]] norm2 %[[G2]] gate %[[GATE]] up %[[UP]] down %[[DOWN]] rope half %[[COS]], %[[SIN]] heads 2 kv_heads 1 head_dim 4 mask causal :
//       CHECK:   return %[[Y]] : tensor<2x?x8xf32>
func.func @llama_decoder_block(%x: tensor<2x?x8xf32>, %g1: tensor<8xf32>, %g2: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>, %o: tensor<8x8xf32>, %gate: tensor<8x16xf32>, %up: tensor<8x16xf32>, %down: tensor<16x8xf32>, %cos: tensor<64x2xf32>, %sin: tensor<64x2xf32>) -> tensor<2x?x8xf32> {
  %y = hir.llama_decoder_block %x norm1 %g1 q %q k %k v %v o %o norm2 %g2 gate %gate up %up down %down
      rope half %cos, %sin heads 2 kv_heads 1 head_dim 4 mask causal
      : tensor<2x?x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return %y : tensor<2x?x8xf32>
}

/// Every optional clause: betas, a mask, caches with positions, eps, transposed weights.
// CHECK-LABEL: func @llama_decoder_block_clauses
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x3x8xf32>, %[[G:[^:]+]]: tensor<8xf32>, %[[B1:[^:]+]]: tensor<8xf32>, %[[B2:[^:]+]]: tensor<8xf32>, %[[Q:[^:]+]]: tensor<8x8xf32>, %[[K:[^:]+]]: tensor<4x8xf32>, %[[UP:[^:]+]]: tensor<16x8xf32>, %[[DOWN:[^:]+]]: tensor<8x16xf32>, %[[T:[^:]+]]: tensor<64x2xf32>, %[[M:[^:]+]]: tensor<1x1x3x64xf32>, %[[KC:[^:]+]]: tensor<2x64x4xf32>, %[[VC:[^:]+]]: tensor<2x64x4xf32>, %[[P:[^:]+]]: tensor<2xi32>)
//       CHECK:   %[[Y:.+]], %[[C:.+]]:2 = hir.llama_decoder_block %[[X]] norm1 %[[G]] beta %[[B1]] q %[[Q]] k %[[K]] v %[[K]] o %[[Q]] norm2 %[[G]] beta %[[B2]] gate %[[UP]] up %[[UP]] down %[[DOWN]] rope interleaved %[[T]], %[[T]] heads 2 kv_heads 1 head_dim 4 mask bias %[[M]] caches %[[KC]], %[[VC]] at %[[P]] eps 2.500000e-01 transpose_weight :
//       CHECK:   return %[[Y]], %[[C]]#0, %[[C]]#1 : tensor<2x3x8xf32>, tensor<2x64x4xf32>, tensor<2x64x4xf32>
func.func @llama_decoder_block_clauses(%x: tensor<2x3x8xf32>, %g: tensor<8xf32>, %b1: tensor<8xf32>, %b2: tensor<8xf32>, %q: tensor<8x8xf32>, %k: tensor<4x8xf32>, %up: tensor<16x8xf32>, %down: tensor<8x16xf32>, %t: tensor<64x2xf32>, %m: tensor<1x1x3x64xf32>, %kc: tensor<2x64x4xf32>, %vc: tensor<2x64x4xf32>, %pos: tensor<2xi32>) -> (tensor<2x3x8xf32>, tensor<2x64x4xf32>, tensor<2x64x4xf32>) {
  %y, %c:2 = hir.llama_decoder_block %x norm1 %g beta %b1 q %q k %k v %k o %q norm2 %g beta %b2 gate %up up %up down %down
      rope interleaved %t, %t heads 2 kv_heads 1 head_dim 4 mask bias %m caches %kc, %vc at %pos eps 0.25 transpose_weight
      : tensor<2x3x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x8xf32>, tensor<8xf32>,
        tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<8xf32>, tensor<8xf32>,
        tensor<1x1x3x64xf32>, tensor<2x64x4xf32>, tensor<2x64x4xf32>, tensor<2xi32>
  return %y, %c#0, %c#1 : tensor<2x3x8xf32>, tensor<2x64x4xf32>, tensor<2x64x4xf32>
}

/// Weights in the order of GGUF files, a window, and rope at `pos` without caches.
// CHECK-LABEL: func @llama_decoder_block_packed
//       CHECK:   hir.llama_decoder_block %{{.+}} norm1 %{{.+}} q %{{.+}} k %{{.+}} v %{{.+}} o %{{.+}} norm2 %{{.+}} gate %{{.+}} up %{{.+}} down %{{.+}} rope interleaved %{{.+}}, %{{.+}} heads 2 kv_heads 1 head_dim 16 mask sliding_window window 4 at %{{.+}} :
func.func @llama_decoder_block_packed(%x: tensor<1x?x32xf32>, %g: tensor<32xf32>, %q: tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, %k: tensor<16x18xi8, #mir.packed<q4_0, k = 32>>, %up: tensor<64x18xi8, #mir.packed<q4_0, k = 32>>, %down: tensor<32x36xi8, #mir.packed<q4_0, k = 64>>, %t: tensor<64x8xf32>, %pos: tensor<1xi32>) -> tensor<1x?x32xf32> {
  %y = hir.llama_decoder_block %x norm1 %g q %q k %k v %k o %q norm2 %g gate %up up %up down %down
      rope interleaved %t, %t heads 2 kv_heads 1 head_dim 16 mask sliding_window window 4 at %pos
      : tensor<1x?x32xf32>, tensor<32xf32>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, tensor<16x18xi8, #mir.packed<q4_0, k = 32>>,
        tensor<16x18xi8, #mir.packed<q4_0, k = 32>>, tensor<32x34xi8, #mir.packed<q8_0, k = 32>>, tensor<32xf32>,
        tensor<64x18xi8, #mir.packed<q4_0, k = 32>>, tensor<64x18xi8, #mir.packed<q4_0, k = 32>>, tensor<32x36xi8, #mir.packed<q4_0, k = 64>>,
        tensor<64x8xf32>, tensor<64x8xf32>, tensor<1xi32>
  return %y : tensor<1x?x32xf32>
}

/// Inputs and parameters are arguments that say by attributes what they are.
// CHECK-LABEL: func @arguments
//  CHECK-SAME:   (%{{.+}}: tensor<?x8xf32> {mir.dims = ["rows", ""], mir.kind = "input", mir.name = "x"},
//  CHECK-SAME:   %{{.+}}: tensor<8x16xf32> {mir.kind = "param", mir.name = "w"}) -> (tensor<?x16xf32> {mir.name = "y"})
func.func @arguments(%x: tensor<?x8xf32> {mir.name = "x", mir.kind = "input", mir.dims = ["rows", ""]},
                     %w: tensor<8x16xf32> {mir.name = "w", mir.kind = "param"}) -> (tensor<?x16xf32> {mir.name = "y"}) {
  %y = hir.linear %x, %w : tensor<?x8xf32>, tensor<8x16xf32>
  return %y : tensor<?x16xf32>
}
