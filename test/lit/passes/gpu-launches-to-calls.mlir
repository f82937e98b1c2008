// RUN: rlx-opt %s --split-input-file --pass-pipeline='builtin.module(gpu-launches-to-calls)' --verify-diagnostics | FileCheck %s

/// A launch is an array of ten numbers and one of pointers to the parameters' values: a buffer's address, a number, a
/// tensor map, which has its place on the stack of the body. The kernel's number is its place in the module.
// CHECK-LABEL: func.func private @scale.body(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<?x64xbf16>
//       CHECK:   %[[ONE:.+]] = llvm.mlir.constant(1 : i64) : i64
//       CHECK:   %[[MAP:.+]] = llvm.alloca %[[ONE]] x !llvm.array<128 x i8> {alignment = 64 : i64} : (i64) -> !llvm.ptr
//       CHECK:   %[[N:.+]] = memref.dim %[[X]], %c0
//       CHECK:   %[[VIEW:.+]] = memref.reinterpret_cast %[[X]]
//       CHECK:   call @scale.map_0(%[[MAP]], %[[VIEW]]) : (!llvm.ptr, memref<?x64xbf16, strided<[64, 1]>>) -> ()
//       CHECK:   call @scale.launch_1(%[[N]], %c1, %c1, %c256, %c1, %c1, %c1024_i32, %[[X]], %[[N]], %[[MAP]])
//  CHECK-SAME:     (index, index, index, index, index, index, i32, memref<?x64xbf16>, index, !llvm.ptr) -> ()
//   CHECK-NOT:   gpu.
//       CHECK:   return

// CHECK-LABEL: func.func private @scale.map_0(
//  CHECK-SAME:   %[[V0:[a-z0-9]+]]: !llvm.ptr, %[[V1:[a-z0-9]+]]: memref<?x64xbf16, strided<[64, 1]>>) attributes {mir.role = "launch", no_inline}
//       CHECK:   %{{[a-z_0-9]+}}, %{{.+}}, %[[SIZES:.+]]:2, %[[STRIDES:.+]]:2 = memref.extract_strided_metadata %[[V1]]
//       CHECK:   %[[AT:.+]] = llvm.inttoptr
//   CHECK-DAG:   %[[ROWS:.+]] = arith.index_cast %[[SIZES]]#0 : index to i64
//   CHECK-DAG:   %[[COLUMNS:.+]] = arith.index_cast %[[SIZES]]#1 : index to i64
//   CHECK-DAG:   %[[STRIDE:.+]] = arith.index_cast %[[STRIDES]]#0 : index to i64
/// bf16, two dimensions, swizzle 128, promotion 256, zeros outside; sizes and box innermost first.
//       CHECK:   %[[TYPE:.+]] = llvm.mlir.constant(9 : i64) : i64
//       CHECK:   %[[BYTES:.+]] = llvm.mul %[[STRIDE]], %{{.+}} : i64
//       CHECK:   %[[BOX:.+]] = llvm.mlir.constant(64 : i64) : i64
//       CHECK:   %[[SPEC:.+]] = llvm.alloca %{{.+}} x i64
//       CHECK:   %[[S0:.+]] = llvm.getelementptr %[[SPEC]][0]
//       CHECK:   llvm.store %[[TYPE]], %[[S0]]
//       CHECK:   %[[S5:.+]] = llvm.getelementptr %[[SPEC]][5]
//       CHECK:   llvm.store %[[COLUMNS]], %[[S5]]
//       CHECK:   %[[S6:.+]] = llvm.getelementptr %[[SPEC]][6]
//       CHECK:   llvm.store %[[ROWS]], %[[S6]]
//       CHECK:   %[[S7:.+]] = llvm.getelementptr %[[SPEC]][7]
//       CHECK:   llvm.store %[[BYTES]], %[[S7]]
//       CHECK:   %[[S8:.+]] = llvm.getelementptr %[[SPEC]][8]
//       CHECK:   llvm.store %[[BOX]], %[[S8]]
//       CHECK:   llvm.call @rlx_cuda_tensor_map(%[[V0]], %[[AT]], %[[SPEC]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()

