// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The HIR dialect and the classes of its operations.

#ifndef RLX_HIR_BASE
#define RLX_HIR_BASE

include "mir/base.td"

def HIR_Dialect : Dialect {
  let name = "hir";
  let cppNamespace = "::rlx::hir";
  let summary = "blocks of transformer models";
  let description = [{
    Pure operations on ranked tensors, each a block that a model author has a name
    for: a linear layer, a gated feed-forward network, an attention, a decoder
    layer. A block says what is computed. `hir-to-mir` replaces it by primitives of
    the `mir` dialect, and its fusion policy decides by which ones. Operations of
    `mir` may stand between blocks: they are the way to say what has no block.

    Letters in the documentation: B batch, S sequence length of this call, E hidden
    width, F width of the feed-forward network, H query heads, Hkv key and value
    heads, D width of a head, P positions of a table or of a cache. A dimension may
    be `?`; rules that compare sizes hold where both are static.

    ### Inputs and parameters

    There are no operations for them. They are arguments of the function, which say
    by attributes what they are: `mir.name` is the name that callers use, `mir.kind`
    is `"input"` (given at each call) or `"param"` (bound once), `mir.dims` has one
    word for each dimension, the symbol of a dynamic one. Results carry `mir.name`.
    The function's `mir.ties` is a dictionary from results to the arguments whose
    memory they take in calls that donate these.

    ### Weights

    Every operand that is a weight, with K inputs and N outputs, is either

    - dense: [K, N], or [N, K] with `transpose_weight`, of the element type of the
      activations, or
    - packed: a tensor of bytes whose type says how to read it, for example
      `tensor<576x320xi8, #mir.packed<q4_1, k = 512>>` for K = 512 and N = 576, in
      the order of GGUF files. `transpose_weight` says nothing about these.

    One operation may mix both. Products with packed weights read the weight as it
    is stored. Panels, a layout for kernels, appear after `hir` only.

    ### Numbers

    Products and sums over f16, bf16 and f32 are accumulated in f32, over f64 in
    f64. Results have the element type of the activations. NaN propagates.

    ### What differs from the design that this dialect follows

    - `shared_linear_pair` is one operation with two results, of two widths: there
      it was two nodes with a slot number and one shape.
    - `swiglu` takes gate, up, down, as the decoder block does: there its order was
      up, gate, down, and the weights could be exchanged unnoticed.
    - `attention` groups queries itself and knows `scale` and `softcap`: there keys
      and values had to be repeated by the caller, without a check that the heads
      divide. A `mask` is given exactly where its kind asks for one, and a window
      counts the keys that are kept, the query's own included: `window 4` there was
      `SlidingWindow(3)`.
    - a key-value cache is an operand and a result: there it was updated in place,
      unseen by the graph.
    - `beta` of the norms is optional: there it was a mandatory vector of zeros,
      which some targets ignored.
    - `rope` has a style and reads [P, D/2] tables at `pos`: there it always paired
      halves and began at row 0, and some targets ignored `n_rot`. The style is always
      in the text, also where it is the default.
    - a bias is an operand that is there or not: there a flag could contradict it.
    - `depthwise_conv1d_causal` takes any number of tokens, known or not.
    - `gated_delta_net` has its state as a second result, of f32 whatever the tokens are
      of, and any width: there the state was updated in place and its width at most 128.
    - `qwen35_mtp_head` reads the last token of each batch item: there it was right for
      one item. It takes any batch, any sequence, and widths from its operands.

    The seventeen nodes of that design are here: fifteen operations (products with
    packed weights and with scales that are tensors are two), and arguments of functions
    in place of inputs and parameters (see above). A node that wraps a
    primitive is the primitive itself, which may stand beside blocks. Left out on
    purpose: result types that the author declares (they are inferred). A block joins
    the dialect as one definition in a file of `dialects/hir`, derived from
    `HIR_BlockOp`, and one C++ function, `check`, which states its rules and gives the
    types of its results to inference and verifier alike.
  }];
  let dependentDialects = ["::rlx::mir::MIRDialect"];
  let hasConstantMaterializer = 1;
}

class HIR_Op<string mnemonic, list<Trait> traits = []>
    : Op<HIR_Dialect, mnemonic, !listconcat([Pure], traits)>;

/// A block. Its `check` states its rules once: inference and the verifier both call it.
class HIR_BlockOp<string mnemonic, list<Trait> traits = []>
    : HIR_Op<mnemonic, !listconcat(traits, [InferTypeOpAdaptor])> {
  let hasVerifier = 1;
  code checkDeclaration = [{
    /// Checks the numbered constraints and gives the types of the results.
    static ::llvm::LogicalResult check(Adaptor op, ::rlx::hir::EmitError error,
                                       ::llvm::SmallVectorImpl<::mlir::Type> &results);
  }];
  let extraClassDeclaration = checkDeclaration;
  let extraClassDefinition = [{
    ::llvm::LogicalResult $cppClass::inferReturnTypes(
        ::mlir::MLIRContext *context, std::optional<::mlir::Location> location, Adaptor adaptor,
        ::llvm::SmallVectorImpl<::mlir::Type> &inferredReturnTypes) {
      auto error = [&] {
        return ::rlx::hir::emitInferenceError(location, getOperationName());
      };
      // Attributes that are absent get their defaults only after inference.
      auto properties = adaptor.getProperties();
      populateDefaultProperties({getOperationName(), context}, properties);
      Adaptor op(adaptor.getOperands(), adaptor.getAttributes(), properties);
      return check(op, error, inferredReturnTypes);
    }
    ::llvm::LogicalResult $cppClass::verify() {
      ::llvm::SmallVector<::mlir::Type> types;
      return check(Adaptor(*this), [&] { return emitOpError(); }, types);
    }
  }];
}

def HIR_EpsAttr : DefaultValuedAttr<F32Attr, "1e-5f">;
def HIR_MaskKindAttr : DefaultValuedAttr<MIR_MaskKindAttr, "::rlx::mir::MaskKind::None">;
def HIR_RopeStyleAttr : DefaultValuedAttr<MIR_RopeStyleAttr, "::rlx::mir::RopeStyle::Half">;

def HIR_ConstantOp : HIR_Op<"constant", [ConstantLike, AllTypesMatch<["value", "result"]>]> {
  let summary = "a constant tensor";
  let description = [{
    A tensor whose elements are in the text. For small things, such as a scale or a
    table of a few entries: weights are arguments of the function.

    The value and the result have one type.

    ```mlir
    func.func @f() -> tensor<2x2xf32> {
      %c = hir.constant dense<[[0.5, 1.0], [1.5, 2.0]]> : tensor<2x2xf32>
      return %c : tensor<2x2xf32>
    }
    ```
  }];
  let arguments = (ins ElementsAttr:$value);
  let results = (outs MIR_Tensor:$result);
  let assemblyFormat = "attr-dict $value";
  let hasFolder = 1;
}

#endif // RLX_HIR_BASE
