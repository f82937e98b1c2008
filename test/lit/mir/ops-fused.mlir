// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

// CHECK-LABEL: func @fused_swiglu
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x?x16xf32>, %[[Y:.+]]: tensor<?xf16>)
//       CHECK:   %[[A:.+]] = mir.fused_swiglu %[[X]] : tensor<2x?x16xf32>
//       CHECK:   %[[B:.+]] = mir.fused_swiglu %[[Y]] gate_first : tensor<?xf16>
//       CHECK:   return %[[A]], %[[B]] : tensor<2x?x8xf32>, tensor<?xf16>
func.func @fused_swiglu(%x: tensor<2x?x16xf32>, %y: tensor<?xf16>) -> (tensor<2x?x8xf32>, tensor<?xf16>) {
  %a = mir.fused_swiglu %x : tensor<2x?x16xf32>
  %b = mir.fused_swiglu %y gate_first : tensor<?xf16>
  return %a, %b : tensor<2x?x8xf32>, tensor<?xf16>
}

// CHECK-LABEL: func @fused_attention_block
//  CHECK-SAME:   (%[[H:.+]]: tensor<2x?x8xf16>, %[[QKV:.+]]: tensor<8x24xf16>, %[[O:.+]]: tensor<8x8xf16>, %[[M:.+]]: tensor<?x1x1x?xf16>, %[[B:.+]]: tensor<24xf16>, %[[T:.+]]: tensor<16x2xf32>)
//       CHECK:   %[[X:.+]] = mir.fused_attention_block %[[H]], %[[QKV]], %[[O]], %[[M]] heads 2 head_dim 4 : tensor<2x?x8xf16>, tensor<8x24xf16>, tensor<8x8xf16>, tensor<?x1x1x?xf16>
//       CHECK:   %[[Y:.+]] = mir.fused_attention_block %[[X]], %[[QKV]], %[[O]], %[[M]] qkv_b %[[B]] cos %[[T]] sin %[[T]] heads 2 head_dim 4 : tensor<2x?x8xf16>, tensor<8x24xf16>, tensor<8x8xf16>, tensor<?x1x1x?xf16>, tensor<24xf16>, tensor<16x2xf32>, tensor<16x2xf32>
//       CHECK:   return %[[Y]] : tensor<2x?x8xf16>
func.func @fused_attention_block(%h: tensor<2x?x8xf16>, %qkv: tensor<8x24xf16>, %o: tensor<8x8xf16>, %m: tensor<?x1x1x?xf16>,
                                 %b: tensor<24xf16>, %t: tensor<16x2xf32>) -> tensor<2x?x8xf16> {
  %x = mir.fused_attention_block %h, %qkv, %o, %m heads 2 head_dim 4
      : tensor<2x?x8xf16>, tensor<8x24xf16>, tensor<8x8xf16>, tensor<?x1x1x?xf16>
  %y = mir.fused_attention_block %x, %qkv, %o, %m qkv_b %b cos %t sin %t heads 2 head_dim 4
      : tensor<2x?x8xf16>, tensor<8x24xf16>, tensor<8x8xf16>, tensor<?x1x1x?xf16>, tensor<24xf16>, tensor<16x2xf32>, tensor<16x2xf32>
  return %y : tensor<2x?x8xf16>
}

// CHECK-LABEL: func @fused_transformer_layer
//  CHECK-SAME:   (%[[H:.+]]: tensor<?x5x8xf32>, %[[QKV:.+]]: tensor<8x24xf32>, %[[O:.+]]: tensor<8x8xf32>, %[[G:.+]]: tensor<8xf32>, %[[W1:.+]]: tensor<8x16xf32>, %[[W2:.+]]: tensor<16x8xf32>, %[[M:.+]]: tensor<?x5xi1>)
//       CHECK:   mir.fused_transformer_layer %[[H]], %[[QKV]], %[[O]], %[[G]], %[[W1]], %[[W2]], %[[G]], %[[M]] out_b %[[G]] ln2_b %[[G]] heads 2 head_dim 4 activation gelu : tensor<?x5x8xf32>
//       CHECK:   mir.fused_transformer_layer %{{.+}} heads 2 head_dim 4 activation relu eps1 2.500000e-01 eps2 5.000000e-01 : tensor<?x5x8xf32>
func.func @fused_transformer_layer(%h: tensor<?x5x8xf32>, %qkv: tensor<8x24xf32>, %o: tensor<8x8xf32>, %g: tensor<8xf32>,
                                   %w1: tensor<8x16xf32>, %w2: tensor<16x8xf32>, %m: tensor<?x5xi1>) -> tensor<?x5x8xf32> {
  %x = mir.fused_transformer_layer %h, %qkv, %o, %g, %w1, %w2, %g, %m out_b %g ln2_b %g heads 2 head_dim 4 activation gelu eps1 1.0e-5
      : tensor<?x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<?x5xi1>, tensor<8xf32>, tensor<8xf32>
  %y = mir.fused_transformer_layer %x, %qkv, %o, %g, %w1, %w2, %g, %m heads 2 head_dim 4 activation relu eps1 0.25 eps2 0.5
      : tensor<?x5x8xf32>, tensor<8x24xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8xf32>, tensor<?x5xi1>
  return %y : tensor<?x5x8xf32>
}
