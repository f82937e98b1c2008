# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations and enumerations of the MIR dialect: tensor primitives."""

from rlx_mlir.dialects._mir_enum_gen import *  # noqa: F403
from rlx_mlir.dialects._mir_ops_gen import *  # noqa: F403
