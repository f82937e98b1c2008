# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Relocations of both machines, which are arithmetic: linked on this machine, and read back by other means."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from elf_files import Elf

from rlx_mlir import native
from rlx_mlir.errors import ExecutionError, InputError

X86, ARM = 62, 183
CODE, CONSTANTS, DATA = 0, 1, 2
FLAGS = {".text": 6, ".rodata": 2, ".data": 3}
SEGMENT = 65536
BASE = 0x7F00_1234_5000


@dataclass(frozen=True)
class Linked:
    """An image of an object for an address."""

    image: bytes
    address: int
    symbols: Mapping[str, int]
    segments: tuple[tuple[int, int], ...]
    functions: list[str]

    def word(self, at: int, size: int = 4) -> int:
        return int.from_bytes(self.image[at : at + size], "little")


def link(elf: Elf, address: int = BASE, functions: Mapping[str, int] | None = None) -> Linked:
    image, symbols, segments, used = native.link_objects(
        [bytes(elf)], machine=elf.machine, address=address, functions=functions or {}
    )
    return Linked(image, address, symbols, segments, used)


def one(
    machine: int,
    kind: int,
    place: bytes,
    *,
    at: int = 0,
    target: str = ".rodata",
    value: int = 0,
    addend: int = 0,
    address: int = BASE,
    padding: int = 0,
) -> tuple[int, Linked, int]:
    """Links one relocation of code; gives the bytes that it made, the image, and the symbol's address."""
    elf = Elf(machine)
    text = elf.section(".text", bytes(at) + place + bytes(64), kind=1, flags=6, alignment=16)
    where = text
    if target != ".text":
        where = elf.section(target, bytes(value + 64 + padding), kind=1, flags=FLAGS[target], alignment=16)
    symbol = elf.symbol("s", where, value)
    elf.relocations(text, [(at, kind, symbol, addend)])
    linked = link(elf, address)
    return linked.word(at, len(place)), linked, linked.address + linked.symbols["s"]


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def page(address: int) -> int:
    return address & ~0xFFF


# x86-64 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("addend", [0, -4, 12, 2**31 - 2**17])
@pytest.mark.parametrize("at", [0, 1, 60])
def test_x86_distances(at: int, addend: int) -> None:
    for kind in (2, 4):  # R_X86_64_PC32, R_X86_64_PLT32
        made, linked, symbol = one(X86, kind, b"\xaa" * 4, at=at, value=8, addend=addend)
        assert linked.address + at + signed(made, 32) == symbol + addend
        assert linked.image[:at] == bytes(at)
        assert linked.image[at + 4 : at + 68] == bytes(64)
    made, linked, symbol = one(X86, 24, b"\xaa" * 8, at=at, value=8, addend=addend)  # R_X86_64_PC64
    assert linked.address + at + signed(made, 64) == symbol + addend


def test_x86_addresses() -> None:
    made, _, symbol = one(X86, 1, b"\xaa" * 8, value=24, addend=-1)  # R_X86_64_64
    assert made == symbol - 1
    for kind in (10, 11):  # R_X86_64_32, R_X86_64_32S
        made, _, symbol = one(X86, kind, b"\xaa" * 4, value=24, addend=3, address=0x1000_0000)
        assert made == symbol + 3


@pytest.mark.parametrize("kind", [9, 41, 42, 43])
def test_x86_slots(kind: int) -> None:
    made, linked, symbol = one(X86, kind, b"\xaa" * 4, at=3, value=8, addend=-4)
    slot = 3 + signed(made, 32) + 4
    first, size = linked.segments[CONSTANTS]
    assert first <= slot <= first + size - 8
    assert slot % 8 == 0
    assert linked.word(slot, 8) == symbol


@pytest.mark.parametrize(
    ("kind", "address", "addend", "message"),
    [
        (2, BASE, 2**31, r"R_X86_64_PC32 at byte 0 of section '.text', against symbol 1 's', doesn't fit: its value "),
        (2, BASE, -(2**31) - 2**17, r"lies in \[-2\^31, 2\^31\), but is -2147\d+ \(0xffffffff7ff"),
        (10, BASE, 0, r"R_X86_64_32 .* lies in \[0, 2\^32\), but is"),
        (10, 0x1000, -0x20000, r"R_X86_64_32 .* lies in \[0, 2\^32\), but is -"),
        (11, 0x7FFF_F000, 0, r"R_X86_64_32S .* lies in \[-2\^31, 2\^31\), but is 21475\d+ \(0x8000f000\)"),
    ],
)
def test_x86_values_that_do_not_fit(kind: int, address: int, addend: int, message: str) -> None:
    with pytest.raises(ExecutionError, match=message):
        one(X86, kind, bytes(4), address=address, addend=addend)


# AArch64 ----------------------------------------------------------------------------------------------

