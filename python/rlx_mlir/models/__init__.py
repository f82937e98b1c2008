# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Model families, and what a model needs around the network: files, tokenizers, chat templates, sampling."""
