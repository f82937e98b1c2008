// What jax.export writes, in the generic form.
"builtin.module"() <{sym_name = "jit__lambda"}> ({
  "func.func"() <{arg_attrs = [{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}], function_type = (tensor<48x32xf32>, tensor<64x32xf32>, tensor<32x64xf32>, tensor<32xf32>, tensor<32xf32>, tensor<32x64xf32>, tensor<32x16xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x16xf32>, tensor<32xf32>, tensor<?x?xi32>) -> tensor<?x?x48xf32>, res_attrs = [{jax.result_info = "result"}], sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg35: tensor<48x32xf32>, %arg36: tensor<64x32xf32>, %arg37: tensor<32x64xf32>, %arg38: tensor<32xf32>, %arg39: tensor<32xf32>, %arg40: tensor<32x64xf32>, %arg41: tensor<32x16xf32>, %arg42: tensor<32x32xf32>, %arg43: tensor<32x32xf32>, %arg44: tensor<32x16xf32>, %arg45: tensor<32xf32>, %arg46: tensor<?x?xi32>):
    %393 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %394 = "stablehlo.get_dimension_size"(%arg46) <{dimension = 0 : i64}> : (tensor<?x?xi32>) -> tensor<i32>
    %395 = "stablehlo.get_dimension_size"(%arg46) <{dimension = 1 : i64}> : (tensor<?x?xi32>) -> tensor<i32>
    %396 = "stablehlo.compare"(%394, %393) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.custom_call"(%396, %394) <{api_version = 2 : i32, call_target_name = "shape_assertion", has_side_effect = true}> {error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'b'. Using the following polymorphic shapes specifications: args[1].shape = (b, s). Obtained dimension variables: 'b' = {0} from specification 'b' for dimension args[1].shape[0] (= {0}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details."} : (tensor<i1>, tensor<i32>) -> ()
    %397 = "stablehlo.compare"(%395, %393) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.custom_call"(%397, %394, %395) <{api_version = 2 : i32, call_target_name = "shape_assertion", has_side_effect = true}> {error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 's'. Using the following polymorphic shapes specifications: args[1].shape = (b, s). Obtained dimension variables: 'b' = {0} from specification 'b' for dimension args[1].shape[0] (= {0}), 's' = {1} from specification 's' for dimension args[1].shape[1] (= {1}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details."} : (tensor<i1>, tensor<i32>, tensor<i32>) -> ()
    %398 = "func.call"(%394, %395, %arg35, %arg36, %arg37, %arg38, %arg39, %arg40, %arg41, %arg42, %arg43, %arg44, %arg45, %arg46) <{callee = @_wrapped_jax_export_main}> : (tensor<i32>, tensor<i32>, tensor<48x32xf32>, tensor<64x32xf32>, tensor<32x64xf32>, tensor<32xf32>, tensor<32xf32>, tensor<32x64xf32>, tensor<32x16xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x16xf32>, tensor<32xf32>, tensor<?x?xi32>) -> tensor<?x?x48xf32>
    "func.return"(%398) : (tensor<?x?x48xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{jax.global_constant = "b"}, {jax.global_constant = "s"}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}], function_type = (tensor<i32>, tensor<i32>, tensor<48x32xf32>, tensor<64x32xf32>, tensor<32x64xf32>, tensor<32xf32>, tensor<32xf32>, tensor<32x64xf32>, tensor<32x16xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x16xf32>, tensor<32xf32>, tensor<?x?xi32>) -> tensor<?x?x48xf32>, res_attrs = [{jax.result_info = "result"}], sym_name = "_wrapped_jax_export_main", sym_visibility = "private"}> ({
  ^bb0(%arg11: tensor<i32>, %arg12: tensor<i32>, %arg13: tensor<48x32xf32>, %arg14: tensor<64x32xf32>, %arg15: tensor<32x64xf32>, %arg16: tensor<32xf32>, %arg17: tensor<32xf32>, %arg18: tensor<32x64xf32>, %arg19: tensor<32x16xf32>, %arg20: tensor<32x32xf32>, %arg21: tensor<32x32xf32>, %arg22: tensor<32x16xf32>, %arg23: tensor<32xf32>, %arg24: tensor<?x?xi32>):
    %49 = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
    %50 = "stablehlo.constant"() <{value = dense<-1.000000e+30> : tensor<f32>}> : () -> tensor<f32>
    %51 = "stablehlo.constant"() <{value = dense<true> : tensor<i1>}> : () -> tensor<i1>
    %52 = "stablehlo.constant"() <{value = dense<0.353553385> : tensor<f32>}> : () -> tensor<f32>
    %53 = "stablehlo.constant"() <{value = dense<2> : tensor<1xi32>}> : () -> tensor<1xi32>
    %54 = "stablehlo.constant"() <{value = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %55 = "stablehlo.constant"() <{value = dense<8> : tensor<1xi32>}> : () -> tensor<1xi32>
    %56 = "stablehlo.constant"() <{value = dense<32> : tensor<1xi32>}> : () -> tensor<1xi32>
    %57 = "stablehlo.constant"() <{value = dense<9.99999974E-6> : tensor<f32>}> : () -> tensor<f32>
    %58 = "stablehlo.constant"() <{value = dense<3.200000e+01> : tensor<f32>}> : () -> tensor<f32>
    %59 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %60 = "stablehlo.constant"() <{value = dense<4> : tensor<1xi32>}> : () -> tensor<1xi32>
    %61 = "stablehlo.constant"() <{value = dense<1.000000e+04> : tensor<f32>}> : () -> tensor<f32>
    %62 = "stablehlo.constant"() <{value = dense<8.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %63 = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : () -> tensor<i32>
    %64 = "stablehlo.constant"() <{value = dense<1> : tensor<1xi32>}> : () -> tensor<1xi32>
    %65 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %66 = "stablehlo.constant"() <{value = dense<48> : tensor<i32>}> : () -> tensor<i32>
    %67 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %68 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %69 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %70 = "stablehlo.concatenate"(%68, %69) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %71 = "stablehlo.dynamic_broadcast_in_dim"(%67, %70) <{broadcast_dimensions = array<i64>}> : (tensor<i32>, tensor<2xi32>) -> tensor<?x?xi32>
    %72 = "stablehlo.compare"(%arg24, %71) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<?x?xi32>, tensor<?x?xi32>) -> tensor<?x?xi1>
    %73 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %74 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %75 = "stablehlo.concatenate"(%73, %74) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %76 = "stablehlo.dynamic_broadcast_in_dim"(%66, %75) <{broadcast_dimensions = array<i64>}> : (tensor<i32>, tensor<2xi32>) -> tensor<?x?xi32>
    %77 = "stablehlo.add"(%arg24, %76) : (tensor<?x?xi32>, tensor<?x?xi32>) -> tensor<?x?xi32>
    %78 = "stablehlo.select"(%72, %77, %arg24) : (tensor<?x?xi1>, tensor<?x?xi32>, tensor<?x?xi32>) -> tensor<?x?xi32>
    %79 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %80 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %81 = "stablehlo.concatenate"(%79, %80, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %82 = "stablehlo.dynamic_broadcast_in_dim"(%78, %81) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<?x?xi32>, tensor<3xi32>) -> tensor<?x?x1xi32>
    %83 = "stablehlo.gather"(%arg13, %82) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 32>}> : (tensor<48x32xf32>, tensor<?x?x1xi32>) -> tensor<?x?x32xf32>
    %84 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %85 = "stablehlo.dynamic_iota"(%84) <{iota_dimension = 0 : i64}> : (tensor<1xi32>) -> tensor<?xi32>
    %86 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %87 = "stablehlo.dynamic_broadcast_in_dim"(%65, %86) <{broadcast_dimensions = array<i64>}> : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
    %88 = "stablehlo.multiply"(%87, %85) : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32>
    %89 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %90 = "stablehlo.dynamic_broadcast_in_dim"(%67, %89) <{broadcast_dimensions = array<i64>}> : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
    %91 = "stablehlo.add"(%90, %88) : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi32>
    %92 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %93 = "stablehlo.concatenate"(%92, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %94 = "stablehlo.dynamic_broadcast_in_dim"(%91, %93) <{broadcast_dimensions = array<i64: 0>}> : (tensor<?xi32>, tensor<2xi32>) -> tensor<?x1xi32>
    %95 = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> tensor<4xi32>
    %96 = "stablehlo.broadcast_in_dim"(%63) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<4xi32>
    %97 = "stablehlo.multiply"(%96, %95) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    %98 = "stablehlo.broadcast_in_dim"(%67) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<4xi32>
    %99 = "stablehlo.add"(%98, %97) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    %100 = "stablehlo.convert"(%99) : (tensor<4xi32>) -> tensor<4xf32>
    %101 = "stablehlo.broadcast_in_dim"(%62) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<4xf32>
    %102 = "stablehlo.divide"(%100, %101) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %103 = "stablehlo.broadcast_in_dim"(%61) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<4xf32>
    %104 = "stablehlo.power"(%103, %102) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %105 = "stablehlo.convert"(%94) : (tensor<?x1xi32>) -> tensor<?x1xf32>
    %106 = "stablehlo.broadcast_in_dim"(%104) <{broadcast_dimensions = array<i64: 1>}> : (tensor<4xf32>) -> tensor<1x4xf32>
    %107 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %108 = "stablehlo.concatenate"(%107, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %109 = "stablehlo.dynamic_broadcast_in_dim"(%105, %108) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<?x1xf32>, tensor<2xi32>) -> tensor<?x4xf32>
    %110 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %111 = "stablehlo.concatenate"(%110, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %112 = "stablehlo.dynamic_broadcast_in_dim"(%106, %111) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<1x4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
    %113 = "stablehlo.divide"(%109, %112) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    %114 = "stablehlo.cosine"(%113) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %115 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %116 = "stablehlo.concatenate"(%115, %64, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %117 = "stablehlo.dynamic_broadcast_in_dim"(%114, %116) <{broadcast_dimensions = array<i64: 0, 2>}> : (tensor<?x4xf32>, tensor<3xi32>) -> tensor<?x1x4xf32>
    %118 = "stablehlo.sine"(%113) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %119 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %120 = "stablehlo.concatenate"(%119, %64, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %121 = "stablehlo.dynamic_broadcast_in_dim"(%118, %120) <{broadcast_dimensions = array<i64: 0, 2>}> : (tensor<?x4xf32>, tensor<3xi32>) -> tensor<?x1x4xf32>
    %122 = "stablehlo.multiply"(%83, %83) : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
    %123 = "stablehlo.reduce"(%122, %59) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg33: tensor<f32>, %arg34: tensor<f32>):
      %392 = "stablehlo.add"(%arg33, %arg34) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%392) : (tensor<f32>) -> ()
    }) : (tensor<?x?x32xf32>, tensor<f32>) -> tensor<?x?xf32>
    %124 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %125 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %126 = "stablehlo.concatenate"(%124, %125, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %127 = "stablehlo.dynamic_broadcast_in_dim"(%123, %126) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<?x?xf32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %128 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %129 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %130 = "stablehlo.concatenate"(%128, %129, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %131 = "stablehlo.dynamic_broadcast_in_dim"(%58, %130) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %132 = "stablehlo.divide"(%127, %131) : (tensor<?x?x1xf32>, tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
    %133 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %134 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %135 = "stablehlo.concatenate"(%133, %134, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %136 = "stablehlo.dynamic_broadcast_in_dim"(%57, %135) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %137 = "stablehlo.add"(%132, %136) : (tensor<?x?x1xf32>, tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
    %138 = "stablehlo.rsqrt"(%137) : (tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
    %139 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %140 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %141 = "stablehlo.concatenate"(%139, %140, %56) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %142 = "stablehlo.dynamic_broadcast_in_dim"(%138, %141) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<?x?x1xf32>, tensor<3xi32>) -> tensor<?x?x32xf32>
    %143 = "stablehlo.multiply"(%83, %142) : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
    %144 = "stablehlo.broadcast_in_dim"(%arg16) <{broadcast_dimensions = array<i64: 2>}> : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %145 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %146 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %147 = "stablehlo.concatenate"(%145, %146, %56) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %148 = "stablehlo.dynamic_broadcast_in_dim"(%144, %147) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<1x1x32xf32>, tensor<3xi32>) -> tensor<?x?x32xf32>
    %149 = "stablehlo.multiply"(%143, %148) : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
    %150 = "stablehlo.dot_general"(%149, %arg21) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<?x?x32xf32>, tensor<32x32xf32>) -> tensor<?x?x32xf32>
    %151 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %152 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %153 = "stablehlo.concatenate"(%151, %152, %60, %55) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %154 = "stablehlo.dynamic_reshape"(%150, %153) : (tensor<?x?x32xf32>, tensor<4xi32>) -> tensor<?x?x4x8xf32>
    %155 = "stablehlo.concatenate"(%54, %54, %54, %54) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %156 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %157 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %158 = "stablehlo.concatenate"(%156, %157, %60, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %159 = "stablehlo.concatenate"(%64, %64, %64, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %160 = "stablehlo.real_dynamic_slice"(%154, %155, %158, %159) : (tensor<?x?x4x8xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) -> tensor<?x?x4x4xf32>
    %161 = "stablehlo.concatenate"(%54, %54, %54, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %162 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %163 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %164 = "stablehlo.concatenate"(%162, %163, %60, %55) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %165 = "stablehlo.concatenate"(%64, %64, %64, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %166 = "stablehlo.real_dynamic_slice"(%154, %161, %164, %165) : (tensor<?x?x4x8xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) -> tensor<?x?x4x4xf32>
    %167 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %168 = "stablehlo.concatenate"(%64, %167, %64, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %169 = "stablehlo.dynamic_broadcast_in_dim"(%117, %168) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<?x1x4xf32>, tensor<4xi32>) -> tensor<1x?x1x4xf32>
    %170 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %171 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %172 = "stablehlo.concatenate"(%170, %171, %60, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %173 = "stablehlo.dynamic_broadcast_in_dim"(%169, %172) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x?x1x4xf32>, tensor<4xi32>) -> tensor<?x?x4x4xf32>
    %174 = "stablehlo.multiply"(%160, %173) : (tensor<?x?x4x4xf32>, tensor<?x?x4x4xf32>) -> tensor<?x?x4x4xf32>
    %175 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %176 = "stablehlo.concatenate"(%64, %175, %64, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %177 = "stablehlo.dynamic_broadcast_in_dim"(%121, %176) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<?x1x4xf32>, tensor<4xi32>) -> tensor<1x?x1x4xf32>
    %178 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %179 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %180 = "stablehlo.concatenate"(%178, %179, %60, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %181 = "stablehlo.dynamic_broadcast_in_dim"(%177, %180) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x?x1x4xf32>, tensor<4xi32>) -> tensor<?x?x4x4xf32>
    %182 = "stablehlo.multiply"(%166, %181) : (tensor<?x?x4x4xf32>, tensor<?x?x4x4xf32>) -> tensor<?x?x4x4xf32>
    %183 = "stablehlo.subtract"(%174, %182) : (tensor<?x?x4x4xf32>, tensor<?x?x4x4xf32>) -> tensor<?x?x4x4xf32>
    %184 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %185 = "stablehlo.concatenate"(%64, %184, %64, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %186 = "stablehlo.dynamic_broadcast_in_dim"(%117, %185) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<?x1x4xf32>, tensor<4xi32>) -> tensor<1x?x1x4xf32>
    %187 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %188 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %189 = "stablehlo.concatenate"(%187, %188, %60, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %190 = "stablehlo.dynamic_broadcast_in_dim"(%186, %189) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x?x1x4xf32>, tensor<4xi32>) -> tensor<?x?x4x4xf32>
    %191 = "stablehlo.multiply"(%166, %190) : (tensor<?x?x4x4xf32>, tensor<?x?x4x4xf32>) -> tensor<?x?x4x4xf32>
    %192 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %193 = "stablehlo.concatenate"(%64, %192, %64, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %194 = "stablehlo.dynamic_broadcast_in_dim"(%121, %193) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<?x1x4xf32>, tensor<4xi32>) -> tensor<1x?x1x4xf32>
    %195 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %196 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %197 = "stablehlo.concatenate"(%195, %196, %60, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %198 = "stablehlo.dynamic_broadcast_in_dim"(%194, %197) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x?x1x4xf32>, tensor<4xi32>) -> tensor<?x?x4x4xf32>
    %199 = "stablehlo.multiply"(%160, %198) : (tensor<?x?x4x4xf32>, tensor<?x?x4x4xf32>) -> tensor<?x?x4x4xf32>
    %200 = "stablehlo.add"(%191, %199) : (tensor<?x?x4x4xf32>, tensor<?x?x4x4xf32>) -> tensor<?x?x4x4xf32>
    %201 = "stablehlo.concatenate"(%183, %200) <{dimension = 3 : i64}> : (tensor<?x?x4x4xf32>, tensor<?x?x4x4xf32>) -> tensor<?x?x4x8xf32>
    %202 = "stablehlo.dot_general"(%149, %arg19) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<?x?x32xf32>, tensor<32x16xf32>) -> tensor<?x?x16xf32>
    %203 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %204 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %205 = "stablehlo.concatenate"(%203, %204, %53, %55) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %206 = "stablehlo.dynamic_reshape"(%202, %205) : (tensor<?x?x16xf32>, tensor<4xi32>) -> tensor<?x?x2x8xf32>
    %207 = "stablehlo.concatenate"(%54, %54, %54, %54) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %208 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %209 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %210 = "stablehlo.concatenate"(%208, %209, %53, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %211 = "stablehlo.concatenate"(%64, %64, %64, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %212 = "stablehlo.real_dynamic_slice"(%206, %207, %210, %211) : (tensor<?x?x2x8xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) -> tensor<?x?x2x4xf32>
    %213 = "stablehlo.concatenate"(%54, %54, %54, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %214 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %215 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %216 = "stablehlo.concatenate"(%214, %215, %53, %55) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %217 = "stablehlo.concatenate"(%64, %64, %64, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %218 = "stablehlo.real_dynamic_slice"(%206, %213, %216, %217) : (tensor<?x?x2x8xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) -> tensor<?x?x2x4xf32>
    %219 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %220 = "stablehlo.concatenate"(%64, %219, %64, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %221 = "stablehlo.dynamic_broadcast_in_dim"(%117, %220) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<?x1x4xf32>, tensor<4xi32>) -> tensor<1x?x1x4xf32>
    %222 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %223 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %224 = "stablehlo.concatenate"(%222, %223, %53, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %225 = "stablehlo.dynamic_broadcast_in_dim"(%221, %224) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x?x1x4xf32>, tensor<4xi32>) -> tensor<?x?x2x4xf32>
    %226 = "stablehlo.multiply"(%212, %225) : (tensor<?x?x2x4xf32>, tensor<?x?x2x4xf32>) -> tensor<?x?x2x4xf32>
    %227 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %228 = "stablehlo.concatenate"(%64, %227, %64, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %229 = "stablehlo.dynamic_broadcast_in_dim"(%121, %228) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<?x1x4xf32>, tensor<4xi32>) -> tensor<1x?x1x4xf32>
    %230 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %231 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %232 = "stablehlo.concatenate"(%230, %231, %53, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %233 = "stablehlo.dynamic_broadcast_in_dim"(%229, %232) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x?x1x4xf32>, tensor<4xi32>) -> tensor<?x?x2x4xf32>
    %234 = "stablehlo.multiply"(%218, %233) : (tensor<?x?x2x4xf32>, tensor<?x?x2x4xf32>) -> tensor<?x?x2x4xf32>
    %235 = "stablehlo.subtract"(%226, %234) : (tensor<?x?x2x4xf32>, tensor<?x?x2x4xf32>) -> tensor<?x?x2x4xf32>
    %236 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %237 = "stablehlo.concatenate"(%64, %236, %64, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %238 = "stablehlo.dynamic_broadcast_in_dim"(%117, %237) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<?x1x4xf32>, tensor<4xi32>) -> tensor<1x?x1x4xf32>
    %239 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %240 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %241 = "stablehlo.concatenate"(%239, %240, %53, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %242 = "stablehlo.dynamic_broadcast_in_dim"(%238, %241) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x?x1x4xf32>, tensor<4xi32>) -> tensor<?x?x2x4xf32>
    %243 = "stablehlo.multiply"(%218, %242) : (tensor<?x?x2x4xf32>, tensor<?x?x2x4xf32>) -> tensor<?x?x2x4xf32>
    %244 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %245 = "stablehlo.concatenate"(%64, %244, %64, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %246 = "stablehlo.dynamic_broadcast_in_dim"(%121, %245) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<?x1x4xf32>, tensor<4xi32>) -> tensor<1x?x1x4xf32>
    %247 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %248 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %249 = "stablehlo.concatenate"(%247, %248, %53, %60) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %250 = "stablehlo.dynamic_broadcast_in_dim"(%246, %249) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x?x1x4xf32>, tensor<4xi32>) -> tensor<?x?x2x4xf32>
    %251 = "stablehlo.multiply"(%212, %250) : (tensor<?x?x2x4xf32>, tensor<?x?x2x4xf32>) -> tensor<?x?x2x4xf32>
    %252 = "stablehlo.add"(%243, %251) : (tensor<?x?x2x4xf32>, tensor<?x?x2x4xf32>) -> tensor<?x?x2x4xf32>
    %253 = "stablehlo.concatenate"(%235, %252) <{dimension = 3 : i64}> : (tensor<?x?x2x4xf32>, tensor<?x?x2x4xf32>) -> tensor<?x?x2x8xf32>
    %254 = "stablehlo.dot_general"(%149, %arg22) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<?x?x32xf32>, tensor<32x16xf32>) -> tensor<?x?x16xf32>
    %255 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %256 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %257 = "stablehlo.concatenate"(%255, %256, %53, %55) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %258 = "stablehlo.dynamic_reshape"(%254, %257) : (tensor<?x?x16xf32>, tensor<4xi32>) -> tensor<?x?x2x8xf32>
    %259 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %260 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %261 = "stablehlo.concatenate"(%259, %260, %53, %53, %55) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<5xi32>
    %262 = "stablehlo.dynamic_broadcast_in_dim"(%253, %261) <{broadcast_dimensions = array<i64: 0, 1, 2, 4>}> : (tensor<?x?x2x8xf32>, tensor<5xi32>) -> tensor<?x?x2x2x8xf32>
    %263 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %264 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %265 = "stablehlo.concatenate"(%263, %264, %60, %55) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %266 = "stablehlo.dynamic_reshape"(%262, %265) : (tensor<?x?x2x2x8xf32>, tensor<4xi32>) -> tensor<?x?x4x8xf32>
    %267 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %268 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %269 = "stablehlo.concatenate"(%267, %268, %53, %53, %55) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<5xi32>
    %270 = "stablehlo.dynamic_broadcast_in_dim"(%258, %269) <{broadcast_dimensions = array<i64: 0, 1, 2, 4>}> : (tensor<?x?x2x8xf32>, tensor<5xi32>) -> tensor<?x?x2x2x8xf32>
    %271 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %272 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %273 = "stablehlo.concatenate"(%271, %272, %60, %55) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %274 = "stablehlo.dynamic_reshape"(%270, %273) : (tensor<?x?x2x2x8xf32>, tensor<4xi32>) -> tensor<?x?x4x8xf32>
    %275 = "stablehlo.dot_general"(%201, %266) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 2], rhs_batching_dimensions = [0, 2], lhs_contracting_dimensions = [3], rhs_contracting_dimensions = [3]>}> : (tensor<?x?x4x8xf32>, tensor<?x?x4x8xf32>) -> tensor<?x4x?x?xf32>
    %276 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %277 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %278 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %279 = "stablehlo.concatenate"(%276, %60, %277, %278) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %280 = "stablehlo.dynamic_broadcast_in_dim"(%52, %279) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
    %281 = "stablehlo.multiply"(%275, %280) : (tensor<?x4x?x?xf32>, tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
    %282 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %283 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %284 = "stablehlo.concatenate"(%282, %283) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %285 = "stablehlo.dynamic_broadcast_in_dim"(%51, %284) <{broadcast_dimensions = array<i64>}> : (tensor<i1>, tensor<2xi32>) -> tensor<?x?xi1>
    %286 = "func.call"(%arg11, %arg12, %285) <{callee = @tril}> : (tensor<i32>, tensor<i32>, tensor<?x?xi1>) -> tensor<?x?xi1>
    %287 = "func.call"(%arg11, %arg12, %286, %281, %50) <{callee = @_where}> : (tensor<i32>, tensor<i32>, tensor<?x?xi1>, tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?x?xf32>
    %288 = "stablehlo.reduce"(%287, %49) <{dimensions = array<i64: 3>}> ({
    ^bb0(%arg31: tensor<f32>, %arg32: tensor<f32>):
      %391 = "stablehlo.maximum"(%arg31, %arg32) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%391) : (tensor<f32>) -> ()
    }) : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
    %289 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %290 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %291 = "stablehlo.concatenate"(%289, %60, %290) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %292 = "stablehlo.dynamic_broadcast_in_dim"(%49, %291) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<3xi32>) -> tensor<?x4x?xf32>
    %293 = "stablehlo.maximum"(%292, %288) : (tensor<?x4x?xf32>, tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
    %294 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %295 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %296 = "stablehlo.concatenate"(%294, %60, %295, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %297 = "stablehlo.dynamic_broadcast_in_dim"(%293, %296) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<?x4x?xf32>, tensor<4xi32>) -> tensor<?x4x?x1xf32>
    %298 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %299 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %300 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %301 = "stablehlo.concatenate"(%298, %60, %299, %300) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %302 = "stablehlo.dynamic_broadcast_in_dim"(%297, %301) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<?x4x?x1xf32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
    %303 = "stablehlo.subtract"(%287, %302) : (tensor<?x4x?x?xf32>, tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
    %304 = "stablehlo.exponential"(%303) : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
    %305 = "stablehlo.reduce"(%304, %59) <{dimensions = array<i64: 3>}> ({
    ^bb0(%arg29: tensor<f32>, %arg30: tensor<f32>):
      %390 = "stablehlo.add"(%arg29, %arg30) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%390) : (tensor<f32>) -> ()
    }) : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?xf32>
    %306 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %307 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %308 = "stablehlo.concatenate"(%306, %60, %307, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %309 = "stablehlo.dynamic_broadcast_in_dim"(%305, %308) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<?x4x?xf32>, tensor<4xi32>) -> tensor<?x4x?x1xf32>
    %310 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %311 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %312 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %313 = "stablehlo.concatenate"(%310, %60, %311, %312) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %314 = "stablehlo.dynamic_broadcast_in_dim"(%309, %313) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<?x4x?x1xf32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
    %315 = "stablehlo.divide"(%304, %314) : (tensor<?x4x?x?xf32>, tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
    %316 = "stablehlo.dot_general"(%274, %315) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 2], rhs_batching_dimensions = [0, 1], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [3]>}> : (tensor<?x?x4x8xf32>, tensor<?x4x?x?xf32>) -> tensor<?x4x8x?xf32>
    %317 = "stablehlo.transpose"(%316) <{permutation = array<i64: 0, 3, 1, 2>}> : (tensor<?x4x8x?xf32>) -> tensor<?x?x4x8xf32>
    %318 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %319 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %320 = "stablehlo.concatenate"(%318, %319, %56) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %321 = "stablehlo.dynamic_reshape"(%317, %320) : (tensor<?x?x4x8xf32>, tensor<3xi32>) -> tensor<?x?x32xf32>
    %322 = "stablehlo.dot_general"(%321, %arg20) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<?x?x32xf32>, tensor<32x32xf32>) -> tensor<?x?x32xf32>
    %323 = "stablehlo.add"(%83, %322) : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
    %324 = "stablehlo.multiply"(%323, %323) : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
    %325 = "stablehlo.reduce"(%324, %59) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg27: tensor<f32>, %arg28: tensor<f32>):
      %389 = "stablehlo.add"(%arg27, %arg28) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%389) : (tensor<f32>) -> ()
    }) : (tensor<?x?x32xf32>, tensor<f32>) -> tensor<?x?xf32>
    %326 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %327 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %328 = "stablehlo.concatenate"(%326, %327, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %329 = "stablehlo.dynamic_broadcast_in_dim"(%325, %328) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<?x?xf32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %330 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %331 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %332 = "stablehlo.concatenate"(%330, %331, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %333 = "stablehlo.dynamic_broadcast_in_dim"(%58, %332) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %334 = "stablehlo.divide"(%329, %333) : (tensor<?x?x1xf32>, tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
    %335 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %336 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %337 = "stablehlo.concatenate"(%335, %336, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %338 = "stablehlo.dynamic_broadcast_in_dim"(%57, %337) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %339 = "stablehlo.add"(%334, %338) : (tensor<?x?x1xf32>, tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
    %340 = "stablehlo.rsqrt"(%339) : (tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
    %341 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %342 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %343 = "stablehlo.concatenate"(%341, %342, %56) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %344 = "stablehlo.dynamic_broadcast_in_dim"(%340, %343) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<?x?x1xf32>, tensor<3xi32>) -> tensor<?x?x32xf32>
    %345 = "stablehlo.multiply"(%323, %344) : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
    %346 = "stablehlo.broadcast_in_dim"(%arg17) <{broadcast_dimensions = array<i64: 2>}> : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %347 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %348 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %349 = "stablehlo.concatenate"(%347, %348, %56) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %350 = "stablehlo.dynamic_broadcast_in_dim"(%346, %349) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<1x1x32xf32>, tensor<3xi32>) -> tensor<?x?x32xf32>
    %351 = "stablehlo.multiply"(%345, %350) : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
    %352 = "stablehlo.dot_general"(%351, %arg15) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<?x?x32xf32>, tensor<32x64xf32>) -> tensor<?x?x64xf32>
    %353 = "func.call"(%arg11, %arg12, %352) <{callee = @silu}> : (tensor<i32>, tensor<i32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
    %354 = "stablehlo.dot_general"(%351, %arg18) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<?x?x32xf32>, tensor<32x64xf32>) -> tensor<?x?x64xf32>
    %355 = "stablehlo.multiply"(%353, %354) : (tensor<?x?x64xf32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
    %356 = "stablehlo.dot_general"(%355, %arg14) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<?x?x64xf32>, tensor<64x32xf32>) -> tensor<?x?x32xf32>
    %357 = "stablehlo.add"(%323, %356) : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
    %358 = "stablehlo.multiply"(%357, %357) : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
    %359 = "stablehlo.reduce"(%358, %59) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg25: tensor<f32>, %arg26: tensor<f32>):
      %388 = "stablehlo.add"(%arg25, %arg26) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%388) : (tensor<f32>) -> ()
    }) : (tensor<?x?x32xf32>, tensor<f32>) -> tensor<?x?xf32>
    %360 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %361 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %362 = "stablehlo.concatenate"(%360, %361, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %363 = "stablehlo.dynamic_broadcast_in_dim"(%359, %362) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<?x?xf32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %364 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %365 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %366 = "stablehlo.concatenate"(%364, %365, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %367 = "stablehlo.dynamic_broadcast_in_dim"(%58, %366) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %368 = "stablehlo.divide"(%363, %367) : (tensor<?x?x1xf32>, tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
    %369 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %370 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %371 = "stablehlo.concatenate"(%369, %370, %64) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %372 = "stablehlo.dynamic_broadcast_in_dim"(%57, %371) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x1xf32>
    %373 = "stablehlo.add"(%368, %372) : (tensor<?x?x1xf32>, tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
    %374 = "stablehlo.rsqrt"(%373) : (tensor<?x?x1xf32>) -> tensor<?x?x1xf32>
    %375 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %376 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %377 = "stablehlo.concatenate"(%375, %376, %56) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %378 = "stablehlo.dynamic_broadcast_in_dim"(%374, %377) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<?x?x1xf32>, tensor<3xi32>) -> tensor<?x?x32xf32>
    %379 = "stablehlo.multiply"(%357, %378) : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
    %380 = "stablehlo.broadcast_in_dim"(%arg23) <{broadcast_dimensions = array<i64: 2>}> : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %381 = "stablehlo.reshape"(%arg11) : (tensor<i32>) -> tensor<1xi32>
    %382 = "stablehlo.reshape"(%arg12) : (tensor<i32>) -> tensor<1xi32>
    %383 = "stablehlo.concatenate"(%381, %382, %56) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %384 = "stablehlo.dynamic_broadcast_in_dim"(%380, %383) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<1x1x32xf32>, tensor<3xi32>) -> tensor<?x?x32xf32>
    %385 = "stablehlo.multiply"(%379, %384) : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
    %386 = "stablehlo.transpose"(%arg13) <{permutation = array<i64: 1, 0>}> : (tensor<48x32xf32>) -> tensor<32x48xf32>
    %387 = "stablehlo.dot_general"(%385, %386) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<?x?x32xf32>, tensor<32x48xf32>) -> tensor<?x?x48xf32>
    "func.return"(%387) : (tensor<?x?x48xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{jax.global_constant = "b"}, {jax.global_constant = "s"}, {}], function_type = (tensor<i32>, tensor<i32>, tensor<?x?xi1>) -> tensor<?x?xi1>, res_attrs = [{}], sym_name = "tril", sym_visibility = "private"}> ({
  ^bb0(%arg8: tensor<i32>, %arg9: tensor<i32>, %arg10: tensor<?x?xi1>):
    %28 = "stablehlo.constant"() <{value = dense<false> : tensor<i1>}> : () -> tensor<i1>
    %29 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %30 = "stablehlo.reshape"(%arg9) : (tensor<i32>) -> tensor<1xi32>
    %31 = "stablehlo.reshape"(%arg9) : (tensor<i32>) -> tensor<1xi32>
    %32 = "stablehlo.concatenate"(%30, %31) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %33 = "stablehlo.dynamic_iota"(%32) <{iota_dimension = 0 : i64}> : (tensor<2xi32>) -> tensor<?x?xi32>
    %34 = "stablehlo.reshape"(%arg9) : (tensor<i32>) -> tensor<1xi32>
    %35 = "stablehlo.reshape"(%arg9) : (tensor<i32>) -> tensor<1xi32>
    %36 = "stablehlo.concatenate"(%34, %35) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %37 = "stablehlo.dynamic_broadcast_in_dim"(%29, %36) <{broadcast_dimensions = array<i64>}> : (tensor<i32>, tensor<2xi32>) -> tensor<?x?xi32>
    %38 = "stablehlo.add"(%33, %37) : (tensor<?x?xi32>, tensor<?x?xi32>) -> tensor<?x?xi32>
    %39 = "stablehlo.reshape"(%arg9) : (tensor<i32>) -> tensor<1xi32>
    %40 = "stablehlo.reshape"(%arg9) : (tensor<i32>) -> tensor<1xi32>
    %41 = "stablehlo.concatenate"(%39, %40) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %42 = "stablehlo.dynamic_iota"(%41) <{iota_dimension = 1 : i64}> : (tensor<2xi32>) -> tensor<?x?xi32>
    %43 = "stablehlo.compare"(%38, %42) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<?x?xi32>, tensor<?x?xi32>) -> tensor<?x?xi1>
    %44 = "stablehlo.reshape"(%arg9) : (tensor<i32>) -> tensor<1xi32>
    %45 = "stablehlo.reshape"(%arg9) : (tensor<i32>) -> tensor<1xi32>
    %46 = "stablehlo.concatenate"(%44, %45) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %47 = "stablehlo.dynamic_broadcast_in_dim"(%28, %46) <{broadcast_dimensions = array<i64>}> : (tensor<i1>, tensor<2xi32>) -> tensor<?x?xi1>
    %48 = "stablehlo.select"(%43, %arg10, %47) : (tensor<?x?xi1>, tensor<?x?xi1>, tensor<?x?xi1>) -> tensor<?x?xi1>
    "func.return"(%48) : (tensor<?x?xi1>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{jax.global_constant = "b"}, {jax.global_constant = "s"}, {}, {}, {}], function_type = (tensor<i32>, tensor<i32>, tensor<?x?xi1>, tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?x?xf32>, res_attrs = [{}], sym_name = "_where", sym_visibility = "private"}> ({
  ^bb0(%arg3: tensor<i32>, %arg4: tensor<i32>, %arg5: tensor<?x?xi1>, %arg6: tensor<?x4x?x?xf32>, %arg7: tensor<f32>):
    %15 = "stablehlo.constant"() <{value = dense<4> : tensor<1xi32>}> : () -> tensor<1xi32>
    %16 = "stablehlo.convert"(%arg7) : (tensor<f32>) -> tensor<f32>
    %17 = "stablehlo.reshape"(%arg3) : (tensor<i32>) -> tensor<1xi32>
    %18 = "stablehlo.reshape"(%arg4) : (tensor<i32>) -> tensor<1xi32>
    %19 = "stablehlo.reshape"(%arg4) : (tensor<i32>) -> tensor<1xi32>
    %20 = "stablehlo.concatenate"(%17, %15, %18, %19) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %21 = "stablehlo.dynamic_broadcast_in_dim"(%arg5, %20) <{broadcast_dimensions = array<i64: 2, 3>}> : (tensor<?x?xi1>, tensor<4xi32>) -> tensor<?x4x?x?xi1>
    %22 = "stablehlo.reshape"(%arg3) : (tensor<i32>) -> tensor<1xi32>
    %23 = "stablehlo.reshape"(%arg4) : (tensor<i32>) -> tensor<1xi32>
    %24 = "stablehlo.reshape"(%arg4) : (tensor<i32>) -> tensor<1xi32>
    %25 = "stablehlo.concatenate"(%22, %15, %23, %24) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xi32>
    %26 = "stablehlo.dynamic_broadcast_in_dim"(%16, %25) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<4xi32>) -> tensor<?x4x?x?xf32>
    %27 = "stablehlo.select"(%21, %arg6, %26) : (tensor<?x4x?x?xi1>, tensor<?x4x?x?xf32>, tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
    "func.return"(%27) : (tensor<?x4x?x?xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{jax.global_constant = "b"}, {jax.global_constant = "s"}, {}], function_type = (tensor<i32>, tensor<i32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>, res_attrs = [{}], sym_name = "silu", sym_visibility = "private"}> ({
  ^bb0(%arg0: tensor<i32>, %arg1: tensor<i32>, %arg2: tensor<?x?x64xf32>):
    %0 = "stablehlo.constant"() <{value = dense<64> : tensor<1xi32>}> : () -> tensor<1xi32>
    %1 = "stablehlo.constant"() <{value = dense<1.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %2 = "stablehlo.negate"(%arg2) : (tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
    %3 = "stablehlo.exponential"(%2) : (tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
    %4 = "stablehlo.reshape"(%arg0) : (tensor<i32>) -> tensor<1xi32>
    %5 = "stablehlo.reshape"(%arg1) : (tensor<i32>) -> tensor<1xi32>
    %6 = "stablehlo.concatenate"(%4, %5, %0) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %7 = "stablehlo.dynamic_broadcast_in_dim"(%1, %6) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x64xf32>
    %8 = "stablehlo.add"(%7, %3) : (tensor<?x?x64xf32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
    %9 = "stablehlo.reshape"(%arg0) : (tensor<i32>) -> tensor<1xi32>
    %10 = "stablehlo.reshape"(%arg1) : (tensor<i32>) -> tensor<1xi32>
    %11 = "stablehlo.concatenate"(%9, %10, %0) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
    %12 = "stablehlo.dynamic_broadcast_in_dim"(%1, %11) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<3xi32>) -> tensor<?x?x64xf32>
    %13 = "stablehlo.divide"(%12, %8) : (tensor<?x?x64xf32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
    %14 = "stablehlo.multiply"(%arg2, %13) : (tensor<?x?x64xf32>, tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
    "func.return"(%14) : (tensor<?x?x64xf32>) -> ()
  }) : () -> ()
}) {jax.uses_shape_polymorphism = true, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
