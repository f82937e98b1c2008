/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * A conversation with a language model, without Python: lines in, answers out.
 *
 *   rlx bundle smollm2 -o build/smollm2.rlx
 *   cc -std=c99 examples/c/chat.c $(python -m rlx_mlir.run library --cflags --libs) -o build/chat
 *   build/chat build/smollm2.rlx
 */
#include <rlx/runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rlx_model *model = NULL;

static void check(rlx_status status) {
  if (status == RLX_OK)
    return;
  fprintf(stderr, "chat: %s\n", rlx_error(model));
  exit(1);
}

/* Prints an answer as it is chosen; gives 0 where the context is full. */
static int answer(rlx_session *session) {
  rlx_token token;

  for (;;) {
    check(rlx_session_next(session, &token));
    if (token.end != RLX_TEXT_GOES_ON)
      break;
    fwrite(token.text, 1, token.bytes, stdout);
    fflush(stdout);
  }
  puts("");
  return token.end == RLX_TEXT_ENDS;
}

int main(int argc, char **argv) {
  rlx_session *session;
  char line[4096];

  if (argc < 2) {
    fputs("usage: chat BUNDLE [SEED]\n", stderr);
    return 2;
  }
  check(rlx_open(argv[1], NULL, &model));
  check(rlx_session_new(model, &session));
  if (argc > 2) { /* the likeliest tokens otherwise */
    const rlx_sampling sampling = {0.8, 40, 0.95, 0, strtoull(argv[2], NULL, 10)};
    check(rlx_session_sampling(session, &sampling));
  }
  while (fgets(line, sizeof(line), stdin) != NULL) {
    check(rlx_session_say(session, "user", line, strcspn(line, "\n")));
    if (!answer(session))
      break;
  }
  rlx_session_free(session);
  rlx_free(model);
  return 0;
}
