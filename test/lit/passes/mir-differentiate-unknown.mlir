// RUN: not rlx-opt %s --pass-pipeline='builtin.module(mir-differentiate)' 2>&1 | FileCheck %s

// CHECK: 'mir.while'{{.*}}: reverse mode of 'mir.while' keeps what each step began with
func.func @loop(%x: tensor<f32> {mir.name = "x"}) -> tensor<f32> {
  %y = mir.while (%x) : (tensor<f32>) -> tensor<f32> cond {
  ^bb0(%a: tensor<f32>):
    %bound = mir.constant dense<1.0> : tensor<f32>
    %go = mir.compare lt %a, %bound : tensor<f32>
    mir.condition %go, %a : tensor<f32>
  } do {
  ^bb0(%a: tensor<f32>):
    %b = mir.add %a, %a : tensor<f32>
    mir.yield %b : tensor<f32>
  }
  return %y : tensor<f32>
}
