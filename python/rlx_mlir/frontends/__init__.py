# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Readers of files and models that come from elsewhere: GGUF, safetensors, ONNX."""
