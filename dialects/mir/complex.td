// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Complex numbers: made of parts, and taken apart.

#ifndef RLX_MIR_COMPLEX
#define RLX_MIR_COMPLEX

include "mir/base.td"

def MIR_ComplexOp : MIR_InferredOp<"complex"> {
  let summary = "complex numbers of their parts";
  let description = [{
    For each pair of elements, after numpy's broadcasting of the shapes, the complex number
    with the real part `re` and the imaginary part `im`:

        result = re + im i

    - (C1) the shapes of `re` and `im` broadcast.

    ```mlir
    func.func @f(%a: tensor<?x8xf32>, %b: tensor<8xf32>) -> tensor<?x8xcomplex<f32>> {
      %z = mir.complex %a, %b : tensor<?x8xf32>, tensor<8xf32>
      return %z : tensor<?x8xcomplex<f32>>
    }
    ```
  }];
  let arguments = (ins MIR_F32Tensor:$re, MIR_F32Tensor:$im);
  let results = (outs MIR_ComplexTensor:$result);
  let assemblyFormat = [{
    $re `,` $im attr-dict `:` custom<SharedType>(type($re), type($im))
  }];
}

/// A number in f32 of each complex one.
class MIR_PartOp<string mnemonic, string what, string formula, string rule>
    : MIR_InferredOp<mnemonic> {
  let summary = what;
  let description = !strconcat([{
    Of each element of `z`, a + bi, of any shape:

        result = }], formula, [{

    }], rule, [{

    ```mlir
    func.func @f(%z: tensor<?x8xcomplex<f32>>) -> tensor<?x8xf32> {
      %x = mir.}], mnemonic, [{ %z : tensor<?x8xcomplex<f32>>
      return %x : tensor<?x8xf32>
    }
    ```
  }]);
  let arguments = (ins MIR_ComplexTensor:$z);
  let results = (outs MIR_F32Tensor:$result);
  let assemblyFormat = "$z attr-dict `:` type($z)";
}

def MIR_RealOp : MIR_PartOp<"real", "real parts", "a", "The imaginary part has no influence.">;
def MIR_ImagOp : MIR_PartOp<"imag", "imaginary parts", "b", "The real part has no influence.">;
def MIR_ComplexNormSqOp : MIR_PartOp<"complex_norm_sq", "squares of magnitudes", "a^2 + b^2",
    "Each square and the sum are rounded to f32; large parts give inf.">;

def MIR_ConjugateOp : MIR_Op<"conjugate", [AllTypesMatch<["z", "result"]>]> {
  let summary = "conjugates of complex numbers";
  let description = [{
    Of each element of `z`, a + bi, of any shape:

        result = a - bi

    The sign of the imaginary part flips, that of zero too.

    ```mlir
    func.func @f(%z: tensor<?x8xcomplex<f32>>) -> tensor<?x8xcomplex<f32>> {
      %w = mir.conjugate %z : tensor<?x8xcomplex<f32>>
      return %w : tensor<?x8xcomplex<f32>>
    }
    ```
  }];
  let arguments = (ins MIR_ComplexTensor:$z);
  let results = (outs MIR_ComplexTensor:$result);
  let assemblyFormat = "$z attr-dict `:` type($z)";
  let hasFolder = 1;
}

def MIR_ComplexNormSqBackwardOp : MIR_InferredOp<"complex_norm_sq_backward"> {
  let summary = "gradient of the squares of magnitudes";
  let description = [{
    Of each element of `z`, a + bi, and of the gradient `g` of `mir.complex_norm_sq` there:

        result = g a + g b i

    The gradient by a complex number w is that by its conjugate, as in Wirtinger's calculus,
    half of (gradient by the real part) + i (gradient by the imaginary part). Each part is
    rounded to f32.

    - (C1) `z` and `g` have one shape.

    ```mlir
    func.func @f(%z: tensor<?x8xcomplex<f32>>, %g: tensor<?x8xf32>) -> tensor<?x8xcomplex<f32>> {
      %d = mir.complex_norm_sq_backward %z, %g : tensor<?x8xcomplex<f32>>, tensor<?x8xf32>
      return %d : tensor<?x8xcomplex<f32>>
    }
    ```
  }];
  let arguments = (ins MIR_ComplexTensor:$z, MIR_F32Tensor:$g);
  let results = (outs MIR_ComplexTensor:$result);
  let assemblyFormat = "$z `,` $g attr-dict `:` type($z) `,` type($g)";
}

#endif // RLX_MIR_COMPLEX
