// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a library of compiled functions says of itself: `rlx_mlir.runtime.c_library` writes it.
#ifndef RLX_RUNTIME_C_DESCRIPTION_H
#define RLX_RUNTIME_C_DESCRIPTION_H

#include "runtime/plan_spec.h"
#include "runtime/value.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlx::runtime::c {

/// Inputs, parameters and outputs, as numbers of lists: `rlx_kind`.
constexpr size_t kInput = 0, kParameter = 1, kOutput = 2;
const char *kindName(size_t kind); // "input"

/// An input, parameter or output.
struct Buffer {
  /// What an output is tied to.
  struct Tied {
    size_t kind, index;
    bool updated; // it starts as that
  };
  /// Where the weights have a parameter.
  struct Place {
    uint64_t offset, bytes;
  };
  std::string name, dtype;
  size_t alignment, elementBytes;
  std::vector<std::string> formulas; // of each dimension
  std::vector<Expr> dims;
  std::optional<Tied> tied;
  std::optional<Place> place;

  /// The sizes of the dimensions; throws InputError, for a buffer called so, where one has more
  /// than 64 bits.
  std::vector<int64_t> shape(const std::vector<int64_t> &sizes, const std::string &where) const;
  /// Bytes of so many elements; throws InputError where these are more than 63 bits can count.
  size_t bytes(const std::vector<int64_t> &sizes, const std::string &where) const;
};

/// What must hold of the sizes of a call.
struct Condition {
  std::string leftText, rightText, where;
  Expr left, right;
  bool atLeast; // otherwise equal
};

struct FunctionSpec {
  std::string name;
  PlanSpec plan;
  /// Those of the plan, and then those that only inputs have which no code reads.
  std::vector<PlanSpec::Symbol> symbols;
  std::array<std::vector<Buffer>, 3> buffers; // by kind
  std::vector<Condition> conditions;

  /// "input 'x' of 'main'"
  std::string nameOf(size_t kind, size_t index) const;
};

struct Description {
  std::string name, machine;
  std::vector<std::string> features; // that the code needs, as LLVM names them
  bool tiles;                        // it uses the tile registers of AMX
  /// The file of weights, or what is embedded like it: its name, bytes and digest. None where every
  /// parameter comes from the caller.
  struct Weights {
    bool embedded;
    std::string file;
    uint64_t bytes;
    std::string digest;
  };
  std::optional<Weights> weights;
  std::vector<FunctionSpec> functions;
};

/// Reads a function from (name, plan, symbols, inputs, params, outputs, conditions); throws
/// InputError where that contradicts itself.
FunctionSpec readFunction(const Value &value);

/// Throws InputError where the bytes are no description, of another version, or contradict
/// themselves.
Description readDescription(std::string_view bytes);

} // namespace rlx::runtime::c

#endif // RLX_RUNTIME_C_DESCRIPTION_H
