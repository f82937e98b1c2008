# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalars in the bodies of generated loops, with operators: a body reads like its formula."""

from __future__ import annotations

import math as pymath
import operator
import struct
from collections.abc import Callable, Sequence

from mlir.dialects import arith, builtin, linalg, math, tensor
from mlir.dialects import complex as complex_dialect

from rlx_mlir import ir
from rlx_mlir.mir.algebra import Formula, Op, Primitive
from rlx_mlir.mir.functions import Elementwise

_FLOATS = ("f16", "bf16", "f32", "f64")
_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
_FLOAT8 = {  # (bits of the fraction, bias of the exponent, bits of the largest number)
    "f8E4M3FN": (3, 7, 0x7E),
    "f8E5M2": (2, 15, 0x7B),
}
_PREDICATES = {  # (ordered float, signed integer, integer without sign)
    "eq": ("OEQ", "eq", "eq"),
    "ne": ("UNE", "ne", "ne"),
    "lt": ("OLT", "slt", "ult"),
    "le": ("OLE", "sle", "ule"),
    "gt": ("OGT", "sgt", "ugt"),
    "ge": ("OGE", "sge", "uge"),
}


def element(word: str) -> ir.Type:
    """The element type of a word: f16, bf16, f32, f64, i1 .. i64, ui8 .. ui32, index."""
    return ir.Type.parse(word)


def is_unsigned(type: ir.Type) -> bool:
    """Whether it is an integer type without sign."""
    return isinstance(type, ir.IntegerType) and bool(type.is_unsigned)


def is_complex(type: ir.Type) -> bool:
    """Whether it is the type of complex numbers."""
    return isinstance(type, ir.ComplexType)


def signless(type: ir.Type) -> ir.Type:
    """The type that arithmetic of `arith` has for values of an integer type; others as they are."""
    return ir.IntegerType.get_signless(type.width) if is_unsigned(type) else type


def integer_range(type: ir.Type) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    width = ir.IntegerType(type).width
    if str(type) == "i1" or is_unsigned(type):
        return 0, (1 << width) - 1
    return -(1 << (width - 1)), (1 << (width - 1)) - 1


def is_float(type: ir.Type) -> bool:
    """Whether it is one of the float types of MIR that there is arithmetic of."""
    return str(type) in _FLOATS


def accumulator(type: ir.Type) -> ir.Type:
    """The type in which elements are computed: f32 for floats of 16 and 8 bits, else the type itself."""
    return element("f32") if str(type) in ("f16", "bf16", *_FLOAT8) else type


def constant(type: ir.Type, number: float) -> Scalar:
    """A constant of a float, integer, index or complex type, of which it is the real part."""
    if is_complex(type):
        return joined(*(constant(type.element_type, part) for part in (number, 0)))
    if is_float(type):
        return Scalar(arith.ConstantOp(type, ir.FloatAttr.get(type, float(number))).result)
    own, whole = signless(type), int(number)
    if own != type and whole > integer_range(own)[1]:  # attributes of signless types hold signed numbers
        whole -= 1 << own.width
    return Scalar(arith.ConstantOp(own, ir.IntegerAttr.get(own, whole)).result, unsigned=own != type)


def loaded(element: ir.Value, *, fast: bool = False) -> Scalar:
    """An element of a tensor: of a type without sign, its bits in the type that there is arithmetic of."""
    own = signless(element.type)
    if own == element.type:
        return Scalar(element, fast=fast)
    return Scalar(builtin.unrealized_conversion_cast([own], [element]), fast=fast, unsigned=True)


def stored(x: Scalar) -> ir.Value:
    """What is loaded again: the value as an element of a tensor."""
    return builtin.unrealized_conversion_cast([x.type], [x.value]) if x.unsigned else x.value


def index(dim: int) -> Scalar:
    """The position in a loop of the surrounding `linalg.generic`."""
    return Scalar(linalg.IndexOp(dim).result)


def joined(re: Scalar, im: Scalar) -> Scalar:
    """The complex number of two parts."""
    type = ir.ComplexType.get(re.type)
    return Scalar(complex_dialect.CreateOp(type, re.value, im.value).result, fast=re.fast or im.fast)


