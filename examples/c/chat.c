/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Greedy generation by a decoder without Python: token ids in, token ids out.
 *
 *   rlx emit smollm2 --stage shared --name model -o build/libmodel.so
 *   cc -std=c99 -Ibuild examples/c/chat.c build/libmodel.so -Wl,-rpath,'$ORIGIN' -o build/chat
 *   build/chat 20 504 3575 282 4649 314      20 tokens behind those of "The capital of France is"
 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256 }; /* inputs and outputs of a function */

static void check(rlx_status status, const rlx_model *model) {
  if (status != RLX_OK) {
    fprintf(stderr, "%s\n", model_error(model));
    exit(1);
  }
}

/* What the inputs and outputs of both functions are, by name: caches are updated where they are. */
struct memory {
  int32_t *tokens, *pos, *rows;
  void *caches[MOST];
  float *logits;
};

/* Processes `count` tokens; gives the likeliest one behind them. */
static int32_t next_token(rlx_model *model, size_t function, int64_t count, struct memory *memory) {
  rlx_input inputs[MOST];
  rlx_output outputs[MOST];
  rlx_buffer buffer;
  int64_t sizes[8];
  size_t i, best = 0, symbols = model_symbol_count(model, function);
  size_t input_count = model_buffer_count(model, function, RLX_INPUT);
  size_t output_count = model_buffer_count(model, function, RLX_OUTPUT);
  size_t vocabulary = 0;

  for (i = 0; i < symbols; ++i) {
    rlx_symbol symbol;
    check(model_describe_symbol(model, function, i, &symbol), model);
    sizes[i] = strcmp(symbol.name, "seq") == 0       ? count
               : strcmp(symbol.name, "outputs") == 0 ? 1
                                                     : symbol.maximum; /* context */
  }
  for (i = 0; i < input_count; ++i) {
    check(model_describe_buffer(model, function, RLX_INPUT, i, &buffer), model);
    check(model_measure(model, function, RLX_INPUT, i, sizes, symbols, NULL, &inputs[i].bytes),
          model);
    if (strcmp(buffer.name, "tokens") == 0)
      inputs[i].data = memory->tokens;
    else if (strcmp(buffer.name, "pos") == 0)
      inputs[i].data = memory->pos;
    else if (strcmp(buffer.name, "rows") == 0)
      inputs[i].data = memory->rows;
    else { /* a cache; both functions have them in the same order */
      size_t number = i - (function == MODEL_PREFILL ? 3 : 2);
      if (memory->caches[number] == NULL)
        memory->caches[number] = calloc(1, inputs[i].bytes);
      inputs[i].data = memory->caches[number];
    }
  }
  for (i = 0; i < output_count; ++i) {
    check(model_describe_buffer(model, function, RLX_OUTPUT, i, &buffer), model);
    check(model_measure(model, function, RLX_OUTPUT, i, sizes, symbols, NULL, &outputs[i].bytes),
          model);
    outputs[i].data = buffer.tied ? (void *)inputs[buffer.tied_index].data : memory->logits;
    if (!buffer.tied)
      vocabulary = outputs[i].bytes / sizeof(float);
  }
  *memory->rows = (int32_t)count - 1; /* of the last token alone */
  check(model_run(model, function, sizes, symbols, inputs, input_count, outputs, output_count),
        model);
  *memory->pos += (int32_t)count;
  for (i = 1; i < vocabulary; ++i)
    if (memory->logits[i] > memory->logits[best])
      best = i;
  return (int32_t)best;
}

int main(int argc, char **argv) {
  static int32_t tokens[MODEL_PREFILL_INPUT_TOKENS_MOST], pos, rows;
  static float logits[MODEL_DECODE_OUTPUT_LOGITS_MOST];
  static struct memory memory;
  const rlx_options options = {RLX_ABI_VERSION, 0, NULL};
  rlx_model *model;
  int i, count = argc - 2;

  if (count < 1 || count > MODEL_PREFILL_INPUT_TOKENS_MOST) {
    fprintf(stderr, "usage: chat NUMBER ID...: from 1 to %d ids\n",
            MODEL_PREFILL_INPUT_TOKENS_MOST);
    return 2;
  }
  memory.tokens = tokens;
  memory.pos = &pos;
  memory.rows = &rows;
  memory.logits = logits;
  for (i = 0; i < count; ++i)
    tokens[i] = (int32_t)atoi(argv[2 + i]);
  check(model_load(&options, &model), NULL);
  tokens[0] = next_token(model, MODEL_PREFILL, count, &memory);
  for (i = atoi(argv[1]); i > 0; --i) {
    printf("%d\n", tokens[0]);
    if (i > 1)
      tokens[0] = next_token(model, MODEL_DECODE, 1, &memory);
  }
  model_free(model);
  for (i = 0; i < MOST; ++i)
    free(memory.caches[i]);
  return 0;
}
