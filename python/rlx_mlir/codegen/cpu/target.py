# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel template may assume of the processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlx_mlir.codegen.emit import Emitter, Value, element_of, vec, with_element
from rlx_mlir.tuning.cpu import BY_RULE, Choices

ELEMENT_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "i64": 64, "i32": 32, "i16": 16, "i8": 8}


def wide_type(element: str) -> str:
    """The type that numbers of floats are computed in: f64 for f64, else f32."""
    return "f64" if element == "f64" else "f32"


_AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
_AVX2 = frozenset({"avx2", "fma", "f16c"})


@dataclass(frozen=True)
class Target:
    """A processor: the vector width that templates use (128, 256 or 512 bits) and LLVM's names of its features.

    `triple` and `cpu` are what code generation is told; an empty triple means x86-64. `choices` are those of the kernel
    that a generator is asked for.
    """

    vector_bits: int
    features: frozenset[str] = frozenset()
    triple: str = "x86_64-unknown-linux-gnu"
    cpu: str = ""
    choices: Choices = BY_RULE

    def __post_init__(self) -> None:
        if self.vector_bits not in (128, 256, 512):
            raise ValueError(f"Target: vector_bits has to be 128, 256 or 512, but is {self.vector_bits}")

    @classmethod
    def from_features(cls, features: str, triple: str = "x86_64-unknown-linux-gnu", cpu: str = "") -> Target:
        """From LLVM's feature string (`+avx2,+fma,-avx512f,...`): the widest vectors that all templates can use.

        512 bits need the F, BW, DQ and VL parts of AVX-512, 256 bits AVX2 with FMA and F16C; anything else gets 128.
        """
        names = frozenset(word[1:] for word in features.split(",") if word.startswith("+"))
        bits = 512 if names >= _AVX512 | _AVX2 else 256 if names >= _AVX2 else 128
        return cls(bits, names, triple, cpu)

    def has(self, feature: str) -> bool:
        """Whether the processor has a feature, by LLVM's name, e.g. `avx512vnni`."""
        return feature in self.features

    def lanes(self, element: str) -> int:
        """Elements in a vector register: `lanes("f32")` is 16 with 512 bits."""
        return self.vector_bits // ELEMENT_BITS[element]

    def vector(self, element: str) -> str:
        """The type of a full vector register of `element`."""
        return vec(self.lanes(element), element)

    def narrow(self, vector_bits: int) -> Target:
        """The same processor, used with narrower vectors."""
        return replace(self, vector_bits=min(vector_bits, self.vector_bits))

    @property
    def x86(self) -> bool:
        return self.triple.startswith(("x86_64", "i686", "amd64")) or not self.triple

    @property
    def registers(self) -> int:
        """Vector registers: 32 with AVX-512 and on other architectures, 16 on x86 before it."""
        return 32 if not self.x86 or (self.vector_bits == 512 and self.has("avx512f")) else 16

    @property
    def fused(self) -> bool:
        """Whether multiply-add is an instruction; where it isn't, `math.fma` would be a library call per lane."""
        return not self.x86 or self.has("fma")

    @property
    def half(self) -> bool:
        """Whether f16 to f32 is an instruction; where it isn't, `arith.extf` would be a library call per lane."""
        return not self.x86 or self.has("f16c")

    @property
    def vnni(self) -> bool:
        """Whether `vpdpbusd` exists at this vector width."""
        if not self.x86:
            return False
        if self.vector_bits == 512:
            return self.has("avx512vnni")
        return self.vector_bits == 256 and (self.has("avxvnni") or (self.has("avx512vnni") and self.has("avx512vl")))

    def tiles(self, element: str) -> bool:
        """Whether AMX multiplies tiles of bf16, f16 or i8; the system lends their registers (`runtime/tiles.py`)."""
        feature = {"bf16": "amx-bf16", "f16": "amx-fp16", "i8": "amx-int8"}.get(element, "")
        usable = self.x86 and self.vector_bits == 512 and self.choices.get("amx") != 0
        return usable and self.has("amx-tile") and self.has(feature)

    @property
    def dotprod(self) -> bool:
        """Whether NEON's dot product of signed bytes exists."""
        return self.triple.startswith("aarch64") and self.vector_bits == 128 and self.has("dotprod")

    def looked_up(self, em: Emitter, table: Sequence[int], codes: Value) -> Value:
        """The bytes, 0 to 255, that a table of up to 16 has for codes: a vector of bytes from 0 to 15."""
        entries = [byte - 256 if byte > 127 else byte for byte in (*table, *[0] * (16 - len(table)))]
        name = self._byte_shuffle
        if name:
            return em.intrinsic(name, [em.const(entries * (self.vector_bits // 128), codes.type), codes], codes.type)
        found = em.const(entries[0], codes.type)
        for code in range(1, len(table)):
            found = em.select(em.cmpi("eq", codes, code), entries[code], found)
        return found

    @property
    def _byte_shuffle(self) -> str:
        """The instruction that takes bytes of a register's 128 bits by the numbers in another; empty for none."""
        if self.triple.startswith("aarch64"):
            return "llvm.aarch64.neon.tbl1.v16i8" if self.vector_bits == 128 else ""
        if not self.x86:
            return ""
        if self.vector_bits == 512:
            return "llvm.x86.avx512.pshuf.b.512" if self.has("avx512bw") else ""
        if self.vector_bits == 256:
            return "llvm.x86.avx2.pshuf.b" if self.has("avx2") else ""
        return "llvm.x86.ssse3.pshuf.b.128" if self.has("ssse3") else ""

    def fma(self, em: Emitter, a: Value, b: Value, c: Value) -> Value:
        """a * b + c: rounded once where the processor can, twice where it can't."""
        return em.fma(a, b, c) if self.fused else a * b + c

    def widen(self, em: Emitter, x: Value) -> Value:
        """f16 or bf16 (vector or scalar) to f32, exactly; f32 and f64 stay as they are."""
        wide, bits = with_element(x.type, wide_type(element_of(x.type))), with_element(x.type, "i32")
        if wide == x.type:
            return x
        is_bf16 = with_element(x.type, "bf16") == x.type
        if not is_bf16 and self.half:
            return em.cast("arith.extf", x, wide)
        raw = em.cast("arith.extui", em.bitcast(x, with_element(x.type, "i16")), bits)
        if is_bf16:
            return em.bitcast(raw << 16, wide)
        # Exponent and mantissa in place, then rebias by 2^112: subnormals become normal by the multiplication itself.
        magnitude = (raw & 0x7FFF) << 13
        value = em.bitcast(em.bitcast(magnitude, wide) * 2.0**112, bits)
        special = em.select(em.cmpi("uge", magnitude, 0x0F800000), 0x7F800000, em.zero(bits))
        sign = (raw & 0x8000) << 16
        return em.bitcast(value | special | sign, wide)


def rounded(em: Emitter, target: Target, x: Value, element: str) -> Value:
    """f32 (vector or scalar) to `element`, to nearest even; NaN stays NaN, without its payload. f64 stays as it is."""
    if element == element_of(x.type):
        return x
    type, half = with_element(x.type, element), with_element(x.type, "i16")
    if element == "f16" and target.half:
        return em.cast("arith.truncf", x, type)
    bits = em.bitcast(x, with_element(x.type, "i32"))
    nan = em.cmpf("uno", x, x)
    if element == "bf16":
        # Done on integers: LLVM calls a library function where the instruction is missing, and the instruction
        # flushes subnormals.
        odd = (bits >> 16) & 1
        up = (bits + odd + 0x7FFF) >> 16
        return em.bitcast(em.cast("arith.trunci", em.select(nan, 0x7FC0, up), half), type)
    sign = (bits >> 16) & 0x8000
    size = bits & 0x7FFFFFFF
    odd = (size >> 13) & 1
    normal = (size + odd + (0xFFF - (112 << 23))) >> 13
    # Adding 0.5 leaves, in the low bits, the multiple of 2^-24 that a subnormal is; the addition rounds it.
    shifted = em.bitcast(size, x.type) + 0.5
    subnormal = em.bitcast(shifted, size.type) - 0x3F000000
    result = em.select(em.cmpi("ult", size, 113 << 23), subnormal, normal)
    result = em.select(em.cmpi("uge", size, 143 << 23), 0x7C00, result)
    result = em.select(nan, 0x7E00, result) | sign
    return em.bitcast(em.cast("arith.trunci", result, half), type)
