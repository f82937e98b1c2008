# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What stands for the operations and the graph builders of the reference API: docs/api-map.md says more of each."""

from __future__ import annotations

#: By family, what stands for each of its operations: operations (`mir.`), and builders of those that are made of others
#: without an operation of their own (`m.`).
OPERATIONS: dict[str, dict[str, str]] = {
    "Leaves": {
        "Input": "m.input",
        "Param": "m.param",
        "Constant": "mir.constant",
    },
    "Elementwise": {
        "Activation": "m.activation",
        "Cast": "mir.cast",
        "Binary": "m.binary",
        "Compare": "mir.compare",
        "Where": "mir.where",
        "ElementwiseRegion": "m.elementwise_region",
    },
    "Linear algebra": {
        "MatMul": "mir.matmul",
        "DotGeneral": "mir.dot_general",
        "DenseSolve": "mir.dense_solve",
        "BatchedDenseSolve": "mir.batched_dense_solve",
        "LoraMatMul": "mir.lora_matmul",
    },
    "Fused": {
        "FusedMatMulBiasAct": "mir.fused_matmul_bias_act",
        "FusedResidualLN": "mir.fused_residual_layer_norm",
        "FusedResidualRmsNorm": "mir.fused_residual_rms_norm",
        "FusedSwiGLU": "mir.fused_swiglu",
        "FusedAttentionBlock": "mir.fused_attention_block",
        "FusedTransformerLayer": "mir.fused_transformer_layer",
    },
    "Normalisation": {
        "LayerNorm": "mir.layer_norm",
        "LayerNorm2d": "m.layer_norm2d",
        "GroupNorm": "mir.group_norm",
        "RmsNorm": "mir.rms_norm",
    },
    "Attention and positions": {
        "Attention": "mir.attention",
        "Rope": "mir.rope",
        "AxialRope2d": "mir.axial_rope2d",
    },
    "Shapes": {
        "Reshape": "mir.reshape",
        "Transpose": "mir.transpose",
        "Narrow": "mir.narrow",
        "Concat": "mir.concat",
        "Expand": "mir.expand",
        "Gather": "mir.gather",
        "ResizeNearest2x": "mir.resize_nearest_2x",
    },
    "Reductions and sampling": {
        "Reduce": "mir.reduce",
        "Softmax": "mir.softmax",
        "Cumsum": "mir.cumsum",
        "Sample": "mir.sample m.sample_logits",
    },
    "Convolution and pooling": {
        "Conv": "mir.conv",
        "ConvTranspose2d": "mir.conv_transpose2d",
        "Pool": "mir.pool",
    },
    "Mixtures of experts, indices": {
        "GroupedMatMul": "mir.grouped_matmul",
        "ScatterAdd": "mir.scatter_add",
        "TopK": "mir.top_k",
    },
    "Loss": {
        "SoftmaxCrossEntropyWithLogits": "mir.softmax_cross_entropy_with_logits",
    },
    "Quantisation": {
        "Quantize": "mir.quantize",
        "Dequantize": "mir.dequantize",
        "FakeQuantize": "mir.fake_quantize",
        "FakeQuantizeLSQ": "mir.fake_quantize_lsq",
        "QMatMul": "mir.q_matmul",
        "QConv2d": "mir.q_conv2d",
        "DequantMatMul": "mir.dequant_matmul mir.dequant_matmul_scaled",
        "DequantGroupedMatMul": "mir.dequant_grouped_matmul",
        "DequantMoEWeights": "mir.dequant_moe_weights",
    },
    "Recurrences": {
        "SelectiveScan": "mir.selective_scan",
        "GatedDeltaNet": "mir.gated_delta_net",
    },
    "Control flow": {
        "If": "mir.if",
        "While": "mir.while",
        "Scan": "mir.scan",
        "Custom": "mir.custom",
        "CustomFn": "mir.custom_fn",
    },
    "FFT and complex numbers": {
        "Fft": "mir.fft",
        "ComplexNormSq": "mir.complex_norm_sq",
        "Conjugate": "mir.conjugate",
    },
    "Gradients": {
        "ReluBackward": "m.relu_backward",
        "ActivationBackward": "mir.activation_backward",
        "FakeQuantizeBackward": "mir.fake_quantize_backward",
        "FakeQuantizeLSQBackwardX": "mir.fake_quantize_lsq_backward_x",
        "FakeQuantizeLSQBackwardScale": "mir.fake_quantize_lsq_backward_scale",
        "LayerNormBackwardInput": "mir.layer_norm_backward_input",
        "LayerNormBackwardGamma": "mir.layer_norm_backward_gamma",
        "RmsNormBackwardInput": "mir.rms_norm_backward_input",
        "RmsNormBackwardGamma": "mir.rms_norm_backward_gamma",
        "RmsNormBackwardBeta": "m.rms_norm_backward_beta",
        "GroupNormBackwardInput": "mir.group_norm_backward_input",
        "GroupNormBackwardGamma": "mir.group_norm_backward_gamma",
        "GroupNormBackwardBeta": "mir.group_norm_backward_beta",
        "RopeBackward": "m.rope_backward",
        "CumsumBackward": "m.cumsum_backward",
        "GatherBackward": "m.gather_backward",
        "MaxPool2dBackward": "mir.max_pool2d_backward",
        "Conv2dBackwardInput": "mir.conv2d_backward_input",
        "Conv2dBackwardWeight": "mir.conv2d_backward_weight",
        "AttentionBackward": "mir.attention_backward",
        "SoftmaxCrossEntropyBackward": "mir.softmax_cross_entropy_backward",
        "ComplexNormSqBackward": "mir.complex_norm_sq_backward",
        "ScanBackward": "m.scan_backward",
        "ScanBackwardXs": "m.scan_backward_xs",
    },
    "Gaussian splats": {
        "GaussianSplatRender": "mir.gaussian_splat_render",
        "GaussianSplatRenderBackward": "mir.gaussian_splat_render_backward",
        "GaussianSplatPrepare": "mir.gaussian_splat_prepare",
        "GaussianSplatRasterize": "mir.gaussian_splat_rasterize",
    },
}

