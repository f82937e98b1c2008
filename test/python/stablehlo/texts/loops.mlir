// What jax.export writes, in the generic form.
"builtin.module"() <{sym_name = "jit__lambda"}> ({
  "func.func"() <{arg_attrs = [{}, {}], function_type = (tensor<40x3xf32>, tensor<i32>) -> (tensor<3xf32>, tensor<40x3xf32>, tensor<40x3xf32>, tensor<40x3xf32>, tensor<40x3xf32>), res_attrs = [{jax.result_info = "result[0][0]"}, {jax.result_info = "result[0][1]"}, {jax.result_info = "result[1]"}, {jax.result_info = "result[2]"}, {jax.result_info = "result[3]"}], sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg7: tensor<40x3xf32>, %arg8: tensor<i32>):
    %10 = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : () -> tensor<i32>
    %11 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %12 = "stablehlo.constant"() <{value = dense<40> : tensor<i32>}> : () -> tensor<i32>
    %13 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %14 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %15 = "stablehlo.slice"(%arg7) <{limit_indices = array<i64: 1, 3>, start_indices = array<i64: 0, 0>, strides = array<i64: 1, 1>}> : (tensor<40x3xf32>) -> tensor<1x3xf32>
    %16 = "stablehlo.reshape"(%15) : (tensor<1x3xf32>) -> tensor<3xf32>
    %17 = "stablehlo.broadcast_in_dim"(%14) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<40x3xf32>
    %18:4 = "stablehlo.while"(%arg7, %13, %16, %17) ({
    ^bb0(%arg19: tensor<40x3xf32>, %arg20: tensor<i32>, %arg21: tensor<3xf32>, %arg22: tensor<40x3xf32>):
      %39 = "stablehlo.compare"(%arg20, %12) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%39) : (tensor<i1>) -> ()
    }, {
    ^bb0(%arg15: tensor<40x3xf32>, %arg16: tensor<i32>, %arg17: tensor<3xf32>, %arg18: tensor<40x3xf32>):
      %35 = "func.call"(%arg15, %arg16) <{callee = @dynamic_index_in_dim}> : (tensor<40x3xf32>, tensor<i32>) -> tensor<3xf32>
      %36:2 = "func.call"(%arg17, %35) <{callee = @closed_call}> : (tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
      %37 = "func.call"(%arg18, %36#1, %arg16) <{callee = @dynamic_update_index_in_dim}> : (tensor<40x3xf32>, tensor<3xf32>, tensor<i32>) -> tensor<40x3xf32>
      %38 = "stablehlo.add"(%arg16, %11) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%arg15, %38, %36#0, %37) : (tensor<40x3xf32>, tensor<i32>, tensor<3xf32>, tensor<40x3xf32>) -> ()
    }) : (tensor<40x3xf32>, tensor<i32>, tensor<3xf32>, tensor<40x3xf32>) -> (tensor<40x3xf32>, tensor<i32>, tensor<3xf32>, tensor<40x3xf32>)
    %19:3 = "stablehlo.while"(%13, %arg8, %arg7) ({
    ^bb0(%arg12: tensor<i32>, %arg13: tensor<i32>, %arg14: tensor<40x3xf32>):
      %34 = "stablehlo.compare"(%arg12, %arg13) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%34) : (tensor<i1>) -> ()
    }, {
    ^bb0(%arg9: tensor<i32>, %arg10: tensor<i32>, %arg11: tensor<40x3xf32>):
      %30 = "stablehlo.add"(%arg9, %11) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %31 = "stablehlo.convert"(%arg9) : (tensor<i32>) -> tensor<f32>
      %32 = "stablehlo.broadcast_in_dim"(%31) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<40x3xf32>
      %33 = "stablehlo.add"(%arg11, %32) : (tensor<40x3xf32>, tensor<40x3xf32>) -> tensor<40x3xf32>
      "stablehlo.return"(%30, %arg10, %33) : (tensor<i32>, tensor<i32>, tensor<40x3xf32>) -> ()
    }) : (tensor<i32>, tensor<i32>, tensor<40x3xf32>) -> (tensor<i32>, tensor<i32>, tensor<40x3xf32>)
    %20 = "stablehlo.compare"(%arg8, %10) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %21 = "stablehlo.convert"(%20) : (tensor<i1>) -> tensor<i32>
    %22 = "stablehlo.case"(%21) ({
      %29 = "stablehlo.cosine"(%arg7) : (tensor<40x3xf32>) -> tensor<40x3xf32>
      "stablehlo.return"(%29) : (tensor<40x3xf32>) -> ()
    }, {
      %28 = "stablehlo.sine"(%arg7) : (tensor<40x3xf32>) -> tensor<40x3xf32>
      "stablehlo.return"(%28) : (tensor<40x3xf32>) -> ()
    }) : (tensor<i32>) -> tensor<40x3xf32>
    %23 = "stablehlo.clamp"(%13, %arg8, %10) : (tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<i32>
    %24 = "stablehlo.case"(%23) ({
      %27 = "stablehlo.sine"(%arg7) : (tensor<40x3xf32>) -> tensor<40x3xf32>
      "stablehlo.return"(%27) : (tensor<40x3xf32>) -> ()
    }, {
      %26 = "stablehlo.cosine"(%arg7) : (tensor<40x3xf32>) -> tensor<40x3xf32>
      "stablehlo.return"(%26) : (tensor<40x3xf32>) -> ()
    }, {
      %25 = "stablehlo.tanh"(%arg7) : (tensor<40x3xf32>) -> tensor<40x3xf32>
      "stablehlo.return"(%25) : (tensor<40x3xf32>) -> ()
    }) : (tensor<i32>) -> tensor<40x3xf32>
    "func.return"(%18#2, %18#3, %19#2, %22, %24) : (tensor<3xf32>, tensor<40x3xf32>, tensor<40x3xf32>, tensor<40x3xf32>, tensor<40x3xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{}, {}], function_type = (tensor<40x3xf32>, tensor<i32>) -> tensor<3xf32>, res_attrs = [{}], sym_name = "dynamic_index_in_dim", sym_visibility = "private"}> ({
  ^bb0(%arg5: tensor<40x3xf32>, %arg6: tensor<i32>):
    %7 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %8 = "stablehlo.dynamic_slice"(%arg5, %arg6, %7) <{slice_sizes = array<i64: 1, 3>}> : (tensor<40x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
    %9 = "stablehlo.reshape"(%8) : (tensor<1x3xf32>) -> tensor<3xf32>
    "func.return"(%9) : (tensor<3xf32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>), res_attrs = [{}, {}], sym_name = "closed_call", sym_visibility = "private"}> ({
  ^bb0(%arg3: tensor<3xf32>, %arg4: tensor<3xf32>):
    %3 = "stablehlo.constant"() <{value = dense<5.000000e-01> : tensor<f32>}> : () -> tensor<f32>
    %4 = "stablehlo.broadcast_in_dim"(%3) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3xf32>
    %5 = "stablehlo.multiply"(%arg3, %4) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    %6 = "stablehlo.add"(%5, %arg4) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    "func.return"(%6, %arg3) : (tensor<3xf32>, tensor<3xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{}, {}, {}], function_type = (tensor<40x3xf32>, tensor<3xf32>, tensor<i32>) -> tensor<40x3xf32>, res_attrs = [{}], sym_name = "dynamic_update_index_in_dim", sym_visibility = "private"}> ({
  ^bb0(%arg0: tensor<40x3xf32>, %arg1: tensor<3xf32>, %arg2: tensor<i32>):
    %0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %1 = "stablehlo.broadcast_in_dim"(%arg1) <{broadcast_dimensions = array<i64: 1>}> : (tensor<3xf32>) -> tensor<1x3xf32>
    %2 = "stablehlo.dynamic_update_slice"(%arg0, %1, %arg2, %0) : (tensor<40x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<40x3xf32>
    "func.return"(%2) : (tensor<40x3xf32>) -> ()
  }) : () -> ()
}) {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
