// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One sequence of a decoder: its caches of keys and values, and what can be done with it.
#ifndef RLX_RUNTIME_LIBRARY_SESSION_H
#define RLX_RUNTIME_LIBRARY_SESSION_H

#include "bundle.h"
#include "runtime/plan.h"
#include "sampler.h"

#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlx::runtime::library {

/// What `rlx_mlir.Session` is, with the same bits: prompts are processed in chunks by `prefill`,
/// tokens that were chosen one by one by `decode`. Calls from several threads take turns.
class Session {
public:
  /// Throws InputError where the model is no decoder, ExecutionError where its modules aren't those
  /// of one, or memory is missing. The model outlives this.
  explicit Session(OpenedModel &model);

  OpenedModel &model;

  size_t count() const;
  size_t room() const;
  void feed(const int32_t *ids, size_t count);
  void feedText(std::string_view text, bool special);
  /// Adds a message; those that were added are processed before the next token is chosen.
  void say(std::string_view role, std::string_view content);
  /// The time whose date chat templates write from now on, in seconds since 1970.
  void date(int64_t seconds);
  void step(int32_t id);
  void truncate(size_t count);
  void sampleBy(const Sampler &given);
  /// Chooses the next token, which is processed once something else is asked for.
  rlx_token next();
  /// Logits of the next token: how many there are, and where.
  std::pair<const float *, size_t> logits();

private:
  /// A module, and what its runs read and write.
  struct Program {
    c::Function *function = nullptr;
    std::vector<int64_t> sizes;
    std::vector<rlx_input> inputs;
    std::vector<rlx_output> outputs;
    size_t tokensAt = 0;                  // among inputs
    ptrdiff_t seqAt = -1, outputsAt = -1; // among sizes
  };

  Program program(const std::string &name);
  void bindInput(Program &program, size_t index);
  void bindOutput(Program &program, size_t index);
  std::byte *cache(const std::string &name, size_t bytes);
  bool hasStates() const;
  void clearStates();
  void run(Program &program, const int32_t *ids, size_t count);
  void process(const int32_t *ids, size_t count, bool chosen);
  void checkIds(const int32_t *ids, size_t count) const;
  void checkRoom(size_t count) const;
  void settle();
  std::time_t now() const;
  size_t taken() const;
  size_t choices() const;

  /// Keys or values, a row for each position; or the state of a layer, which is of all tokens that
  /// were processed, and of none at first: zeros.
  struct Cache {
    std::string name;
    size_t bytes;
    std::unique_ptr<Memory> memory;
    bool isState() const;
  };

  mutable std::mutex turn;
  std::vector<Cache> caches;
  Program prefill, decode;
  std::vector<int32_t> tokens; // of one run
  int32_t pos = 0, row = 0;
  std::vector<float> values; // logits
  size_t processed = 0;      // tokens whose keys and values are in the caches
  bool hasLogits = false;
  int32_t chosen = -1; // and not processed yet; -1 where there is none
  std::vector<Message> messages;
  std::optional<std::time_t> time; // of the date; nothing for that of the clock
  Sampler sampler;
};

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_SESSION_H
