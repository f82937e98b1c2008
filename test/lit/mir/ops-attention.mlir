// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

/// What is default isn't printed.
// CHECK-LABEL: func @attention_default
//  CHECK-SAME:   (%[[Q:.+]]: tensor<?x512xf32>, %[[K:.+]]: tensor<?x512xf32>, %[[V:.+]]: tensor<?x512xf32>)
//       CHECK:   mir.attention %[[Q]], %[[K]], %[[V]] heads 8 head_dim 64 : tensor<?x512xf32>, tensor<?x512xf32>
func.func @attention_default(%q: tensor<?x512xf32>, %k: tensor<?x512xf32>, %v: tensor<?x512xf32>) -> tensor<?x512xf32> {
  %r = mir.attention %q, %k, %v heads 8 head_dim 64 layout packed masked none : tensor<?x512xf32>, tensor<?x512xf32>
  return %r : tensor<?x512xf32>
}

// CHECK-LABEL: func @attention_causal
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x?x512xbf16>, %[[K:.+]]: tensor<2x?x128xbf16>, %[[V:.+]]: tensor<2x?x128xbf16>, %[[P:.+]]: tensor<2xi32>)
//       CHECK:   mir.attention %[[Q]], %[[K]], %[[V]] pos(%[[P]] : tensor<2xi32>) heads 8 kv_heads 2 head_dim 64 masked causal scale 2.500000e-01 softcap 5.000000e+01 : tensor<2x?x512xbf16>, tensor<2x?x128xbf16>
func.func @attention_causal(%q: tensor<2x?x512xbf16>, %k: tensor<2x?x128xbf16>, %v: tensor<2x?x128xbf16>, %p: tensor<2xi32>) -> tensor<2x?x512xbf16> {
  %r = mir.attention %q, %k, %v pos(%p : tensor<2xi32>) heads 8 kv_heads 2 head_dim 64 masked causal scale 0.25 softcap 50.0 : tensor<2x?x512xbf16>, tensor<2x?x128xbf16>
  return %r : tensor<2x?x512xbf16>
}

/// Sinks are of the type of the queries, or of f32.
// CHECK-LABEL: func @attention_sinks
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x?x512xbf16>, %[[K:.+]]: tensor<2x?x128xbf16>, %[[P:.+]]: tensor<2xi32>, %[[S:.+]]: tensor<8xf32>, %[[T:.+]]: tensor<?xbf16>)
//       CHECK:   mir.attention %[[Q]], %[[K]], %[[K]] pos(%[[P]] : tensor<2xi32>) sinks(%[[S]] : tensor<8xf32>) heads 8 kv_heads 2 head_dim 64 masked causal : tensor<2x?x512xbf16>, tensor<2x?x128xbf16>
//       CHECK:   mir.attention %{{.+}}, %[[K]], %[[K]] sinks(%[[T]] : tensor<?xbf16>) heads 8 kv_heads 2 head_dim 64 : tensor<2x?x512xbf16>, tensor<2x?x128xbf16>
func.func @attention_sinks(%q: tensor<2x?x512xbf16>, %k: tensor<2x?x128xbf16>, %p: tensor<2xi32>, %s: tensor<8xf32>, %t: tensor<?xbf16>) -> tensor<2x?x512xbf16> {
  %r = mir.attention %q, %k, %k pos(%p : tensor<2xi32>) sinks(%s : tensor<8xf32>) heads 8 kv_heads 2 head_dim 64 masked causal : tensor<2x?x512xbf16>, tensor<2x?x128xbf16>
  %u = mir.attention %r, %k, %k sinks(%t : tensor<?xbf16>) heads 8 kv_heads 2 head_dim 64 : tensor<2x?x512xbf16>, tensor<2x?x128xbf16>
  return %u : tensor<2x?x512xbf16>
}