ADRP, ADD, BL, B, LDR_LITERAL = 0x9000_0003, 0x9100_0063, 0x9400_0000, 0x1400_0000, 0x5800_0003
CONDITION, TEST_BIT, ADR, MOVZ = 0x5400_0001, 0x3600_0003, 0x1000_0003, 0xD280_0003


def decoded_adr(word: int) -> int:
    return signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)


def decoded_branch(word: int, low: int, bits: int) -> int:
    return 4 * signed(word >> low, bits)


def arm(kind: int, word: int, **options: int | str) -> tuple[int, Linked, int]:
    return one(ARM, kind, struct.pack("<I", word), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "addend"), [(0, 0), (0xFF8, 4), (0x1000, 0), (0x12340, -0x800), (0x40000, 0x123450)])
def test_arm_pages_and_what_is_in_them(value: int, addend: int) -> None:
    """ADRP and an addition or a load, together: the address, whatever the load's size is."""
    made, linked, symbol = arm(275, ADRP, at=20, value=value, addend=addend)
    assert made & 0x9F00_001F == ADRP
    pages = page(linked.address + 20) + (decoded_adr(made) << 12)
    assert pages == page(symbol + addend)
    made, _, _ = arm(277, ADD, at=24, value=value, addend=addend)
    assert made & 0xFFC0_03FF == ADD
    assert pages + (made >> 10 & 0xFFF) == symbol + addend
    loads = {278: 0x3940_0063, 284: 0x7940_0063, 285: 0xB940_0063, 286: 0xF940_0063, 299: 0x3DC0_0063}
    for shift, (kind, word) in enumerate(loads.items()):
        if (symbol + addend) % (1 << shift):
            with pytest.raises(ExecutionError, match=f"its value is a multiple of {1 << shift}, but is 0x"):
                arm(kind, word, at=24, value=value, addend=addend)
            continue
        made, _, _ = arm(kind, word, at=24, value=value, addend=addend)
        assert made & 0xFFC0_03FF == word
        assert pages + ((made >> 10 & 0xFFF) << shift) == symbol + addend


def test_arm_pages_before_the_place() -> None:
    for kind in (275, 276):
        made, linked, symbol = arm(kind, ADRP, at=8, value=16, addend=-0x0900_0000)
        assert page(linked.address + 8) + (decoded_adr(made) << 12) == page(symbol - 0x0900_0000)


@pytest.mark.parametrize(
    ("kind", "word", "low", "bits"),
    [
        (283, BL, 0, 26),
        (282, B, 0, 26),
        (280, CONDITION, 5, 19),
        (279, TEST_BIT, 5, 14),
        (273, LDR_LITERAL, 5, 19),
    ],
)
def test_arm_branches_and_literals(kind: int, word: int, low: int, bits: int) -> None:
    mask = ((1 << bits) - 1) << low
    reach = 1 << (bits + 1)
    for addend in (0, 4, -4, reach - 64, -reach):
        made, linked, symbol = arm(kind, word, at=32, target=".text", value=32, addend=addend)
        assert made & ~mask == word
        assert linked.address + 32 + decoded_branch(made, low, bits) == symbol + addend
    for addend in (reach, -reach - 4):
        with pytest.raises(ExecutionError, match=rf"lies in \[-2\^{bits + 1}, 2\^{bits + 1}\), but is {addend} "):
            arm(kind, word, at=32, target=".text", value=32, addend=addend)
    with pytest.raises(ExecutionError, match="its value is a multiple of 4, but is 0x6"):
        arm(kind, word, at=32, target=".text", value=38)


def test_arm_near_addresses() -> None:
    for addend in (0, 1, -3, 2**20 - 1, -(2**20)):
        made, linked, symbol = arm(274, ADR, at=32, target=".text", value=32, addend=addend)
        assert made & 0x9F00_001F == ADR
        assert linked.address + 32 + decoded_adr(made) == symbol + addend
    with pytest.raises(ExecutionError, match=r"R_AARCH64_ADR_PREL_LO21 .* lies in \[-2\^20, 2\^20\), but is 1048576"):
        arm(274, ADR, at=32, target=".text", value=32, addend=2**20)


def test_arm_moves_of_16_bits() -> None:
    for group, kinds in enumerate(((264,), (266,), (268,), (269,))):
        for kind in kinds:
            made, _, symbol = arm(kind, MOVZ, value=40, addend=1)
            assert made & ~0x1F_FFE0 == MOVZ
            assert made >> 5 & 0xFFFF == symbol + 1 >> 16 * group & 0xFFFF
    made, _, symbol = arm(265, MOVZ, value=40, address=0x7654_0000)  # the last group of a number
    assert made >> 5 & 0xFFFF == symbol >> 16
    for kind, limit in ((263, 16), (265, 32)):
        with pytest.raises(ExecutionError, match=rf"lies in \[0, 2\^{limit}\), but is"):
            arm(kind, MOVZ)


