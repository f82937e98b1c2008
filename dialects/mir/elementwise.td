// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element-wise operations: functions of one element, arithmetic with broadcasting, selection.

#ifndef RLX_MIR_ELEMENTWISE
#define RLX_MIR_ELEMENTWISE

include "mir/base.td"

def MIR_ConstantOp : MIR_Op<"constant", [ConstantLike, AllTypesMatch<["value", "result"]>]> {
  let summary = "a constant tensor";
  let description = [{
    The tensor that `value` holds, in row-major order. Weights aren't constants: they
    are arguments of the function. Complex constants are made of those of their parts, by
    `mir.complex`.

    ```mlir
    func.func @f() -> tensor<2xf32> {
      %c = mir.constant dense<[0.25, 0.5]> : tensor<2xf32>
      return %c : tensor<2xf32>
    }
    ```
  }];
  let arguments = (ins ElementsAttr:$value);
  let results = (outs MIR_Tensor:$result);
  let assemblyFormat = "attr-dict $value";
  let hasFolder = 1;
}

def MIR_IotaOp : MIR_Op<"iota"> {
  let summary = "positions along one dimension";
  let description = [{
    0, 1, 2, ... along `axis`, the same in every other dimension:

        result[i_0, ..., i_n] = i_axis

    Sizes stand in the result's type. Those that are dynamic are sizes of `like`: for each
    dimension of the result, `like_dims` has the dimension of `like` that is as long, or -1
    where it isn't from there. No element of `like` is read.

    Positions are rounded to f32, to nearest with ties to even, and saturate in integers.

    - (C1) `axis` is a dimension of the result, from 0.
    - (C2) `like` and `like_dims` are there together, and `like_dims` has an entry for each
      dimension of the result.
    - (C3) each entry of `like_dims` is -1 or a dimension of `like`.
    - (C4) a dimension of the result is as long as that of `like` which its entry names; one
      without such an entry is static.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>) -> tensor<?x4xi32> {
      %y = mir.iota axis 0 like %x dims [0, -1] : tensor<?x8xf32> to tensor<?x4xi32>
      %z = mir.iota axis 1 to tensor<1x4xi32>
      %w = mir.add %y, %z : tensor<?x4xi32>, tensor<1x4xi32>
      return %w : tensor<?x4xi32>
    }
    ```
  }];
  let arguments = (ins Optional<MIR_StoredTensor>:$like, I64Attr:$axis,
      OptionalAttr<DenseI64ArrayAttr>:$like_dims);
  let results = (outs MIR_IndicesTensor:$result);
  let assemblyFormat = [{
    `axis` $axis (`like` $like^ (`dims` $like_dims^)? `:` type($like))? attr-dict
    `to` type($result)
  }];
  let hasFolder = 1;
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Functions of one element
//===----------------------------------------------------------------------===//

/// `formula` gives one element; `rule` says what a reader could get wrong about it. `element` is
/// the type that the example has.
class MIR_UnaryOp<string mnemonic, string what, string formula, string rule,
                  Type operand = MIR_FloatTensor, string element = "f32">
    : MIR_Op<mnemonic, [AllTypesMatch<["x", "result"]>]> {
  let summary = what;
  let description = !strconcat([{
    Applies to each element of `x`, of any shape:

        result = }], formula, [{

    }], rule, !if(!eq(element, "f32"),
      " f16 and bf16 are computed in f32 and rounded once. NaN gives NaN.", ""), [{

    ```mlir
    func.func @f(%x: tensor<?x8x}], element, [{>) -> tensor<?x8x}], element, [{> {
      %y = mir.}], mnemonic, [{ %x : tensor<?x8x}], element, [{>
      return %y : tensor<?x8x}], element, [{>
    }
    ```
  }]);
  let arguments = (ins operand:$x);
  let results = (outs operand:$result);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}

def MIR_GeluOp : MIR_UnaryOp<"gelu", "Gaussian error linear unit",
    "0.5 * x * (1 + erf(x / sqrt(2)))",
    "This is the exact form; `mir.gelu_approx` is the one with tanh.">;
def MIR_GeluApproxOp : MIR_UnaryOp<"gelu_approx", "Gaussian error linear unit, approximated by tanh",
    "0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))",
    "The approximation is part of the meaning: models are trained with one or the other form.">;
def MIR_GeluSlopeOp : MIR_UnaryOp<"gelu_slope", "derivative of the Gaussian error linear unit",
    "0.5 * (1 + erf(x / sqrt(2))) + x * e^(-x^2 / 2) / sqrt(2 * pi)",
    "What gradients multiply by where `mir.gelu` was. Infinities give 0 and 1.">;
def MIR_SiluOp : MIR_UnaryOp<"silu", "sigmoid-weighted linear unit",
    "x * sigmoid(x)", "inf gives inf, and -inf gives NaN: it is multiplied by 0.">;
def MIR_ReluOp : MIR_UnaryOp<"relu", "rectified linear unit",
    "x > 0 ? x : 0", "NaN isn't dropped.">;
def MIR_SigmoidOp : MIR_UnaryOp<"sigmoid", "logistic function",
    "1 / (1 + exp(-x))", "Infinities give 0 and 1.">;
def MIR_TanhOp : MIR_UnaryOp<"tanh", "hyperbolic tangent",
    "tanh(x)", "Infinities give -1 and 1.">;
def MIR_ExpOp : MIR_UnaryOp<"exp", "exponential function",
    "e^x", "Overflow gives inf, underflow 0. Of complex numbers, a + bi, it is "
    "e^a cos(b) + e^a sin(b) i, and e^a + bi where b is 0.", MIR_FieldTensor>;
def MIR_LogOp : MIR_UnaryOp<"log", "natural logarithm",
    "ln(x)", "0 gives -inf, negative numbers give NaN. Of complex numbers, z = a + bi, it is "
    "ln|z| + arg(z) i with the angle arg(z) from -pi to pi, whose sign is that of b, zero's too.",
    MIR_FieldTensor>;
def MIR_ErfcOp : MIR_UnaryOp<"erfc", "complementary error function",
    "2 / sqrt(pi) * (integral of e^(-t^2) from t = x to inf)",
    "It is 1 - erf(x), with all its digits where erf(x) is near 1: large numbers give small ones, "
    "not 0. Infinities give 2 and 0.">;
def MIR_SqrtOp : MIR_UnaryOp<"sqrt", "square root",
    "sqrt(x)", "Negative numbers give NaN. Of complex numbers, a + bi, it is the root whose real "
    "part isn't negative; the sign of its imaginary part is that of b, zero's too.", MIR_FieldTensor>;
def MIR_RsqrtOp : MIR_UnaryOp<"rsqrt", "reciprocal of the square root",
    "1 / sqrt(x)", "0 gives inf, negative numbers give NaN.">;
def MIR_NegOp : MIR_UnaryOp<"neg", "negation",
    "-x", "The sign of zero flips. Of complex numbers, each part is negated.", MIR_FieldTensor>;
def MIR_AbsOp : MIR_UnaryOp<"abs", "absolute value",
    "|x|", "Clears the sign, that of zero too.">;
def MIR_SinOp : MIR_UnaryOp<"sin", "sine",
    "sin(x)", "`x` is in radians; infinities give NaN.">;
def MIR_CosOp : MIR_UnaryOp<"cos", "cosine",
    "cos(x)", "`x` is in radians; infinities give NaN.">;
def MIR_TanOp : MIR_UnaryOp<"tan", "tangent",
    "tan(x)", "`x` is in radians; infinities give NaN.">;
def MIR_AtanOp : MIR_UnaryOp<"atan", "inverse tangent",
    "atan(x)", "The result is in radians, from -pi/2 to pi/2.">;
def MIR_RoundOp : MIR_UnaryOp<"round", "rounding to an integer",
    "the integer nearest to x, the even one of two", "The sign of zero stays.">;

def MIR_NotOp : MIR_UnaryOp<"not", "negation of conditions or bits",
    "not x", "Of integers, each bit flips: the result is -1 - x, of those without sign the largest less x.", MIR_BitsTensor, "i1"> {
  let hasFolder = 1;
}

def MIR_CastOp : MIR_Op<"cast"> {
  let summary = "conversion to another element type";
  let description = [{
    Converts each element of `x` to the element type of the result:

    - float to float, integer to float: rounds to nearest, ties to even;
    - to f8E4M3FN, f8E5M2: the same, and saturates, infinities included; NaN stays NaN;
    - float to integer: drops the fraction and saturates; NaN gives 0;
    - integer to integer: saturates;
    - to i1: whether the element isn't 0 (NaN gives 1); from i1: 0 or 1;
    - to complex<f32>: the element as f32, with an imaginary part of 0;
    - from complex<f32>: the real part; to i1, whether either part isn't 0.

    A cast is never dropped: a chain through a narrow type rounds.

    - (C1) the result has the shape of `x`.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>) -> tensor<?x8xbf16> {
      %y = mir.cast %x : tensor<?x8xf32> to tensor<?x8xbf16>
      return %y : tensor<?x8xbf16>
    }
    ```
  }];
  let arguments = (ins MIR_StoredTensor:$x);
  let results = (outs MIR_StoredTensor:$result);
  let assemblyFormat = "$x attr-dict `:` type($x) `to` type($result)";
  let hasFolder = 1;
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Functions of two elements
//===----------------------------------------------------------------------===//

