// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A compiled entry function as data, and what of it depends on sizes: the same wherever it runs.
#ifndef RLX_RUNTIME_PLAN_SPEC_H
#define RLX_RUNTIME_PLAN_SPEC_H

#include "symbols.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlx::runtime {

/// A polynomial in the sizes of the dynamic dimensions, and in what is computed of others: the sum
/// of coefficient * product of factors.
struct Expr {
  struct Derived;
  struct Factor {
    int symbol;                             // its index, where nothing is derived
    std::shared_ptr<const Derived> derived; // null for a symbol
  };
  struct Term {
    int64_t coefficient;
    std::vector<Factor> factors; // one may recur
  };
  std::vector<Term> terms; // none: 0

  /// Whether it is the same for all sizes.
  bool isFixed() const;
  /// The value for `sizes`, one per symbol. Does not overflow for sizes within the maxima of a
  /// plan.
  int64_t evaluate(const std::vector<int64_t> &sizes) const;
  /// The same for any numbers; none where it has more than 64 bits.
  std::optional<int64_t> evaluateChecked(const int64_t *sizes) const;
};

/// Computed of another size and a number: the largest integer that is at most size / number, for a
/// number from 1 on; or the larger one of the two.
struct Expr::Derived {
  enum class Kind : uint8_t { FloorDiv, Max };
  /// How deep sizes may be computed of each other.
  static constexpr int kDepth = 64;
  Kind kind;
  int64_t number;
  Expr size;

  int64_t apply(int64_t value) const;
};

enum class Source : uint8_t { Arena, Input, Param, Output };

/// What uses a buffer: a call, or a block where that is none.
struct Owner {
  int call, block;
};

/// What a plan is made from. Indices refer to the lists in here.
struct PlanSpec {
  struct Symbol {
    std::string name;
    int64_t maximum;
  };
  /// A piece of the arena, in bytes; offsets are multiples of 64. Pieces may overlap.
  struct Slot {
    int64_t offset, bytes;
  };
  /// How far a buffer moves from one step of a block that encloses it to the next one: in bytes.
  struct Move {
    int block;
    Expr stride;
  };
  struct Buffer {
    Source source;
    int index;   // of the slot, input, parameter or output
    Expr offset; // bytes from its start, in first steps
    std::vector<Move> moves = {};
  };
  struct Call {
    int kernel;
    std::vector<Buffer> buffers;
    std::vector<Expr> dims;   // every `?` of the kernel's memrefs, in order
    std::optional<Expr> work; // bytes or operations, whichever is more; unknown counts as much
  };
  /// Two buffers that take turns: what a step reads is `current`, and what it leaves `next`. After
  /// the last step it is in `current`.
  struct Swap {
    Buffer current, next;
    Expr bytes;
  };
  /// Calls that run again and again, or perhaps not at all.
  ///
  /// Of a `for`, [middle, end) run `steps` times. Of a `while`, [begin, middle) run, and where
  /// `flag` holds then, [middle, end) and everything again; at most `steps` times where that is
  /// given. Of an `if`, [begin, middle) run where `flag` holds, [middle, end) elsewhere. Blocks
  /// come in order, those in a block after it.
  struct Block {
    enum class Kind : uint8_t { For, While, If };
    Kind kind;
    int parent; // the block that it is in; -1: none
    int part;   // of that: 0 is [begin, middle), 1 is [middle, end)
    size_t begin, middle, end;
    std::optional<Expr> steps;
    std::optional<Buffer> flag; // one byte
    std::vector<Swap> swaps;
  };
  /// An input or parameter whose elements, i32, are numbers of rows: those from each on, `rows` of
  /// them, are in [0, limit).
  struct Positions {
    Source source;
    int index;  // of the input or parameter
    Expr count; // of elements
    Expr rows, limit;
    std::string where; // what needs it
  };
  /// How large an input, parameter or output is.
  struct Extent {
    int64_t elementBytes;
    std::vector<Expr> dims;
  };
  std::vector<Symbol> symbols;
  std::vector<std::string> kernels, inputs, params, outputs; // names
  std::vector<Slot> slots;
  std::vector<Call> calls;
  std::vector<Block> blocks;
  std::vector<Positions> positions;
  /// One for each input, parameter and output; or none at all, where whoever makes the plan doesn't
  /// know: their buffers are taken to be large enough.
  std::vector<Extent> inputExtents, paramExtents, outputExtents;
  int64_t arenaBytes;