// CHECK-LABEL: func.func private @scale.launch_1(
//  CHECK-SAME:   %[[V0:[a-z0-9]+]]: index, %{{.+}}, %[[SHARED:[a-z0-9]+]]: i32, %[[BUFFER:[a-z0-9]+]]: memref<?x64xbf16>, %[[COUNT:[a-z0-9]+]]: index, %[[MAP:[a-z0-9]+]]: !llvm.ptr)
//       CHECK:   %[[GRID:.+]] = arith.index_cast %[[V0]] : index to i64
//       CHECK:   %[[BYTES:.+]] = llvm.zext %[[SHARED]] : i32 to i64
//       CHECK:   %[[FLAGS:.+]] = llvm.mlir.constant(1 : i64) : i64
//       CHECK:   %[[PARAMETERS:.+]] = llvm.mlir.constant(3 : i64) : i64
//       CHECK:   %[[KERNEL:.+]] = llvm.mlir.constant(1 : i64) : i64
//       CHECK:   %[[LAUNCH:.+]] = llvm.alloca %{{.+}} x i64
//       CHECK:   %[[L0:.+]] = llvm.getelementptr %[[LAUNCH]][0]
//       CHECK:   llvm.store %[[KERNEL]], %[[L0]]
//       CHECK:   %[[L1:.+]] = llvm.getelementptr %[[LAUNCH]][1]
//       CHECK:   llvm.store %[[GRID]], %[[L1]]
//       CHECK:   %[[L7:.+]] = llvm.getelementptr %[[LAUNCH]][7]
//       CHECK:   llvm.store %[[BYTES]], %[[L7]]
//       CHECK:   %[[L8:.+]] = llvm.getelementptr %[[LAUNCH]][8]
//       CHECK:   llvm.store %[[FLAGS]], %[[L8]]
//       CHECK:   %[[L9:.+]] = llvm.getelementptr %[[LAUNCH]][9]
//       CHECK:   llvm.store %[[PARAMETERS]], %[[L9]]
//       CHECK:   %[[ADDRESS:.+]] = llvm.inttoptr
//       CHECK:   %[[A:.+]] = llvm.alloca %{{.+}} x !llvm.ptr
//       CHECK:   llvm.store %[[ADDRESS]], %{{.+}} : !llvm.ptr, !llvm.ptr
//       CHECK:   %[[NUMBER:.+]] = arith.index_cast %[[COUNT]] : index to i64
//       CHECK:   llvm.store %[[NUMBER]], %{{.+}} : i64, !llvm.ptr
//       CHECK:   %[[POINTERS:.+]] = llvm.alloca %{{.+}} x !llvm.ptr
//       CHECK:   llvm.store %[[A]], %{{.+}}
//       CHECK:   llvm.store %[[MAP]], %{{.+}}
//       CHECK:   llvm.call @rlx_cuda_launch(%[[LAUNCH]], %[[POINTERS]]) : (!llvm.ptr, !llvm.ptr) -> ()
//   CHECK-DAG: llvm.func @rlx_cuda_launch(!llvm.ptr, !llvm.ptr)
//   CHECK-DAG: llvm.func @rlx_cuda_tensor_map(!llvm.ptr, !llvm.ptr, !llvm.ptr)
//   CHECK-NOT: gpu.module
module attributes {gpu.container_module} {
  func.func private @scale.body(%x: memref<?x64xbf16>, %begin: index, %end: index, %scratch: memref<?xi8>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %c256 = arith.constant 256 : index
    %bytes = arith.constant 1024 : i32
    %n = memref.dim %x, %c0 : memref<?x64xbf16>
    %view = memref.reinterpret_cast %x to offset: [0], sizes: [%n, 64], strides: [64, 1] : memref<?x64xbf16> to memref<?x64xbf16, strided<[64, 1]>>
    %any = memref.cast %view : memref<?x64xbf16, strided<[64, 1]>> to memref<*xbf16>
    %map = nvgpu.tma.create.descriptor %any box[%c32, %c64] : memref<*xbf16> -> !nvgpu.tensormap.descriptor<tensor = memref<32x64xbf16, 3>, swizzle = swizzle_128b, l2promo = l2promo_256b, oob = zero, interleave = none>
    gpu.launch_func @kernels::@scale_1 blocks in (%n, %c1, %c1) threads in (%c256, %c1, %c1) dynamic_shared_memory_size %bytes args(%x : memref<?x64xbf16>, %n : index, %map : !nvgpu.tensormap.descriptor<tensor = memref<32x64xbf16, 3>, swizzle = swizzle_128b, l2promo = l2promo_256b, oob = zero, interleave = none>) {rlx.pdl}
    return
  }
  gpu.module @kernels {
    llvm.func @scale_0(%x: !llvm.ptr<1>) attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
    llvm.func @scale_1(%x: !llvm.ptr<1>, %n: i64, %map: !llvm.ptr) attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
}

// -----

/// A box is known when the code is written.
// expected-error @below {{expects a box of 1 constants, but got [None]}}
module attributes {gpu.container_module} {
  func.func private @scale.body(%x: memref<?xi8>, %begin: index, %end: index, %scratch: memref<?xi8>) {
    %any = memref.cast %x : memref<?xi8> to memref<*xi8>
    %map = nvgpu.tma.create.descriptor %any box[%begin] : memref<*xi8> -> !nvgpu.tensormap.descriptor<tensor = memref<64xi8, 3>, swizzle = none, l2promo = none, oob = zero, interleave = none>
    return
  }
}

// -----

/// The map's sizes and strides are those of the buffer that was cast.
// expected-error @below {{expects a cast of a buffer whose sizes and strides are known}}
module attributes {gpu.container_module} {
  func.func private @scale.body(%x: memref<*xi8>, %begin: index, %end: index, %scratch: memref<?xi8>) {
    %c64 = arith.constant 64 : index
    %map = nvgpu.tma.create.descriptor %x box[%c64] : memref<*xi8> -> !nvgpu.tensormap.descriptor<tensor = memref<64xi8, 3>, swizzle = none, l2promo = none, oob = zero, interleave = none>
    return
  }
}

// -----

// expected-error @below {{launches 'scale_2', which isn't a kernel of the PTX}}
module attributes {gpu.container_module} {
  func.func private @scale.body(%x: memref<4xi8>, %begin: index, %end: index, %scratch: memref<?xi8>) {
    gpu.launch_func @kernels::@scale_2 blocks in (%end, %end, %end) threads in (%end, %end, %end)
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".visible .entry scale_0()\0A">]
}


// -----

/// A size that a kernel takes as i32 is checked by its name ("rows", as bytes) while it has 64 bits; it stays so, and the
/// kernel reads the lower half.
// CHECK-LABEL: func.func private @count.launch_0(
//  CHECK-SAME:   %[[FLAGS:[a-z0-9]+]]: i32, %[[SIZE:[a-z0-9]+]]: index)
//       CHECK:   llvm.mlir.constant(2 : i64) : i64
//       CHECK:   %[[KERNEL:.+]] = llvm.mlir.constant(0 : i64) : i64
//       CHECK:   %[[GIVEN:.+]] = arith.index_cast %[[SIZE]] : index to i64
//       CHECK:   %[[ONE:.+]] = llvm.mlir.constant(1 : i64) : i64
//       CHECK:   %[[MOST:.+]] = llvm.mlir.constant(2147418112 : i64) : i64
//       CHECK:   %[[COUNTS:.+]] = llvm.alloca %{{.+}} x i64
//       CHECK:   llvm.store %[[KERNEL]], %{{.+}} : i64, !llvm.ptr
//       CHECK:   llvm.store %[[ONE]], %{{.+}} : i64, !llvm.ptr
//       CHECK:   llvm.store %[[MOST]], %{{.+}} : i64, !llvm.ptr
//       CHECK:   llvm.store %[[GIVEN]], %{{.+}} : i64, !llvm.ptr
//       CHECK:   %[[NAMES:.+]] = llvm.mlir.constant(1937207154 : i64) : i64
//       CHECK:   llvm.store %[[NAMES]], %[[AT:.+]] : i64, !llvm.ptr
//       CHECK:   llvm.call @rlx_cuda_check_counts(%[[COUNTS]], %{{.+}}) : (!llvm.ptr, !llvm.ptr) -> ()
//       CHECK:   llvm.store %[[FLAGS]], %{{.+}} : i32, !llvm.ptr
//       CHECK:   llvm.call @rlx_cuda_launch(
module attributes {gpu.container_module} {
  func.func private @count.body(%x: memref<?xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %flags = arith.constant 5 : i32
    %n = memref.dim %x, %c0 : memref<?xf32>
    %short = arith.index_cast %n : index to i32
    gpu.launch_func @kernels::@count_0 blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%flags : i32, %short : i32) {rlx.counts = ["flags", "rows"]}
    return
  }
  gpu.module @kernels {
    llvm.func @count_0(%flags: i32, %n: i32) attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
}
