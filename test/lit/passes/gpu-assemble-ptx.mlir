// RUN: rlx-opt %s --pass-pipeline='builtin.module(gpu-assemble-ptx{cubin=never})' | FileCheck %s --check-prefix=NEVER
// RUN: %if ptxas %{ rlx-opt %s --pass-pipeline='builtin.module(gpu-assemble-ptx)' | FileCheck %s %}
// RUN: %if ptxas %{ not rlx-opt %s --pass-pipeline='builtin.module(gpu-assemble-ptx{chip=sm_80 cubin=always})' 2>&1 | FileCheck %s --check-prefix=REFUSED %}
// RUN: not rlx-opt %s --pass-pipeline='builtin.module(gpu-assemble-ptx{cubin=yes})' 2>&1 | FileCheck %s --check-prefix=OPTION

/// Machine code, an ELF file, stands beside the PTX of a `gpu.binary`, which stays what it is.
//       CHECK: gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90">, assembly = "{{.*}}.entry nothing() { ret; }\0A">,
//  CHECK-SAME: #gpu.object<#nvvm.target<{{.*}}chip = "sm_90"{{.*}}>, properties = {assembler = "{{[0-9.]+}}"}, bin = "\7FELF
//       NEVER: gpu.binary @kernels [#gpu.object<{{.*}}assembly
//   NEVER-NOT: bin =
//     REFUSED: doesn't take the PTX for sm_80:
//      OPTION: option 'cubin' expects one of auto, always, never, but got 'yes'
gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90">, assembly = ".version 7.8\0A.target sm_90\0A.address_size 64\0A.visible .entry nothing() { ret; }\0A">]
