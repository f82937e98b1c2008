// What jax.export writes, in the generic form.
"builtin.module"() <{sym_name = "jit_mlp"}> ({
  "func.func"() <{arg_attrs = [{}, {}, {}, {}, {}], function_type = (tensor<5x16xf32>, tensor<16xf32>, tensor<16x3xf32>, tensor<7x5xf32>, tensor<7x3xf32>) -> (tensor<f32>, tensor<5x16xf32>, tensor<16xf32>, tensor<16x3xf32>), res_attrs = [{jax.result_info = "result[0]"}, {jax.result_info = "result[1]['a']"}, {jax.result_info = "result[1]['b']"}, {jax.result_info = "result[1]['c']"}], sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg0: tensor<5x16xf32>, %arg1: tensor<16xf32>, %arg2: tensor<16x3xf32>, %arg3: tensor<7x5xf32>, %arg4: tensor<7x3xf32>):
    %0 = "stablehlo.constant"() <{value = dense<1.12837911> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %1 = "stablehlo.constant"() <{value = dense<-0.37612626> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %2 = "stablehlo.constant"() <{value = dense<0.112835854> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %3 = "stablehlo.constant"() <{value = dense<-0.0268538129> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %4 = "stablehlo.constant"() <{value = dense<0.00518832775> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %5 = "stablehlo.constant"() <{value = dense<-8.0101937E-4> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %6 = "stablehlo.constant"() <{value = dense<7.85386146E-5> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %7 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %8 = "stablehlo.constant"() <{value = dense<-88.7228394> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %9 = "stablehlo.constant"() <{value = dense<0.564189494> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %10 = "stablehlo.constant"() <{value = dense<-0.282076746> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %11 = "stablehlo.constant"() <{value = dense<0.42184633> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %12 = "stablehlo.constant"() <{value = dense<-1.01526523> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %13 = "stablehlo.constant"() <{value = dense<2.92101908> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %14 = "stablehlo.constant"() <{value = dense<-7.49551868> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %15 = "stablehlo.constant"() <{value = dense<1.297720e+01> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %16 = "stablehlo.constant"() <{value = dense<-10.477664> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %17 = "stablehlo.constant"() <{value = dense<0.563825965> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %18 = "stablehlo.constant"() <{value = dense<-0.274112701> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %19 = "stablehlo.constant"() <{value = dense<3.404880e-01> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %20 = "stablehlo.constant"() <{value = dense<-0.494451523> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %21 = "stablehlo.constant"() <{value = dense<0.621000468> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %22 = "stablehlo.constant"() <{value = dense<-0.582473278> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %23 = "stablehlo.constant"() <{value = dense<0.368742466> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %24 = "stablehlo.constant"() <{value = dense<-0.138703942> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %25 = "stablehlo.constant"() <{value = dense<2.326820e-02> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %26 = "stablehlo.constant"() <{value = dense<2.000000e+00> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %27 = "stablehlo.constant"() <{value = dense<1.000000e+00> : tensor<7x16xf32>}> : () -> tensor<7x16xf32>
    %28 = "stablehlo.constant"() <{value = dense<-1.12837923> : tensor<f32>}> : () -> tensor<f32>
    %29 = "stablehlo.constant"() <{value = dense<1.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %30 = "stablehlo.constant"() <{value = dense<2.100000e+01> : tensor<f32>}> : () -> tensor<f32>
    %31 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %32 = "stablehlo.constant"() <{value = dense<2.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %33 = "stablehlo.constant"() <{value = dense<0.707106769> : tensor<f32>}> : () -> tensor<f32>
    %34 = "stablehlo.constant"() <{value = dense<5.000000e-01> : tensor<f32>}> : () -> tensor<f32>
    %35 = "stablehlo.dot_general"(%arg3, %arg0) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<7x5xf32>, tensor<5x16xf32>) -> tensor<7x16xf32>
    %36 = "stablehlo.broadcast_in_dim"(%arg1) <{broadcast_dimensions = array<i64: 1>}> : (tensor<16xf32>) -> tensor<1x16xf32>
    %37 = "stablehlo.broadcast_in_dim"(%36) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<1x16xf32>) -> tensor<7x16xf32>
    %38 = "stablehlo.add"(%35, %37) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %39 = "stablehlo.broadcast_in_dim"(%34) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<7x16xf32>
    %40 = "stablehlo.multiply"(%39, %38) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %41 = "stablehlo.negate"(%38) : (tensor<7x16xf32>) -> tensor<7x16xf32>
    %42 = "stablehlo.broadcast_in_dim"(%33) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<7x16xf32>
    %43 = "stablehlo.multiply"(%41, %42) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %44 = "stablehlo.multiply"(%43, %43) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %45 = "stablehlo.negate"(%44) : (tensor<7x16xf32>) -> tensor<7x16xf32>
    %46 = "stablehlo.abs"(%43) : (tensor<7x16xf32>) -> tensor<7x16xf32>
    %47 = "stablehlo.divide"(%27, %44) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %48 = "stablehlo.exponential"(%45) : (tensor<7x16xf32>) -> tensor<7x16xf32>
    %49 = "stablehlo.divide"(%27, %46) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %50 = "stablehlo.multiply"(%48, %49) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %51 = "stablehlo.compare"(%46, %26) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xi1>
    %52 = "stablehlo.multiply"(%25, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %53 = "stablehlo.add"(%52, %24) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %54 = "stablehlo.multiply"(%53, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %55 = "stablehlo.add"(%54, %23) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %56 = "stablehlo.multiply"(%55, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %57 = "stablehlo.add"(%56, %22) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %58 = "stablehlo.multiply"(%57, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %59 = "stablehlo.add"(%58, %21) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %60 = "stablehlo.multiply"(%59, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %61 = "stablehlo.add"(%60, %20) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %62 = "stablehlo.multiply"(%61, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %63 = "stablehlo.add"(%62, %19) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %64 = "stablehlo.multiply"(%63, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %65 = "stablehlo.add"(%64, %18) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %66 = "stablehlo.multiply"(%65, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %67 = "stablehlo.add"(%66, %17) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %68 = "stablehlo.multiply"(%16, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %69 = "stablehlo.add"(%68, %15) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %70 = "stablehlo.multiply"(%69, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %71 = "stablehlo.add"(%70, %14) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %72 = "stablehlo.multiply"(%71, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %73 = "stablehlo.add"(%72, %13) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %74 = "stablehlo.multiply"(%73, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %75 = "stablehlo.add"(%74, %12) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %76 = "stablehlo.multiply"(%75, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %77 = "stablehlo.add"(%76, %11) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %78 = "stablehlo.multiply"(%77, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %79 = "stablehlo.add"(%78, %10) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %80 = "stablehlo.multiply"(%79, %47) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %81 = "stablehlo.add"(%80, %9) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %82 = "stablehlo.select"(%51, %67, %81) : (tensor<7x16xi1>, tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %83 = "stablehlo.multiply"(%50, %82) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %84 = "stablehlo.compare"(%45, %8) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xi1>
    %85 = "stablehlo.select"(%84, %7, %83) : (tensor<7x16xi1>, tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %86 = "stablehlo.compare"(%43, %7) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xi1>
    %87 = "stablehlo.subtract"(%26, %85) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %88 = "stablehlo.select"(%86, %87, %85) : (tensor<7x16xi1>, tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %89 = "stablehlo.multiply"(%43, %43) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %90 = "stablehlo.multiply"(%6, %89) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %91 = "stablehlo.add"(%90, %5) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %92 = "stablehlo.multiply"(%91, %89) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %93 = "stablehlo.add"(%92, %4) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %94 = "stablehlo.multiply"(%93, %89) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %95 = "stablehlo.add"(%94, %3) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %96 = "stablehlo.multiply"(%95, %89) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %97 = "stablehlo.add"(%96, %2) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %98 = "stablehlo.multiply"(%97, %89) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %99 = "stablehlo.add"(%98, %1) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %100 = "stablehlo.multiply"(%99, %89) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %101 = "stablehlo.add"(%100, %0) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %102 = "stablehlo.multiply"(%43, %101) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %103 = "stablehlo.subtract"(%27, %102) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %104 = "stablehlo.abs"(%43) : (tensor<7x16xf32>) -> tensor<7x16xf32>
    %105 = "stablehlo.compare"(%104, %27) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xi1>
    %106 = "stablehlo.select"(%105, %103, %88) : (tensor<7x16xi1>, tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %107 = "stablehlo.multiply"(%43, %43) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %108 = "stablehlo.negate"(%107) : (tensor<7x16xf32>) -> tensor<7x16xf32>
    %109 = "stablehlo.exponential"(%108) : (tensor<7x16xf32>) -> tensor<7x16xf32>
    %110 = "stablehlo.multiply"(%40, %106) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %111 = "stablehlo.dot_general"(%110, %arg2) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<7x16xf32>, tensor<16x3xf32>) -> tensor<7x3xf32>
    %112 = "stablehlo.subtract"(%111, %arg4) : (tensor<7x3xf32>, tensor<7x3xf32>) -> tensor<7x3xf32>
    %113 = "stablehlo.multiply"(%112, %112) : (tensor<7x3xf32>, tensor<7x3xf32>) -> tensor<7x3xf32>
    %114 = "stablehlo.broadcast_in_dim"(%32) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<7x3xf32>
    %115 = "stablehlo.multiply"(%114, %112) : (tensor<7x3xf32>, tensor<7x3xf32>) -> tensor<7x3xf32>
    %116 = "stablehlo.reduce"(%113, %31) <{dimensions = array<i64: 0, 1>}> ({
    ^bb0(%arg9: tensor<f32>, %arg10: tensor<f32>):
      %142 = "stablehlo.add"(%arg9, %arg10) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%142) : (tensor<f32>) -> ()
    }) : (tensor<7x3xf32>, tensor<f32>) -> tensor<f32>
    %117 = "stablehlo.divide"(%116, %30) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %118 = "stablehlo.divide"(%29, %30) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %119 = "stablehlo.broadcast_in_dim"(%118) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<7x3xf32>
    %120 = "stablehlo.multiply"(%119, %115) : (tensor<7x3xf32>, tensor<7x3xf32>) -> tensor<7x3xf32>
    %121 = "stablehlo.dot_general"(%120, %110) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>}> : (tensor<7x3xf32>, tensor<7x16xf32>) -> tensor<3x16xf32>
    %122 = "stablehlo.transpose"(%121) <{permutation = array<i64: 1, 0>}> : (tensor<3x16xf32>) -> tensor<16x3xf32>
    %123 = "stablehlo.dot_general"(%120, %arg2) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>}> : (tensor<7x3xf32>, tensor<16x3xf32>) -> tensor<7x16xf32>
    %124 = "stablehlo.multiply"(%40, %123) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %125 = "stablehlo.multiply"(%123, %106) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %126 = "stablehlo.broadcast_in_dim"(%28) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<7x16xf32>
    %127 = "stablehlo.multiply"(%126, %124) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %128 = "stablehlo.multiply"(%127, %109) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %129 = "stablehlo.broadcast_in_dim"(%33) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<7x16xf32>
    %130 = "stablehlo.multiply"(%128, %129) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %131 = "stablehlo.negate"(%130) : (tensor<7x16xf32>) -> tensor<7x16xf32>
    %132 = "stablehlo.broadcast_in_dim"(%34) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<7x16xf32>
    %133 = "stablehlo.multiply"(%132, %125) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %134 = "stablehlo.add"(%131, %133) : (tensor<7x16xf32>, tensor<7x16xf32>) -> tensor<7x16xf32>
    %135 = "stablehlo.reduce"(%134, %31) <{dimensions = array<i64: 0>}> ({
    ^bb0(%arg7: tensor<f32>, %arg8: tensor<f32>):
      %141 = "stablehlo.add"(%arg7, %arg8) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%141) : (tensor<f32>) -> ()
    }) : (tensor<7x16xf32>, tensor<f32>) -> tensor<16xf32>
    %136 = "stablehlo.reshape"(%135) : (tensor<16xf32>) -> tensor<1x16xf32>
    %137 = "stablehlo.reduce"(%136, %31) <{dimensions = array<i64: 0>}> ({
    ^bb0(%arg5: tensor<f32>, %arg6: tensor<f32>):
      %140 = "stablehlo.add"(%arg5, %arg6) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%140) : (tensor<f32>) -> ()
    }) : (tensor<1x16xf32>, tensor<f32>) -> tensor<16xf32>
    %138 = "stablehlo.dot_general"(%134, %arg3) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>}> : (tensor<7x16xf32>, tensor<7x5xf32>) -> tensor<16x5xf32>
    %139 = "stablehlo.transpose"(%138) <{permutation = array<i64: 1, 0>}> : (tensor<16x5xf32>) -> tensor<5x16xf32>
    "func.return"(%117, %139, %137, %122) : (tensor<f32>, tensor<5x16xf32>, tensor<16xf32>, tensor<16x3xf32>) -> ()
  }) : () -> ()
}) {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
