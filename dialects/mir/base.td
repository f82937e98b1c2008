// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The MIR dialect, its attributes, and the type constraints that its families share.

#ifndef RLX_MIR_BASE
#define RLX_MIR_BASE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/TensorEncoding.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def MIR_Dialect : Dialect {
  let name = "mir";
  let cppNamespace = "::rlx::mir";
  let summary = "tensor primitives of transformer models";
  let description = [{
    Pure operations on ranked tensors, each with one documented meaning, a numpy
    reference and a lowering to linalg. Programs are functions; a function's
    arguments and results describe themselves:

    - `mir.name`: the name by which callers pass the argument or read the result;
    - `mir.kind`: `"input"` (given at each call) or `"param"` (bound once); planned
      functions have buffers of kind `"output"` too;
    - `mir.tied`: on an output of a planned function, the input or parameter whose
      memory it takes in calls that donate that. Before, the function says so: `mir.ties`
      is a dictionary from outputs to arguments of the same type;
    - `mir.dims`: one word per dimension, the symbol of a dynamic dimension and
      the empty word for a static one. Equal symbols mean equal sizes. Outputs of
      planned functions have sizes that follow from symbols, in words, too: sums of
      products of numbers, symbols, `floordiv(size, number)` and `max(size, 0)`.

    What holds for all operations:

    - **Sizes.** Only a dimension that is 1 in its type is broadcast. A dynamic size
      that meets another size is equal to it at run time, and results take the static
      one of the two. Constraints on sizes are checked where both are static. A size
      that follows from symbols is one of sums, products, minima, maxima and division by
      numbers, and two of them are one size where their normal forms are equal.
    - **Sizes of other values.** Operations whose bounds or sizes follow from those of
      other values have operands `like`, of which no element is read, and `like_dims`, a
      dimension of each. `d0`, `d1`, ... are the sizes of these dimensions, in that order,
      in text such as `"max(d0 - 2*d1, 0)"`: sums and products of numbers, of `d0`, ... and
      of `floordiv(a, n)`, `ceildiv(a, n)`, `mod(a, n)`, `min(a, b)` and `max(a, b)`, where
      n is a positive number. A value may be in `like` more than once.
    - **Numbers.** f16 and bf16 are computed in f32 and rounded once, to nearest with
      ties to even; f32 and f64 are computed in their own width. f8E4M3FN and f8E5M2 are
      stored, moved, cast and multiplied (`mir.scaled_matmul`), but no more. NaN and infinities
      keep their IEEE meaning, and `max`, `min` and their reductions give NaN where an
      element is NaN. i8, i16, i32 and i64 are signed, in two's complement; ui8, ui16 and
      ui32 have no sign. A complex<f32> is computed part by part in f32, by the formulas
      that its operations give; a part that is NaN makes a result so where it is read.
    - **Values out of range.** No operation has undefined behaviour on the values of its
      operands, but for `pos`: rows that don't fit a table or a cache are the caller's
      error, found before anything runs where `pos` is an input or a parameter; where it
      is computed, nothing outside of the table or cache is read or written.

    Left out on purpose: weights in the text (a parameter is an argument), types
    that promote silently (both operands of a binary operation have one element
    type), arithmetic on i1 (there is logic, and `where` and `cast` use it), padding
    (composed from `expand` and `concat`).
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

//===----------------------------------------------------------------------===//
// Enumerations
//===----------------------------------------------------------------------===//

class MIR_EnumAttr<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::rlx::mir";
  let genSpecializedAttr = 0;
}

def MIR_LayoutEnum : MIR_EnumAttr<"Layout", "order of a packed weight's bytes", [
  I32EnumAttrCase<"Rows", 0, "rows">, I32EnumAttrCase<"Panels", 1, "panels">,
  I32EnumAttrCase<"Planes", 2, "planes">]>;
def MIR_LayoutAttr : EnumAttr<MIR_Dialect, MIR_LayoutEnum, "layout">;

def MIR_ScaledSchemeEnum : MIR_EnumAttr<"ScaledScheme",
    "storage scheme of a weight whose scales are a tensor", [
  I32EnumAttrCase<"Int8", 0, "int8">, I32EnumAttrCase<"Int8A", 1, "int8a">,
  I32EnumAttrCase<"Int4", 2, "int4">, I32EnumAttrCase<"Fp8E4M3", 3, "fp8e4m3">,
  I32EnumAttrCase<"Fp8E5M2", 4, "fp8e5m2">, I32EnumAttrCase<"Nvfp4", 5, "nvfp4">]>;
def MIR_ScaledSchemeAttr : EnumAttr<MIR_Dialect, MIR_ScaledSchemeEnum, "scaled_scheme">;

def MIR_CacheSchemeEnum : MIR_EnumAttr<"CacheScheme", "block format of rows of keys or values", [
  I32EnumAttrCase<"Q8_0", 0, "q8_0">, I32EnumAttrCase<"Q4_0", 1, "q4_0">]>;
def MIR_CacheSchemeAttr : EnumAttr<MIR_Dialect, MIR_CacheSchemeEnum, "cache_scheme">;

def MIR_ActivationEnum : MIR_EnumAttr<"Activation", "element-wise function", [
  I32EnumAttrCase<"Gelu", 0, "gelu">, I32EnumAttrCase<"GeluApprox", 1, "gelu_approx">,
  I32EnumAttrCase<"Silu", 2, "silu">, I32EnumAttrCase<"Relu", 3, "relu">,
  I32EnumAttrCase<"Sigmoid", 4, "sigmoid">, I32EnumAttrCase<"Tanh", 5, "tanh">,
  I32EnumAttrCase<"Exp", 6, "exp">, I32EnumAttrCase<"Log", 7, "log">,
  I32EnumAttrCase<"Sqrt", 8, "sqrt">, I32EnumAttrCase<"Rsqrt", 9, "rsqrt">,
  I32EnumAttrCase<"Neg", 10, "neg">, I32EnumAttrCase<"Abs", 11, "abs">,
  I32EnumAttrCase<"Sin", 12, "sin">, I32EnumAttrCase<"Cos", 13, "cos">,
  I32EnumAttrCase<"Tan", 14, "tan">, I32EnumAttrCase<"Atan", 15, "atan">,
  I32EnumAttrCase<"Round", 16, "round">]>;
def MIR_ActivationAttr : EnumAttr<MIR_Dialect, MIR_ActivationEnum, "activation">;

def MIR_MaskKindEnum : MIR_EnumAttr<"MaskKind", "which keys a query may see", [
  I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"Causal", 1, "causal">,
  I32EnumAttrCase<"SlidingWindow", 2, "sliding_window">,
  I32EnumAttrCase<"Custom", 3, "custom">, I32EnumAttrCase<"Bias", 4, "bias">]>;
def MIR_MaskKindAttr : EnumAttr<MIR_Dialect, MIR_MaskKindEnum, "mask_kind">;

def MIR_RopeStyleEnum : MIR_EnumAttr<"RopeStyle", "which elements rope rotates together", [
  I32EnumAttrCase<"Half", 0, "half">, I32EnumAttrCase<"Interleaved", 1, "interleaved">]>;
def MIR_RopeStyleAttr : EnumAttr<MIR_Dialect, MIR_RopeStyleEnum, "rope_style">;

def MIR_HeadLayoutEnum : MIR_EnumAttr<"HeadLayout", "order of an attention operand's dimensions", [
  I32EnumAttrCase<"Packed", 0, "packed">, I32EnumAttrCase<"BHSD", 1, "bhsd">,
  I32EnumAttrCase<"BSHD", 2, "bshd">]>;
def MIR_HeadLayoutAttr : EnumAttr<MIR_Dialect, MIR_HeadLayoutEnum, "head_layout">;

def MIR_CompareKindEnum : MIR_EnumAttr<"CompareKind", "predicate of a comparison", [
  I32EnumAttrCase<"Eq", 0, "eq">, I32EnumAttrCase<"Ne", 1, "ne">,
  I32EnumAttrCase<"Lt", 2, "lt">, I32EnumAttrCase<"Le", 3, "le">,
  I32EnumAttrCase<"Gt", 4, "gt">, I32EnumAttrCase<"Ge", 5, "ge">]>;
def MIR_CompareKindAttr : EnumAttr<MIR_Dialect, MIR_CompareKindEnum, "compare_kind">;

def MIR_ReduceKindEnum : MIR_EnumAttr<"ReduceKind", "how a reduction combines elements", [
  I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Mean", 1, "mean">,
  I32EnumAttrCase<"Max", 2, "max">, I32EnumAttrCase<"Min", 3, "min">,
  I32EnumAttrCase<"Prod", 4, "prod">, I32EnumAttrCase<"Any", 5, "any">,
  I32EnumAttrCase<"All", 6, "all">]>;
def MIR_ReduceKindAttr : EnumAttr<MIR_Dialect, MIR_ReduceKindEnum, "reduce_kind">;

//===----------------------------------------------------------------------===//
// Packed weights
//===----------------------------------------------------------------------===//

class MIR_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<MIR_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def MIR_PackedAttr : MIR_Attr<"Packed", "packed", [
    DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "storage scheme of a weight that a tensor holds as bytes";
  let description = [{
    Encoding of an `i8` tensor that holds a weight of `n` rows (outputs) and `k`
    columns (inputs) in a block format, the scheme, which is known by its name: `f32`,
    `f16`, `bf16`, the block formats of GGUF files such as `q4_1`, and those that users
    describe (docs/formats.md).

    - `layout = rows` (the default): the order of GGUF files. The tensor is
      [n, bytes of a row]; `n` isn't written.
    - `layout = panels`: 16 rows interleaved for vector units. The tensor is
      [ceil(n / 16), bytes of a panel]; `n` is written, and missing rows of the
      last panel are zero.
    - `layout = planes`: rows whose integers, scales and minima are sorted for GPUs.
      The tensor is [n, bytes of a row in planes]; `n` isn't written.

    - (C1) `k` is a positive multiple of the scheme's block length.
    - (C2) the tensor is two-dimensional, of `i8`, and its second dimension is the
      number of bytes that `k` takes.
    - (C3) `n` is present exactly with `layout = panels`, and gives the first
      dimension.
    - (C4) the scheme has the layout: q8_k has no panels, schemes of tables, grids and
      digits of base 3 have no planes.
    - (C5) `k` and `n` are below 2^31.
    - (C6) the scheme is the name of a registered format.

    ```mlir
    func.func @f(%w: tensor<576x320xi8, #mir.packed<q4_1, k = 512>>) {
      return
    }
    ```
  }];
  let parameters = (ins StringRefParameter<"name of the block format">:$scheme, "int64_t":$k,
      OptionalParameter<"int64_t">:$n,
      DefaultValuedParameter<EnumParameter<MIR_LayoutEnum>.cppType, "Layout::Rows">:$layout);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Elements in a block, and bytes that a block of one row takes.
    int64_t getBlockLength() const;
    int64_t getBlockBytes() const;
    /// Whether `mir.block_dot` can read it: its blocks hold integers and scales.
    bool hasIntegers() const;
    /// Bytes of a row in layout rows.
    int64_t getRowBytes() const;
    /// Shape of the tensor in layout panels: [panels, bytes of a panel].
    ::llvm::SmallVector<int64_t> getPanelShape() const;
    /// Bytes of a row in layout planes; 0 where the scheme has none.
    int64_t getPlaneBytes() const;
  }];
}

