// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session.h"

#include "runtime/error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace rlx::runtime::library {
namespace {

[[noreturn]] void failDecoder(const std::string &what) {
  throw ExecutionError(what + ": the modules aren't those of a decoder");
}

} // namespace

//===----------------------------------------------------------------------===//
// Memory of runs
//===----------------------------------------------------------------------===//

Session::Session(OpenedModel &model) : model(model) {
  if (model.info.kind != "decoder")
    throw InputError("sessions are of language models, but '" + model.description->name + "' is " +
                     (model.info.kind.empty() ? "an artefact" : "an encoder"));
  tokens.resize(size_t(std::min(model.info.chunk, model.info.context)));
  prefill = program("prefill");
  decode = program("decode");
  if (choices() < 1)
    failDecoder("there are no logits");
  clearStates();
}

Session::Program Session::program(const std::string &name) {
  Program own;
  for (const auto &function : model.functions)
    if (function->spec.name == name)
      own.function = function.get();
  if (own.function == nullptr)
    failDecoder("there is no module '" + name + "'");
  const std::vector<PlanSpec::Symbol> &symbols = own.function->spec.symbols;
  for (size_t i = 0; i < symbols.size(); ++i) {
    own.sizes.push_back(symbols[i].name == "context" ? model.info.context : 1);
    if (symbols[i].name == "seq")
      own.seqAt = ptrdiff_t(i);
    if (symbols[i].name == "outputs")
      own.outputsAt = ptrdiff_t(i);
    const int64_t needed = ptrdiff_t(i) == own.seqAt ? int64_t(tokens.size()) : own.sizes[i];
    if (symbols[i].maximum < needed)
      failDecoder("'" + symbols[i].name + "' of '" + name + "' is " +
                  std::to_string(symbols[i].maximum) + " at most, but the manifest says " +
                  std::to_string(needed));
  }
  own.inputs.resize(own.function->spec.buffers[c::kInput].size());
  own.outputs.resize(own.function->spec.buffers[c::kOutput].size());
  for (size_t i = 0; i < own.inputs.size(); ++i)
    bindInput(own, i);
  for (size_t i = 0; i < own.outputs.size(); ++i)
    bindOutput(own, i);
  return own;
}

void Session::bindInput(Program &own, size_t index) {
  const c::Buffer &buffer = own.function->spec.buffers[c::kInput][index];
  const std::string what = own.function->spec.nameOf(c::kInput, index);
  const size_t bytes = buffer.bytes(own.sizes, what);
  rlx_input &input = own.inputs[index];
  const std::pair<const char *, const int32_t *> numbers[] = {
      {"tokens", tokens.data()}, {"pos", &pos}, {"rows", &row}};
  for (const auto &[name, data] : numbers)
    if (buffer.name == name) {
      if (buffer.dtype != "i32" || bytes != sizeof(int32_t)) // of one token
        failDecoder(what + " must be one number of i32");
      if (data == tokens.data())
        own.tokensAt = index;
      input = {data, bytes};
      return;
    }
  input = {cache(buffer.name, bytes), bytes};
}

bool Session::Cache::isState() const {
  return name.rfind("k_", 0) != 0 && name.rfind("v_", 0) != 0;
}

bool Session::hasStates() const {
  return std::any_of(caches.begin(), caches.end(), [](const Cache &own) { return own.isState(); });
}

void Session::clearStates() {
  for (const Cache &own : caches)
    if (own.isState())
      std::memset(own.memory->data(), 0, own.bytes);
}

std::byte *Session::cache(const std::string &name, size_t bytes) {
  for (const Cache &own : caches)
    if (own.name == name) {
      if (own.bytes != bytes)
        failDecoder("the cache '" + name + "' has " + std::to_string(own.bytes) + " bytes and " +
                    std::to_string(bytes));
      return own.memory->data();
    }
  caches.push_back({name, bytes, std::make_unique<Memory>(bytes, "a cache")});
  return caches.back().memory->data();
}