@pytest.mark.parametrize(
    ("kind", "size", "relative"), [(257, 8, False), (260, 8, True), (261, 4, True), (314, 4, True)]
)
def test_arm_data(kind: int, size: int, relative: bool) -> None:
    made, linked, symbol = one(ARM, kind, b"\xaa" * size, at=8, value=24, addend=-5)
    found = linked.address + 8 + signed(made, 8 * size) if relative else made
    assert found == symbol - 5


def test_arm_short_data() -> None:
    made, _, symbol = one(ARM, 258, b"\xaa" * 4, value=24, address=0x7000_0000)
    assert made == symbol
    made, linked, symbol = one(ARM, 262, b"\xaa" * 2, at=8, target=".text", value=24)
    assert linked.address + 8 + signed(made, 16) == symbol
    with pytest.raises(ExecutionError, match=r"R_AARCH64_ABS16 .* lies in \[-2\^15, 2\^16\), but is"):
        one(ARM, 259, b"\xaa" * 2)
    with pytest.raises(ExecutionError, match=r"R_AARCH64_ABS32 .* lies in \[-2\^31, 2\^32\), but is"):
        one(ARM, 258, b"\xaa" * 4)


def test_arm_slots() -> None:
    made, linked, symbol = arm(311, ADRP, at=4, value=8)
    pages = page(linked.address + 4) + (decoded_adr(made) << 12)
    made, _, _ = arm(312, 0xF940_0063, at=4, value=8)
    slot = pages + ((made >> 10 & 0xFFF) << 3) - linked.address
    assert linked.word(slot, 8) == symbol
    made, linked, symbol = arm(309, LDR_LITERAL, at=4, value=8)
    assert linked.word(4 + decoded_branch(made, 5, 19), 8) == symbol
    with pytest.raises(ExecutionError, match=r"R_AARCH64_ADR_GOT_PAGE .*: its addend is 0, but is 8"):
        arm(311, ADRP, at=4, value=8, addend=8)


def test_arm_pages_that_are_too_far() -> None:
    with pytest.raises(ExecutionError, match=r"R_AARCH64_ADR_PREL_PG_HI21 .* lies in \[-2\^32, 2\^32\), but is"):
        arm(275, ADRP, addend=2**33)
    assert arm(276, ADRP, addend=2**33)[0] & 0x9F00_001F == ADRP


# Calls of the host program ------------------------------------------------------------------------------


def calls(machine: int, kinds: list[int], word: bytes) -> Elf:
    """Code that calls `f` and `g` by relocations of these types."""
    elf = Elf(machine)
    text = elf.section(".text", word * len(kinds) * 2 + bytes(3), kind=1, flags=6, alignment=16)
    symbols = [elf.symbol(name, 0) for name in ("f", "g")]
    size = len(word)
    places = [(size * i, kind, symbol) for i, (kind, symbol) in enumerate((k, s) for k in kinds for s in symbols)]
    elf.relocations(text, [(at, kind, symbol, -4 if machine == X86 else 0) for at, kind, symbol in places])
    return elf


FAR = {"f": 0x1122_3344_5566_7788, "g": 0x10}


def test_x86_calls_go_by_stubs() -> None:
    linked = link(calls(X86, [4, 4], b"\xaa" * 4), functions=FAR)
    assert linked.functions == ["f", "g"]
    for number, name in enumerate(("f", "g", "f", "g")):
        stub = 4 * number + signed(linked.word(4 * number), 32) + 4
        assert stub % 16 == 0
        assert linked.image[stub : stub + 2] == b"\xff\x25"
        slot = stub + 6 + signed(linked.word(stub + 2), 32)
        assert linked.word(slot, 8) == FAR[name]
        first, size = linked.segments[CONSTANTS]
        assert first <= slot < first + size
    assert linked.segments[CODE][1] == 32 + 32  # one stub for each of both functions


def test_arm_calls_go_by_veneers() -> None:
    linked = link(calls(ARM, [283, 282], struct.pack("<I", BL)), functions=FAR)
    for number, name in enumerate(("f", "g", "f", "g")):
        stub = 4 * number + decoded_branch(linked.word(4 * number), 0, 26)
        adrp, load, jump = (linked.word(stub + 4 * i) for i in range(3))
        assert (adrp & 0x9F00_001F, load & 0xFFC0_03FF, jump) == (0x9000_0010, 0xF940_0210, 0xD61F_0200)
        slot = page(linked.address + stub) + (decoded_adr(adrp) << 12) + ((load >> 10 & 0xFFF) << 3)
        assert linked.word(slot - linked.address, 8) == FAR[name]