//===----------------------------------------------------------------------===//
// Types and op classes
//===----------------------------------------------------------------------===//

def MIR_Float : AnyTypeOf<[F16, BF16, F32, F64], "f16, bf16, f32 or f64">;
/// Signless integers are signed.
def MIR_Integer : AnyTypeOf<[I8, I16, I32, I64, UI8, UI16, UI32], "i8 to i64 or ui8 to ui32">;
def MIR_Arith : AnyTypeOf<[F16, BF16, F32, F64, MIR_Integer], "a float, i8 to i64 or ui8 to ui32">;
def MIR_Bits : AnyTypeOf<[I1, MIR_Integer], "i1, i8 to i64 or ui8 to ui32">;
/// What matrices are multiplied of, and what their products are of.
def MIR_Factor : AnyTypeOf<[F16, BF16, F32, F64, I8, I32, I64, UI8, UI32],
    "a float, i8, i32, i64, ui8 or ui32">;
def MIR_Product : AnyTypeOf<[F16, BF16, F32, F64, I32, I64, UI32], "a float, i32, i64 or ui32">;
def MIR_Number : AnyTypeOf<[F16, BF16, F32, F64, I1, MIR_Integer],
    "a float, i1, i8 to i64 or ui8 to ui32">;
/// Real and imaginary part in f32, in this order in memory.
def MIR_Complex : AnyTypeOf<[Complex<F32>], "complex<f32>">;
/// What there is addition and multiplication of, and division too.
def MIR_Ring : AnyTypeOf<[MIR_Arith, MIR_Complex],
    "a float, complex<f32>, i8 to i64 or ui8 to ui32">;