class Scalar:
    """A scalar value. Python numbers beside it take its type; what is made from a fast one is fast.

    Fast arithmetic may be reassociated and contracted: sums over many elements have a free order. Infinities and NaN
    keep their meaning. Integers are signed, `//`, `%` and `>>` apart, which take them as unsigned.

    Values of ui8, ui16 and ui32 are signless integers that are `unsigned`: `arith` has no other arithmetic. Bodies take
    them by `loaded` and give them by `stored`, and `rlx-strip-signedness` makes elements in memory signless, too.
    """

    def __init__(self, value: ir.Value, *, fast: bool = False, unsigned: bool = False) -> None:
        self.value = value
        self.fast = fast
        self.unsigned = unsigned

    @property
    def type(self) -> ir.Type:
        """The element type."""
        own = self.value.type
        return ir.IntegerType.get_unsigned(own.width) if self.unsigned else own

    @property
    def word(self) -> str:
        """The element type as text."""
        return str(self.type)

    @property
    def re(self) -> Scalar:
        """The real part of a complex number."""
        return Scalar(complex_dialect.ReOp(self.value).result, fast=self.fast)

    @property
    def im(self) -> Scalar:
        """The imaginary part of a complex number."""
        return Scalar(complex_dialect.ImOp(self.value).result, fast=self.fast)

    def like(self, number: float) -> Scalar:
        """A constant of this scalar's type."""
        return constant(self.type, number)

    def _apply(
        self,
        other: Scalar | float,
        on_floats: Callable[..., ir.OpView] | None,
        on_integers: Callable[..., ir.OpView] | None,
        on_complex: Callable[[Scalar, Scalar], Scalar] | None = None,
        *,
        swap: bool = False,
    ) -> Scalar:
        rhs = other if isinstance(other, Scalar) else self.like(other)
        lhs, fast = self, self.fast or rhs.fast
        if swap:
            lhs, rhs = rhs, lhs
        if on_complex is not None and is_complex(self.type):
            return on_complex(lhs, rhs)
        if is_float(self.type):
            assert on_floats is not None
            flags = {"fastmath": ir.Attribute.parse("#arith.fastmath<reassoc,contract>")} if fast else {}
            return Scalar(on_floats(lhs.value, rhs.value, **flags).result, fast=fast)
        assert on_integers is not None
        return Scalar(on_integers(lhs.value, rhs.value).result, fast=fast, unsigned=self.unsigned)

    def __add__(self, other: Scalar | float) -> Scalar:
        return self._apply(other, arith.AddFOp, arith.AddIOp, lambda x, y: joined(x.re + y.re, x.im + y.im))

    __radd__ = __add__

    def __sub__(self, other: Scalar | float) -> Scalar:
        return self._apply(other, arith.SubFOp, arith.SubIOp, lambda x, y: joined(x.re - y.re, x.im - y.im))

    def __rsub__(self, other: float) -> Scalar:
        return self._apply(other, arith.SubFOp, arith.SubIOp, swap=True)

    def __mul__(self, other: Scalar | float) -> Scalar:
        return self._apply(other, arith.MulFOp, arith.MulIOp, _complex_product)

    __rmul__ = __mul__

    def __truediv__(self, other: Scalar | float) -> Scalar:
        return self._apply(other, arith.DivFOp, None, _complex_quotient)

    def __rtruediv__(self, other: float) -> Scalar:
        return self._apply(other, arith.DivFOp, None, swap=True)

    def __floordiv__(self, other: Scalar | int) -> Scalar:
        return self._apply(other, None, arith.DivUIOp)

    def __mod__(self, other: Scalar | int) -> Scalar:
        return self._apply(other, None, arith.RemUIOp)

    def __and__(self, other: Scalar | int) -> Scalar:
        return self._apply(other, None, arith.AndIOp)

    def __or__(self, other: Scalar | int) -> Scalar:
        return self._apply(other, None, arith.OrIOp)

    def __xor__(self, other: Scalar | int) -> Scalar:
        return self._apply(other, None, arith.XOrIOp)

    def __lshift__(self, other: Scalar | int) -> Scalar:
        return self._apply(other, None, arith.ShLIOp)

    def __rshift__(self, other: Scalar | int) -> Scalar:
        return self._apply(other, None, arith.ShRUIOp)

    def __neg__(self) -> Scalar:
        if is_complex(self.type):
            return joined(-self.re, -self.im)
        return Scalar(arith.NegFOp(self.value).result)

    def quotient(self, other: Scalar) -> Scalar:
        """The quotient of integers, rounded towards 0; the divisor isn't 0, nor -1."""
        return self._apply(other, None, arith.DivUIOp if self.unsigned else arith.DivSIOp)

    def remainder(self, other: Scalar) -> Scalar:
        """What the quotient leaves."""
        return self._apply(other, None, arith.RemUIOp if self.unsigned else arith.RemSIOp)

    def max(self, other: Scalar | float) -> Scalar:
        """The larger of two; NaN where one is NaN."""
        return self._apply(other, arith.MaximumFOp, arith.MaxUIOp if self.unsigned else arith.MaxSIOp)

    def min(self, other: Scalar | float) -> Scalar:
        """The smaller of two; NaN where one is NaN."""
        return self._apply(other, arith.MinimumFOp, arith.MinUIOp if self.unsigned else arith.MinSIOp)

    def compare(self, kind: str, other: Scalar | float) -> Scalar:
        """`self kind other` as i1, by the words of `mir.compare`; with NaN only ne is true."""
        rhs = other if isinstance(other, Scalar) else self.like(other)
        on_floats, *on_integers = _PREDICATES[kind]
        if is_float(self.type):
            return Scalar(arith.CmpFOp(getattr(arith.CmpFPredicate, on_floats), self.value, rhs.value).result)
        predicate = getattr(arith.CmpIPredicate, on_integers[self.unsigned])
        return Scalar(arith.CmpIOp(predicate, self.value, rhs.value).result)

    def __lt__(self, other: Scalar | float) -> Scalar:
        return self.compare("lt", other)

    def __le__(self, other: Scalar | float) -> Scalar:
        return self.compare("le", other)

    def __gt__(self, other: Scalar | float) -> Scalar:
        return self.compare("gt", other)

    def __ge__(self, other: Scalar | float) -> Scalar:
        return self.compare("ge", other)

    def select(self, on_true: Scalar | float, on_false: Scalar | float) -> Scalar:
        """One of two values by this condition (i1); one of them may be a number."""
        if not isinstance(on_true, Scalar):
            assert isinstance(on_false, Scalar), "one value gives the type"
            on_true = on_false.like(on_true)
        if not isinstance(on_false, Scalar):
            on_false = on_true.like(on_false)
        result = arith.SelectOp(self.value, on_true.value, on_false.value).result
        return Scalar(result, fast=on_true.fast or on_false.fast, unsigned=on_true.unsigned)

    def bitcast(self, word: str) -> Scalar:
        """The same bits as another type."""
        return Scalar(arith.BitcastOp(element(word), self.value).result)

    def widen(self) -> Scalar:
        """The value in the type in which it is computed."""
        return self.to(accumulator(self.type))

    def low_bits(self, target: ir.Type) -> Scalar:
        """This integer's last bits as a shorter one; the whole where that is as long, whether it isn't 0 as i1."""
        if str(target) == "i1" or target.width >= self.type.width:
            return self.to(target)
        return Scalar(arith.TruncIOp(signless(target), self.value).result, unsigned=is_unsigned(target))

    def to(self, target: ir.Type | str) -> Scalar:
        """The value as another type, by the rules of `mir.cast`; index values count as 64 bit integers."""
        type = element(target) if isinstance(target, str) else target
        if type == self.type:
            return self
        return Scalar(_convert(self, type).value, fast=self.fast, unsigned=is_unsigned(type))