@pytest.mark.parametrize("machine", [X86, ARM])
def test_objects_call_each_other_directly(machine: int) -> None:
    caller = calls(machine, [4 if machine == X86 else 283], struct.pack("<I", BL))
    callee = Elf(machine)
    text = callee.section(".text", bytes(64), kind=1, flags=6, alignment=16)
    callee.symbol("f", text, 16)
    callee.symbol("g", text, 32, binding=2)
    image, symbols, segments, used = native.link_objects(
        [bytes(caller), bytes(callee)], machine=machine, address=BASE, functions=FAR
    )
    assert used == []
    assert segments[CODE] == (0, 16 + 64)
    for at, name in ((0, "f"), (4, "g")):
        word = int.from_bytes(image[at : at + 4], "little")
        reached = at + (signed(word, 32) + 4 if machine == X86 else decoded_branch(word, 0, 26))
        assert reached == symbols[name]


def test_what_a_function_of_the_host_is_not_called_for() -> None:
    """A distance to it may be too large, and nothing stands in for it."""
    with pytest.raises(ExecutionError, match=r"R_X86_64_PC32 .* against symbol 1 'f', doesn't fit"):
        link(calls(X86, [2], bytes(4)), functions=FAR)


@pytest.mark.parametrize(
    ("machine", "kind"), [(X86, 18), (X86, 19), (X86, 22), (X86, 35), (X86, 51), (ARM, 512), (ARM, 573), (ARM, 1031)]
)
def test_thread_local_storage_is_refused_by_name(machine: int, kind: int) -> None:
    with pytest.raises(ExecutionError, match=rf"'\.rela' \(type {kind}\) is of thread-local storage, which compiled"):
        one(machine, kind, bytes(8))


def test_types_that_are_not_known() -> None:
    for machine, kind in ((X86, 3), (X86, 26), (ARM, 1), (ARM, 313), (ARM, 1024)):
        with pytest.raises(ExecutionError, match=f"has the type {kind}, which isn't known for machine {machine}"):
            one(machine, kind, bytes(8))


# Where things go ----------------------------------------------------------------------------------------


def test_segments_follow_each_other_and_sections_are_aligned() -> None:
    elf = Elf(X86)
    sizes: list[tuple[str, str, int, int]] = [
        ("a", ".text", 3, 1),
        ("b", ".rodata", 100, 64),
        ("c", ".data", 5, 4),
        ("d", ".text", 7, 32),
        ("e", ".rodata", 1, 4096),
        ("f", ".data", 9, 16),
    ]
    for name, section, size, alignment in sizes:
        number = elf.section(section, bytes([ord(name)]) * size, kind=1, flags=FLAGS[section], alignment=alignment)
        elf.symbol(name, number)
    elf.symbol("zeros", elf.section(".bss", b"", kind=8, flags=3, alignment=64, size=1000))
    elf.symbol("common", 0xFFF2, 256, size=10)
    linked = link(elf)
    ends = 0
    for start, size in linked.segments:
        assert start % SEGMENT == 0
        assert start >= ends
        ends = start + size
    assert ends == len(linked.image)
    for name, section, size, alignment in sizes:
        at = linked.symbols[name]
        assert at % alignment == 0
        assert linked.image[at : at + size] == name.encode() * size
        first, length = linked.segments[list(FLAGS).index(section)]
        assert first <= at <= first + length - size
    assert linked.symbols["zeros"] % 64 == 0
    assert linked.symbols["common"] % 256 == 0
    assert linked.image[linked.symbols["zeros"] :].strip(b"\0") == b""


def test_what_the_linker_is_asked() -> None:
    elf = bytes(Elf(X86))
    with pytest.raises(InputError, match=r"machine must be 62 \(x86-64\) or 183 \(AArch64\), but it is 40"):
        native.link_objects([elf], machine=40, address=0, functions={})
    with pytest.raises(InputError, match="address must be a multiple of 4096, but it is 100"):
        native.link_objects([elf], machine=X86, address=100, functions={})
    with pytest.raises(ExecutionError, match="object 0 cannot be loaded: it is for ELF machine 62, this is"):
        native.link_objects([elf], machine=ARM, address=0, functions={})


def test_local_symbols_and_numbers() -> None:
    elf = Elf(X86)
    text = elf.section(".text", bytes(32), kind=1, flags=6)
    data = elf.section(".data", bytes(16), kind=1, flags=3, alignment=8)
    section = elf.symbol("", data, binding=0, kind=3)
    number = elf.symbol("number", 0xFFF1, 0x1234)
    elf.relocations(text, [(0, 1, section, 4), (8, 1, number, 1), (16, 1, 0, 77), (0, 0, 99, 0)])
    linked = link(elf)
    assert linked.word(0, 8) == BASE + linked.segments[DATA][0] + 4
    assert linked.word(8, 8) == 0x1235
    assert linked.word(16, 8) == 77
    assert "number" not in linked.symbols