void Session::bindOutput(Program &own, size_t index) {
  const c::Buffer &buffer = own.function->spec.buffers[c::kOutput][index];
  const std::string what = own.function->spec.nameOf(c::kOutput, index);
  const size_t bytes = buffer.bytes(own.sizes, what);
  if (buffer.name == "logits") {
    if (buffer.dtype != "f32" || (!values.empty() && bytes != values.size() * sizeof(float)))
      failDecoder(what + " must be of f32, as many as in other modules");
    values.resize(bytes / sizeof(float));
    own.outputs[index] = {values.data(), bytes};
    return;
  }
  if (!buffer.tied || buffer.tied->kind != c::kInput)
    failDecoder(what + " is neither logits nor a cache");
  // A cache of this session, which is updated where it is.
  own.outputs[index] = {
      cache(own.function->spec.buffers[c::kInput][buffer.tied->index].name, bytes), bytes};
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

void Session::run(Program &own, const int32_t *ids, size_t count) {
  std::copy(ids, ids + count, tokens.begin());
  pos = int32_t(processed);
  row = int32_t(count) - 1; // logits of the last token alone
  if (own.seqAt >= 0)
    own.sizes[size_t(own.seqAt)] = int64_t(count);
  own.inputs[own.tokensAt].bytes = count * sizeof(int32_t);
  own.function->run(own.sizes.data(), own.sizes.size(), own.inputs.data(), own.inputs.size(),
                    own.outputs.data(), own.outputs.size());
  processed += count;
}

/// Processes tokens as a prompt's, or as ones that were chosen. Where that fails, the session is as
/// it was but for its logits; one with states, which don't go back, is empty.
void Session::process(const int32_t *ids, size_t count, bool asChosen) {
  const size_t before = processed, step = asChosen ? 1 : tokens.size();
  hasLogits = false;
  try {
    for (size_t i = 0; i < count; i += step)
      run(asChosen ? decode : prefill, ids + i, std::min(step, count - i));
    if (!std::all_of(values.begin(), values.end(), [](float own) { return std::isfinite(own); }))
      throw ExecutionError("logits of " + std::to_string(processed) + " tokens must be finite");
  } catch (...) {
    processed = hasStates() ? 0 : before;
    clearStates();
    throw;
  }
  hasLogits = true;
}

void Session::checkIds(const int32_t *ids, size_t count) const {
  if (count == 0)
    throw InputError("there must be one token at least, but there is none");
  if (ids == nullptr)
    throw InputError("the ids of tokens are at a null address");
  for (size_t i = 0; i < count; ++i)
    if (ids[i] < 0 || size_t(ids[i]) >= values.size())
      throw InputError("a token id must be in [0, " + std::to_string(values.size()) + "), but " +
                       std::to_string(ids[i]) + " is at position " + std::to_string(i));
}

void Session::checkRoom(size_t count) const {
  const size_t context = size_t(model.info.context);
  if (count > context - processed)
    throw InputError("a session of " + std::to_string(processed) + " tokens has room for " +
                     std::to_string(context - processed) + " more of " + std::to_string(context) +
                     " positions, but got " + std::to_string(count));
}

/// Processes what was chosen or said and isn't in the caches yet.
void Session::settle() {
  if (chosen >= 0) {
    checkRoom(1);
    process(&chosen, 1, /*asChosen=*/true);
    chosen = -1;
  }
  if (messages.empty())
    return;
  const std::vector<int32_t> ids = model.info.text->encode(messages, processed > 0, now());
  checkIds(ids.data(), ids.size());
  checkRoom(ids.size());
  process(ids.data(), ids.size(), /*asChosen=*/false);
  messages.clear();
}

/// The time whose date is written.
std::time_t Session::now() const { return time ? *time : std::time(nullptr); }

/// Tokens so far; one that was chosen behind the last position is none of them.
size_t Session::taken() const {
  return std::min(processed + (chosen >= 0 ? 1 : 0), size_t(model.info.context));
}

size_t Session::choices() const {
  const Tokenizer *tokenizer = model.info.text->findTokenizer();
  return tokenizer == nullptr ? values.size() : std::min(values.size(), tokenizer->size());
}

//===----------------------------------------------------------------------===//
// What callers use
//===----------------------------------------------------------------------===//

size_t Session::count() const {
  std::lock_guard<std::mutex> guard(turn);
  return taken();
}

size_t Session::room() const {
  std::lock_guard<std::mutex> guard(turn);
  return size_t(model.info.context) - taken();
}

void Session::feed(const int32_t *ids, size_t count) {
  std::lock_guard<std::mutex> guard(turn);
  checkIds(ids, count);
  settle();
  checkRoom(count);
  process(ids, count, /*asChosen=*/false);
}

void Session::feedText(std::string_view text, bool special) {
  std::lock_guard<std::mutex> guard(turn);
  settle();
  const bool behind = processed > 0;
  const std::vector<int32_t> ids = model.info.text->tokenizer().encode(
      text, behind ? std::optional<bool>(false) : std::nullopt, special, /*continued=*/behind);
  checkIds(ids.data(), ids.size());
  checkRoom(ids.size());
  process(ids.data(), ids.size(), /*asChosen=*/false);
}

void Session::say(std::string_view role, std::string_view content) {
  std::lock_guard<std::mutex> guard(turn);
  std::vector<Message> all = messages;
  all.push_back({std::string(role), std::string(content)});
  (void)model.info.text->encode(all, processed > 0 || chosen >= 0,
                                now()); // what is wrong is said now
  messages = std::move(all);
}

void Session::date(int64_t seconds) {
  std::lock_guard<std::mutex> guard(turn);
  if (model.info.text->hasChat())
    (void)model.info.text->chat().at(std::time_t(seconds)); // what is wrong is said now
  time = std::time_t(seconds);
}

void Session::step(int32_t id) {
  std::lock_guard<std::mutex> guard(turn);
  checkIds(&id, 1);
  settle();
  checkRoom(1);
  process(&id, 1, /*asChosen=*/true);
}

void Session::truncate(size_t count) {
  std::lock_guard<std::mutex> guard(turn);
  if (count > taken())
    throw InputError("a session of " + std::to_string(taken()) + " tokens can't be cut to " +
                     std::to_string(count));
  if (count != 0 && count < processed && hasStates())
    throw InputError("a session of " + std::to_string(processed) +
                     " tokens can be cut to none alone, as layers have states of all of them, but "
                     "got " +
                     std::to_string(count));
  messages.clear();
  if (count <= processed)
    chosen = -1;
  if (count < processed) {
    hasLogits = false; // those of another token
    processed = count;
    clearStates();
  }
}

void Session::sampleBy(const Sampler &given) {
  std::lock_guard<std::mutex> guard(turn);
  sampler = given;
}

rlx_token Session::next() {
  std::lock_guard<std::mutex> guard(turn);
  if (chosen >= 0 && processed == size_t(model.info.context))
    return {-1, RLX_CONTEXT_FULL, "", 0};
  settle();
  if (!hasLogits)
    throw InputError("a session has a next token once tokens were fed, but none came since its "
                     "start, or since it was truncated");
  const int32_t id = sampler.choose(values.data(), choices());
  rlx_token token = {id, RLX_TEXT_GOES_ON, "", 0};
  if (const Tokenizer *tokenizer = model.info.text->findTokenizer()) {
    if (tokenizer->endsText(id)) {
      token.end = RLX_TEXT_ENDS;
      return token;
    }
    const std::string_view bytes = tokenizer->bytes(id, /*special=*/false);
    token.text = bytes.data() == nullptr ? "" : bytes.data();
    token.bytes = bytes.size();
  }
  chosen = id;
  return token;
}

std::pair<const float *, size_t> Session::logits() {
  std::lock_guard<std::mutex> guard(turn);
  settle();
  if (!hasLogits)
    throw InputError("a session has logits once tokens were fed, but none came since its start, or "
                     "since it was truncated");
  return {values.data(), values.size()};
}

} // namespace rlx::runtime::library
