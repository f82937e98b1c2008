// What jax.export writes, in the generic form.
"builtin.module"() <{sym_name = "jit_loss"}> ({
  "func.func"() <{arg_attrs = [{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}], function_type = (tensor<48x32xf32>, tensor<64x32xf32>, tensor<32x64xf32>, tensor<32xf32>, tensor<32xf32>, tensor<32x64xf32>, tensor<32x16xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x16xf32>, tensor<32xf32>, tensor<2x7xi32>) -> (tensor<f32>, tensor<48x32xf32>, tensor<64x32xf32>, tensor<32x64xf32>, tensor<32xf32>, tensor<32xf32>, tensor<32x64xf32>, tensor<32x16xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x16xf32>, tensor<32xf32>), res_attrs = [{jax.result_info = "result[0]"}, {jax.result_info = "result[1]['embed']"}, {jax.result_info = "result[1]['layers'][0]['down']"}, {jax.result_info = "result[1]['layers'][0]['gate']"}, {jax.result_info = "result[1]['layers'][0]['n1']"}, {jax.result_info = "result[1]['layers'][0]['n2']"}, {jax.result_info = "result[1]['layers'][0]['up']"}, {jax.result_info = "result[1]['layers'][0]['wk']"}, {jax.result_info = "result[1]['layers'][0]['wo']"}, {jax.result_info = "result[1]['layers'][0]['wq']"}, {jax.result_info = "result[1]['layers'][0]['wv']"}, {jax.result_info = "result[1]['norm']"}], sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg31: tensor<48x32xf32>, %arg32: tensor<64x32xf32>, %arg33: tensor<32x64xf32>, %arg34: tensor<32xf32>, %arg35: tensor<32xf32>, %arg36: tensor<32x64xf32>, %arg37: tensor<32x16xf32>, %arg38: tensor<32x32xf32>, %arg39: tensor<32x32xf32>, %arg40: tensor<32x16xf32>, %arg41: tensor<32xf32>, %arg42: tensor<2x7xi32>):
    %84 = "stablehlo.constant"() <{value = dense<1.200000e+01> : tensor<f32>}> : () -> tensor<f32>
    %85 = "stablehlo.constant"() <{value = dense<1.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %86 = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
    %87 = "stablehlo.constant"() <{value = dense<-1.000000e+30> : tensor<f32>}> : () -> tensor<f32>
    %88 = "stablehlo.constant"() <{value = dense<true> : tensor<i1>}> : () -> tensor<i1>
    %89 = "stablehlo.constant"() <{value = dense<0.353553385> : tensor<f32>}> : () -> tensor<f32>
    %90 = "stablehlo.constant"() <{value = dense<-5.000000e-01> : tensor<f32>}> : () -> tensor<f32>
    %91 = "stablehlo.constant"() <{value = dense<9.99999974E-6> : tensor<f32>}> : () -> tensor<f32>
    %92 = "stablehlo.constant"() <{value = dense<3.200000e+01> : tensor<f32>}> : () -> tensor<f32>
    %93 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %94 = "stablehlo.constant"() <{value = dense<1.000000e+04> : tensor<f32>}> : () -> tensor<f32>
    %95 = "stablehlo.constant"() <{value = dense<8.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %96 = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : () -> tensor<i32>
    %97 = "stablehlo.constant"() <{value = dense<48> : tensor<i32>}> : () -> tensor<i32>
    %98 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %99 = "stablehlo.slice"(%arg42) <{limit_indices = array<i64: 2, 6>, start_indices = array<i64: 0, 0>, strides = array<i64: 1, 1>}> : (tensor<2x7xi32>) -> tensor<2x6xi32>
    %100 = "stablehlo.broadcast_in_dim"(%98) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<2x6xi32>
    %101 = "stablehlo.compare"(%99, %100) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<2x6xi32>, tensor<2x6xi32>) -> tensor<2x6xi1>
    %102 = "stablehlo.broadcast_in_dim"(%97) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<2x6xi32>
    %103 = "stablehlo.add"(%99, %102) : (tensor<2x6xi32>, tensor<2x6xi32>) -> tensor<2x6xi32>
    %104 = "stablehlo.select"(%101, %103, %99) : (tensor<2x6xi1>, tensor<2x6xi32>, tensor<2x6xi32>) -> tensor<2x6xi32>
    %105 = "stablehlo.broadcast_in_dim"(%104) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x6xi32>) -> tensor<2x6x1xi32>
    %106 = "stablehlo.gather"(%arg31, %105) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 32>}> : (tensor<48x32xf32>, tensor<2x6x1xi32>) -> tensor<2x6x32xf32>
    %107 = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> tensor<6xi32>
    %108 = "stablehlo.broadcast_in_dim"(%107) <{broadcast_dimensions = array<i64: 0>}> : (tensor<6xi32>) -> tensor<6x1xi32>
    %109 = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> tensor<4xi32>
    %110 = "stablehlo.broadcast_in_dim"(%96) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<4xi32>
    %111 = "stablehlo.multiply"(%110, %109) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    %112 = "stablehlo.broadcast_in_dim"(%98) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<4xi32>
    %113 = "stablehlo.add"(%112, %111) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    %114 = "stablehlo.convert"(%113) : (tensor<4xi32>) -> tensor<4xf32>
    %115 = "stablehlo.broadcast_in_dim"(%95) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<4xf32>
    %116 = "stablehlo.divide"(%114, %115) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %117 = "stablehlo.broadcast_in_dim"(%94) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<4xf32>
    %118 = "stablehlo.power"(%117, %116) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %119 = "stablehlo.convert"(%108) : (tensor<6x1xi32>) -> tensor<6x1xf32>
    %120 = "stablehlo.broadcast_in_dim"(%118) <{broadcast_dimensions = array<i64: 1>}> : (tensor<4xf32>) -> tensor<1x4xf32>
    %121 = "stablehlo.broadcast_in_dim"(%119) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<6x1xf32>) -> tensor<6x4xf32>
    %122 = "stablehlo.broadcast_in_dim"(%120) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<1x4xf32>) -> tensor<6x4xf32>
    %123 = "stablehlo.divide"(%121, %122) : (tensor<6x4xf32>, tensor<6x4xf32>) -> tensor<6x4xf32>
    %124 = "stablehlo.cosine"(%123) : (tensor<6x4xf32>) -> tensor<6x4xf32>
    %125 = "stablehlo.broadcast_in_dim"(%124) <{broadcast_dimensions = array<i64: 0, 2>}> : (tensor<6x4xf32>) -> tensor<6x1x4xf32>
    %126 = "stablehlo.sine"(%123) : (tensor<6x4xf32>) -> tensor<6x4xf32>
    %127 = "stablehlo.broadcast_in_dim"(%126) <{broadcast_dimensions = array<i64: 0, 2>}> : (tensor<6x4xf32>) -> tensor<6x1x4xf32>
    %128 = "stablehlo.multiply"(%106, %106) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %129 = "stablehlo.reduce"(%128, %93) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg87: tensor<f32>, %arg88: tensor<f32>):
      %442 = "stablehlo.add"(%arg87, %arg88) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%442) : (tensor<f32>) -> ()
    }) : (tensor<2x6x32xf32>, tensor<f32>) -> tensor<2x6xf32>
    %130 = "stablehlo.broadcast_in_dim"(%129) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %131 = "stablehlo.broadcast_in_dim"(%92) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %132 = "stablehlo.divide"(%130, %131) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %133 = "stablehlo.broadcast_in_dim"(%91) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %134 = "stablehlo.add"(%132, %133) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %135 = "stablehlo.rsqrt"(%134) : (tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %136 = "stablehlo.divide"(%135, %134) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %137 = "stablehlo.broadcast_in_dim"(%90) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %138 = "stablehlo.multiply"(%137, %136) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %139 = "stablehlo.broadcast_in_dim"(%135) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<2x6x1xf32>) -> tensor<2x6x32xf32>
    %140 = "stablehlo.multiply"(%106, %139) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %141 = "stablehlo.broadcast_in_dim"(%arg34) <{broadcast_dimensions = array<i64: 2>}> : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %142 = "stablehlo.broadcast_in_dim"(%141) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<1x1x32xf32>) -> tensor<2x6x32xf32>
    %143 = "stablehlo.multiply"(%140, %142) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %144 = "stablehlo.dot_general"(%143, %arg39) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<2x6x32xf32>, tensor<32x32xf32>) -> tensor<2x6x32xf32>
    %145 = "stablehlo.reshape"(%144) : (tensor<2x6x32xf32>) -> tensor<2x6x4x8xf32>
    %146 = "stablehlo.slice"(%145) <{limit_indices = array<i64: 2, 6, 4, 4>, start_indices = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x6x4x8xf32>) -> tensor<2x6x4x4xf32>
    %147 = "stablehlo.slice"(%145) <{limit_indices = array<i64: 2, 6, 4, 8>, start_indices = array<i64: 0, 0, 0, 4>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x6x4x8xf32>) -> tensor<2x6x4x4xf32>
    %148 = "stablehlo.broadcast_in_dim"(%125) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<6x1x4xf32>) -> tensor<1x6x1x4xf32>
    %149 = "stablehlo.broadcast_in_dim"(%148) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x4x4xf32>
    %150 = "stablehlo.multiply"(%146, %149) : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %151 = "stablehlo.broadcast_in_dim"(%127) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<6x1x4xf32>) -> tensor<1x6x1x4xf32>
    %152 = "stablehlo.broadcast_in_dim"(%151) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x4x4xf32>
    %153 = "stablehlo.multiply"(%147, %152) : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %154 = "stablehlo.subtract"(%150, %153) : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %155 = "stablehlo.broadcast_in_dim"(%125) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<6x1x4xf32>) -> tensor<1x6x1x4xf32>
    %156 = "stablehlo.broadcast_in_dim"(%155) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x4x4xf32>
    %157 = "stablehlo.multiply"(%147, %156) : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %158 = "stablehlo.broadcast_in_dim"(%127) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<6x1x4xf32>) -> tensor<1x6x1x4xf32>
    %159 = "stablehlo.broadcast_in_dim"(%158) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x4x4xf32>
    %160 = "stablehlo.multiply"(%146, %159) : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %161 = "stablehlo.add"(%157, %160) : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %162 = "stablehlo.concatenate"(%154, %161) <{dimension = 3 : i64}> : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x8xf32>
    %163 = "stablehlo.dot_general"(%143, %arg37) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<2x6x32xf32>, tensor<32x16xf32>) -> tensor<2x6x16xf32>
    %164 = "stablehlo.reshape"(%163) : (tensor<2x6x16xf32>) -> tensor<2x6x2x8xf32>
    %165 = "stablehlo.slice"(%164) <{limit_indices = array<i64: 2, 6, 2, 4>, start_indices = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x6x2x8xf32>) -> tensor<2x6x2x4xf32>
    %166 = "stablehlo.slice"(%164) <{limit_indices = array<i64: 2, 6, 2, 8>, start_indices = array<i64: 0, 0, 0, 4>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x6x2x8xf32>) -> tensor<2x6x2x4xf32>
    %167 = "stablehlo.broadcast_in_dim"(%125) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<6x1x4xf32>) -> tensor<1x6x1x4xf32>
    %168 = "stablehlo.broadcast_in_dim"(%167) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x2x4xf32>
    %169 = "stablehlo.multiply"(%165, %168) : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %170 = "stablehlo.broadcast_in_dim"(%127) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<6x1x4xf32>) -> tensor<1x6x1x4xf32>
    %171 = "stablehlo.broadcast_in_dim"(%170) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x2x4xf32>
    %172 = "stablehlo.multiply"(%166, %171) : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %173 = "stablehlo.subtract"(%169, %172) : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %174 = "stablehlo.broadcast_in_dim"(%125) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<6x1x4xf32>) -> tensor<1x6x1x4xf32>
    %175 = "stablehlo.broadcast_in_dim"(%174) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x2x4xf32>
    %176 = "stablehlo.multiply"(%166, %175) : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %177 = "stablehlo.broadcast_in_dim"(%127) <{broadcast_dimensions = array<i64: 1, 2, 3>}> : (tensor<6x1x4xf32>) -> tensor<1x6x1x4xf32>
    %178 = "stablehlo.broadcast_in_dim"(%177) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x2x4xf32>
    %179 = "stablehlo.multiply"(%165, %178) : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %180 = "stablehlo.add"(%176, %179) : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %181 = "stablehlo.concatenate"(%173, %180) <{dimension = 3 : i64}> : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x8xf32>
    %182 = "stablehlo.dot_general"(%143, %arg40) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<2x6x32xf32>, tensor<32x16xf32>) -> tensor<2x6x16xf32>
    %183 = "stablehlo.reshape"(%182) : (tensor<2x6x16xf32>) -> tensor<2x6x2x8xf32>
    %184 = "stablehlo.broadcast_in_dim"(%181) <{broadcast_dimensions = array<i64: 0, 1, 2, 4>}> : (tensor<2x6x2x8xf32>) -> tensor<2x6x2x2x8xf32>
    %185 = "stablehlo.reshape"(%184) : (tensor<2x6x2x2x8xf32>) -> tensor<2x6x4x8xf32>
    %186 = "stablehlo.broadcast_in_dim"(%183) <{broadcast_dimensions = array<i64: 0, 1, 2, 4>}> : (tensor<2x6x2x8xf32>) -> tensor<2x6x2x2x8xf32>
    %187 = "stablehlo.reshape"(%186) : (tensor<2x6x2x2x8xf32>) -> tensor<2x6x4x8xf32>
    %188 = "stablehlo.dot_general"(%162, %185) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 2], rhs_batching_dimensions = [0, 2], lhs_contracting_dimensions = [3], rhs_contracting_dimensions = [3]>}> : (tensor<2x6x4x8xf32>, tensor<2x6x4x8xf32>) -> tensor<2x4x6x6xf32>
    %189 = "stablehlo.broadcast_in_dim"(%89) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x4x6x6xf32>
    %190 = "stablehlo.multiply"(%188, %189) : (tensor<2x4x6x6xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    %191 = "stablehlo.broadcast_in_dim"(%88) <{broadcast_dimensions = array<i64>}> : (tensor<i1>) -> tensor<6x6xi1>
    %192 = "func.call"(%191) <{callee = @tril}> : (tensor<6x6xi1>) -> tensor<6x6xi1>
    %193:2 = "func.call"(%192, %190, %87) <{callee = @_where}> : (tensor<6x6xi1>, tensor<2x4x6x6xf32>, tensor<f32>) -> (tensor<2x4x6x6xf32>, tensor<2x4x6x6xi1>)
    %194 = "stablehlo.reduce"(%193#0, %86) <{dimensions = array<i64: 3>}> ({
    ^bb0(%arg85: tensor<f32>, %arg86: tensor<f32>):
      %441 = "stablehlo.maximum"(%arg85, %arg86) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%441) : (tensor<f32>) -> ()
    }) : (tensor<2x4x6x6xf32>, tensor<f32>) -> tensor<2x4x6xf32>
    %195 = "stablehlo.broadcast_in_dim"(%86) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x4x6xf32>
    %196 = "stablehlo.maximum"(%195, %194) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
    %197 = "stablehlo.broadcast_in_dim"(%196) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<2x4x6xf32>) -> tensor<2x4x6x1xf32>
    %198 = "stablehlo.broadcast_in_dim"(%197) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x4x6x1xf32>) -> tensor<2x4x6x6xf32>
    %199 = "stablehlo.subtract"(%193#0, %198) : (tensor<2x4x6x6xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    %200 = "stablehlo.exponential"(%199) : (tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    %201 = "stablehlo.reduce"(%200, %93) <{dimensions = array<i64: 3>}> ({
    ^bb0(%arg83: tensor<f32>, %arg84: tensor<f32>):
      %440 = "stablehlo.add"(%arg83, %arg84) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%440) : (tensor<f32>) -> ()
    }) : (tensor<2x4x6x6xf32>, tensor<f32>) -> tensor<2x4x6xf32>
    %202 = "stablehlo.broadcast_in_dim"(%201) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<2x4x6xf32>) -> tensor<2x4x6x1xf32>
    %203 = "stablehlo.broadcast_in_dim"(%202) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x4x6x1xf32>) -> tensor<2x4x6x6xf32>
    %204 = "stablehlo.divide"(%200, %203) : (tensor<2x4x6x6xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    %205 = "stablehlo.multiply"(%202, %202) : (tensor<2x4x6x1xf32>, tensor<2x4x6x1xf32>) -> tensor<2x4x6x1xf32>
    %206 = "stablehlo.broadcast_in_dim"(%85) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x4x6x1xf32>
    %207 = "stablehlo.divide"(%206, %205) : (tensor<2x4x6x1xf32>, tensor<2x4x6x1xf32>) -> tensor<2x4x6x1xf32>
    %208 = "stablehlo.dot_general"(%187, %204) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 2], rhs_batching_dimensions = [0, 1], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [3]>}> : (tensor<2x6x4x8xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x8x6xf32>
    %209 = "stablehlo.transpose"(%208) <{permutation = array<i64: 0, 3, 1, 2>}> : (tensor<2x4x8x6xf32>) -> tensor<2x6x4x8xf32>
    %210 = "stablehlo.reshape"(%209) : (tensor<2x6x4x8xf32>) -> tensor<2x6x32xf32>
    %211 = "stablehlo.dot_general"(%210, %arg38) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<2x6x32xf32>, tensor<32x32xf32>) -> tensor<2x6x32xf32>
    %212 = "stablehlo.add"(%106, %211) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %213 = "stablehlo.multiply"(%212, %212) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %214 = "stablehlo.reduce"(%213, %93) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg81: tensor<f32>, %arg82: tensor<f32>):
      %439 = "stablehlo.add"(%arg81, %arg82) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%439) : (tensor<f32>) -> ()
    }) : (tensor<2x6x32xf32>, tensor<f32>) -> tensor<2x6xf32>
    %215 = "stablehlo.broadcast_in_dim"(%214) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %216 = "stablehlo.broadcast_in_dim"(%92) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %217 = "stablehlo.divide"(%215, %216) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %218 = "stablehlo.broadcast_in_dim"(%91) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %219 = "stablehlo.add"(%217, %218) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %220 = "stablehlo.rsqrt"(%219) : (tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %221 = "stablehlo.divide"(%220, %219) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %222 = "stablehlo.broadcast_in_dim"(%90) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %223 = "stablehlo.multiply"(%222, %221) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %224 = "stablehlo.broadcast_in_dim"(%220) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<2x6x1xf32>) -> tensor<2x6x32xf32>
    %225 = "stablehlo.multiply"(%212, %224) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %226 = "stablehlo.broadcast_in_dim"(%arg35) <{broadcast_dimensions = array<i64: 2>}> : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %227 = "stablehlo.broadcast_in_dim"(%226) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<1x1x32xf32>) -> tensor<2x6x32xf32>
    %228 = "stablehlo.multiply"(%225, %227) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %229 = "stablehlo.dot_general"(%228, %arg33) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<2x6x32xf32>, tensor<32x64xf32>) -> tensor<2x6x64xf32>
    %230:3 = "func.call"(%229) <{callee = @silu}> : (tensor<2x6x64xf32>) -> (tensor<2x6x64xf32>, tensor<2x6x64xf32>, tensor<2x6x64xf32>)
    %231 = "stablehlo.dot_general"(%228, %arg36) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<2x6x32xf32>, tensor<32x64xf32>) -> tensor<2x6x64xf32>
    %232 = "stablehlo.multiply"(%230#0, %231) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %233 = "stablehlo.dot_general"(%232, %arg32) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<2x6x64xf32>, tensor<64x32xf32>) -> tensor<2x6x32xf32>
    %234 = "stablehlo.add"(%212, %233) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %235 = "stablehlo.multiply"(%234, %234) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %236 = "stablehlo.reduce"(%235, %93) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg79: tensor<f32>, %arg80: tensor<f32>):
      %438 = "stablehlo.add"(%arg79, %arg80) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%438) : (tensor<f32>) -> ()
    }) : (tensor<2x6x32xf32>, tensor<f32>) -> tensor<2x6xf32>
    %237 = "stablehlo.broadcast_in_dim"(%236) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %238 = "stablehlo.broadcast_in_dim"(%92) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %239 = "stablehlo.divide"(%237, %238) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %240 = "stablehlo.broadcast_in_dim"(%91) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %241 = "stablehlo.add"(%239, %240) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %242 = "stablehlo.rsqrt"(%241) : (tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %243 = "stablehlo.divide"(%242, %241) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %244 = "stablehlo.broadcast_in_dim"(%90) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %245 = "stablehlo.multiply"(%244, %243) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %246 = "stablehlo.broadcast_in_dim"(%242) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<2x6x1xf32>) -> tensor<2x6x32xf32>
    %247 = "stablehlo.multiply"(%234, %246) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %248 = "stablehlo.broadcast_in_dim"(%arg41) <{broadcast_dimensions = array<i64: 2>}> : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %249 = "stablehlo.broadcast_in_dim"(%248) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<1x1x32xf32>) -> tensor<2x6x32xf32>
    %250 = "stablehlo.multiply"(%247, %249) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %251 = "stablehlo.transpose"(%arg31) <{permutation = array<i64: 1, 0>}> : (tensor<48x32xf32>) -> tensor<32x48xf32>
    %252 = "stablehlo.dot_general"(%250, %251) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}> : (tensor<2x6x32xf32>, tensor<32x48xf32>) -> tensor<2x6x48xf32>
    %253:3 = "func.call"(%252) <{callee = @log_softmax}> : (tensor<2x6x48xf32>) -> (tensor<2x6x48xf32>, tensor<2x6x48xf32>, tensor<2x6x1xf32>)
    %254 = "stablehlo.slice"(%arg42) <{limit_indices = array<i64: 2, 7>, start_indices = array<i64: 0, 1>, strides = array<i64: 1, 1>}> : (tensor<2x7xi32>) -> tensor<2x6xi32>
    %255 = "stablehlo.broadcast_in_dim"(%254) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x6xi32>) -> tensor<2x6x1xi32>
    %256:2 = "func.call"(%253#0, %255) <{callee = @take_along_axis}> : (tensor<2x6x48xf32>, tensor<2x6x1xi32>) -> (tensor<2x6x1xf32>, tensor<2x6x1x1xi32>)
    %257 = "stablehlo.reduce"(%256#0, %93) <{dimensions = array<i64: 0, 1, 2>}> ({
    ^bb0(%arg77: tensor<f32>, %arg78: tensor<f32>):
      %437 = "stablehlo.add"(%arg77, %arg78) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%437) : (tensor<f32>) -> ()
    }) : (tensor<2x6x1xf32>, tensor<f32>) -> tensor<f32>
    %258 = "stablehlo.divide"(%257, %84) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %259 = "stablehlo.negate"(%258) : (tensor<f32>) -> tensor<f32>
    %260 = "stablehlo.negate"(%85) : (tensor<f32>) -> tensor<f32>
    %261 = "stablehlo.divide"(%260, %84) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %262 = "stablehlo.broadcast_in_dim"(%261) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %263 = "func.call"(%256#1, %262) <{callee = @take_along_axis_0}> : (tensor<2x6x1x1xi32>, tensor<2x6x1xf32>) -> tensor<2x6x48xf32>
    %264 = "func.call"(%253#1, %253#2, %263) <{callee = @log_softmax_1}> : (tensor<2x6x48xf32>, tensor<2x6x1xf32>, tensor<2x6x48xf32>) -> tensor<2x6x48xf32>
    %265 = "stablehlo.dot_general"(%264, %250) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0, 1], rhs_contracting_dimensions = [0, 1]>}> : (tensor<2x6x48xf32>, tensor<2x6x32xf32>) -> tensor<48x32xf32>
    %266 = "stablehlo.transpose"(%265) <{permutation = array<i64: 1, 0>}> : (tensor<48x32xf32>) -> tensor<32x48xf32>
    %267 = "stablehlo.dot_general"(%264, %251) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>}> : (tensor<2x6x48xf32>, tensor<32x48xf32>) -> tensor<2x6x32xf32>
    %268 = "stablehlo.transpose"(%266) <{permutation = array<i64: 1, 0>}> : (tensor<32x48xf32>) -> tensor<48x32xf32>
    %269 = "stablehlo.multiply"(%247, %267) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %270 = "stablehlo.reduce"(%269, %93) <{dimensions = array<i64: 0, 1>}> ({
    ^bb0(%arg75: tensor<f32>, %arg76: tensor<f32>):
      %436 = "stablehlo.add"(%arg75, %arg76) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%436) : (tensor<f32>) -> ()
    }) : (tensor<2x6x32xf32>, tensor<f32>) -> tensor<32xf32>
    %271 = "stablehlo.reshape"(%270) : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %272 = "stablehlo.broadcast_in_dim"(%248) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<1x1x32xf32>) -> tensor<2x6x32xf32>
    %273 = "stablehlo.multiply"(%267, %272) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %274 = "stablehlo.reduce"(%271, %93) <{dimensions = array<i64: 0, 1>}> ({
    ^bb0(%arg73: tensor<f32>, %arg74: tensor<f32>):
      %435 = "stablehlo.add"(%arg73, %arg74) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%435) : (tensor<f32>) -> ()
    }) : (tensor<1x1x32xf32>, tensor<f32>) -> tensor<32xf32>
    %275 = "stablehlo.multiply"(%234, %273) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %276 = "stablehlo.reduce"(%275, %93) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg71: tensor<f32>, %arg72: tensor<f32>):
      %434 = "stablehlo.add"(%arg71, %arg72) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%434) : (tensor<f32>) -> ()
    }) : (tensor<2x6x32xf32>, tensor<f32>) -> tensor<2x6xf32>
    %277 = "stablehlo.reshape"(%276) : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %278 = "stablehlo.broadcast_in_dim"(%242) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<2x6x1xf32>) -> tensor<2x6x32xf32>
    %279 = "stablehlo.multiply"(%273, %278) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %280 = "stablehlo.multiply"(%277, %245) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %281 = "stablehlo.broadcast_in_dim"(%92) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %282 = "stablehlo.divide"(%280, %281) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %283 = "stablehlo.reduce"(%282, %93) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg69: tensor<f32>, %arg70: tensor<f32>):
      %433 = "stablehlo.add"(%arg69, %arg70) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%433) : (tensor<f32>) -> ()
    }) : (tensor<2x6x1xf32>, tensor<f32>) -> tensor<2x6xf32>
    %284 = "stablehlo.broadcast_in_dim"(%283) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x6xf32>) -> tensor<2x6x32xf32>
    %285 = "stablehlo.multiply"(%234, %284) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %286 = "stablehlo.add"(%279, %285) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %287 = "stablehlo.multiply"(%284, %234) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %288 = "stablehlo.add"(%286, %287) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %289 = "stablehlo.dot_general"(%288, %232) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0, 1], rhs_contracting_dimensions = [0, 1]>}> : (tensor<2x6x32xf32>, tensor<2x6x64xf32>) -> tensor<32x64xf32>
    %290 = "stablehlo.transpose"(%289) <{permutation = array<i64: 1, 0>}> : (tensor<32x64xf32>) -> tensor<64x32xf32>
    %291 = "stablehlo.dot_general"(%288, %arg32) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>}> : (tensor<2x6x32xf32>, tensor<64x32xf32>) -> tensor<2x6x64xf32>
    %292 = "stablehlo.multiply"(%230#0, %291) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %293 = "stablehlo.multiply"(%291, %231) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %294 = "stablehlo.dot_general"(%292, %228) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0, 1], rhs_contracting_dimensions = [0, 1]>}> : (tensor<2x6x64xf32>, tensor<2x6x32xf32>) -> tensor<64x32xf32>
    %295 = "stablehlo.transpose"(%294) <{permutation = array<i64: 1, 0>}> : (tensor<64x32xf32>) -> tensor<32x64xf32>
    %296 = "stablehlo.dot_general"(%292, %arg36) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>}> : (tensor<2x6x64xf32>, tensor<32x64xf32>) -> tensor<2x6x32xf32>
    %297 = "func.call"(%230#1, %230#2, %229, %293) <{callee = @silu_2}> : (tensor<2x6x64xf32>, tensor<2x6x64xf32>, tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %298 = "stablehlo.dot_general"(%297, %228) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0, 1], rhs_contracting_dimensions = [0, 1]>}> : (tensor<2x6x64xf32>, tensor<2x6x32xf32>) -> tensor<64x32xf32>
    %299 = "stablehlo.transpose"(%298) <{permutation = array<i64: 1, 0>}> : (tensor<64x32xf32>) -> tensor<32x64xf32>
    %300 = "stablehlo.dot_general"(%297, %arg33) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>}> : (tensor<2x6x64xf32>, tensor<32x64xf32>) -> tensor<2x6x32xf32>
    %301 = "stablehlo.add"(%296, %300) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %302 = "stablehlo.multiply"(%225, %301) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %303 = "stablehlo.reduce"(%302, %93) <{dimensions = array<i64: 0, 1>}> ({
    ^bb0(%arg67: tensor<f32>, %arg68: tensor<f32>):
      %432 = "stablehlo.add"(%arg67, %arg68) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%432) : (tensor<f32>) -> ()
    }) : (tensor<2x6x32xf32>, tensor<f32>) -> tensor<32xf32>
    %304 = "stablehlo.reshape"(%303) : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %305 = "stablehlo.broadcast_in_dim"(%226) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<1x1x32xf32>) -> tensor<2x6x32xf32>
    %306 = "stablehlo.multiply"(%301, %305) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %307 = "stablehlo.reduce"(%304, %93) <{dimensions = array<i64: 0, 1>}> ({
    ^bb0(%arg65: tensor<f32>, %arg66: tensor<f32>):
      %431 = "stablehlo.add"(%arg65, %arg66) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%431) : (tensor<f32>) -> ()
    }) : (tensor<1x1x32xf32>, tensor<f32>) -> tensor<32xf32>
    %308 = "stablehlo.multiply"(%212, %306) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %309 = "stablehlo.reduce"(%308, %93) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg63: tensor<f32>, %arg64: tensor<f32>):
      %430 = "stablehlo.add"(%arg63, %arg64) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%430) : (tensor<f32>) -> ()
    }) : (tensor<2x6x32xf32>, tensor<f32>) -> tensor<2x6xf32>
    %310 = "stablehlo.reshape"(%309) : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %311 = "stablehlo.broadcast_in_dim"(%220) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<2x6x1xf32>) -> tensor<2x6x32xf32>
    %312 = "stablehlo.multiply"(%306, %311) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %313 = "stablehlo.add"(%288, %312) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %314 = "stablehlo.multiply"(%310, %223) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %315 = "stablehlo.broadcast_in_dim"(%92) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %316 = "stablehlo.divide"(%314, %315) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %317 = "stablehlo.reduce"(%316, %93) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg61: tensor<f32>, %arg62: tensor<f32>):
      %429 = "stablehlo.add"(%arg61, %arg62) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%429) : (tensor<f32>) -> ()
    }) : (tensor<2x6x1xf32>, tensor<f32>) -> tensor<2x6xf32>
    %318 = "stablehlo.broadcast_in_dim"(%317) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x6xf32>) -> tensor<2x6x32xf32>
    %319 = "stablehlo.multiply"(%212, %318) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %320 = "stablehlo.add"(%313, %319) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %321 = "stablehlo.multiply"(%318, %212) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %322 = "stablehlo.add"(%320, %321) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %323 = "stablehlo.dot_general"(%322, %210) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0, 1], rhs_contracting_dimensions = [0, 1]>}> : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<32x32xf32>
    %324 = "stablehlo.transpose"(%323) <{permutation = array<i64: 1, 0>}> : (tensor<32x32xf32>) -> tensor<32x32xf32>
    %325 = "stablehlo.dot_general"(%322, %arg38) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>}> : (tensor<2x6x32xf32>, tensor<32x32xf32>) -> tensor<2x6x32xf32>
    %326 = "stablehlo.reshape"(%325) : (tensor<2x6x32xf32>) -> tensor<2x6x4x8xf32>
    %327 = "stablehlo.transpose"(%326) <{permutation = array<i64: 0, 2, 3, 1>}> : (tensor<2x6x4x8xf32>) -> tensor<2x4x8x6xf32>
    %328 = "stablehlo.dot_general"(%327, %187) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 2], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [3]>}> : (tensor<2x4x8x6xf32>, tensor<2x6x4x8xf32>) -> tensor<2x4x6x6xf32>
    %329 = "stablehlo.dot_general"(%327, %204) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 1], lhs_contracting_dimensions = [3], rhs_contracting_dimensions = [2]>}> : (tensor<2x4x8x6xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x8x6xf32>
    %330 = "stablehlo.transpose"(%329) <{permutation = array<i64: 0, 3, 1, 2>}> : (tensor<2x4x8x6xf32>) -> tensor<2x6x4x8xf32>
    %331 = "stablehlo.broadcast_in_dim"(%207) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x4x6x1xf32>) -> tensor<2x4x6x6xf32>
    %332 = "stablehlo.multiply"(%328, %331) : (tensor<2x4x6x6xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    %333 = "stablehlo.multiply"(%332, %200) : (tensor<2x4x6x6xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    %334 = "stablehlo.reduce"(%333, %93) <{dimensions = array<i64: 3>}> ({
    ^bb0(%arg59: tensor<f32>, %arg60: tensor<f32>):
      %428 = "stablehlo.add"(%arg59, %arg60) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%428) : (tensor<f32>) -> ()
    }) : (tensor<2x4x6x6xf32>, tensor<f32>) -> tensor<2x4x6xf32>
    %335 = "stablehlo.reshape"(%334) : (tensor<2x4x6xf32>) -> tensor<2x4x6x1xf32>
    %336 = "stablehlo.negate"(%335) : (tensor<2x4x6x1xf32>) -> tensor<2x4x6x1xf32>
    %337 = "stablehlo.broadcast_in_dim"(%202) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<2x4x6x1xf32>) -> tensor<2x4x6x6xf32>
    %338 = "stablehlo.divide"(%328, %337) : (tensor<2x4x6x6xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    %339 = "stablehlo.reduce"(%336, %93) <{dimensions = array<i64: 3>}> ({
    ^bb0(%arg57: tensor<f32>, %arg58: tensor<f32>):
      %427 = "stablehlo.add"(%arg57, %arg58) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%427) : (tensor<f32>) -> ()
    }) : (tensor<2x4x6x1xf32>, tensor<f32>) -> tensor<2x4x6xf32>
    %340 = "stablehlo.broadcast_in_dim"(%339) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<2x4x6xf32>) -> tensor<2x4x6x6xf32>
    %341 = "stablehlo.add"(%338, %340) : (tensor<2x4x6x6xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    %342 = "stablehlo.multiply"(%341, %200) : (tensor<2x4x6x6xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    %343 = "func.call"(%193#1, %342) <{callee = @_where_3}> : (tensor<2x4x6x6xi1>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    %344 = "stablehlo.broadcast_in_dim"(%89) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x4x6x6xf32>
    %345 = "stablehlo.multiply"(%343, %344) : (tensor<2x4x6x6xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    %346 = "stablehlo.dot_general"(%345, %162) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 2], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>}> : (tensor<2x4x6x6xf32>, tensor<2x6x4x8xf32>) -> tensor<2x4x6x8xf32>
    %347 = "stablehlo.transpose"(%346) <{permutation = array<i64: 0, 2, 1, 3>}> : (tensor<2x4x6x8xf32>) -> tensor<2x6x4x8xf32>
    %348 = "stablehlo.dot_general"(%345, %185) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 2], lhs_contracting_dimensions = [3], rhs_contracting_dimensions = [1]>}> : (tensor<2x4x6x6xf32>, tensor<2x6x4x8xf32>) -> tensor<2x4x6x8xf32>
    %349 = "stablehlo.transpose"(%348) <{permutation = array<i64: 0, 2, 1, 3>}> : (tensor<2x4x6x8xf32>) -> tensor<2x6x4x8xf32>
    %350 = "stablehlo.reshape"(%330) : (tensor<2x6x4x8xf32>) -> tensor<2x6x2x2x8xf32>
    %351 = "stablehlo.reduce"(%350, %93) <{dimensions = array<i64: 3>}> ({
    ^bb0(%arg55: tensor<f32>, %arg56: tensor<f32>):
      %426 = "stablehlo.add"(%arg55, %arg56) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%426) : (tensor<f32>) -> ()
    }) : (tensor<2x6x2x2x8xf32>, tensor<f32>) -> tensor<2x6x2x8xf32>
    %352 = "stablehlo.reshape"(%347) : (tensor<2x6x4x8xf32>) -> tensor<2x6x2x2x8xf32>
    %353 = "stablehlo.reduce"(%352, %93) <{dimensions = array<i64: 3>}> ({
    ^bb0(%arg53: tensor<f32>, %arg54: tensor<f32>):
      %425 = "stablehlo.add"(%arg53, %arg54) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%425) : (tensor<f32>) -> ()
    }) : (tensor<2x6x2x2x8xf32>, tensor<f32>) -> tensor<2x6x2x8xf32>
    %354 = "stablehlo.reshape"(%351) : (tensor<2x6x2x8xf32>) -> tensor<2x6x16xf32>
    %355 = "stablehlo.dot_general"(%354, %143) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0, 1], rhs_contracting_dimensions = [0, 1]>}> : (tensor<2x6x16xf32>, tensor<2x6x32xf32>) -> tensor<16x32xf32>
    %356 = "stablehlo.transpose"(%355) <{permutation = array<i64: 1, 0>}> : (tensor<16x32xf32>) -> tensor<32x16xf32>
    %357 = "stablehlo.dot_general"(%354, %arg40) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>}> : (tensor<2x6x16xf32>, tensor<32x16xf32>) -> tensor<2x6x32xf32>
    %358 = "stablehlo.slice"(%353) <{limit_indices = array<i64: 2, 6, 2, 4>, start_indices = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x6x2x8xf32>) -> tensor<2x6x2x4xf32>
    %359 = "stablehlo.slice"(%353) <{limit_indices = array<i64: 2, 6, 2, 8>, start_indices = array<i64: 0, 0, 0, 4>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x6x2x8xf32>) -> tensor<2x6x2x4xf32>
    %360 = "stablehlo.broadcast_in_dim"(%177) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x2x4xf32>
    %361 = "stablehlo.multiply"(%359, %360) : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %362 = "stablehlo.broadcast_in_dim"(%174) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x2x4xf32>
    %363 = "stablehlo.multiply"(%359, %362) : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %364 = "stablehlo.negate"(%358) : (tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %365 = "stablehlo.broadcast_in_dim"(%170) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x2x4xf32>
    %366 = "stablehlo.multiply"(%364, %365) : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %367 = "stablehlo.add"(%363, %366) : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %368 = "stablehlo.broadcast_in_dim"(%167) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x2x4xf32>
    %369 = "stablehlo.multiply"(%358, %368) : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %370 = "stablehlo.add"(%361, %369) : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x4xf32>
    %371 = "stablehlo.concatenate"(%370, %367) <{dimension = 3 : i64}> : (tensor<2x6x2x4xf32>, tensor<2x6x2x4xf32>) -> tensor<2x6x2x8xf32>
    %372 = "stablehlo.reshape"(%371) : (tensor<2x6x2x8xf32>) -> tensor<2x6x16xf32>
    %373 = "stablehlo.dot_general"(%372, %143) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0, 1], rhs_contracting_dimensions = [0, 1]>}> : (tensor<2x6x16xf32>, tensor<2x6x32xf32>) -> tensor<16x32xf32>
    %374 = "stablehlo.transpose"(%373) <{permutation = array<i64: 1, 0>}> : (tensor<16x32xf32>) -> tensor<32x16xf32>
    %375 = "stablehlo.dot_general"(%372, %arg37) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>}> : (tensor<2x6x16xf32>, tensor<32x16xf32>) -> tensor<2x6x32xf32>
    %376 = "stablehlo.add"(%357, %375) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %377 = "stablehlo.slice"(%349) <{limit_indices = array<i64: 2, 6, 4, 4>, start_indices = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x6x4x8xf32>) -> tensor<2x6x4x4xf32>
    %378 = "stablehlo.slice"(%349) <{limit_indices = array<i64: 2, 6, 4, 8>, start_indices = array<i64: 0, 0, 0, 4>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x6x4x8xf32>) -> tensor<2x6x4x4xf32>
    %379 = "stablehlo.broadcast_in_dim"(%158) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x4x4xf32>
    %380 = "stablehlo.multiply"(%378, %379) : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %381 = "stablehlo.broadcast_in_dim"(%155) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x4x4xf32>
    %382 = "stablehlo.multiply"(%378, %381) : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %383 = "stablehlo.negate"(%377) : (tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %384 = "stablehlo.broadcast_in_dim"(%151) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x4x4xf32>
    %385 = "stablehlo.multiply"(%383, %384) : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %386 = "stablehlo.add"(%382, %385) : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %387 = "stablehlo.broadcast_in_dim"(%148) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x6x1x4xf32>) -> tensor<2x6x4x4xf32>
    %388 = "stablehlo.multiply"(%377, %387) : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %389 = "stablehlo.add"(%380, %388) : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x4xf32>
    %390 = "stablehlo.concatenate"(%389, %386) <{dimension = 3 : i64}> : (tensor<2x6x4x4xf32>, tensor<2x6x4x4xf32>) -> tensor<2x6x4x8xf32>
    %391 = "stablehlo.reshape"(%390) : (tensor<2x6x4x8xf32>) -> tensor<2x6x32xf32>
    %392 = "stablehlo.dot_general"(%391, %143) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0, 1], rhs_contracting_dimensions = [0, 1]>}> : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<32x32xf32>
    %393 = "stablehlo.transpose"(%392) <{permutation = array<i64: 1, 0>}> : (tensor<32x32xf32>) -> tensor<32x32xf32>
    %394 = "stablehlo.dot_general"(%391, %arg39) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>}> : (tensor<2x6x32xf32>, tensor<32x32xf32>) -> tensor<2x6x32xf32>
    %395 = "stablehlo.add"(%376, %394) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %396 = "stablehlo.multiply"(%140, %395) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %397 = "stablehlo.reduce"(%396, %93) <{dimensions = array<i64: 0, 1>}> ({
    ^bb0(%arg51: tensor<f32>, %arg52: tensor<f32>):
      %424 = "stablehlo.add"(%arg51, %arg52) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%424) : (tensor<f32>) -> ()
    }) : (tensor<2x6x32xf32>, tensor<f32>) -> tensor<32xf32>
    %398 = "stablehlo.reshape"(%397) : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %399 = "stablehlo.broadcast_in_dim"(%141) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<1x1x32xf32>) -> tensor<2x6x32xf32>
    %400 = "stablehlo.multiply"(%395, %399) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %401 = "stablehlo.reduce"(%398, %93) <{dimensions = array<i64: 0, 1>}> ({
    ^bb0(%arg49: tensor<f32>, %arg50: tensor<f32>):
      %423 = "stablehlo.add"(%arg49, %arg50) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%423) : (tensor<f32>) -> ()
    }) : (tensor<1x1x32xf32>, tensor<f32>) -> tensor<32xf32>
    %402 = "stablehlo.multiply"(%106, %400) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %403 = "stablehlo.reduce"(%402, %93) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg47: tensor<f32>, %arg48: tensor<f32>):
      %422 = "stablehlo.add"(%arg47, %arg48) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%422) : (tensor<f32>) -> ()
    }) : (tensor<2x6x32xf32>, tensor<f32>) -> tensor<2x6xf32>
    %404 = "stablehlo.reshape"(%403) : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %405 = "stablehlo.broadcast_in_dim"(%135) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<2x6x1xf32>) -> tensor<2x6x32xf32>
    %406 = "stablehlo.multiply"(%400, %405) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %407 = "stablehlo.add"(%322, %406) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %408 = "stablehlo.multiply"(%404, %138) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %409 = "stablehlo.broadcast_in_dim"(%92) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %410 = "stablehlo.divide"(%408, %409) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %411 = "stablehlo.reduce"(%410, %93) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg45: tensor<f32>, %arg46: tensor<f32>):
      %421 = "stablehlo.add"(%arg45, %arg46) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%421) : (tensor<f32>) -> ()
    }) : (tensor<2x6x1xf32>, tensor<f32>) -> tensor<2x6xf32>
    %412 = "stablehlo.broadcast_in_dim"(%411) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x6xf32>) -> tensor<2x6x32xf32>
    %413 = "stablehlo.multiply"(%106, %412) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %414 = "stablehlo.add"(%407, %413) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %415 = "stablehlo.multiply"(%412, %106) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %416 = "stablehlo.add"(%414, %415) : (tensor<2x6x32xf32>, tensor<2x6x32xf32>) -> tensor<2x6x32xf32>
    %417 = "stablehlo.broadcast_in_dim"(%93) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<48x32xf32>
    %418 = "stablehlo.scatter"(%417, %105, %416) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>}> ({
    ^bb0(%arg43: tensor<f32>, %arg44: tensor<f32>):
      %420 = "stablehlo.add"(%arg43, %arg44) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%420) : (tensor<f32>) -> ()
    }) : (tensor<48x32xf32>, tensor<2x6x1xi32>, tensor<2x6x32xf32>) -> tensor<48x32xf32>
    %419 = "stablehlo.add"(%268, %418) : (tensor<48x32xf32>, tensor<48x32xf32>) -> tensor<48x32xf32>
    "func.return"(%259, %419, %290, %299, %401, %307, %295, %374, %324, %393, %356, %274) : (tensor<f32>, tensor<48x32xf32>, tensor<64x32xf32>, tensor<32x64xf32>, tensor<32xf32>, tensor<32xf32>, tensor<32x64xf32>, tensor<32x16xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x16xf32>, tensor<32xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{}], function_type = (tensor<6x6xi1>) -> tensor<6x6xi1>, res_attrs = [{}], sym_name = "tril", sym_visibility = "private"}> ({
  ^bb0(%arg30: tensor<6x6xi1>):
    %75 = "stablehlo.constant"() <{value = dense<false> : tensor<i1>}> : () -> tensor<i1>
    %76 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %77 = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> tensor<6x6xi32>
    %78 = "stablehlo.broadcast_in_dim"(%76) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<6x6xi32>
    %79 = "stablehlo.add"(%77, %78) : (tensor<6x6xi32>, tensor<6x6xi32>) -> tensor<6x6xi32>
    %80 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<6x6xi32>
    %81 = "stablehlo.compare"(%79, %80) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<6x6xi32>, tensor<6x6xi32>) -> tensor<6x6xi1>
    %82 = "stablehlo.broadcast_in_dim"(%75) <{broadcast_dimensions = array<i64>}> : (tensor<i1>) -> tensor<6x6xi1>
    %83 = "stablehlo.select"(%81, %arg30, %82) : (tensor<6x6xi1>, tensor<6x6xi1>, tensor<6x6xi1>) -> tensor<6x6xi1>
    "func.return"(%83) : (tensor<6x6xi1>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{}, {}, {}], function_type = (tensor<6x6xi1>, tensor<2x4x6x6xf32>, tensor<f32>) -> (tensor<2x4x6x6xf32>, tensor<2x4x6x6xi1>), res_attrs = [{}, {}], sym_name = "_where", sym_visibility = "private"}> ({
  ^bb0(%arg27: tensor<6x6xi1>, %arg28: tensor<2x4x6x6xf32>, %arg29: tensor<f32>):
    %71 = "stablehlo.convert"(%arg29) : (tensor<f32>) -> tensor<f32>
    %72 = "stablehlo.broadcast_in_dim"(%arg27) <{broadcast_dimensions = array<i64: 2, 3>}> : (tensor<6x6xi1>) -> tensor<2x4x6x6xi1>
    %73 = "stablehlo.broadcast_in_dim"(%71) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x4x6x6xf32>
    %74 = "stablehlo.select"(%72, %arg28, %73) : (tensor<2x4x6x6xi1>, tensor<2x4x6x6xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    "func.return"(%74, %72) : (tensor<2x4x6x6xf32>, tensor<2x4x6x6xi1>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{}], function_type = (tensor<2x6x64xf32>) -> (tensor<2x6x64xf32>, tensor<2x6x64xf32>, tensor<2x6x64xf32>), res_attrs = [{}, {}, {}], sym_name = "silu", sym_visibility = "private"}> ({
  ^bb0(%arg26: tensor<2x6x64xf32>):
    %60 = "stablehlo.constant"() <{value = dense<1.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %61 = "stablehlo.negate"(%arg26) : (tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %62 = "stablehlo.exponential"(%61) : (tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %63 = "stablehlo.broadcast_in_dim"(%60) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x64xf32>
    %64 = "stablehlo.add"(%63, %62) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %65 = "stablehlo.broadcast_in_dim"(%60) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x64xf32>
    %66 = "stablehlo.divide"(%65, %64) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %67 = "stablehlo.broadcast_in_dim"(%60) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x64xf32>
    %68 = "stablehlo.subtract"(%67, %66) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %69 = "stablehlo.multiply"(%66, %68) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %70 = "stablehlo.multiply"(%arg26, %66) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    "func.return"(%70, %69, %66) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{}], function_type = (tensor<2x6x48xf32>) -> (tensor<2x6x48xf32>, tensor<2x6x48xf32>, tensor<2x6x1xf32>), res_attrs = [{}, {}, {}], sym_name = "log_softmax", sym_visibility = "private"}> ({
  ^bb0(%arg21: tensor<2x6x48xf32>):
    %44 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %45 = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
    %46 = "stablehlo.reduce"(%arg21, %45) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg24: tensor<f32>, %arg25: tensor<f32>):
      %59 = "stablehlo.maximum"(%arg24, %arg25) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%59) : (tensor<f32>) -> ()
    }) : (tensor<2x6x48xf32>, tensor<f32>) -> tensor<2x6xf32>
    %47 = "stablehlo.broadcast_in_dim"(%45) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6xf32>
    %48 = "stablehlo.maximum"(%47, %46) : (tensor<2x6xf32>, tensor<2x6xf32>) -> tensor<2x6xf32>
    %49 = "stablehlo.broadcast_in_dim"(%48) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %50 = "stablehlo.broadcast_in_dim"(%49) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<2x6x1xf32>) -> tensor<2x6x48xf32>
    %51 = "stablehlo.subtract"(%arg21, %50) : (tensor<2x6x48xf32>, tensor<2x6x48xf32>) -> tensor<2x6x48xf32>
    %52 = "stablehlo.exponential"(%51) : (tensor<2x6x48xf32>) -> tensor<2x6x48xf32>
    %53 = "stablehlo.reduce"(%52, %44) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg22: tensor<f32>, %arg23: tensor<f32>):
      %58 = "stablehlo.add"(%arg22, %arg23) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%58) : (tensor<f32>) -> ()
    }) : (tensor<2x6x48xf32>, tensor<f32>) -> tensor<2x6xf32>
    %54 = "stablehlo.broadcast_in_dim"(%53) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %55 = "stablehlo.log"(%54) : (tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %56 = "stablehlo.broadcast_in_dim"(%55) <{broadcast_dimensions = array<i64: 0, 1, 2>}> : (tensor<2x6x1xf32>) -> tensor<2x6x48xf32>
    %57 = "stablehlo.subtract"(%51, %56) : (tensor<2x6x48xf32>, tensor<2x6x48xf32>) -> tensor<2x6x48xf32>
    "func.return"(%57, %52, %54) : (tensor<2x6x48xf32>, tensor<2x6x48xf32>, tensor<2x6x1xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{}, {}], function_type = (tensor<2x6x48xf32>, tensor<2x6x1xi32>) -> (tensor<2x6x1xf32>, tensor<2x6x1x1xi32>), res_attrs = [{}, {}], sym_name = "take_along_axis", sym_visibility = "private"}> ({
  ^bb0(%arg17: tensor<2x6x48xf32>, %arg18: tensor<2x6x1xi32>):
    %22 = "stablehlo.constant"() <{value = dense<0x7FC00000> : tensor<f32>}> : () -> tensor<f32>
    %23 = "stablehlo.constant"() <{value = dense<true> : tensor<i1>}> : () -> tensor<i1>
    %24 = "stablehlo.constant"() <{value = dense<47> : tensor<1xi32>}> : () -> tensor<1xi32>
    %25 = "stablehlo.constant"() <{value = dense<48> : tensor<i32>}> : () -> tensor<i32>
    %26 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %27 = "stablehlo.broadcast_in_dim"(%26) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<2x6x1xi32>
    %28 = "stablehlo.compare"(%arg18, %27) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<2x6x1xi32>, tensor<2x6x1xi32>) -> tensor<2x6x1xi1>
    %29 = "stablehlo.broadcast_in_dim"(%25) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<2x6x1xi32>
    %30 = "stablehlo.add"(%arg18, %29) : (tensor<2x6x1xi32>, tensor<2x6x1xi32>) -> tensor<2x6x1xi32>
    %31 = "stablehlo.select"(%28, %30, %arg18) : (tensor<2x6x1xi1>, tensor<2x6x1xi32>, tensor<2x6x1xi32>) -> tensor<2x6x1xi32>
    %32 = "stablehlo.reshape"(%31) : (tensor<2x6x1xi32>) -> tensor<2x6x1x1xi32>
    %33 = "stablehlo.broadcast_in_dim"(%26) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<2x6x1x1xi32>
    %34 = "stablehlo.compare"(%32, %33) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<2x6x1x1xi32>, tensor<2x6x1x1xi32>) -> tensor<2x6x1x1xi1>
    %35 = "stablehlo.broadcast_in_dim"(%24) <{broadcast_dimensions = array<i64: 3>}> : (tensor<1xi32>) -> tensor<1x1x1x1xi32>
    %36 = "stablehlo.broadcast_in_dim"(%35) <{broadcast_dimensions = array<i64: 0, 1, 2, 3>}> : (tensor<1x1x1x1xi32>) -> tensor<2x6x1x1xi32>
    %37 = "stablehlo.compare"(%32, %36) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LE>}> : (tensor<2x6x1x1xi32>, tensor<2x6x1x1xi32>) -> tensor<2x6x1x1xi1>
    %38 = "stablehlo.and"(%34, %37) : (tensor<2x6x1x1xi1>, tensor<2x6x1x1xi1>) -> tensor<2x6x1x1xi1>
    %39 = "stablehlo.reduce"(%38, %23) <{dimensions = array<i64: 3>}> ({
    ^bb0(%arg19: tensor<i1>, %arg20: tensor<i1>):
      %43 = "stablehlo.and"(%arg19, %arg20) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      "stablehlo.return"(%43) : (tensor<i1>) -> ()
    }) : (tensor<2x6x1x1xi1>, tensor<i1>) -> tensor<2x6x1xi1>
    %40 = "stablehlo.gather"(%arg17, %32) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [2], operand_batching_dims = [0, 1], start_indices_batching_dims = [0, 1], start_index_map = [2], index_vector_dim = 3>, slice_sizes = array<i64: 1, 1, 1>}> : (tensor<2x6x48xf32>, tensor<2x6x1x1xi32>) -> tensor<2x6x1xf32>
    %41 = "stablehlo.broadcast_in_dim"(%22) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x1xf32>
    %42 = "stablehlo.select"(%39, %40, %41) : (tensor<2x6x1xi1>, tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    "func.return"(%42, %32) : (tensor<2x6x1xf32>, tensor<2x6x1x1xi32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{}, {}], function_type = (tensor<2x6x1x1xi32>, tensor<2x6x1xf32>) -> tensor<2x6x48xf32>, res_attrs = [{}], sym_name = "take_along_axis_0", sym_visibility = "private"}> ({
  ^bb0(%arg13: tensor<2x6x1x1xi32>, %arg14: tensor<2x6x1xf32>):
    %18 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %19 = "stablehlo.broadcast_in_dim"(%18) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x6x48xf32>
    %20 = "stablehlo.scatter"(%19, %arg13, %arg14) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [2], input_batching_dims = [0, 1], scatter_indices_batching_dims = [0, 1], scatter_dims_to_operand_dims = [2], index_vector_dim = 3>}> ({
    ^bb0(%arg15: tensor<f32>, %arg16: tensor<f32>):
      %21 = "stablehlo.add"(%arg15, %arg16) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%21) : (tensor<f32>) -> ()
    }) : (tensor<2x6x48xf32>, tensor<2x6x1x1xi32>, tensor<2x6x1xf32>) -> tensor<2x6x48xf32>
    "func.return"(%20) : (tensor<2x6x48xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{}, {}, {}], function_type = (tensor<2x6x48xf32>, tensor<2x6x1xf32>, tensor<2x6x48xf32>) -> tensor<2x6x48xf32>, res_attrs = [{}], sym_name = "log_softmax_1", sym_visibility = "private"}> ({
  ^bb0(%arg6: tensor<2x6x48xf32>, %arg7: tensor<2x6x1xf32>, %arg8: tensor<2x6x48xf32>):
    %7 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %8 = "stablehlo.negate"(%arg8) : (tensor<2x6x48xf32>) -> tensor<2x6x48xf32>
    %9 = "stablehlo.reduce"(%8, %7) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg11: tensor<f32>, %arg12: tensor<f32>):
      %17 = "stablehlo.add"(%arg11, %arg12) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%17) : (tensor<f32>) -> ()
    }) : (tensor<2x6x48xf32>, tensor<f32>) -> tensor<2x6xf32>
    %10 = "stablehlo.reshape"(%9) : (tensor<2x6xf32>) -> tensor<2x6x1xf32>
    %11 = "stablehlo.divide"(%10, %arg7) : (tensor<2x6x1xf32>, tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
    %12 = "stablehlo.reduce"(%11, %7) <{dimensions = array<i64: 2>}> ({
    ^bb0(%arg9: tensor<f32>, %arg10: tensor<f32>):
      %16 = "stablehlo.add"(%arg9, %arg10) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%16) : (tensor<f32>) -> ()
    }) : (tensor<2x6x1xf32>, tensor<f32>) -> tensor<2x6xf32>
    %13 = "stablehlo.broadcast_in_dim"(%12) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x6xf32>) -> tensor<2x6x48xf32>
    %14 = "stablehlo.multiply"(%13, %arg6) : (tensor<2x6x48xf32>, tensor<2x6x48xf32>) -> tensor<2x6x48xf32>
    %15 = "stablehlo.add"(%arg8, %14) : (tensor<2x6x48xf32>, tensor<2x6x48xf32>) -> tensor<2x6x48xf32>
    "func.return"(%15) : (tensor<2x6x48xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{}, {}, {}, {}], function_type = (tensor<2x6x64xf32>, tensor<2x6x64xf32>, tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>, res_attrs = [{}], sym_name = "silu_2", sym_visibility = "private"}> ({
  ^bb0(%arg2: tensor<2x6x64xf32>, %arg3: tensor<2x6x64xf32>, %arg4: tensor<2x6x64xf32>, %arg5: tensor<2x6x64xf32>):
    %3 = "stablehlo.multiply"(%arg4, %arg5) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %4 = "stablehlo.multiply"(%arg5, %arg3) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %5 = "stablehlo.multiply"(%3, %arg2) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    %6 = "stablehlo.add"(%4, %5) : (tensor<2x6x64xf32>, tensor<2x6x64xf32>) -> tensor<2x6x64xf32>
    "func.return"(%6) : (tensor<2x6x64xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{}, {}], function_type = (tensor<2x4x6x6xi1>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>, res_attrs = [{}], sym_name = "_where_3", sym_visibility = "private"}> ({
  ^bb0(%arg0: tensor<2x4x6x6xi1>, %arg1: tensor<2x4x6x6xf32>):
    %0 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %1 = "stablehlo.broadcast_in_dim"(%0) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x4x6x6xf32>
    %2 = "stablehlo.select"(%arg0, %arg1, %1) : (tensor<2x4x6x6xi1>, tensor<2x4x6x6xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
    "func.return"(%2) : (tensor<2x4x6x6xf32>) -> ()
  }) : () -> ()
}) {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