/// Keys and values of a narrower type than the queries.
// CHECK-LABEL: func @attention_narrow_keys
//  CHECK-SAME:   (%[[Q:.+]]: tensor<1x1x512xf32>, %[[K:.+]]: tensor<1x?x128xf16>, %[[V:.+]]: tensor<1x?x128xf16>, %[[B:.+]]: tensor<1x?x128xbf16>)
//       CHECK:   mir.attention %[[Q]], %[[K]], %[[V]] heads 8 kv_heads 2 head_dim 64 : tensor<1x1x512xf32>, tensor<1x?x128xf16>
//       CHECK:   mir.attention %[[Q]], %[[B]], %[[B]] heads 8 kv_heads 2 head_dim 64 : tensor<1x1x512xf32>, tensor<1x?x128xbf16>
func.func @attention_narrow_keys(%q: tensor<1x1x512xf32>, %k: tensor<1x?x128xf16>, %v: tensor<1x?x128xf16>, %b: tensor<1x?x128xbf16>) {
  %0 = mir.attention %q, %k, %v heads 8 kv_heads 2 head_dim 64 : tensor<1x1x512xf32>, tensor<1x?x128xf16>
  %1 = mir.attention %q, %b, %b heads 8 kv_heads 2 head_dim 64 : tensor<1x1x512xf32>, tensor<1x?x128xbf16>
  return
}

// CHECK-LABEL: func @attention_window
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x8x?x64xf32>, %[[K:.+]]: tensor<2x4x32x64xf32>, %[[V:.+]]: tensor<2x4x32x64xf32>)
//       CHECK:   mir.attention %[[Q]], %[[K]], %[[V]] heads 8 kv_heads 4 head_dim 64 layout bhsd masked sliding_window window 16 : tensor<2x8x?x64xf32>, tensor<2x4x32x64xf32>
func.func @attention_window(%q: tensor<2x8x?x64xf32>, %k: tensor<2x4x32x64xf32>, %v: tensor<2x4x32x64xf32>) -> tensor<2x8x?x64xf32> {
  %r = mir.attention %q, %k, %v heads 8 kv_heads 4 head_dim 64 layout bhsd masked sliding_window window 16 : tensor<2x8x?x64xf32>, tensor<2x4x32x64xf32>
  return %r : tensor<2x8x?x64xf32>
}

// CHECK-LABEL: func @attention_custom
//  CHECK-SAME:   (%[[Q:.+]]: tensor<2x5x8x64xf32>, %[[K:.+]]: tensor<2x7x8x64xf32>, %[[V:.+]]: tensor<2x7x8x64xf32>, %[[M:.+]]: tensor<2x7xf32>, %[[N:.+]]: tensor<1x1x5x7xi1>)
//       CHECK:   mir.attention %[[Q]], %[[K]], %[[V]] mask(%[[M]] : tensor<2x7xf32>) heads 8 head_dim 64 layout bshd masked custom : tensor<2x5x8x64xf32>, tensor<2x7x8x64xf32>
//       CHECK:   mir.attention %[[Q]], %[[K]], %[[V]] mask(%[[N]] : tensor<1x1x5x7xi1>) heads 8 head_dim 64 layout bshd masked custom : tensor<2x5x8x64xf32>, tensor<2x7x8x64xf32>
func.func @attention_custom(%q: tensor<2x5x8x64xf32>, %k: tensor<2x7x8x64xf32>, %v: tensor<2x7x8x64xf32>, %m: tensor<2x7xf32>, %n: tensor<1x1x5x7xi1>) {
  %0 = mir.attention %q, %k, %v mask(%m : tensor<2x7xf32>) heads 8 head_dim 64 layout bshd masked custom : tensor<2x5x8x64xf32>, tensor<2x7x8x64xf32>
  %1 = mir.attention %q, %k, %v mask(%n : tensor<1x1x5x7xi1>) heads 8 head_dim 64 layout bshd masked custom : tensor<2x5x8x64xf32>, tensor<2x7x8x64xf32>
  return
}