/// As above, of two elements.
class MIR_BinaryOp<string mnemonic, string what, string formula, string rule, Type operand,
                   string element = "f32">
    : MIR_InferredOp<mnemonic, [AllElementTypesMatch<["lhs", "rhs"]>]> {
  let summary = what;
  let description = !strconcat([{
    Applies to each pair of elements, after numpy's broadcasting of the shapes:

        result = }], formula, [{

    }], rule, [{ Neither operand's element type is promoted.

    - (C1) the shapes of `lhs` and `rhs` broadcast: aligned at the last dimension,
      two sizes are equal or one of them is 1.

    ```mlir
    func.func @f(%x: tensor<?x8x}], element, [{>, %y: tensor<8x}], element, [{>) -> tensor<?x8x}], element, [{> {
      %z = mir.}], mnemonic, [{ %x, %y : tensor<?x8x}], element, [{>, tensor<8x}], element, [{>
      return %z : tensor<?x8x}], element, [{>
    }
    ```
  }]);
  let arguments = (ins operand:$lhs, operand:$rhs);
  let results = (outs operand:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs attr-dict `:` custom<SharedType>(type($lhs), type($rhs))
  }];
}

def MIR_AddOp : MIR_BinaryOp<"add", "sum of two tensors", "lhs + rhs",
    "Integers wrap around. Complex numbers are added part by part.", MIR_RingTensor>;
