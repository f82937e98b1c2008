// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The MIR dialect: tensor primitives, one file per family.

#ifndef RLX_MIR
#define RLX_MIR

include "mir/base.td"
include "mir/elementwise.td"

#endif // RLX_MIR
