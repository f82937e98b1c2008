// f, after hir-to-mir{policy=direct}
#loc1 = loc("/work/wt/firstday/test/python/test_wrong_arguments.py":160:0)
#loc2 = loc("/work/wt/firstday/test/python/test_wrong_arguments.py":161:0)
#loc4 = loc("x"(#loc1))
#loc5 = loc("w"(#loc2))
module attributes {hir.policy = "direct", mir.stage = "hir"} {
  func.func @f(%arg0: tensor<?x4xf32> {mir.dims = ["rows", ""], mir.kind = "input", mir.name = "x"} loc("x"(#loc1)), %arg1: tensor<4xf32> {mir.kind = "param", mir.name = "w"} loc("w"(#loc2))) -> (tensor<?x4xf32> {mir.name = "y"}) {
    %0 = mir.rms_norm %arg0, %arg1 : tensor<?x4xf32>, tensor<4xf32> loc(#loc6)
    %1 = mir.constant dense<1.000000e+00> : tensor<f32> loc(#loc7)
    %2 = mir.add %0, %1 : tensor<?x4xf32>, tensor<f32> loc(#loc8)
    return %2 : tensor<?x4xf32> loc(#loc9)
  } loc(#loc3)
} loc(#loc3)
#loc = loc("/work/wt/firstday/test/python/test_wrong_arguments.py":159:0)
#loc3 = loc("f"(#loc))
#loc6 = loc("rms_norm"(#loc2))
#loc7 = loc("constant"(#loc2))
#loc8 = loc("add"(#loc2))
#loc9 = loc("return"(#loc2))