  /// Throws InputError where the description contradicts itself.
  void validate() const;
  /// The largest size of each symbol.
  std::vector<int64_t> maxima() const;
  /// "call 3 (gemm_1)"
  std::string nameOf(size_t call) const;
  /// Throws InputError about a call.
  [[noreturn]] void fail(size_t call, const std::string &problem) const;
  /// "block 2"; throws InputError about it.
  [[noreturn]] void failBlock(size_t block, const std::string &problem) const;
  /// Throws InputError about either.
  [[noreturn]] void fail(Owner owner, const std::string &problem) const;
  /// Whether a block is another one, or in it.
  bool isWithin(int block, int other) const;
  /// The innermost block that each call is in; -1: none.
  std::vector<int> innermostBlocks() const;

private:
  std::string exprProblem(const Expr &expr, const char *what, int64_t limit) const;
  std::string bufferProblem(const Buffer &buffer) const;
  void checkExpr(const Expr &expr, size_t call, const char *what, int64_t limit) const;
  void validateCalls() const;
  void validateBlocks() const;
  std::string blockProblem(size_t number, size_t &free) const;
  void validatePositions() const;
  void validateExtents(const std::vector<Extent> &extents, const std::vector<std::string> &names,
                       const char *kind) const;
};

/// Calls `visit(buffer, owner)` with the buffers of all calls, in order, and then those of all
/// blocks: its flag where it has one, and the two buffers of each of its swaps.
template <typename Visit> void forEachOperand(const PlanSpec &spec, Visit visit) {
  for (size_t i = 0; i < spec.calls.size(); ++i)
    for (const PlanSpec::Buffer &buffer : spec.calls[i].buffers)
      visit(buffer, Owner{int(i), -1});
  for (size_t i = 0; i < spec.blocks.size(); ++i) {
    const PlanSpec::Block &block = spec.blocks[i];
    if (block.flag)
      visit(*block.flag, Owner{-1, int(i)});
    for (const PlanSpec::Swap &swap : block.swaps) {
      visit(swap.current, Owner{-1, int(i)});
      visit(swap.next, Owner{-1, int(i)});
    }
  }
}

/// Throws InputError where the number of addresses is wrong or one is null; `kind` is what they are
/// of.
void checkAddresses(const std::vector<uintptr_t> &addresses, const std::vector<std::string> &names,
                    const char *kind);

/// What the calls of a plan depend on for one choice of sizes. The lists lie in memory that stays
/// where it is.
class PlanSizes {
public:
  /// `spec` is valid and outlives this. Holds for no sizes yet.
  explicit PlanSizes(const PlanSpec &spec);

  /// Computes everything for `sizes`, unless it is there. Throws InputError where a size is out of
  /// range, or makes a dim or an offset so; then this holds for no sizes. True where anything was
  /// computed.
  bool update(const std::vector<int64_t> &sizes);
  /// Forgets for which sizes this holds.
  void forget() { known = false; }

