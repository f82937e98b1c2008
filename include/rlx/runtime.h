/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Bundles and artefacts without Python: the interface of librlx_runtime.so.
 *
 * A file that is opened is a handle like that of a library which `rlx emit --stage shared` writes:
 * `rlx_run`, `rlx_describe_buffer` and the other functions of rlx.h, which this header includes
 * with the prefix `rlx`, are there for it. A bundle's functions are its modules, with parameters;
 * an artefact is one function, whose parameters `rlx_set_parameter` gives as its code reads them
 * (`Executable.plan_params` in Python). Of language models there are tokenizers and sessions
 * beside.
 *
 * Ownership:
 *
 * A handle is given back by `rlx_free`, once no session of it is left; a session by
 * `rlx_session_free`. Texts that are given out belong to the handle, logits to the session.
 *
 * Threads:
 *
 * All functions may be called from any thread. Calls on one session take turns, and so do runs of
 * one function of one handle, which all sessions of the handle use; other handles go on at the same
 * time. The library has one pool of worker threads.
 *
 * Errors:
 *
 * Functions that can fail return a status; `rlx_error(model)` has what the last call of this thread
 * that failed says, of a handle, of its sessions, or of none (NULL) where a file couldn't be
 * opened. Nothing is thrown, and no file ends the process while it is opened: it is checked first.
 * What a file's code does when it runs is its author's: open only what you compiled, or somebody
 * whom you trust. A file must not be changed as long as it is open.
 *
 * Texts:
 *
 * Bytes of UTF-8 and how many there are; no zero has to follow them.
 */
#ifndef RLX_RUNTIME_H
#define RLX_RUNTIME_H

/* Of what is declared here; a library refuses another one. It changes whenever a program that was
 * compiled with an earlier header couldn't use the library. */
#define RLX_RUNTIME_VERSION 1

#define RLX_PREFIX rlx
#define RLX_WITHOUT_LOAD /* rlx_open is in its place */
#include "../rlx.h"
#undef RLX_WITHOUT_LOAD

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rlx_open_options {
  uint32_t version;  /* RLX_RUNTIME_VERSION */
  int32_t threads;   /* of one run, from 1 to 1024; 0: as many as the process may use, see
                        RLX_NUM_THREADS */
  const char *level; /* of a bundle: the CPU whose code is taken, such as "x86-64-v3"; NULL: the
                        best one that this machine can run */
} rlx_open_options;

/* The library's RLX_RUNTIME_VERSION. */
uint32_t rlx_runtime_version(void);

/* Opens a bundle or an artefact; `options` may be NULL for what its zeros mean. `*model` is NULL
 * where that fails, and `rlx_error(NULL)` says why. Header, table, manifest and code are compared
 * with their digests before any of them is used; weights are mapped, and aren't. */
rlx_status rlx_open(const char *path, const rlx_open_options *options, rlx_model **model);

/* Reads all of a file, weights too, and compares digests; runs nothing. */
rlx_status rlx_verify(const char *path);

/* The CPU whose code of a bundle is used; "" of an artefact, NULL where there is no such handle. */
const char *rlx_level(const rlx_model *model);

/* What a text becomes: flags. */
enum {
  RLX_SPECIAL = 1, /* texts of control tokens become these: for formatted prompts, not for users' */
  RLX_NO_BEGIN = 2, /* without the token that begins texts, where there is one */
  RLX_BEHIND = 4    /* as what goes on behind another text: without what begins texts */
};

/* Token ids of a text. `*count` is how many there are; `ids` gets them where it has room for as
 * many
 * (`capacity`), and may be NULL for a capacity of 0. */
rlx_status rlx_tokenize(const rlx_model *model, const char *text, size_t bytes, int32_t flags,
                        int32_t *ids, size_t capacity, size_t *count);

/* The bytes of a token, which are UTF-8 once those of several are put together; none of control
 * tokens, but with RLX_SPECIAL. */
rlx_status rlx_token_bytes(const rlx_model *model, int32_t id, int32_t flags, const char **text,
                           size_t *bytes);

/* One sequence of a language model: its tokens, and their keys and values. */
typedef struct rlx_session rlx_session;

/* A session without tokens, whose choices are the likeliest tokens. */
rlx_status rlx_session_new(rlx_model *model, rlx_session **session);

/* Gives it back; no call may be running. NULL is allowed. */
void rlx_session_free(rlx_session *session);

/* Tokens so far, and positions that are left for more; 0 for NULL. */
size_t rlx_session_count(const rlx_session *session);
size_t rlx_session_room(const rlx_session *session);

/* Forgets all tokens but the first `count`, and messages that weren't processed; 0 is where a
 * session starts. Of models whose layers have states of all tokens, 0 alone takes processed tokens
 * back, and a call that fails while tokens are processed leaves a session of such a model empty. */
rlx_status rlx_session_truncate(rlx_session *session, size_t count);

/* Processes tokens as those of a prompt, in chunks: ids, or those of a text, of which RLX_SPECIAL
 * is the only flag. The first text of a session begins as texts do. */
rlx_status rlx_session_feed(rlx_session *session, const int32_t *ids, size_t count);
rlx_status rlx_session_feed_text(rlx_session *session, const char *text, size_t bytes,
                                 int32_t flags);

/* Adds a message of a chat; "user", "system" and "assistant" are roles. Messages that were added
 * are processed together before the next token is chosen, put into the form of the model's
 * template; where the template has none that the bundle could take, the error says so, and
 * rlx_session_feed_text takes a prompt that is formatted. */
rlx_status rlx_session_say(rlx_session *session, const char *role, const char *content,
                           size_t bytes);

/* The time whose date is written where the model's template writes one, in seconds since 1970, in
 * the time zone of the process; until it is given, that of the clock when messages are processed.
 */
rlx_status rlx_session_date(rlx_session *session, int64_t seconds);

/* Processes one token as one that was chosen. */
rlx_status rlx_session_step(rlx_session *session, int32_t id);

/* Logits of the next token, one for each id: they stay until the session is used again. */
rlx_status rlx_session_logits(rlx_session *session, const float **logits, size_t *count);

/* How tokens are chosen: see `rlx_mlir.models.sampling.Sampler`, whose choices these are with the
 * same seed, unless a number lies within rounding of a bound. A temperature of 0 takes the
 * likeliest. */
typedef struct rlx_sampling {
  double temperature; /* at least 0 */
  int32_t top_k;      /* so many of the likeliest; 0: all */
  double top_p;       /* in (0, 1]: the likeliest whose probabilities reach it */
  double min_p; /* in [0, 1]: those that are at least so many times as likely as the likeliest */
  uint64_t seed;
} rlx_sampling;

/* Chooses like that from now on, by random numbers from the seed on. */
rlx_status rlx_session_sampling(rlx_session *session, const rlx_sampling *sampling);

typedef enum rlx_end {
  RLX_TEXT_GOES_ON = 0,
  RLX_TEXT_ENDS = 1,   /* by the token `id`, which isn't part of the session */
  RLX_CONTEXT_FULL = 2 /* there is no position for another token; `id` is -1 */
} rlx_end;

/* A token that was chosen. */
typedef struct rlx_token {
  int32_t id;
  rlx_end end;
  const char *text; /* as of rlx_token_bytes, without flags; "" of models without a tokenizer */
  size_t bytes;
} rlx_token;

/* Chooses the next token, which is part of the session from then on, unless it ends the text, or no
 * position is left for it. */
rlx_status rlx_session_next(rlx_session *session, rlx_token *token);

#ifdef __cplusplus
}
#endif

#endif /* RLX_RUNTIME_H */