def _complex_product(x: Scalar, y: Scalar) -> Scalar:
    """(a + bi) (c + di) = (ac - bd) + (ad + bc)i"""
    a, b, c, d = x.re, x.im, y.re, y.im
    return joined(a * c - b * d, a * d + b * c)


def _complex_quotient(x: Scalar, y: Scalar) -> Scalar:
    """(a + bi) / (c + di), divided by the larger of c and d first: squares of large numbers would overflow."""
    a, b, c, d = x.re, x.im, y.re, y.im
    is_real = absolute(c) >= absolute(d)
    large, small = is_real.select(c, d), is_real.select(d, c)
    ratio = small / large
    total = large + small * ratio
    re = is_real.select(a + b * ratio, a * ratio + b)
    im = is_real.select(b - a * ratio, b * ratio - a)
    return joined(re / total, im / total)


def _convert(x: Scalar, target: ir.Type) -> Scalar:
    if is_complex(x.type):
        if str(target) == "i1":
            return x.re.compare("ne", 0) | x.im.compare("ne", 0)
        return x.re.to(target)
    if is_complex(target):
        re = x.to(target.element_type)
        return joined(re, re.like(0))
    if x.word in _FLOAT8:
        return decode_float8(unsigned(x.bitcast("i8"), "i32"), x.word).to(target)
    if str(target) in _FLOAT8:
        return _encode_float8(x, str(target)).bitcast(str(target))
    if "index" in (x.word, str(target)):
        if x.word == "index":
            return Scalar(arith.IndexCastOp(element("i64"), x.value).result).to(target)
        wide = x.to("i64") if is_float(x.type) or x.unsigned else x
        return Scalar(arith.IndexCastOp(target, wide.value).result)
    if str(target) == "i1":
        return x.compare("ne", 0)
    if is_float(target):
        return _float_to_float(x, target) if is_float(x.type) else _integer_to_float(x, target)
    return _float_to_integer(x, target) if is_float(x.type) else _integer_to_integer(x, target)


