// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef RLX_DIALECTS_HIR_H
#define RLX_DIALECTS_HIR_H

#include "dialects/MIR.h"

#include "dialects/HIRDialect.h.inc"

#define GET_OP_CLASSES
#include "dialects/HIROps.h.inc"

#endif // RLX_DIALECTS_HIR_H
