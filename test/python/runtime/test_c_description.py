# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Descriptions as bytes: what Python writes is what C++ reads, and damage is an error, under sanitizers."""

from __future__ import annotations

import random
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_api import CXX_COMPILER
from compile_harness import compile_fresh

from rlx_mlir import GraphModule
from rlx_mlir.errors import InputError
from rlx_mlir.runtime import c_library
from rlx_mlir.runtime.encoding import encode

ROOT = Path(__file__).parents[3]
SOURCES = ("value", "plan_reader", "plan_spec", "c/description")
#: Reads blocks of a length and bytes; prints what each is, or the error, in one line.
PROGRAM = """
#include "runtime/c/description.h"
#include "runtime/error.h"
#include <cstdio>
#include <string>
using namespace rlx::runtime;
int main(int, char **argv) {
  const bool whole = argv[1][0] == 'd';
  uint32_t size = 0;
  while (std::fread(&size, sizeof(size), 1, stdin) == 1) {
    std::string bytes(size, '\\0');
    if (size > 0 && std::fread(&bytes[0], size, 1, stdin) != 1)
      return 1;
    std::string text = "read";
    try {
      if (whole) {
        const c::Description found = c::readDescription(bytes);
        for (const c::FunctionSpec &own : found.functions)
          own.plan.validate();
      } else {
        text = readValue(bytes).shown();
      }
    } catch (const InputError &error) {
      text = std::string("error: ") + error.what();
    }
    for (char &c : text)
      if (c == '\\n' || c == '\\0')
        c = ' ';
    std::printf("%s\\n", text.c_str());
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, with sanitizers where the compiler has them."""
    if CXX_COMPILER is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("reader")
    (folder / "read.cpp").write_text(PROGRAM)
    sources = [str(ROOT / "runtime" / f"{name}.cpp") for name in SOURCES]
    command = [CXX_COMPILER, "-std=c++17", "-g1", f"-I{ROOT}", "read.cpp", *sources, "-o", "read"]
    for flags in (["-fsanitize=address,undefined", "-fno-sanitize-recover=all"], []):
        if subprocess.run([*command, *flags], cwd=folder, capture_output=True, check=False).returncode == 0:
            return folder / "read"
    pytest.skip("the C++ compiler can't compile the reader")


def read(reader: Path, kind: str, cases: list[bytes]) -> list[str]:
    given = b"".join(struct.pack("<I", len(case)) + case for case in cases)
    done = subprocess.run([reader, kind], input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    lines = done.stdout.decode(errors="replace").split("\n")[:-1]
    assert len(lines) == len(cases)
    return lines


def as_lists(value: Any) -> Any:
    """What a value is once it was written: tuples are lists."""
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value


EDGES = [0, 1, -1, 63, 64, -64, 2**31, -(2**31), 2**60 - 1, 2**60, -(2**60), -(2**60) - 1, 2**63 - 1, -(2**63)]


def random_value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(4 if depth else 3)
    if kind == 0:
        return rng.choice([None, *EDGES, rng.getrandbits(rng.randrange(1, 63))])
    if kind == 1:
        return "".join(rng.choice("ab ä€😀") for _ in range(rng.randrange(140)))
    if kind == 2:
        return rng.randrange(-300, 300)
    return tuple(random_value(rng, depth - 1) for _ in range(rng.randrange(70)))


@pytest.mark.wide
def test_values_are_read_as_they_were_written(reader: Path) -> None:
    rng = random.Random(0)
    values = [*EDGES, None, "", [], [[]], ["x"] * 64, *(random_value(rng, 4) for _ in range(60))]
    for value, line in zip(values, read(reader, "v", [encode(value) for value in values]), strict=True):
        assert line == (f"'{value}'" if isinstance(value, str) else str(as_lists(value)))


def test_what_is_no_plain_data_is_not_written() -> None:
    for value, message in (
        (2**63, "has 64 bits, but 9223372036854775808 has more"),
        (-(2**63) - 1, "has 64 bits"),
        (1.5, "numbers, texts and lists, but got float"),
        ([{}], "but got dict"),
        (np.int64(1), "but got int64"),
    ):
        with pytest.raises(InputError, match=message):
            encode(value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "byte 0: a value of 1 bytes can't be in the 0 that are left"),
        (b"\x80", "byte 1: a value of 1 bytes can't be in the 0"),
        (b"\x80" * 9 + b"\x02", "byte 10: a number has more than 64 bits"),
        (b"\x80" * 20, "a number has more than 64 bits"),
        (b"\x00\x00", "byte 1: the value ends, but there are 2 bytes"),
        (b"\x09ab"[:1], "byte 1: a text of 2 bytes can't be in the 0 that are left"),
        (b"\x0aa", "byte 1: a list of 2 items can't be in the 1 bytes that are left"),
        (b"\xfe" + b"\xff" * 8 + b"\x01", r"a list of \d+ items can't be in the 0 bytes"),
        (b"\x0b", "byte 1: no kind of value has the number 2"),
        (b"\x071234567", "byte 1: a number of 8 bytes can't be in the 7"),
        (b"\x06" * 600 + b"\x00", "lists are more than 512 deep in each other"),
    ],
)
def test_bytes_that_are_no_value(reader: Path, data: bytes, message: str) -> None:
    (line,) = read(reader, "v", [data])
    assert line.startswith("error: ")
    assert re.search(message, line), line