def _float_to_float(x: Scalar, target: ir.Type) -> Scalar:
    before, after = _BITS[x.word], _BITS[str(target)]
    if before < after:
        return Scalar(arith.ExtFOp(target, x.value).result)
    if before == after:  # f16 and bf16
        return x.to("f32").to(target)
    if before == 64 and after == 16:
        x = _round_to_odd(x)
    return Scalar(arith.TruncFOp(target, x.value).result)


def _round_to_odd(x: Scalar) -> Scalar:
    """f64 to f32, inexact values to the neighbour with an odd last bit: then a later rounding is the only one."""
    near = Scalar(arith.TruncFOp(element("f32"), x.value).result)
    back = near.to("f64")
    inexact = Scalar(arith.CmpFOp(arith.CmpFPredicate.ONE, back.value, x.value).result)
    away = absolute(back) > absolute(x)
    bits = near.bitcast("i32") - (inexact & away).to("i32") | inexact.to("i32")
    return bits.bitcast("f32")


def _integer_to_float(x: Scalar, target: ir.Type) -> Scalar:
    convert = arith.UIToFPOp if x.unsigned or x.word == "i1" else arith.SIToFPOp
    if x.word != "i1" and str(target) in ("f16", "bf16"):
        return Scalar(convert(element("f64"), x.value).result).to(target)
    return Scalar(convert(target, x.value).result)


def _float_to_integer(x: Scalar, target: ir.Type) -> Scalar:
    least, most = integer_range(target)
    wide = x.to("f64") if x.word != "f64" else x
    convert = arith.FPToUIOp if is_unsigned(target) else arith.FPToSIOp
    whole = Scalar(convert(signless(target), wide.value).result, unsigned=is_unsigned(target))
    high = (wide >= float(most + 1)).select(most, whole)
    low = (wide < float(least)).select(least, high)
    return wide.compare("ne", wide).select(0, low)


def _integer_to_integer(x: Scalar, target: ir.Type) -> Scalar:
    """Clamped where the source has more numbers at either end, then with more or fewer bits."""
    (low, high), (least, most) = integer_range(x.type), integer_range(target)
    if low < least:
        x = x.max(least)
    if high > most:
        x = x.min(most)
    before, after = ir.IntegerType(x.type).width, ir.IntegerType(target).width
    if before == after:
        return x
    if before > after:
        return Scalar(arith.TruncIOp(signless(target), x.value).result)
    extend = arith.ExtUIOp if low == 0 else arith.ExtSIOp
    return Scalar(extend(signless(target), x.value).result)


def decode_float8(code: Scalar, word: str) -> Scalar:
    """A float of 8 bits as f32; the code is an unsigned i32."""
    if word == "f8E5M2":  # the upper half of an f16
        return Scalar(arith.TruncIOp(element("i16"), (code << 8).value).result).bitcast("f16").to("f32")
    magnitude = code & 0x7F
    # The exponent's bias is 7, that of f32 is 127. Without exponent, the value is a multiple of 2^-9.
    normal = ((magnitude << 20) + (120 << 23)).bitcast("f32")
    value = (magnitude < 8).select(magnitude.to("f32") * 2.0**-9, normal)
    value = magnitude.compare("eq", 0x7F).select(pymath.nan, value)
    return (code >= 0x80).select(-value, value)


def _encode_float8(x: Scalar, word: str) -> Scalar:
    """The bits of the nearest float of 8 bits, as i8: ties to even, saturated; NaN stays NaN."""
    fraction, bias, most = _FLOAT8[word]
    if not is_float(x.type):
        x = x.to("f64")
    x = _round_to_odd(x) if x.word == "f64" else x.to("f32")
    bits = x.bitcast("i32")
    magnitude = bits & 0x7FFFFFFF
    shift = 23 - fraction
    excess = 127 - bias << 23
    limit = (most << shift) + excess
    bounded = magnitude.min(limit)
    # Half of the last bit that stays, less where that bit is 0: ties go to the even neighbour.
    rounded = bounded + ((bounded >> shift) & 1) + ((1 << shift - 1) - 1)
    normal = (rounded >> shift) - (excess >> shift)
    # Below the smallest normal number, the sum with a power of two whose last bit is a multiple's unit rounds.
    power = 2.0 ** (24 - bias - fraction)
    small = (bounded.bitcast("f32") + power).bitcast("i32") - _f32_bits(power)
    code = (bounded < (excess + (1 << 23))).select(small, normal)
    code = (magnitude > 0x7F800000).select(0x7F, code) | ((bits >> 24) & 0x80)
    return Scalar(arith.TruncIOp(element("i8"), code.value).result)


