# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tiny models of `tiny_models` as folders of Hugging Face's libraries, and tokenizers of such folders."""
