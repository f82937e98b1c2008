# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs code that was compiled for another architecture: a C program makes the calls of its plan, under an emulator.

The program holds the plan as data in its text: no size is computed there. It maps one file of memory, in which the
inputs, the parameters, the outputs and the arena follow each other, and writes it back. The code is linked into it by
the system's linker, or loaded by our loader when it runs.
"""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from rlx_mlir.dtypes import numpy_dtype
from rlx_mlir.runtime.artifact import Artifact, BufferSpec, Terms
from rlx_mlir.runtime.prepare import prepare

TOOLS = {"aarch64": ("aarch64-linux-gnu-gcc", "qemu-aarch64")}
"""Cross compiler and user-mode emulator by architecture."""

_MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef void Kernel(void *const *, const int64_t *, int64_t, int64_t, void *);
typedef int64_t Size(const int64_t *);
static char *memory;
static void *shared;
static void run(Kernel *kernel, Size *units, Size *scratch, const int64_t *offsets, int count, const int64_t *dims) {
  void *buffers[64];
  for (int i = 0; i < count; ++i) buffers[i] = memory + offsets[i];
  buffers[count] = shared;
  int64_t bytes = scratch(dims), total = units(dims);
  char *own = aligned_alloc(64, bytes + 64);
  memset(own, 0xFF, bytes);
  for (int64_t unit = 0; unit < total; unit += 3)
    kernel(buffers, dims, unit, unit + 3 < total ? unit + 3 : total, own);
  free(own);
}
"""


def missing_tools(architecture: str) -> list[str]:
    """What has to be installed to run code of an architecture here."""
    return [tool for tool in TOOLS[architecture] if shutil.which(tool) is None]


ROOT = Path(__file__).parents[3]
#: The loader, and what it is made of.
LOADER = ("loader", "linker", "elf_object", "relocations", "host_functions")
#: What gives the programs addresses in the objects `code*.o` in the present folder.
_FIND = """
#include "runtime/loader.h"
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <list>
static const rlx::runtime::ObjectCode &code() {
  static const rlx::runtime::ObjectCode &loaded = [] () -> const rlx::runtime::ObjectCode & {
    std::list<std::string> contents;
    std::vector<std::string_view> objects;
    for (const char *name : {"code.o", "code2.o"}) {
      std::ifstream file(name, std::ios::binary);
      if (!file) continue;
      contents.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
      objects.push_back(contents.back());
    }
    return *new rlx::runtime::ObjectCode(objects);
  }();
  return loaded;
}
extern "C" void *find(const char *name) {
  try {
    return code().lookup(name);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\\n", error.what());
    std::exit(3);
  }
}
"""


def compile_loader(architecture: str, folder: Path) -> list[str]:
    """The loader for another architecture, as objects in ``folder``; programs call ``void *find(const char *)``."""
    compiler = TOOLS[architecture][0].replace("gcc", "g++")
    (folder / "find.cpp").write_text(_FIND)
    sources = [folder / "find.cpp", *(ROOT / "runtime" / f"{name}.cpp" for name in LOADER)]
    command = [compiler, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT), "-c", *map(str, sources)]
    subprocess.run(command, cwd=folder, check=True)
    return [str(folder / f"{source.stem}.o") for source in sources]