  /// The dims of a call, in the order of the spec's.
  const int64_t *dims(size_t call) const { return allDims.data() + firstDim[call]; }
  /// Of each operand, in the order of `forEachOperand`, bytes from the start of the arena, input,
  /// parameter or output.
  const std::vector<int64_t> &offsets() const { return allOffsets; }
  /// Of each operand, in this order, the strides of its moves.
  const std::vector<int64_t> &strides() const { return allStrides; }
  /// The steps of a block: of a `while`, how many there are at most.
  int64_t steps(size_t block) const { return allSteps[block]; }
  /// The bytes of the swaps of all blocks, in order.
  const std::vector<int64_t> &swapped() const { return allSwapped; }
  /// Throws InputError where positions are out of range. `values` gives the address of what the
  /// spec's positions of that number are in.
  template <typename Values> void checkPositions(Values values) const {
    for (size_t i = 0; i < ranges.size(); ++i)
      if (ranges[i].rows > 0 && ranges[i].count > 0)
        checkRange(i, static_cast<const int32_t *>(values(spec.positions[i])));
  }
  /// How many elements an input or parameter with positions has.
  int64_t positionCount(Source source, int index) const;
  /// Bytes of an input, parameter or output; none where the spec doesn't say.
  std::optional<int64_t> bytesOf(Source source, int index) const;

private:
  void compute(const std::vector<int64_t> &sizes);
  void computeOperands(const std::vector<int64_t> &sizes);
  void computeBytes(const std::vector<int64_t> &sizes);
  void checkSizes(const std::vector<int64_t> &sizes) const;
  void checkRange(size_t number, const int32_t *values) const;

  /// How many elements each of the spec's positions has, and the range of theirs.
  struct Range {
    int64_t count, rows, limit;
  };
  const PlanSpec &spec;
  std::vector<size_t> firstDim; // of each call, in `allDims`
  std::vector<int64_t> allDims, allOffsets, allStrides, allSteps, allSwapped;
  std::vector<Range> ranges;
  std::vector<int64_t> allBytes[4]; // by source
  std::vector<int64_t> current;     // the sizes that this holds for
  bool known = false;
};

/// What a kernel's code was compiled for: its buffers, each a dense array, and what it relies on.
struct Signature {
  struct Buffer {
    int64_t elementBytes;
    std::vector<int64_t> shape; // negative: the next of the dims
  };
  /// A polynomial in the dims that is 0, or at least 0.
  struct Relation {
    bool atLeast;
    Expr value;
  };
  std::vector<Buffer> buffers;
  std::vector<Relation> relations;
  size_t dimCount = 0;

  /// Reads the words `NAME_signature` of compiled code: how many there are, this one included; the
  /// number of buffers, and for each the bytes of an element, its rank and its shape; the number of
  /// relations, and for each 1 or 0 (at least), the number of terms, and for each of these its
  /// coefficient, the number of factors and which dims they are; or, of what is computed of another
  /// size, -1 (floor division) or -2 (maximum), the number, and the terms of the size, as before.
  /// There is memory for `most` words. Throws ExecutionError where they make no sense.
  Signature(const int64_t *words, size_t most, const std::string &name);
};

/// A kernel of a plan in compiled code.
struct KernelFunctions {
  void (*compute)(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end,
                  void *scratch);
  int64_t (*units)(const int64_t *dims);
  int64_t (*scratch)(const int64_t *dims); // bytes
  /// Bytes of memory that all ranges of a call share, whose address comes after the buffers; null
  /// where the kernel has none.
  int64_t (*shared)(const int64_t *dims) = nullptr;
  /// What a kernel with shared memory does once all of its units are done; null without.
  std::unique_ptr<KernelFunctions> finish;
  /// None where the code comes from somewhere else: its calls are taken to be right.
  std::optional<Signature> signature;

  /// Throws ExecutionError where one that every kernel has is missing.
  KernelFunctions(const Symbols &code, const std::string &name);
};

/// Throws InputError where a call gives its kernel another number of buffers or dims than it takes.
void checkSignatures(const PlanSpec &spec, const std::vector<KernelFunctions> &kernels);

/// Where sizes come from: maxima are independent of each other, so that relations between them,
/// such as that a cache has room for what is new, may hold for no call that has all of them.
enum class Sizes { Maxima, Given };

/// Throws InputError where what a call's kernel reads or writes isn't inside of its buffers, or
/// dims of given sizes don't fit each other, for the sizes that `layout` holds for.
void checkExtents(const PlanSpec &spec, const std::vector<KernelFunctions> &kernels,
                  const PlanSizes &layout, Sizes sizes);

} // namespace rlx::runtime

#endif // RLX_RUNTIME_PLAN_SPEC_H
