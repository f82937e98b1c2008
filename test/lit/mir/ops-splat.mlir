// RUN: rlx-opt %s | rlx-opt | FileCheck %s
// RUN: rlx-opt %s --mlir-print-op-generic | rlx-opt | FileCheck %s

/// 15 numbers for each splat, lists of 576 entries, 16 tiles, 64 x 64 rays, and 11 parameters.
// CHECK-LABEL: func @prepare
//       CHECK:   %[[P:.+]] = mir.gaussian_splat_prepare %{{.+}} : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<24xf32>, tensor<23xf32>
//       CHECK:   %[[I:.+]] = mir.gaussian_splat_rasterize %[[P]], %{{.+}} : tensor<12937xf32>, tensor<23xf32>
//       CHECK:   return %[[I]] : tensor<16384xf32>
func.func @prepare(%p: tensor<6xf32>, %s: tensor<6xf32>, %q: tensor<8xf32>, %o: tensor<2xf32>, %c: tensor<6xf32>, %sh: tensor<24xf32>, %m: tensor<23xf32>) -> tensor<16384xf32> {
  %0 = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<2xf32>, tensor<6xf32>, tensor<24xf32>, tensor<23xf32>
  %1 = mir.gaussian_splat_rasterize %0, %m : tensor<12937xf32>, tensor<23xf32>
  return %1 : tensor<16384xf32>
}

/// No splat has the numbers of one.
// CHECK-LABEL: func @nothing
//       CHECK:   mir.gaussian_splat_prepare %{{.+}} width 5 height 3 tile_size 2 max_list_entries 7 :
//       CHECK:   return %{{.+}} : tensor<90xf32>
func.func @nothing(%p: tensor<0xf32>, %s: tensor<0xf32>, %q: tensor<0xf32>, %o: tensor<0xf32>, %c: tensor<0xf32>, %sh: tensor<0xf32>, %m: tensor<23xf32>) -> tensor<90xf32> {
  %0 = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m width 5 height 3 tile_size 2 max_list_entries 7 : tensor<0xf32>, tensor<0xf32>, tensor<0xf32>, tensor<0xf32>, tensor<0xf32>, tensor<0xf32>, tensor<23xf32>
  return %0 : tensor<90xf32>
}

// CHECK-LABEL: func @symbolic
//       CHECK:   %[[P:.+]] = mir.gaussian_splat_prepare
//       CHECK:   mir.gaussian_splat_rasterize %[[P]], %{{.+}} transmittance_threshold 0.000000e+00 : tensor<?xf32>, tensor<23xf32>
//       CHECK:   mir.gaussian_splat_render %{{.+}} height 16 radius_scale 1.000000e+00 :
//       CHECK:   mir.gaussian_splat_render_backward %{{.+}} loss_grad_clip 1.000000e+00 :
//       CHECK:   return %{{.+}}, %{{.+}}, %{{.+}} : tensor<4096xf32>, tensor<?xf32>, tensor<17xf32>
func.func @symbolic(%p: tensor<?xf32>, %s: tensor<?xf32>, %q: tensor<?xf32>, %o: tensor<?xf32>, %c: tensor<?xf32>, %sh: tensor<?xf32>, %m: tensor<23xf32>, %d: tensor<16384xf32>) -> (tensor<4096xf32>, tensor<?xf32>, tensor<17xf32>) {
  %0 = mir.gaussian_splat_prepare %p, %s, %q, %o, %c, %sh, %m : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<23xf32>
  %1 = mir.gaussian_splat_rasterize %0, %m transmittance_threshold 0.0 : tensor<?xf32>, tensor<23xf32>
  %2 = mir.gaussian_splat_render %p, %s, %q, %o, %c, %sh, %m height 16 radius_scale 1.0 : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<23xf32>
  %3 = mir.gaussian_splat_render_backward %p, %s, %q, %o, %c, %sh, %m, %d loss_grad_clip 1.0 : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<23xf32>, tensor<16384xf32>
  %one = mir.constant dense<1.0> : tensor<1xf32>
  %three = mir.constant dense<1.0> : tensor<3xf32>
  %four = mir.constant dense<1.0> : tensor<4xf32>
  %none = mir.constant dense<> : tensor<0xf32>
  %4 = mir.gaussian_splat_render_backward %three, %three, %four, %one, %three, %none, %m, %d : tensor<3xf32>, tensor<3xf32>, tensor<4xf32>, tensor<1xf32>, tensor<3xf32>, tensor<0xf32>, tensor<23xf32>, tensor<16384xf32>
  return %2, %3, %4 : tensor<4096xf32>, tensor<?xf32>, tensor<17xf32>
}