def run_foreign(
    artifact: Artifact,
    params: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    folder: Path,
    loader: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """The outputs of a module for inputs and parameters.

    Args:
        artifact: the module.
        params, inputs: arrays by name.
        folder: gets the program and its memory.
        loader: what `compile_loader` gave, to load the code; by default it is linked.
    """
    sizes = _symbols(artifact, inputs)

    def value(terms: Terms | int) -> int:
        return (
            terms
            if isinstance(terms, int)
            else sum(factor * math.prod(sizes[symbol] for symbol in symbols) for factor, symbols in terms)
        )

    def output(spec: BufferSpec) -> np.ndarray:
        if spec.tied and spec.updated:  # calls write the rest of it only
            return np.ascontiguousarray({**params, **inputs}[spec.tied])
        return np.zeros([value(terms) for terms in spec.sizes], numpy_dtype(spec.dtype))

    packed = {**params, **prepare(artifact.preparation, params, {})}
    regions: dict[str, list[np.ndarray]] = {
        "input": [np.ascontiguousarray(inputs[spec.name]) for spec in artifact.inputs],
        "param": [np.ascontiguousarray(packed[spec.name]) for spec in artifact.plan_parameters],
        "output": [output(spec) for spec in artifact.outputs],
        "arena": [np.zeros(artifact.arena_bytes, np.uint8)],
    }
    starts: dict[str, list[int]] = {}
    memory = bytearray()
    for kind, arrays in regions.items():
        starts[kind] = []
        for array in arrays:
            memory += bytes(-len(memory) % 64)
            starts[kind].append(len(memory))
            memory += array.tobytes()
    sharing = {kernel for kernel in artifact.kernels if f"{kernel}_shared\0".encode() in artifact.code}
    lines = [_MAIN, *_declarations(artifact, sharing, is_loaded=bool(loader))]
    lines.append(f"  memory = aligned_alloc(64, {len(memory) + 64});")
    lines.append('  FILE *file = fopen(argv[1], "rb+");')
    lines.append(f"  if (!file || fread(memory, 1, {len(memory)}, file) != {len(memory)}) return 2;")
    for number, buffers, sizes_of_call, _ in artifact.calls:
        offsets = []
        for source, index, offset in buffers:
            start = starts["arena"][0] + artifact.slots[index][0] if source == "arena" else starts[source][index]
            offsets.append(start + value(offset))
        kernel = artifact.kernels[number]
        dims = [value(terms) for terms in sizes_of_call] or [0]
        extents = f"(int64_t[]){{{', '.join(map(str, dims))}}}"
        if kernel in sharing:
            lines.append(f"  shared = aligned_alloc(64, {kernel}_shared({extents}));")
        for part in [kernel, f"{kernel}_finish"] if kernel in sharing else [kernel]:
            lines.append(
                f"  run({part}, {part}_units, {part}_scratch, (int64_t[]){{{', '.join(map(str, offsets))}}}, "
                f"{len(offsets)}, {extents});"
            )
    lines += [
        "  rewind(file);",
        f"  return fwrite(memory, 1, {len(memory)}, file) != {len(memory)} || fclose(file);",
        "}",
    ]
    (folder / "main.c").write_text("\n".join(lines))
    (folder / "code.o").write_bytes(artifact.code)
    (folder / "memory").write_bytes(memory)
    _run_program(artifact, folder, loader)
    after = (folder / "memory").read_bytes()
    return {
        spec.name: np.frombuffer(after, array.dtype, array.size, start).reshape(array.shape)
        for spec, array, start in zip(artifact.outputs, regions["output"], starts["output"], strict=True)
    }


def _declarations(artifact: Artifact, sharing: Collection[str], *, is_loaded: bool) -> list[str]:
    """What a program begins with: the functions of the kernels, by their names or as what the loader found."""
    functions = dict.fromkeys([*artifact.kernels, *(f"{kernel}_finish" for kernel in sharing)], "Kernel")
    for kernel in tuple(functions):
        functions |= {f"{kernel}_units": "Size", f"{kernel}_scratch": "Size"}
    functions |= {f"{kernel}_shared": "Size" for kernel in sharing}
    lines = [f"static {kind} *{name};" if is_loaded else f"{kind} {name};" for name, kind in functions.items()]
    lines.append("extern void *find(const char *);\nint main(int argc, char **argv) {")
    return lines + [f'  {name} = ({kind} *)find("{name}");' for name, kind in functions.items() if is_loaded]


def _run_program(artifact: Artifact, folder: Path, loader: Sequence[str]) -> None:
    """Builds the program in a folder, and runs it on the memory there."""
    compiler, emulator = TOOLS[artifact.target["triple"].partition("-")[0]]
    subprocess.run([compiler, "-O1", "-c", "main.c"], cwd=folder, check=True)
    linker = compiler.replace("gcc", "g++") if loader else compiler
    code = loader or ["code.o"]
    subprocess.run([linker, "-static", "-o", "program", "main.o", *code, "-lm"], cwd=folder, check=True)
    subprocess.run([emulator, "program", "memory"], cwd=folder, check=True, timeout=300)


def _symbols(artifact: Artifact, inputs: Mapping[str, np.ndarray]) -> list[int]:
    """The sizes of the symbols that the inputs show, in the plan's order."""
    known: dict[str, int] = {}
    for spec in artifact.inputs:
        for name, size in zip(spec.shape, np.shape(inputs[spec.name]), strict=True):
            if isinstance(name, str):
                known[name] = size
    return [known[name] for name, _ in artifact.symbols]