def MIR_Field : AnyTypeOf<[MIR_Float, MIR_Complex], "a float or complex<f32>">;
def MIR_Value : AnyTypeOf<[MIR_Number, MIR_Complex],
    "a float, complex<f32>, i1, i8 to i64 or ui8 to ui32">;
def MIR_Float8 : AnyTypeOf<[F8E4M3FN, F8E5M2], "f8E4M3FN or f8E5M2">;
/// What a tensor may hold. There is no arithmetic on floats of 8 bits but for their products.
def MIR_Stored : AnyTypeOf<[MIR_Float, MIR_Float8, MIR_Complex, I1, MIR_Integer],
    "a float, complex<f32>, i1, i8 to i64 or ui8 to ui32">;
def MIR_Index : AnyTypeOf<[F32, I32, I64], "f32, i32 or i64 index">;
/// What entries of a table are counted in.
def MIR_Position : AnyTypeOf<[F32, I32, I64, UI8, UI16, UI32], "f32, i32, i64 or ui8 to ui32 index">;
def MIR_Mask : AnyTypeOf<[I1, F16, BF16, F32, F64], "i1 or a float">;

def MIR_HasNoEncoding : CPred<
    "!::llvm::cast<::mlir::RankedTensorType>($_self).getEncoding()">;
def MIR_IsVector : CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).getRank() == 1">;