def MIR_SubOp : MIR_BinaryOp<"sub", "difference of two tensors", "lhs - rhs",
    "Integers wrap around. Complex numbers are subtracted part by part.", MIR_RingTensor>;
def MIR_MulOp : MIR_BinaryOp<"mul", "product of two tensors, element by element", "lhs * rhs",
    "Integers wrap around. Of complex numbers, a + bi and c + di, it is (ac - bd) + (ad + bc)i.",
    MIR_RingTensor>;
def MIR_DivOp : MIR_BinaryOp<"div", "quotient of two tensors", "lhs / rhs",
    "Division by 0 gives an infinity or NaN, as IEEE says. Of complex numbers, a + bi and c + di, "
    "it is ((a + br) + (b - ar)i) / (c + dr) with r = d / c where |c| >= |d|, else "
    "((ar + b) + (br - a)i) / (cr + d) with r = c / d: no square overflows. By 0 both parts are "
    "NaN.", MIR_FieldTensor>;
def MIR_MaxOp : MIR_BinaryOp<"max", "larger of two elements", "max(lhs, rhs)",
    "NaN on either side gives NaN.", MIR_ArithTensor>;
def MIR_MinOp : MIR_BinaryOp<"min", "smaller of two elements", "min(lhs, rhs)",
    "NaN on either side gives NaN.", MIR_ArithTensor>;
def MIR_PowOp : MIR_BinaryOp<"pow", "power", "lhs^rhs",
    "As in C: any x^0 is 1, a negative base with a fractional exponent gives NaN. Integers wrap "
    "around, and drop the fraction where the exponent is negative: bases 1 and -1 give 1 or -1, "
    "all others 0.",
    MIR_ArithTensor>;

/// A function of bits or integers, with folders for operands that are equal or neutral.
class MIR_IntegerOp<string mnemonic, string what, string formula, string rule, Type operand,
                    string element> : MIR_BinaryOp<mnemonic, what, formula, rule, operand, element> {
  let hasFolder = 1;
}

