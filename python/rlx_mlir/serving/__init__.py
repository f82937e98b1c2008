# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A server of models with OpenAI's interface: HTTP on one side, an engine that continues many prompts on the other."""
