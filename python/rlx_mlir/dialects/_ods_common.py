# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tablegen's Python bindings import from beside themselves: the helpers of the MLIR bindings."""

from mlir.dialects._ods_common import (  # noqa: F401  # noqa: F401  # noqa: F401
    _cext,
    equally_sized_accessor,
    get_default_loc_context,
    get_op_result_or_op_results,
    get_op_result_or_value,
    get_op_results_or_values,
    segmented_accessor,
)
