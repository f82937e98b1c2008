// What jax.export writes, in the generic form.
"builtin.module"() <{sym_name = "jit__lambda"}> ({
  "func.func"() <{arg_attrs = [{}, {}], function_type = (tensor<2x9x8x3xf32>, tensor<3x3x3x4xf32>) -> (tensor<2x9x8x3xf32>, tensor<3x3x3x4xf32>), res_attrs = [{jax.result_info = "result[0]"}, {jax.result_info = "result[1]"}], sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg1: tensor<2x9x8x3xf32>, %arg2: tensor<3x3x3x4xf32>):
    %3 = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
    %4 = "stablehlo.constant"() <{value = dense<1.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %5 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %6 = "stablehlo.convolution"(%arg1, %arg2) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64, padding = dense<[[1, 1], [0, 1]]> : tensor<2x2xi64>, window_strides = array<i64: 2, 2>}> : (tensor<2x9x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x5x4x4xf32>
    %7 = "func.call"(%6) <{callee = @relu}> : (tensor<2x5x4x4xf32>) -> tensor<2x5x4x4xf32>
    %8 = "stablehlo.broadcast_in_dim"(%5) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x5x4x4xf32>
    %9 = "stablehlo.compare"(%6, %8) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<2x5x4x4xf32>, tensor<2x5x4x4xf32>) -> tensor<2x5x4x4xi1>
    %10 = "stablehlo.broadcast_in_dim"(%4) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x2x2x4xf32>
    %11 = "stablehlo.pad"(%7, %3) <{edge_padding_high = array<i64: 0, 0, 0, 0>, edge_padding_low = array<i64: 0, 0, 0, 0>, interior_padding = array<i64: 0, 0, 0, 0>}> : (tensor<2x5x4x4xf32>, tensor<f32>) -> tensor<2x5x4x4xf32>
    %12 = "stablehlo.select_and_scatter"(%11, %10, %5) <{window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg5: tensor<f32>, %arg6: tensor<f32>):
      %20 = "stablehlo.compare"(%arg5, %arg6) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      "stablehlo.return"(%20) : (tensor<i1>) -> ()
    }, {
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %19 = "stablehlo.add"(%arg3, %arg4) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%19) : (tensor<f32>) -> ()
    }) : (tensor<2x5x4x4xf32>, tensor<2x2x2x4xf32>, tensor<f32>) -> tensor<2x5x4x4xf32>
    %13 = "stablehlo.slice"(%12) <{limit_indices = array<i64: 2, 5, 4, 4>, start_indices = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1, 1, 1>}> : (tensor<2x5x4x4xf32>) -> tensor<2x5x4x4xf32>
    %14 = "stablehlo.broadcast_in_dim"(%5) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x5x4x4xf32>
    %15 = "stablehlo.select"(%9, %13, %14) : (tensor<2x5x4x4xi1>, tensor<2x5x4x4xf32>, tensor<2x5x4x4xf32>) -> tensor<2x5x4x4xf32>
    %16 = "stablehlo.convolution"(%arg1, %15) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]>, feature_group_count = 1 : i64, padding = dense<[[1, 1], [0, 1]]> : tensor<2x2xi64>, rhs_dilation = array<i64: 2, 2>}> : (tensor<2x9x8x3xf32>, tensor<2x5x4x4xf32>) -> tensor<3x3x3x4xf32>
    %17 = "stablehlo.reverse"(%arg2) <{dimensions = array<i64: 0, 1>}> : (tensor<3x3x3x4xf32>) -> tensor<3x3x3x4xf32>
    %18 = "stablehlo.convolution"(%15, %17) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f]>, feature_group_count = 1 : i64, lhs_dilation = array<i64: 2, 2>, padding = dense<[[1, 1], [2, 1]]> : tensor<2x2xi64>}> : (tensor<2x5x4x4xf32>, tensor<3x3x3x4xf32>) -> tensor<2x9x8x3xf32>
    "func.return"(%18, %16) : (tensor<2x9x8x3xf32>, tensor<3x3x3x4xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{}], function_type = (tensor<2x5x4x4xf32>) -> tensor<2x5x4x4xf32>, res_attrs = [{}], sym_name = "relu", sym_visibility = "private"}> ({
  ^bb0(%arg0: tensor<2x5x4x4xf32>):
    %0 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %1 = "stablehlo.broadcast_in_dim"(%0) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x5x4x4xf32>
    %2 = "stablehlo.maximum"(%arg0, %1) : (tensor<2x5x4x4xf32>, tensor<2x5x4x4xf32>) -> tensor<2x5x4x4xf32>
    "func.return"(%2) : (tensor<2x5x4x4xf32>) -> ()
  }) : () -> ()
}) {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
