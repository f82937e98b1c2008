// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The HIR dialect: the blocks that model authors write, one file per family.

#ifndef RLX_HIR
#define RLX_HIR

include "hir/base.td"
include "hir/linear.td"
include "hir/norm.td"
include "hir/attention.td"
include "hir/sequence.td"
include "hir/decoder.td"
include "hir/mtp.td"

#endif // RLX_HIR
