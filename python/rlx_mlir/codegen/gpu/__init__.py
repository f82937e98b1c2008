# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is known of GPUs without asking LLVM: chips, and the versions of PTX that they need."""