def description() -> bytes:
    """That of a module with everything: loops, positions, conditions, computed sizes, ties."""
    graph = GraphModule.hir("all")
    x, y = graph.input("x", ["n", 4]), graph.input("y", ["m", 4])
    cache, new = graph.input("cache", ["b", 16, 4]), graph.input("new", ["b", "s", 4])
    updated = graph.cache_update(cache, new, graph.input("pos", ["b"], "i32"))
    w = graph.param("w", [4, 4])
    looped = graph.while_loop(lambda i, _: i < 5, lambda i, z: (i + 1, graph.mm(z, w)), (graph.constant(0, "i32"), x))[
        1
    ]
    graph.set_outputs(
        {"joined": graph.concat([looped, y], 0), "sum": x + y, "cache_out": updated}, tied={"cache_out": cache}
    )
    executable = compile_fresh(graph, maxima={"n": 8, "m": 8, "b": 2, "s": 4})
    executable.set_params({"w": np.eye(4, dtype=np.float32)})
    assert executable.plan_params is not None
    members = [c_library.Member("all", executable.artifact, executable.plan_params)]
    placed = c_library._Placed(members)
    weights = [1, "all.weights", placed.size, placed.digest.hex()]
    return c_library._description("all", members, [c_library._described(members[0])], placed, weights)


@pytest.mark.parametrize("step", [19, pytest.param(1, marks=pytest.mark.slow)])
def test_damaged_descriptions(reader: Path, step: int) -> None:
    """Bytes changed in some ways, and prefixes: an error or another description, never more than that."""
    whole = description()
    assert read(reader, "d", [whole]) == ["read"]
    rng = random.Random(1)
    cases = [whole[:size] for size in range(0, len(whole), step)]
    for at in range(0, len(whole), step):
        for byte in {whole[at] ^ 1, whole[at] ^ 128, 255, rng.randrange(256)}:
            cases.append(whole[:at] + bytes([byte]) + whole[at + 1 :])
    for _ in range(300 // step):
        at, size = rng.randrange(len(whole)), rng.randrange(1, 40)
        cases.append(whole[:at] + whole[at + size :])
        cases.append(whole[:at] + rng.randbytes(size) + whole[at:])
    lines = read(reader, "d", cases)
    assert all(line == "read" or line.startswith("error: ") for line in lines)
    assert all(line.startswith("error: ") for line in lines[: len(range(0, len(whole), step))])
    errors = sum(line.startswith("error: ") for line in lines)
    assert errors > len(lines) // 3
