// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions of `include/rlx/runtime.h` that rlx.h doesn't have.
#include "include/rlx/runtime.h"

#include "bundle.h"
#include "runtime/c/api.h"
#include "session.h"

#include <algorithm>
#include <atomic>
#include <memory>

using namespace rlx::runtime;
using namespace rlx::runtime::c;
using rlx::runtime::library::OpenedModel;
using rlx::runtime::library::Sampler;
using rlx::runtime::library::Session;

struct rlx_session {
  std::atomic<uint64_t> word;
  rlx_model *model;
  Session session;
};

namespace {

/// What sessions begin with, and none that was freed.
constexpr uint64_t kWord = 0x6e6f697373786c72;

/// Every model of this library is one of these.
OpenedModel &opened(const rlx_model *model) { return static_cast<OpenedModel &>(modelOf(model)); }

bool isSession(const rlx_session *session) {
  return session != nullptr && reinterpret_cast<uintptr_t>(session) % alignof(rlx_session) == 0 &&
         session->word.load(std::memory_order_relaxed) == kWord;
}

/// Calls something with a session; errors are its model's.
template <typename Call> rlx_status guardedSession(rlx_session *session, Call call) noexcept {
  const rlx_model *model = isSession(session) ? session->model : nullptr;
  return guarded(model, [&] {
    if (!isSession(session))
      throw InputError(session == nullptr ? "the session is null" : "the session was freed");
    call(session->session);
  });
}

const library::Tokenizer &tokenizerOf(const rlx_model *model) {
  const OpenedModel &own = opened(model);
  if (!own.info.text)
    throw InputError("'" + own.description->name + "' is no language model");
  return own.info.text->tokenizer();
}

std::string_view textOf(const char *text, size_t bytes) {
  return bytes == 0 ? std::string_view() : std::string_view(&target(text, "a text"), bytes);
}

void checkFlags(int32_t flags, int32_t known) {
  if ((flags & ~known) != 0)
    throw InputError("flags must be of " + std::to_string(known) + ", but are " +
                     std::to_string(flags));
}

} // namespace

uint32_t rlx_runtime_version(void) { return RLX_RUNTIME_VERSION; }

rlx_status rlx_open(const char *path, const rlx_open_options *options, rlx_model **model) {
  if (model != nullptr)
    *model = nullptr;
  return guarded(nullptr, [&] {
    target(model, "the handle");
    const rlx_open_options given =
        options != nullptr ? *options : rlx_open_options{RLX_RUNTIME_VERSION, 0, nullptr};
    checkVersion(given.version, RLX_RUNTIME_VERSION);
    *model = newHandle(library::openModel(
        &target(path, "a path"), given.level == nullptr ? "" : given.level, given.threads));
  });
}

rlx_status rlx_verify(const char *path) {
  return guarded(nullptr, [&] { library::verifyFile(&target(path, "a path")); });
}

const char *rlx_level(const rlx_model *model) {
  return isHandle(model) ? opened(model).info.level.c_str() : nullptr;
}

rlx_status rlx_tokenize(const rlx_model *model, const char *text, size_t bytes, int32_t flags,
                        int32_t *ids, size_t capacity, size_t *count) {
  return guarded(model, [&] {
    checkFlags(flags, RLX_SPECIAL | RLX_NO_BEGIN | RLX_BEHIND);
    target(count, "the number of ids");
    const bool behind = (flags & RLX_BEHIND) != 0;
    const bool bare = behind || (flags & RLX_NO_BEGIN) != 0;
    const std::vector<int32_t> found = tokenizerOf(model).encode(
        textOf(text, bytes), bare ? std::optional<bool>(false) : std::nullopt,
        (flags & RLX_SPECIAL) != 0, behind);
    *count = found.size();
    if (found.size() <= capacity && !found.empty())
      std::copy(found.begin(), found.end(), &target(ids, "ids"));
  });
}

rlx_status rlx_token_bytes(const rlx_model *model, int32_t id, int32_t flags, const char **text,
                           size_t *bytes) {
  return guarded(model, [&] {
    checkFlags(flags, RLX_SPECIAL);
    const std::string_view found = tokenizerOf(model).bytes(id, (flags & RLX_SPECIAL) != 0);
    target(text, "a text") = found.empty() ? "" : found.data();
    target(bytes, "a number of bytes") = found.size();
  });
}

rlx_status rlx_session_new(rlx_model *model, rlx_session **session) {
  if (session != nullptr)
    *session = nullptr;
  return guarded(model, [&] {
    target(session, "the session");
    *session = new rlx_session{{kWord}, model, Session(opened(model))};
  });
}

void rlx_session_free(rlx_session *session) {
  if (!isSession(session))
    return;
  session->word.store(0, std::memory_order_relaxed);
  delete session;
}

size_t rlx_session_count(const rlx_session *session) {
  return isSession(session) ? session->session.count() : 0;
}

size_t rlx_session_room(const rlx_session *session) {
  return isSession(session) ? session->session.room() : 0;
}

rlx_status rlx_session_truncate(rlx_session *session, size_t count) {
  return guardedSession(session, [&](Session &own) { own.truncate(count); });
}

rlx_status rlx_session_feed(rlx_session *session, const int32_t *ids, size_t count) {
  return guardedSession(session, [&](Session &own) { own.feed(ids, count); });
}

rlx_status rlx_session_feed_text(rlx_session *session, const char *text, size_t bytes,
                                 int32_t flags) {
  return guardedSession(session, [&](Session &own) {
    checkFlags(flags, RLX_SPECIAL);
    own.feedText(textOf(text, bytes), flags != 0);
  });
}

rlx_status rlx_session_say(rlx_session *session, const char *role, const char *content,
                           size_t bytes) {
  return guardedSession(
      session, [&](Session &own) { own.say(&target(role, "a role"), textOf(content, bytes)); });
}

rlx_status rlx_session_date(rlx_session *session, int64_t seconds) {
  return guardedSession(session, [&](Session &own) { own.date(seconds); });
}

rlx_status rlx_session_step(rlx_session *session, int32_t id) {
  return guardedSession(session, [&](Session &own) { own.step(id); });
}

rlx_status rlx_session_logits(rlx_session *session, const float **logits, size_t *count) {
  return guardedSession(session, [&](Session &own) {
    target(logits, "logits");
    target(count, "the number of logits");
    std::tie(*logits, *count) = own.logits();
  });
}

rlx_status rlx_session_sampling(rlx_session *session, const rlx_sampling *sampling) {
  return guardedSession(
      session, [&](Session &own) { own.sampleBy(Sampler(target(sampling, "the sampling"))); });
}

rlx_status rlx_session_next(rlx_session *session, rlx_token *token) {
  return guardedSession(session, [&](Session &own) { target(token, "the token") = own.next(); });
}
