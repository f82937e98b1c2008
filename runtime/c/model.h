// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A loaded library: what is behind the handles of `include/rlx.h`.
#ifndef RLX_RUNTIME_C_MODEL_H
#define RLX_RUNTIME_C_MODEL_H

#include "description.h"
#include "include/rlx.h"
#include "runtime/plan.h"
#include "weights.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace rlx::runtime::c {

/// A function of a library, and memory to run it in.
class Function {
public:
  /// Throws InputError where the description contradicts itself, ExecutionError where code, weights
  /// or memory are missing. `spec` and `weights`, which may be null, outlive this.
  Function(const FunctionSpec &spec, std::shared_ptr<Symbols> code, const Weights *weights,
           int threads);

  const FunctionSpec &spec;

  rlx_symbol symbol(size_t index) const;
  rlx_buffer buffer(size_t kind, size_t index) const;
  /// Throws InputError where there is no such buffer.
  const Buffer &checkedBuffer(size_t kind, size_t index) const;
  /// The sizes of a run; throws InputError where their number is wrong, or one out of range.
  std::vector<int64_t> checkedSizes(const int64_t *sizes, size_t count) const;

  void setParameter(size_t index, const void *data, size_t bytes);
  void run(const int64_t *sizes, size_t sizeCount, const rlx_input *inputs, size_t inputCount,
           const rlx_output *outputs, size_t outputCount);

private:
  /// What is given out of a buffer, and needed of it at each run.
  struct Shown {
    std::string name; // with the function's, for messages
    std::vector<int64_t> shape, maximum;
    std::vector<const char *> formulas;
    std::optional<size_t> bytes; // where no symbol decides about them
  };
  /// A parameter as runs read it.
  struct Parameter {
    const std::byte *data;
    size_t bytes;
    bool own; // the caller's
  };
  /// Everything that a run reads and writes: addresses in the order of the plan's names.
  struct Run {
    std::vector<int64_t> sizes;
    std::vector<Parameter> parameters;
    std::vector<uintptr_t> inputs, params, outputs;
    std::vector<size_t> inputBytes, outputBytes;
  };

  Shown describe(const Buffer &buffer, std::string name) const;
  size_t bytesOf(size_t kind, size_t index, const std::vector<int64_t> &sizes) const;
  void checkConditions(const std::vector<int64_t> &sizes) const;
  void takeParameters(Run &run) const;
  uintptr_t checkedMemory(size_t kind, size_t index, const void *data, size_t given,
                          size_t expected) const;
  void checkApart(const Run &run) const;
  /// Whether an output is at the address of what it is tied to.
  bool isInPlace(const Run &run, size_t output) const;
  void startOutputs(const Run &run) const;

  std::array<std::vector<Shown>, 3> shown; // by kind
  mutable std::mutex turn;                 // around the parameters
  std::vector<Parameter> parameters;
  std::unique_ptr<Plan> plan;
};

/// A library as a handle has it.
class Model {
public:
  /// `weights` is null where every parameter comes from the caller; `codeOf` gives the symbols of
  /// a function by its number. Throws what `Function` throws, and ExecutionError where the machine
  /// can't run the code.
  template <typename CodeOf>
  Model(std::shared_ptr<const Description> given, std::unique_ptr<Weights> givenWeights,
        CodeOf codeOf, int threads)
      : description(std::move(given)), weights(std::move(givenWeights)),
        threads(checkedThreads(threads)) {
    checkMachine(*description);
    for (size_t i = 0; i < description->functions.size(); ++i)
      functions.push_back(std::make_unique<Function>(description->functions[i], codeOf(i),
                                                     weights.get(), this->threads));
  }

  virtual ~Model() = default;

  /// How many threads that means; throws InputError where it is no number of them.
  static int checkedThreads(int threads);

  /// Throws InputError where there is no such function.
  Function &function(size_t number) const;

  const std::shared_ptr<const Description> description;
  const std::unique_ptr<Weights> weights;
  const int threads;
  std::vector<std::unique_ptr<Function>> functions;

private:
  static void checkMachine(const Description &description);
};

} // namespace rlx::runtime::c

#endif // RLX_RUNTIME_C_MODEL_H