// CHECK-LABEL: func @attention_bias
//  CHECK-SAME:   (%[[Q:.+]]: tensor<1x?x512xf32>, %[[K:.+]]: tensor<1x128x512xf32>, %[[V:.+]]: tensor<1x128x512xf32>, %[[M:.+]]: tensor<1x8x?x128xf32>, %[[P:.+]]: tensor<1xi32>)
//       CHECK:   mir.attention %[[Q]], %[[K]], %[[V]] mask(%[[M]] : tensor<1x8x?x128xf32>) pos(%[[P]] : tensor<1xi32>) heads 8 head_dim 64 masked bias : tensor<1x?x512xf32>, tensor<1x128x512xf32>
func.func @attention_bias(%q: tensor<1x?x512xf32>, %k: tensor<1x128x512xf32>, %v: tensor<1x128x512xf32>, %m: tensor<1x8x?x128xf32>, %p: tensor<1xi32>) -> tensor<1x?x512xf32> {
  %0 = mir.attention %q, %k, %v mask(%m : tensor<1x8x?x128xf32>) pos(%p : tensor<1xi32>) heads 8 head_dim 64 masked bias : tensor<1x?x512xf32>, tensor<1x128x512xf32>
  return %0 : tensor<1x?x512xf32>
}

// CHECK-LABEL: func @rope
//  CHECK-SAME:   (%[[X:.+]]: tensor<?x512xf32>, %[[C:.+]]: tensor<128x32xf32>, %[[S:.+]]: tensor<128x32xf32>)
//       CHECK:   mir.rope %[[X]], %[[C]], %[[S]] head_dim 64 : tensor<?x512xf32>, tensor<128x32xf32>
func.func @rope(%x: tensor<?x512xf32>, %c: tensor<128x32xf32>, %s: tensor<128x32xf32>) -> tensor<?x512xf32> {
  %r = mir.rope %x, %c, %s head_dim 64 style half : tensor<?x512xf32>, tensor<128x32xf32>
  return %r : tensor<?x512xf32>
}

// CHECK-LABEL: func @rope_interleaved
//  CHECK-SAME:   (%[[X:.+]]: tensor<2x8x5x64xf16>, %[[C:.+]]: tensor<5x32xf32>, %[[S:.+]]: tensor<5x32xf32>, %[[P:.+]]: tensor<?xi32>)
//       CHECK:   mir.rope %[[X]], %[[C]], %[[S]] pos(%[[P]] : tensor<?xi32>) head_dim 64 n_rot 32 style interleaved : tensor<2x8x5x64xf16>, tensor<5x32xf32>
func.func @rope_interleaved(%x: tensor<2x8x5x64xf16>, %c: tensor<5x32xf32>, %s: tensor<5x32xf32>, %p: tensor<?xi32>) -> tensor<2x8x5x64xf16> {
  %r = mir.rope %x, %c, %s pos(%p : tensor<?xi32>) head_dim 64 n_rot 32 style interleaved : tensor<2x8x5x64xf16>, tensor<5x32xf32>
  return %r : tensor<2x8x5x64xf16>
}

// CHECK-LABEL: func @cache_update
//  CHECK-SAME:   (%[[C:.+]]: tensor<1x128x256xf32>, %[[N:.+]]: tensor<1x?x256xf32>, %[[P:.+]]: tensor<1xi32>)
//       CHECK:   mir.cache_update %[[C]], %[[N]] at %[[P]] : tensor<1x128x256xf32>, tensor<1x?x256xf32>, tensor<1xi32>
func.func @cache_update(%c: tensor<1x128x256xf32>, %n: tensor<1x?x256xf32>, %p: tensor<1xi32>) -> tensor<1x128x256xf32> {
  %r = mir.cache_update %c, %n at %p : tensor<1x128x256xf32>, tensor<1x?x256xf32>, tensor<1xi32>
  return %r : tensor<1x128x256xf32>
}

