/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Greedy generation by a decoder without Python: token ids in, token ids out, or their text.
 *
 *   rlx emit smollm2 --stage shared --name model -o build/libmodel.so
 *   cc -std=c99 -Ibuild examples/c/decoder.c build/libmodel.so -Wl,-rpath,'$ORIGIN' -o
 * build/decoder build/decoder 20 504 3575 282 4649 314      20 tokens behind those of "The capital
 * of France is" build/decoder build/model.vocabulary 20 504 3575 282 4649 314             their
 * text, to its end
 *
 * Text becomes ids elsewhere: by `tokenize` of the Python package, or a library of tokenizers.
 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512 }; /* inputs and outputs of a function */

static void fail(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void check(rlx_status status, const rlx_model *model) {
  if (status != RLX_OK)
    fail("decoder", model_error(model));
}

/* What tokens are: `offsets` has where each one's bytes begin, and where the last one's end. */
struct vocabulary {
  uint32_t count, ends;
  const uint32_t *stops, *offsets;
  const char *bytes;
  char *file;
};

/* Reads the file beside the library, which docs/c-api.md describes; for machines whose lowest byte
 * comes first. */
static struct vocabulary read_vocabulary(const char *path) {
  struct vocabulary found = {0, 0, NULL, NULL, NULL, NULL};
  FILE *file = fopen(path, "rb");
  const uint32_t *numbers;
  uint64_t whole;
  long size = 0;

  if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 24)
    fail(path, "it can't be read, or is no vocabulary");
  rewind(file);
  found.file = (char *)malloc((size_t)size);
  if (found.file == NULL || fread(found.file, 1, (size_t)size, file) != (size_t)size)
    fail(path, "it can't be read");
  fclose(file);
  numbers = (const uint32_t *)(const void *)(found.file + 8);
  if (memcmp(found.file, "RLXVOCB", 8) != 0 || numbers[0] != 1)
    fail(path, "it is no vocabulary of version 1");
  found.count = numbers[1];
  found.ends = numbers[2];
  whole = 8 + 4 * ((uint64_t)3 + found.ends + found.count + 1);
  if (whole > (uint64_t)size)
    fail(path, "it is cut off");
  found.stops = numbers + 3;
  found.offsets = found.stops + found.ends;
  found.bytes = (const char *)(found.offsets + found.count + 1);
  for (numbers = found.offsets; numbers < found.offsets + found.count; ++numbers)
    if (numbers[0] > numbers[1] || whole + numbers[1] > (uint64_t)size)
      fail(path, "it is damaged");
  return found;
}

/* Prints a token; whether the text goes on behind it. */
static int show(const struct vocabulary *vocabulary, int32_t token) {
  uint32_t i, own = (uint32_t)token;

  if (vocabulary->file == NULL)
    return printf("%d\n", token) > 0;
  for (i = 0; i < vocabulary->ends; ++i)
    if (vocabulary->stops[i] == own)
      return 0;
  if (own < vocabulary->count)
    fwrite(vocabulary->bytes + vocabulary->offsets[own], 1,
           vocabulary->offsets[own + 1] - vocabulary->offsets[own], stdout);
  return fflush(stdout) == 0;
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

  if (symbols > 8 || input_count > MOST || output_count > MOST)
    fail("decoder", "the model has more layers than this program takes");
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
      if (memory->caches[number] == NULL)
        fail("decoder", "there isn't enough memory for caches");
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
  static struct memory memory = {tokens, &pos, &rows, {NULL}, logits};
  const rlx_options options = {RLX_ABI_VERSION, 0, NULL};
  struct vocabulary vocabulary = {0, 0, NULL, NULL, NULL, NULL};
  rlx_model *model;
  int i, count, left;

  if (argc > 1 && strspn(argv[1], "0123456789") < strlen(argv[1])) {
    vocabulary = read_vocabulary(argv[1]);
    ++argv;
    --argc;
  }
  count = argc - 2;
  if (count < 1 || count > MODEL_PREFILL_INPUT_TOKENS_MOST) {
    fprintf(stderr, "usage: decoder [VOCABULARY] NUMBER ID...: from 1 to %d ids\n",
            MODEL_PREFILL_INPUT_TOKENS_MOST);
    return 2;
  }
  for (i = 0; i < count; ++i)
    tokens[i] = (int32_t)atoi(argv[2 + i]);
  check(model_load(&options, &model), NULL);
  left = atoi(argv[1]);
  for (i = 0; i < left; ++i) {
    tokens[0] = i == 0 ? next_token(model, MODEL_PREFILL, count, &memory)
                       : next_token(model, MODEL_DECODE, 1, &memory);
    if (!show(&vocabulary, tokens[0]))
      break;
  }
  model_free(model);
  for (i = 0; i < MOST; ++i)
    free(memory.caches[i]);
  free(vocabulary.file);
  return 0;
}
