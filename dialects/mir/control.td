// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Control flow that depends on values, and loops over a sequence.

#ifndef RLX_MIR_CONTROL
#define RLX_MIR_CONTROL

include "mir/base.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"

/// One truth value.
def MIR_IsTruth : CPred<[{
  ::llvm::isa<::mlir::RankedTensorType>($_self) &&
  ::llvm::cast<::mlir::RankedTensorType>($_self).getRank() == 0 &&
  ::llvm::cast<::mlir::RankedTensorType>($_self).getElementType().isSignlessInteger(1)}]>;
def MIR_Truth : Type<MIR_IsTruth, "0-d tensor of i1", "::mlir::RankedTensorType">,
    BuildableType<"::mlir::RankedTensorType::get({}, $_builder.getI1Type())">;

/// An op whose regions see their arguments alone: what they read of the outside is captured.
class MIR_RegionOp<string mnemonic, list<Trait> traits = []>
    : Op<MIR_Dialect, mnemonic, !listconcat([NoMemoryEffect, IsolatedFromAbove, SingleBlock,
        DeclareOpInterfaceMethods<RegionBranchOpInterface, ["getEntrySuccessorOperands"]>],
        traits)> {
  let hasVerifier = 1;
}

def MIR_YieldOp : MIR_Op<"yield", [Terminator, ParentOneOf<["CustomFnOp", "IfOp", "ScanOp", "WhileOp"]>,
    DeclareOpInterfaceMethods<RegionBranchTerminatorOpInterface>]> {
  let summary = "what a region gives";
  let description = [{
    Ends a region of `mir.if`, `mir.scan`, `mir.custom_fn` or the second one of `mir.while`,
    and gives its values to the operation.

    ```mlir
    func.func @f(%p: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {
      %y = mir.if %p(%x) : (tensor<4xf32>) -> tensor<4xf32> {
      ^bb0(%a: tensor<4xf32>):
        %b = mir.neg %a : tensor<4xf32>
        mir.yield %b : tensor<4xf32>
      } else {
      ^bb0(%a: tensor<4xf32>):
        mir.yield %a : tensor<4xf32>
      }
      return %y : tensor<4xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<MIR_StoredTensor>:$values);
  let assemblyFormat = "$values attr-dict `:` type($values)";
}

def MIR_ConditionOp : MIR_Op<"condition", [Terminator, HasParent<"WhileOp">,
    DeclareOpInterfaceMethods<RegionBranchTerminatorOpInterface>]> {
  let summary = "whether a loop goes on";
  let description = [{
    Ends the first region of `mir.while`: where `condition` is true, `values` go to the
    second one, and else they are the operation's results.

    ```mlir
    func.func @f(%x: tensor<f32>) -> tensor<f32> {
      %y = mir.while (%x) : (tensor<f32>) -> tensor<f32> cond {
      ^bb0(%a: tensor<f32>):
        %bound = mir.constant dense<1.0> : tensor<f32>
        %go = mir.compare lt %a, %bound : tensor<f32>
        mir.condition %go, %a : tensor<f32>
      } do {
      ^bb0(%a: tensor<f32>):
        %b = mir.add %a, %a : tensor<f32>
        mir.yield %b : tensor<f32>
      }
      return %y : tensor<f32>
    }
    ```
  }];
  let arguments = (ins MIR_Truth:$condition, Variadic<MIR_StoredTensor>:$values);
  let assemblyFormat = "$condition `,` $values attr-dict `:` type($values)";
}

def MIR_IfOp : MIR_RegionOp<"if"> {
  let summary = "one of two regions, by a value";
  let description = [{
    Runs the first region where `condition` is true, and the second one where it isn't, on
    `captures`; what the region yields is the result. The other region doesn't run: what it
    would take, or give, doesn't matter.

    - (C1) Both regions have the arguments `captures`, of their types.
    - (C2) Both regions yield values of the types of the results.
    - (C3) There is a result.

    ```mlir
    func.func @f(%p: tensor<i1>, %x: tensor<?x4xf32>, %w: tensor<4xf32>) -> tensor<?x4xf32> {
      %y = mir.if %p(%x, %w) : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32> {
      ^bb0(%a: tensor<?x4xf32>, %b: tensor<4xf32>):
        %c = mir.mul %a, %b : tensor<?x4xf32>, tensor<4xf32>
        mir.yield %c : tensor<?x4xf32>
      } else {
      ^bb0(%a: tensor<?x4xf32>, %b: tensor<4xf32>):
        mir.yield %a : tensor<?x4xf32>
      }
      return %y : tensor<?x4xf32>
    }
    ```
  }];
  let arguments = (ins MIR_Truth:$condition, Variadic<MIR_AnyStoredTensor>:$captures);
  let results = (outs Variadic<MIR_StoredTensor>:$results);
  let regions = (region SizedRegion<1>:$then_region, SizedRegion<1>:$else_region);
  let assemblyFormat = [{
    $condition `(` $captures `)` attr-dict `:` functional-type($captures, $results)
    $then_region `else` $else_region
  }];
}

def MIR_WhileOp : MIR_RegionOp<"while", [AttrSizedOperandSegments]> {
  let summary = "a region again and again, as long as a condition holds";
  let description = [{
    Carries values from step to step, beginning with `inits`:

        carried = inits
        while cond(carried, captures):
            carried = body(carried, captures)
        results = carried

    The condition is computed before each step, so that the body may run never. With
    `limit`, there are no more than so many steps, whatever the condition says.

    - (C1) Both regions have as arguments the carried values, of the types of `inits`, and
      then `captures`, of theirs.
    - (C2) The first region forwards its carried arguments, in their order.
    - (C3) The second region yields values of the types of `inits`, which are those of the results.
    - (C4) There is a carried value.
    - (C5) `limit` isn't negative.

    ```mlir
    func.func @f(%x: tensor<4xf32>, %bound: tensor<f32>) -> tensor<4xf32> {
      %y = mir.while (%x) with (%bound) limit 100
          : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32> cond {
      ^bb0(%a: tensor<4xf32>, %b: tensor<f32>):
        %sum = mir.reduce sum %a axes [0] : tensor<4xf32>
        %go = mir.compare lt %sum, %b : tensor<f32>
        mir.condition %go, %a : tensor<4xf32>
      } do {
      ^bb0(%a: tensor<4xf32>, %b: tensor<f32>):
        %c = mir.add %a, %a : tensor<4xf32>
        mir.yield %c : tensor<4xf32>
      }
      return %y : tensor<4xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<MIR_StoredTensor>:$inits,
      Variadic<MIR_AnyStoredTensor>:$captures, OptionalAttr<I64Attr>:$limit);
  let results = (outs Variadic<MIR_StoredTensor>:$results);
  let regions = (region SizedRegion<1>:$cond, SizedRegion<1>:$body);
  let assemblyFormat = [{
    `(` $inits `)` (`with` `(` $captures^ `)`)? (`limit` $limit^)? attr-dict
    `:` functional-type(operands, $results) `cond` $cond `do` $body
  }];
}

def MIR_ScanOp : MIR_RegionOp<"scan", [AttrSizedOperandSegments]> {
  let summary = "a region for each entry of sequences, with values that are carried";
  let description = [{
    Goes along the first dimension of `xs`, and carries values from step to step, beginning
    with `inits`:

        carried = inits
        for t in 0, 1, ..., L - 1:
            carried, ys[t] = body(carried, xs[t], captures)
        results = carried, ys

    `L` is `length`, or the first size of `xs`. With `reverse`, t goes from L - 1 down to 0;
    results stay where they belong: `ys[t]` is what the body yields for `xs[t]`. Where L is
    0, the carried results are `inits`.

    `checkpoints` says how many of the L carried values a gradient of the operation keeps:
    those after step ceil((k + 1) L / checkpoints) - 1, for k from 0. It computes the others
    again. Results don't depend on it.

    - (C1) The region has as arguments the carried values, of the types of `inits`, then one
      entry of each of `xs`, of its type without the first dimension, then `captures`.
    - (C2) The region yields the carried values, of the types of `inits`, and an entry of each
      of `ys`.
    - (C3) The results have the types of `inits`, and then of [L, ...] for each further value
      that the region yields.
    - (C4) Each of `xs` has a first dimension, and all of them are of one size, which is
      `length` where that is given.
    - (C5) There is `length` or one of `xs`; `length` isn't negative.
    - (C6) There is a result.
    - (C7) `checkpoints` is from 1 to L.

    ```mlir
    func.func @mean(%x: tensor<?x4xf32>, %start: tensor<4xf32>, %decay: tensor<f32>)
        -> (tensor<4xf32>, tensor<?x4xf32>) {
      %last, %all = mir.scan (%start) over (%x) with (%decay)
          : (tensor<4xf32>, tensor<?x4xf32>, tensor<f32>) -> (tensor<4xf32>, tensor<?x4xf32>) {
      ^bb0(%mean: tensor<4xf32>, %own: tensor<4xf32>, %d: tensor<f32>):
        %gap = mir.sub %own, %mean : tensor<4xf32>
        %part = mir.mul %gap, %d : tensor<4xf32>, tensor<f32>
        %next = mir.add %mean, %part : tensor<4xf32>
        mir.yield %next, %next : tensor<4xf32>, tensor<4xf32>
      }
      return %last, %all : tensor<4xf32>, tensor<?x4xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<MIR_StoredTensor>:$inits, Variadic<MIR_StoredTensor>:$xs,
      Variadic<MIR_AnyStoredTensor>:$captures, OptionalAttr<I64Attr>:$length,
      UnitAttr:$reverse, OptionalAttr<I64Attr>:$checkpoints);
  let results = (outs Variadic<MIR_StoredTensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `(` $inits `)` (`over` `(` $xs^ `)`)? (`with` `(` $captures^ `)`)? (`length` $length^)?
    (`reverse` $reverse^)? (`checkpoints` $checkpoints^)? attr-dict
    `:` functional-type(operands, $results) $body
  }];
  let extraClassDeclaration = [{
    /// Steps, where that is known: `length`, or the first size of `xs`; else dynamic.
    int64_t getSteps();
  }];
}

def MIR_CustomFnOp : Op<MIR_Dialect, "custom_fn", [NoMemoryEffect, IsolatedFromAbove,
    DeclareOpInterfaceMethods<RegionBranchOpInterface, ["getEntrySuccessorOperands"]>]> {
  let summary = "a function with gradients of its own";
  let description = [{
    Runs the first region on `inputs`; what it yields are the results. The other regions, which
    may be left out, say what gradients of it are, in place of those of its operations:

    - `vjp` takes the inputs, the results, and a gradient by each result; it yields a gradient
      by each input.
    - `jvp` takes the inputs, and a tangent of each; it yields a tangent of each result.

    Where the operation isn't differentiated, its first region stands in its place.

    - (C1) The first region has the arguments `inputs`, of their types.
    - (C2) The first region yields values of the types of the results.
    - (C3) `vjp` isn't there, or has as arguments the inputs, the results, and the results again,
      of their types, and yields values of the types of the inputs.
    - (C4) `jvp` isn't there, or has as arguments the inputs, and the inputs again, of their types,
      and yields values of the types of the results.
    - (C5) There is a result.

    ```mlir
    func.func @f(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
      %y = mir.custom_fn(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32> {
      ^bb0(%a: tensor<?x4xf32>):
        %b = mir.round %a : tensor<?x4xf32>
        mir.yield %b : tensor<?x4xf32>
      } vjp {
      ^bb0(%a: tensor<?x4xf32>, %b: tensor<?x4xf32>, %db: tensor<?x4xf32>):
        mir.yield %db : tensor<?x4xf32>
      }
      return %y : tensor<?x4xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<MIR_AnyStoredTensor>:$inputs);
  let results = (outs Variadic<MIR_StoredTensor>:$results);
  let regions = (region SizedRegion<1>:$function, MaxSizedRegion<1>:$vjp, MaxSizedRegion<1>:$jvp);
  let assemblyFormat = [{
    `(` $inputs `)` attr-dict `:` functional-type($inputs, $results) $function
    (`vjp` $vjp^)? (`jvp` $jvp^)?
  }];
  let hasVerifier = 1;
}

def MIR_EntryViewOp : MIR_Op<"entry_view"> {
  let summary = "an entry of a sequence in memory, where it is";
  let description = [{
    The entry `index` along the first dimension of a buffer, as a buffer of its own: planned
    functions have it in their loops over the entries of `mir.scan`. The index isn't negative,
    and less than the first size.

    - (C1) `sequence` has a first dimension.
    - (C2) `entry` has the element type of `sequence`, and its sizes without the first one.
    - (C3) Both have their elements one after the other.

    ```mlir
    func.func @f(%x: memref<?x4xf32>, %t: index) -> memref<4xf32> {
      %y = mir.entry_view %x[%t] : memref<?x4xf32> to memref<4xf32>
      return %y : memref<4xf32>
    }
    ```
  }];
  let arguments = (ins AnyMemRef:$sequence, Index:$index);
  let results = (outs AnyMemRef:$entry);
  let assemblyFormat = [{
    $sequence `[` $index `]` attr-dict `:` type($sequence) `to` type($entry)
  }];
  let hasVerifier = 1;
}

#endif // RLX_MIR_CONTROL