/// New rows are rounded to the type of a narrower cache.
// CHECK-LABEL: func @cache_update_narrow
//  CHECK-SAME:   (%[[C:.+]]: tensor<1x128x256xbf16>, %[[N:.+]]: tensor<1x?x256xf32>, %[[P:.+]]: tensor<1xi32>)
//       CHECK:   mir.cache_update %[[C]], %[[N]] at %[[P]] : tensor<1x128x256xbf16>, tensor<1x?x256xf32>, tensor<1xi32>
func.func @cache_update_narrow(%c: tensor<1x128x256xbf16>, %n: tensor<1x?x256xf32>, %p: tensor<1xi32>) -> tensor<1x128x256xbf16> {
  %r = mir.cache_update %c, %n at %p : tensor<1x128x256xbf16>, tensor<1x?x256xf32>, tensor<1xi32>
  return %r : tensor<1x128x256xbf16>
}

/// Keys and values of different types, each as elements or as blocks.
// CHECK-LABEL: func @attention_kept
//  CHECK-SAME: (%[[Q:.+]]: tensor<1x?x512xf32>, %[[K:.+]]: tensor<1x128x272xi8>, %[[V:.+]]: tensor<1x128x256xf16>)
//       CHECK:   mir.attention %[[Q]], %[[K]], %[[V]] heads 8 kv_heads 4 head_dim 64 k_scheme q8_0 : tensor<1x?x512xf32>, tensor<1x128x272xi8>, tensor<1x128x256xf16>
//       CHECK:   mir.attention %[[Q]], %[[V]], %[[K]] heads 8 kv_heads 4 head_dim 64 v_scheme q8_0 : tensor<1x?x512xf32>, tensor<1x128x256xf16>, tensor<1x128x272xi8>
//       CHECK:   mir.attention %[[Q]], %[[K]], %[[K]] heads 8 kv_heads 4 head_dim 64 k_scheme q8_0 v_scheme q8_0 : tensor<1x?x512xf32>, tensor<1x128x272xi8>
func.func @attention_kept(%q: tensor<1x?x512xf32>, %k: tensor<1x128x272xi8>, %v: tensor<1x128x256xf16>) -> (tensor<1x?x512xf32>, tensor<1x?x512xf32>, tensor<1x?x512xf32>) {
  %a = mir.attention %q, %k, %v heads 8 kv_heads 4 head_dim 64 k_scheme q8_0 : tensor<1x?x512xf32>, tensor<1x128x272xi8>, tensor<1x128x256xf16>
  %b = mir.attention %q, %v, %k heads 8 kv_heads 4 head_dim 64 v_scheme q8_0 : tensor<1x?x512xf32>, tensor<1x128x256xf16>, tensor<1x128x272xi8>
  %c = mir.attention %q, %k, %k heads 8 kv_heads 4 head_dim 64 k_scheme q8_0 v_scheme q8_0 : tensor<1x?x512xf32>, tensor<1x128x272xi8>, tensor<1x128x272xi8>
  return %a, %b, %c : tensor<1x?x512xf32>, tensor<1x?x512xf32>, tensor<1x?x512xf32>
}

/// New rows become blocks.
// CHECK-LABEL: func @cache_update_kept
//       CHECK:   mir.cache_update %{{.+}}, %{{.+}} at %{{.+}} scheme q4_0 : tensor<1x128x144xi8>, tensor<1x?x256xf32>, tensor<1xi32>
func.func @cache_update_kept(%c: tensor<1x128x144xi8>, %n: tensor<1x?x256xf32>, %p: tensor<1xi32>) -> tensor<1x128x144xi8> {
  %r = mir.cache_update %c, %n at %p scheme q4_0 : tensor<1x128x144xi8>, tensor<1x?x256xf32>, tensor<1xi32>
  return %r : tensor<1x128x144xi8>
}
