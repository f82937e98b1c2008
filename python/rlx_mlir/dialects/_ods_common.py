# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tablegen's Python bindings import from beside themselves: the helpers of the MLIR bindings."""

from mlir.dialects._ods_common import _cext, equally_sized_accessor, get_default_loc_context  # noqa: F401
from mlir.dialects._ods_common import get_op_result_or_op_results, get_op_result_or_value  # noqa: F401
from mlir.dialects._ods_common import get_op_results_or_values, segmented_accessor  # noqa: F401