def MIR_AndOp : MIR_IntegerOp<"and", "both of two conditions, or of two bits", "lhs and rhs",
    "Of integers, bit by bit.", MIR_BitsTensor, "i1">;
def MIR_OrOp : MIR_IntegerOp<"or", "one of two conditions, or of two bits, or both", "lhs or rhs",
    "Of integers, bit by bit.", MIR_BitsTensor, "i1">;
def MIR_XorOp : MIR_IntegerOp<"xor", "one of two conditions, or of two bits, but not both",
    "lhs xor rhs", "Of integers, bit by bit.", MIR_BitsTensor, "i1">;

def MIR_FloorDivOp : MIR_IntegerOp<"floor_div", "quotient of integers, rounded down",
    "floor(lhs / rhs)", "Division by 0 gives 0, and the least integer divided by -1 itself.",
    MIR_IntegerTensor, "i32">;
def MIR_FloorRemOp : MIR_IntegerOp<"floor_rem", "remainder of integers, of the divisor's sign",
    "lhs - rhs * floor(lhs / rhs)", "Division by 0 leaves 0, and so does division by -1.",
    MIR_IntegerTensor, "i32">;
def MIR_TruncDivOp : MIR_IntegerOp<"trunc_div", "quotient of integers, rounded towards 0",
    "trunc(lhs / rhs)", "Division by 0 gives 0, and the least integer divided by -1 itself.",
    MIR_IntegerTensor, "i32">;
def MIR_TruncRemOp : MIR_IntegerOp<"trunc_rem", "remainder of integers, of the dividend's sign",
    "lhs - rhs * trunc(lhs / rhs)", "Division by 0 leaves 0, and so does division by -1.",
    MIR_IntegerTensor, "i32">;

def MIR_CompareOp : MIR_InferredOp<"compare", [AllElementTypesMatch<["lhs", "rhs"]>]> {
  let summary = "comparison of two tensors";
  let description = [{
    Whether `lhs kind rhs` holds for each pair of elements, after numpy's broadcasting.
    `kind` is one of eq, ne, lt, le, gt, ge. A comparison with NaN is false, but for `ne`,
    which is true.

    - (C1) the shapes of `lhs` and `rhs` broadcast.

    ```mlir
    func.func @f(%x: tensor<?x8xf32>, %y: tensor<8xf32>) -> tensor<?x8xi1> {
      %z = mir.compare lt %x, %y : tensor<?x8xf32>, tensor<8xf32>
      return %z : tensor<?x8xi1>
    }
    ```
  }];
  let arguments = (ins MIR_ArithTensor:$lhs, MIR_ArithTensor:$rhs, MIR_CompareKindAttr:$kind);
  let results = (outs MIR_BoolTensor:$result);
  let assemblyFormat = [{
    `` $kind $lhs `,` $rhs attr-dict `:` custom<SharedType>(type($lhs), type($rhs))
  }];
}

def MIR_WhereOp : MIR_InferredOp<"where", [AllElementTypesMatch<["on_true", "on_false"]>]> {
  let summary = "choice between two tensors";
  let description = [{
    Takes each element from `on_true` where `condition` holds and from `on_false`
    elsewhere, after numpy's broadcasting of all three shapes. The side that isn't
    taken has no influence, NaN included.

    - (C1) the three shapes broadcast.

    ```mlir
    func.func @f(%c: tensor<?x1xi1>, %x: tensor<?x8xf32>, %y: tensor<8xf32>) -> tensor<?x8xf32> {
      %z = mir.where %c, %x, %y : tensor<?x1xi1>, tensor<?x8xf32>, tensor<8xf32>
      return %z : tensor<?x8xf32>
    }
    ```
  }];
  let arguments = (ins MIR_BoolTensor:$condition, MIR_ValueTensor:$on_true,
      MIR_ValueTensor:$on_false);
  let results = (outs MIR_ValueTensor:$result);
  let assemblyFormat = [{
    $condition `,` $on_true `,` $on_false attr-dict `:` type($condition) `,`
    custom<SharedType>(type($on_true), type($on_false))
  }];
}

#endif // RLX_MIR_ELEMENTWISE