_BUILDERS = """
input param add_node append_node binary activation add sub mul div gelu gelu_approx silu relu exp sqrt neg tanh eq
lt cast matmul mm dense_solve batched_dense_solve lora_matmul fused_matmul_bias_act linear_fused linear_bias
linear_bias_act shared_matmul_pair swiglu_ffn fused_swiglu_ffn layer_norm ln layer_norm2d group_norm rms_norm
fused_residual_ln fused_residual_rms_norm attention attention_ attention_opts attention_kind attention_kind_opts
attention_bias rope rope_n axial_rope2d reshape reshape_ transpose_ narrow_ concat concat_ gather gather_ reduce sum
mean softmax sm cumsum sample conv2d conv_transpose2d quantize quantize_per_channel dequantize
dequantize_per_channel q_matmul q_conv2d dequant_matmul dequant_matmul_packed dequant_matmul_nvfp4 selective_scan
gated_delta_net gated_delta_net_carry scan scan_checkpointed scan_with_xs scan_with_bcasts_and_xs scan_trajectory
scan_backward scan_backward_with_checkpoints scan_backward_xs scan_backward_xs_with_checkpoints custom_fn
custom_fn_multi custom_op custom_op_packed fft fft_norm fft_axis fftn ifftn pad_last_axis_to_pow2 split_spectrum
fft_real fft_batch_real rfft irfft ifft_spectrum stft fft_conv1d psd psd_real fftfreq_tensor rfftfreq_tensor
complex_norm_sq conjugate complex_norm_sq_backward softmax_cross_entropy_with_logits softmax_cross_entropy_backward
relu_backward activation_backward layer_norm_backward_input layer_norm_backward_gamma rms_norm_backward_input
rms_norm_backward_gamma rms_norm_backward_beta group_norm_backward_input group_norm_backward_gamma
group_norm_backward_beta rope_backward cumsum_backward gather_backward maxpool2d_backward conv2d_backward_input
conv2d_backward_weight attention_backward attention_backward_all gaussian_splat_render gaussian_splat_render_meta
gaussian_splat_prepare gaussian_splat_rasterize gaussian_splat_render_decomposed gaussian_splat_render_backward
"""

#: The builders of a graph, in the reference's order.
BUILDERS: tuple[str, ...] = tuple(_BUILDERS.split())

#: The name here of those that are called otherwise, or that one builder with keywords stands for.
RENAMED: dict[str, str] = {
    "add_node": "append_node",
    "fused_residual_ln": "fused_residual_layer_norm",
    "attention_": "attention",
    "attention_opts": "attention",
    "attention_kind": "attention",
    "attention_kind_opts": "attention",
    "attention_bias": "attention",
    "rope_n": "rope",
    "reshape_": "reshape",
    "transpose_": "transpose",
    "narrow_": "narrow",
    "concat_": "concat",
    "gather_": "gather",
    "sample": "sample_logits",
    "dequant_matmul_packed": "dequant_matmul",
    "custom_op": "custom",
    "custom_op_packed": "custom",
    "custom_fn_multi": "custom_fn",
}