def _f32_bits(number: float) -> int:
    return int.from_bytes(struct.pack("<f", number), "little")


def unsigned(x: Scalar, word: str) -> Scalar:
    """A wider integer, with zeros in front."""
    return Scalar(arith.ExtUIOp(element(word), x.value).result)


def exp(x: Scalar) -> Scalar:
    """e^x"""
    return Scalar(math.ExpOp(x.value).result)


#: e^r = 1 + r + r^2 (p_0 + p_1 r + ...) for |r| up to ln(2) / 2, fitted for the least relative error in f32.
_EXP_FACTORS = (0.5, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4)
#: ln(2) as a number of few bits, of which small multiples are exact, and the rest.
_LN2_PARTS = (0.693359375, -2.12194440e-4)
#: From here on the last bits of a float are an integer.
_WHOLE = 1.5 * 2.0**23


def exp_in_loop(x: Scalar) -> Scalar:
    """e^x, of f32 by arithmetic alone: in loops that become vectors, LLVM calls the library for each lane otherwise.

    What is less than 2.5e-38 becomes 0.
    """
    if x.word != "f32":
        return exp(x)
    x = Scalar(x.value)  # in this order and no other
    bounded = x.max(-86.6).min(89.0)
    shifted = bounded * (1 / pymath.log(2)) + _WHOLE
    count = shifted - _WHOLE
    r = bounded - count * _LN2_PARTS[0] - count * _LN2_PARTS[1]
    total = r.like(_EXP_FACTORS[-1])
    for factor in _EXP_FACTORS[-2::-1]:
        total = total * r + factor
    half = ((shifted.bitcast("i32") << 23) + (126 << 23)).bitcast("f32")  # of the power of two, which may overflow
    return (x < -86.6).select(0.0, (total * r * r + r + 1.0) * half * 2.0)


def tanh(x: Scalar) -> Scalar:
    """tanh(x)"""
    return Scalar(math.TanhOp(x.value).result)


def sqrt(x: Scalar) -> Scalar:
    """The square root of x."""
    return Scalar(math.SqrtOp(x.value).result)


def absolute(x: Scalar) -> Scalar:
    """|x| of a float."""
    return Scalar(math.AbsFOp(x.value).result)


def round_even(x: Scalar) -> Scalar:
    """The integer nearest to x, the even one of two."""
    return Scalar(math.RoundEvenOp(x.value).result)


def extract(source: ir.Value, positions: Sequence[Scalar]) -> Scalar:
    """One element of a tensor, at index positions."""
    return loaded(tensor.ExtractOp(source, [position.value for position in positions]).result)


def chosen_entry(position: Scalar, count: ir.Value) -> Scalar:
    """An index value as the number of one of so many entries: without its fraction, and clamped; NaN counts as 0."""
    return position.to("i64").min(Scalar(count).to("i64") - 1).max(0).to("index")


def compute(record: Elementwise, *operands: Scalar) -> Scalar:
    """A function of elements, by its formula."""
    if record.of_complex is not None and is_complex(operands[0].type):
        given = [part for x in operands for part in (x.re, x.im)]
        return joined(*(_run(part, *given) for part in record.of_complex))
    return _run(record.formula_for(operands[0].word), *operands)


def _run(formula: Formula, *operands: Scalar) -> Scalar:
    like = operands[0]

    def step(op: Op, given: Sequence[Scalar | float]) -> Scalar:
        own = [x if isinstance(x, Scalar) else like.like(x) for x in given]
        if not isinstance(op, Primitive):
            return _ARITHMETIC[op](*own)
        if op.expansion is not None:
            return _run(op.expansion, *own)
        created = ir.Operation.create(f"math.{op.name}", results=[like.type], operands=[x.value for x in own])
        return Scalar(created.result)

    found = formula.run(step, *operands)
    return found if isinstance(found, Scalar) else like.like(found)


_ARITHMETIC: dict[str, Callable[..., Scalar]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "max": Scalar.max,
    "min": Scalar.min,
    "less": operator.lt,
    "equal": lambda a, b: a.compare("eq", b),
    "select": Scalar.select,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "quotient": Scalar.quotient,
    "remainder": Scalar.remainder,
    "multiply_add": lambda a, b, c: a * b + c,
    "fma": lambda a, b, c: Scalar(math.FmaOp(a.value, b.value, c.value).result),
}
