// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fourier transforms.

#ifndef RLX_MIR_FFT
#define RLX_MIR_FFT

include "mir/base.td"

def MIR_FftNormEnum : MIR_EnumAttr<"FftNorm", "which direction of a transform is scaled", [
  I32EnumAttrCase<"Backward", 0, "backward">, I32EnumAttrCase<"Forward", 1, "forward">,
  I32EnumAttrCase<"Ortho", 2, "ortho">]>;
def MIR_FftNormAttr : EnumAttr<MIR_Dialect, MIR_FftNormEnum, "fft_norm">;

def MIR_SpectrumTensor : MIR_DenseOf<AnyTypeOf<[F32, F64, MIR_Complex], "f32, f64 or complex<f32>">>;

def MIR_FftOp : MIR_Op<"fft", [AllTypesMatch<["x", "result"]>]> {
  let summary = "discrete Fourier transform along the last dimension";
  let description = [{
    Of each row x[0], ..., x[N - 1] of complex numbers along the last dimension:

        result[k] = a * sum over n of x[n] * e^(-2 pi i n k / N)

    and with e^(+2 pi i n k / N) where it is `inverse`. The last dimension of complex<f32> is
    N numbers. That of f32 and f64 is 2 N numbers: N real parts, then the N imaginary parts.

    | norm | a, forward | a, inverse |
    |---|---|---|
    | backward (the default) | 1 | 1 / N |
    | forward | 1 / N | 1 |
    | ortho | 1 / sqrt(N) | 1 / sqrt(N) |

    These are numpy's names: with any of them, an inverse of a transform of equal norm gives
    back what was transformed. N is any positive number: with prime factors up to 13, it takes
    time in proportion to N log N with a factor for each of them, and as much, of the next
    powers of two, with larger ones. Computed in the type of the parts, with factors that are
    rounded from f64. An infinity or NaN makes its row infinite or NaN, in no fixed way.

    - (C1) `x` has at least one dimension.
    - (C2) the last dimension is static and positive.
    - (C3) the last dimension of f32 and f64 is even.

    ```mlir
    func.func @f(%x: tensor<?x32xf32>) -> tensor<?x32xf32> {
      %y = mir.fft %x norm ortho : tensor<?x32xf32>
      %z = mir.fft %y inverse norm ortho : tensor<?x32xf32>
      return %z : tensor<?x32xf32>
    }
    ```
  }];
  let arguments = (ins MIR_SpectrumTensor:$x, UnitAttr:$inverse,
      DefaultValuedAttr<MIR_FftNormAttr, "FftNorm::Backward">:$norm);
  let results = (outs MIR_SpectrumTensor:$result);
  let assemblyFormat = "$x (`inverse` $inverse^)? (`norm` `` $norm^)? attr-dict `:` type($x)";
  let hasVerifier = 1;
}

#endif // RLX_MIR_FFT