/// A tensor without encoding: the bytes of a packed weight aren't numbers.
class MIR_DenseOf<Type element> : RankedTensorOf<[element], [MIR_HasNoEncoding], "dense tensor">;
class MIR_VectorOf<Type element>
    : RankedTensorOf<[element], [MIR_HasNoEncoding, MIR_IsVector], "dense 1-d tensor">;

def MIR_FloatTensor : MIR_DenseOf<MIR_Float>;
/// Keys and values as they are stored: floats, or bytes of blocks, whose format an attribute names.
def MIR_Kept : AnyTypeOf<[F16, BF16, F32, F64, I8], "f16, bf16, f32, f64 or i8">;
def MIR_KeptTensor : MIR_DenseOf<MIR_Kept>;
def MIR_ArithTensor : MIR_DenseOf<MIR_Arith>;
def MIR_IntegerTensor : MIR_DenseOf<MIR_Integer>;
def MIR_BitsTensor : MIR_DenseOf<MIR_Bits>;
def MIR_Tensor : MIR_DenseOf<MIR_Number>;
def MIR_ComplexTensor : MIR_DenseOf<MIR_Complex>;
def MIR_RingTensor : MIR_DenseOf<MIR_Ring>;
def MIR_FieldTensor : MIR_DenseOf<MIR_Field>;
def MIR_ValueTensor : MIR_DenseOf<MIR_Value>;
def MIR_StoredTensor : MIR_DenseOf<MIR_Stored>;
def MIR_Float8Tensor : MIR_DenseOf<MIR_Float8>;
def MIR_IndexTensor : MIR_DenseOf<MIR_Index>;
def MIR_IndicesTensor : MIR_DenseOf<MIR_Position>;
def MIR_MaskTensor : MIR_DenseOf<MIR_Mask>;
def MIR_BoolTensor : MIR_DenseOf<I1>;
def MIR_I8Tensor : MIR_DenseOf<I8>;
def MIR_I32Tensor : MIR_DenseOf<I32>;
def MIR_F32Tensor : MIR_DenseOf<F32>;
def MIR_FloatVector : MIR_VectorOf<MIR_Float>;
def MIR_PositionTensor : MIR_VectorOf<I32>;

/// A number that isn't known before the program runs.
def MIR_IsScalar : CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).getRank() == 0">;
def MIR_StartTensor
    : RankedTensorOf<[I32, I64], [MIR_HasNoEncoding, MIR_IsScalar], "dense 0-d tensor">;

/// What bounds and lengths are: numbers, or text of what is computed of the dimensions of other
/// values, which `like_dims` lists.
def MIR_SizeAttr : AnyAttrOf<[I64Attr, StrAttr], "a number or a size">;

def MIR_IsPacked : CPred<[{
  ::llvm::isa_and_nonnull<::rlx::mir::PackedAttr>(
      ::llvm::cast<::mlir::RankedTensorType>($_self).getEncoding())}]>;
def MIR_PackedTensor : Type<
    And<[RankedTensorOf<[I8]>.predicate, MIR_IsPacked]>, "packed weight",
    "::mlir::RankedTensorType">;
def MIR_AnyTensor : AnyTypeOf<[MIR_ValueTensor, MIR_PackedTensor],
    "a dense tensor or a packed weight", "::mlir::RankedTensorType">;
def MIR_AnyStoredTensor : AnyTypeOf<[MIR_StoredTensor, MIR_PackedTensor],
    "a dense tensor or a packed weight", "::mlir::RankedTensorType">;
/// A weight: dense, or packed by its type.
def MIR_Weight : AnyTypeOf<[MIR_FloatTensor, MIR_PackedTensor], "a dense or a packed weight",
    "::mlir::RankedTensorType">;

class MIR_Op<string mnemonic, list<Trait> traits = []>
    : Op<MIR_Dialect, mnemonic, !listconcat([Pure], traits)>;

/// An op whose result type follows from its operands and attributes.
class MIR_InferredOp<string mnemonic, list<Trait> traits = []>
    : MIR_Op<mnemonic, !listconcat([InferTypeOpAdaptor], traits)>;

/// What rows are quantised to: 8, 15 or 22 bits.
def MIR_BlockIntegers : MIR_DenseOf<AnyTypeOf<[I8, I16, I32]>>;

#endif // RLX_MIR_BASE
